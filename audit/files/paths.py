"""One path: is it a regular file, and which format do its first bytes say it is?

Leaves out folders (`folders`) and sets of files (`shards`).
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Literal

from audit.errors import NotFoundError, UnreadableError, UnsupportedFormatError
from audit.files.gguf_file import MAGIC

PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".pkl", ".ckpt"})
_PICKLE_MAGIC = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_LFS_MAGIC = b"version https://git-lfs"
_SAFETENSORS_BRACE = 8  # the byte after the length of the header opens a JSON object


def check_is_file(path: Path) -> None:
    """Raise NotFoundError (with near names) or UnreadableError unless `path` is a regular file."""
    if "\0" in str(path):
        raise NotFoundError(f"no file can be called {str(path)!a}", where=ascii(str(path)))
    if path.is_file():
        return
    if path.is_symlink():
        raise NotFoundError(
            f"{path} is a broken symbolic link to {path.readlink()}",
            hint="download the model again, or copy the whole cache folder with its blobs",
            where=path,
        )
    if path.exists():
        raise UnreadableError(f"{path} is not a regular file", where=path)
    raise NotFoundError(f"there is no {path}", hint=_near(path), where=path)


def _near(path: Path) -> str:
    """A hint with similar names beside the first part of `path` that is missing."""
    while not path.parent.exists():
        path = path.parent
    if not path.parent.is_dir():
        return f"{path.parent} is not a folder"
    names = [item.name for item in path.parent.iterdir()]
    found = difflib.get_close_matches(path.name, names, n=3)
    if found:
        return f"did you mean {' or '.join(str(path.parent / name) for name in found)}?"
    return f"{path.parent} holds nothing with a similar name"


def file_kind(path: Path) -> Literal["safetensors", "gguf"]:
    """The format of a file by its first bytes, by its suffix only where they say nothing.

    Raises UnsupportedFormatError for pickles and anything else, UnreadableError for a Git LFS
    pointer.
    """
    with path.open("rb") as stream:
        start = stream.read(len(_LFS_MAGIC))
    if start.startswith(_LFS_MAGIC):
        raise UnreadableError(
            f"{path} is a Git LFS pointer, not the file itself",
            hint="run `git lfs pull`",
            where=path,
        )
    if start.startswith(MAGIC):
        return "gguf"
    # The length 640 of a safetensors header starts with the bytes 80 02, as a pickle does; only
    # the former is followed by zeros and a brace.
    brace = start[_SAFETENSORS_BRACE : _SAFETENSORS_BRACE + 1] == b"{"
    if start.startswith(_PICKLE_MAGIC) and not (brace and not any(start[4:_SAFETENSORS_BRACE])):
        raise pickle_error(path)
    if brace or path.suffix == ".safetensors":
        return "safetensors"
    if path.suffix == ".gguf":
        return "gguf"
    if path.suffix in PICKLE_SUFFIXES:
        raise pickle_error(path)
    raise UnsupportedFormatError(
        f"{path} is neither safetensors nor GGUF: it starts with {start[:8]!r}", where=path
    )


def pickle_error(path: Path) -> UnsupportedFormatError:
    """The refusal of PyTorch's pickled files."""
    return UnsupportedFormatError(
        f"{path} is a PyTorch pickle, which is not opened because it could run code",
        hint="convert it to safetensors (`safetensors.torch.save_file`) and open that",
        where=path,
    )
