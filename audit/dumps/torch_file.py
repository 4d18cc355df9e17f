"""Tensors out of a file of `torch.save`, plain or gzipped, without ever running what it holds.

Only `weights_only=True`; a pickle that needs anything else is refused by name. Bounds are checked
first: gzip may not grow without limit, a zip may not be compressed, and no tensor may claim more
than the file holds.
"""

from __future__ import annotations

import gzip
import pickle
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from audit.errors import AuditError, UnreadableError, UnsupportedFormatError, first_line

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK = 1 << 22
_MOST_GROWTH = 32
_ALWAYS_ALLOWED = 1 << 26
"""Floats hardly compress: a state file grows by 1.1 to 1.5, one of padding by a little more."""


def load_torch(path: Path) -> dict[str, Any]:
    """The dictionary that was saved; tensors stay mapped to the file where it is not compressed.

    Raises:
        UnsupportedFormatError: PICKLE_REFUSED, it holds objects other than tensors and numbers.
        UnreadableError: GZIP_BOMB; or it is cut, malformed, or claims more than it holds.
    """
    try:
        with _plain(path) as (plain, compressed):
            size = plain.stat().st_size
            is_zip = zipfile.is_zipfile(plain)
            if is_zip:
                _check_zip(plain, size, path)
            content = torch.load(
                plain, map_location="cpu", weights_only=True, mmap=is_zip and not compressed
            )
    except AuditError:
        raise
    except pickle.UnpicklingError as error:
        raise _refused(path, str(error)) from error
    except Exception as error:  # torch and the formats inside have their own error types
        raise _bad(path, first_line(error)[:160]) from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise _bad(path, f"it holds a {type(content).__name__}, not tensors by name")
    for value in content.values():
        for item in value if isinstance(value, list) else [value]:
            _check_tensor(item, size, path)
    return content


@contextmanager
def _plain(path: Path) -> Iterator[tuple[Path, bool]]:
    """The file itself, or a temporary copy without its gzip."""
    with path.open("rb") as stream:
        compressed = stream.read(2) == _GZIP_MAGIC
    if not compressed:
        yield path, False
        return
    with tempfile.NamedTemporaryFile(prefix="audit-", suffix=".ckpt") as copy:
        _inflate(path, copy)
        copy.flush()
        yield Path(copy.name), True


def _inflate(path: Path, copy: IO[bytes]) -> None:
    limit = max(_ALWAYS_ALLOWED, _MOST_GROWTH * path.stat().st_size)
    written = 0
    try:
        with gzip.open(path) as stream:
            while chunk := stream.read(_CHUNK):
                written += len(chunk)
                if written > limit:
                    raise UnreadableError(
                        f"{path} grows beyond {limit >> 20} MiB when decompressed, which states "
                        "never do",
                        hint="it is not a dump; if it is, decompress it yourself: gunzip FILE",
                        where=path,
                        code="GZIP_BOMB",
                    )
                copy.write(chunk)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise _bad(path, f"its gzip is cut or damaged: {error}") from error


def _check_zip(plain: Path, size: int, path: Path) -> None:
    """torch.save stores its records without compression, so they can not outgrow the file."""
    with zipfile.ZipFile(plain) as archive:
        records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise _bad(path, "its records are compressed, which torch.save does not do")
    if sum(record.file_size for record in records) > size:
        raise _bad(path, "its records claim more bytes than the file holds")


def _check_tensor(value: Any, size: int, path: Path) -> None:
    if not isinstance(value, Tensor):
        return
    if (
        type(value) not in (Tensor, torch.nn.Parameter)
        or value.layout != torch.strided
        or value.is_quantized
    ):
        raise _bad(path, "it holds a tensor that is not a plain one")
    if value.numel() * value.element_size() > size:
        raise _bad(path, f"a tensor of shape {list(value.shape)} claims more than the file holds")


def _refused(path: Path, why: str) -> UnsupportedFormatError | UnreadableError:
    named = re.search(r"GLOBAL ([\w.]+)", why)
    if named is None:
        return _bad(path, "it is no dictionary of tensors that torch.save wrote")
    return UnsupportedFormatError(
        f"{path} is a pickle that wants to load {named[1]}; it is not opened, because it could "
        "run code",
        hint="save a dictionary of tensors only, or convert it to safetensors where you trust it",
        where=path,
        code="PICKLE_REFUSED",
    )


def _bad(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        f"{path} can not be read as a file of torch.save: {why}",
        hint="copy the dump again; it may have been cut while it was written",
        where=path,
    )
