"""Summarise hourly sensor readings from a CSV file.

Rows with a missing or non-numeric value are counted but left out of the
averages.
"""
import argparse
import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path


def read_rows(path):
    with path.open(newline="", encoding="utf-8") as handle:
        yield from csv.DictReader(handle)


def summarise(rows):
    values, bad = defaultdict(list), defaultdict(int)
    for row in rows:
        name = row["sensor"]
        try:
            values[name].append(float(row["value"]))
        except (TypeError, ValueError):
            bad[name] += 1
    for name in sorted(values.keys() | bad.keys()):
        series = values[name]
        yield {
            "sensor": name,
            "count": len(series),
            "skipped": bad[name],
            "mean": round(statistics.fmean(series), 3) if series else "",
            "stdev": round(statistics.stdev(series), 3) if len(series) > 1 else "",
        }


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv_file", type=Path)
    parser.add_argument("--delimiter", default="\t")
    args = parser.parse_args(argv)
    if not args.csv_file.is_file():
        parser.error(f"{args.csv_file} is not a file")
    fields = ["sensor", "count", "skipped", "mean", "stdev"]
    out = csv.DictWriter(sys.stdout, fields, delimiter=args.delimiter)
    out.writeheader()
    out.writerows(summarise(read_rows(args.csv_file)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
