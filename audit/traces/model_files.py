"""The files of a verifier, found and hashed without opening it. Knows no transformers.

Leaves out whether transformers knows the architecture: `verifier` asks that before it opens one.
"""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audit.errors import (
    MissingExtraError,
    NotFoundError,
    UnreadableError,
    UnsupportedFormatError,
)
from audit.provenance import sha256_files

_GGUF_MAGIC = b"GGUF"
_SPLIT_GGUF = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_BESIDE_WEIGHTS = (
    *("config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json"),
    *("added_tokens.json", "vocab*", "merges.txt", "*.model", "*.tiktoken"),
)
"""What else than weights decides over tokens and states."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where one model lies."""

    path: Path
    """Its folder, or its GGUF file."""
    weights: tuple[Path, ...]
    others: tuple[Path, ...]
    """Configuration and tokenizer beside the weights; a GGUF file holds its own."""

    @property
    def arguments(self) -> dict[str, Any]:
        """What names the model for `from_pretrained`."""
        if self.path.is_dir():
            return {"pretrained_model_name_or_path": str(self.path)}
        return {
            "pretrained_model_name_or_path": str(self.path.parent),
            "gguf_file": self.path.name,
        }


@dataclass(frozen=True, slots=True)
class Identity:
    """Which model it is, by content."""

    name: str
    """Name of its folder or file, without the path; for people."""
    model_sha256: str
    """Hash of the weight files, by name and content."""
    config_sha256: str | None
    """Hash of the configuration and the tokenizer beside them; None for a GGUF file."""


def find_model(path: Path) -> ModelFiles:
    """The files of a Hugging Face folder or a GGUF file.

    Raises:
        NotFoundError: `path`, its config or its weights are not there.
        UnsupportedFormatError: neither a folder nor a GGUF file, or a part of a split one.
        MissingExtraError: a library that GGUF files need is not installed.
    """
    if not path.exists():
        raise NotFoundError(
            f"there is no model at {path}",
            hint="give a model folder or a GGUF file; models are never fetched",
            where=path,
        )
    if path.is_dir():
        read_config(path)
        others = {file for name in _BESIDE_WEIGHTS for file in path.glob(name) if file.is_file()}
        return ModelFiles(path, tuple(_folder_weights(path)), tuple(sorted(others)))
    _check_gguf(path)
    return ModelFiles(path, (path,), ())


def identify(files: ModelFiles) -> Identity:
    """Hash the files; as slow as reading them once."""
    path = files.path
    return Identity(
        name=path.stem if path.is_file() else path.resolve().name,
        model_sha256=sha256_files(list(files.weights)),
        config_sha256=sha256_files(list(files.others)) if files.others else None,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's `config.json`. Raises NotFoundError or UnreadableError without a usable one."""
    return _read_json(folder / "config.json")


def _check_gguf(path: Path) -> None:
    with path.open("rb") as stream:
        magic = stream.read(len(_GGUF_MAGIC))
    if magic != _GGUF_MAGIC:
        raise UnsupportedFormatError(
            f"{path} is neither a model folder nor a GGUF file",
            hint="to capture, give the folder that holds config.json, or a GGUF file",
            where=path,
        )
    split = _SPLIT_GGUF.search(path.name)
    if split and int(split.group(1)) > 1:
        raise UnsupportedFormatError(
            f"{path.name} is one part of a split GGUF, which transformers cannot open",
            hint="merge it first: llama-gguf-split --merge FIRST_PART OUT.gguf",
            where=path,
        )
    if importlib.util.find_spec("accelerate") is None:
        raise MissingExtraError(
            "transformers needs the library accelerate to open a GGUF file",
            hint="pip install accelerate",
            where=path,
        )


def _folder_weights(folder: Path) -> list[Path]:
    """The safetensors files that hold the model; other files in the folder do not count."""
    index = folder / "model.safetensors.index.json"
    if not (folder / "model.safetensors").exists() and not index.exists():
        raise NotFoundError(
            f"{folder} holds no weights in safetensors",
            hint="it must hold model.safetensors or its index; pickled weights are not opened",
            where=folder,
        )
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    shards = _read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(s, str) for s in shards.values()):
        raise UnreadableError(
            f"{index} has no usable weight_map", hint="copy the model again", where=index
        )
    files = [folder / name for name in sorted(set(shards.values()))]
    if missing := [file.name for file in files if not file.is_file()]:
        raise NotFoundError(
            f"{folder} lacks the shards {', '.join(missing)}",
            hint="copy the model again, with all its shards",
            where=index,
        )
    return files


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no {path.name} in {path.parent}",
            hint="a model folder holds config.json, model.safetensors and its tokenizer",
            where=path,
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(
            f"{path} is not readable JSON: {error}", hint="copy the model again", where=path
        ) from error
    if not isinstance(value, dict):
        raise UnreadableError(
            f"{path} is not a JSON object", hint="copy the model again", where=path
        )
    return value
