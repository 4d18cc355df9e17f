"""Find files with equal contents below a set of folders."""
import hashlib
import os
import sys
from itertools import groupby


def walk(roots):
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                full = os.path.join(folder, name)
                if os.path.isfile(full) and not os.path.islink(full):
                    yield full


def digest(path, chunk=1 << 20):
    h = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as f:
        while block := f.read(chunk):
            h.update(block)
    return h.hexdigest()


def duplicates(paths):
    # Files of a unique size cannot have a twin, so only the rest are hashed.
    by_size = sorted(paths, key=os.path.getsize)
    for size, same_size in groupby(by_size, key=os.path.getsize):
        group = list(same_size)
        if size == 0 or len(group) < 2:
            continue
        hashed = sorted((digest(p), p) for p in group)
        for _, twins in groupby(hashed, key=lambda pair: pair[0]):
            names = [p for _, p in twins]
            if len(names) > 1:
                yield size, names


if __name__ == "__main__":
    for size, names in duplicates(walk(sys.argv[1:] or ["."])):
        print(f"{size:>12,} bytes", *names, sep="\n    ")
