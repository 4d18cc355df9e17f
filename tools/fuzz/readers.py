"""Coverage-guided fuzzing of the readers: `python tools/fuzz/readers.py SEEDS -max_total_time=N`.

Needs `pip install atheris`; run by hand, never in CI. Each input is a file, or a folder of files,
that is opened, inspected and decoded whole. Only an AuditError may come out; libFuzzer's own limits
watch time and memory (-timeout, -rss_limit_mb). `--make-seeds FOLDER` writes the inputs to start
from (see `seeds`), and `FOLDER/../readers.dict` with the words of both formats: -dict=readers.dict.

The first byte of an input says which files it holds (`KINDS`); the parts of an input are divided
by a marker.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parent))  # run by path, beside `seeds`
import seeds

with atheris.instrument_imports(include=["audit"]):
    from audit.errors import AuditError
    from audit.files import open_container
    from audit.heads import HeadOptions
    from audit.inspection import inspect_head

_SHARED_MEMORY = Path("/dev/shm")


def lay_out(data: bytes, folder: Path) -> Path:
    """Write one input's files; the path that is then opened."""
    names = seeds.KINDS[data[0] % len(seeds.KINDS)] if data else seeds.KINDS[0]
    parts = data[1:].split(seeds.DIVIDER, len(names) - 1)
    for name, part in zip(names, parts, strict=False):
        (folder / name).write_bytes(part)
    return folder / names[0] if len(names) == 1 else folder


def use_everything(path: Path) -> None:
    """Open, inspect and decode. Whatever is wrong with the files must be told by an AuditError."""
    with contextlib.suppress(AuditError):
        container = open_container(path)
        for name in container.entries:
            for read in (container.bytes_of, container.rows_of, container.values):
                with contextlib.suppress(AuditError):
                    read(name)
    with contextlib.suppress(AuditError):
        inspect_head(path, HeadOptions()).model_dump_json()


def one_input(data: bytes) -> None:
    """What libFuzzer calls."""
    place = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(dir=place, prefix="audit-fuzz-"))
    try:
        use_everything(lay_out(data, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Entry point."""
    if "--make-seeds" in sys.argv:
        seeds.write_all(Path(sys.argv[-1]))
        return
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
