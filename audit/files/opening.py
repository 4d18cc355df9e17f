"""What a path means: a file, one shard of a set, an index or a folder becomes one Container.

Which file of a folder is the model is decided in `folders`, which files belong together in
`shards`, and the headers are read by `safetensors_file` and `gguf_file`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from audit.errors import UnreadableError
from audit.files.container import Container
from audit.files.folders import index_of, pick_in_folder
from audit.files.gguf_file import read_gguf
from audit.files.paths import check_is_file, file_kind
from audit.files.safetensors_file import parse_json_object, read_safetensors
from audit.files.shards import (
    INDEX_SUFFIX,
    check_counts,
    check_index,
    check_split,
    merge,
    read_index,
    split_paths,
)

_CONFIG_LIMIT = 1 << 24  # a configuration that lists every module of a large model has some 1 MB


def open_container(path: Path) -> Container:
    """Open the model at `path`: a .safetensors or .gguf file, any shard, an index or a folder.

    A shard stands for its whole set. Every header is read and checked; no tensor is.

    Raises NotFoundError, UnreadableError (code FILE_CUT where bytes are missing), MismatchError for
    shards that do not belong together, UnsupportedFormatError, and BadUsageError for a folder that
    could mean several models.
    """
    path = Path(path)
    try:
        chosen = pick_in_folder(path) if path.is_dir() else path
        return _open_file(path, chosen)
    except OSError as error:
        raise UnreadableError(f"{path} can not be opened: {error}", where=path) from error


def _open_file(path: Path, chosen: Path) -> Container:
    check_is_file(chosen)
    if chosen.name.endswith(INDEX_SUFFIX):
        return _open_index(path, chosen)
    if file_kind(chosen) == "gguf":
        return _open_gguf(path, chosen)
    index = index_of(chosen)
    return _open_index(path, index) if index else _open_safetensors(path, split_paths(chosen))


def _open_index(path: Path, index: Path) -> Container:
    weight_map = read_index(index)
    check_counts(index, weight_map.values())
    # By their numbers: model-00001-of-00003.safetensors and so on sort as they should be read.
    files = [index.parent / shard for shard in sorted(set(weight_map.values()))]
    container = _open_safetensors(path, files)
    check_index(index, weight_map, container.entries)
    return container


def _open_safetensors(path: Path, files: list[Path]) -> Container:
    read = [read_safetensors(file) for file in _checked(files)]
    return Container(
        path=path,
        format="safetensors",
        files=tuple(files),
        entries=MappingProxyType(merge([entries for entries, _ in read])),
        metadata=MappingProxyType(read[0][1]),
        config=_config_beside(files[0]),
    )


def _open_gguf(path: Path, chosen: Path) -> Container:
    files = split_paths(chosen)
    read = [read_gguf(file) for file in _checked(files)]
    entries = merge([entries for entries, _ in read])
    check_split(files, [metadata for _, metadata in read], len(entries))
    return Container(
        path=path,
        format="gguf",
        files=tuple(files),
        entries=MappingProxyType(entries),
        metadata=MappingProxyType(read[0][1]),
        config=None,
    )


def _checked(files: list[Path]) -> list[Path]:
    for file in files:
        check_is_file(file)
    return files


def _config_beside(file: Path) -> Mapping[str, Any] | None:
    config = file.parent / "config.json"
    if not config.is_file() and not config.is_symlink():
        return None
    check_is_file(config)
    if config.stat().st_size > _CONFIG_LIMIT:
        raise UnreadableError(
            f"{config} is larger than {_CONFIG_LIMIT} bytes",
            hint="this is no configuration of a model: download it again",
            where=config,
        )
    return MappingProxyType(parse_json_object(config, config.read_bytes(), "content"))
