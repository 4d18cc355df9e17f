"""The verifier: a causal language model and its tokenizer, opened with transformers.

Nothing in the model's folder is ever run: architectures come from transformers alone, and weights
from safetensors or GGUF, never from pickles. Nothing is fetched either.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from audit.errors import (
    AuditError,
    MissingExtraError,
    NotFoundError,
    UnreadableError,
    UnsupportedFormatError,
)
from audit.provenance import canonical_json, sha256_files
from audit.traces.quiet import one_gguf_reader, quiet

_GGUF_MAGIC = b"GGUF"
_SPLIT_GGUF = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
# What transformers was seen to raise for a folder or GGUF file that it cannot open.
_LOAD_ERRORS = (
    *(OSError, ValueError, RuntimeError, ImportError, SafetensorError),
    *(LookupError, TypeError, AttributeError),
)


@dataclass(frozen=True, slots=True, eq=False)
class Verifier:
    """The target model, ready to run."""

    model: Any
    """A transformers causal language model in evaluation mode."""
    tokenizer: Any
    name: str
    """Name of its folder or file, without the path."""
    model_sha256: str
    """Hash of the weight files, by name and content."""
    tokenizer_sha256: str
    """Hash of the vocabulary alone, so that it is the same for a folder and its GGUF."""
    vocabulary: int
    """Ids below this are the tokenizer's; rows of the head from here on are padding."""


def load_verifier(
    path: Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Verifier:
    """Open a Hugging Face folder or a GGUF file (whose weights are then dequantized).

    A GGUF file with a large vocabulary takes half a minute: transformers rebuilds its tokenizer.

    Raises:
        NotFoundError: `path`, its config or its weights are not there.
        UnsupportedFormatError: an architecture, container or split that cannot be opened.
        UnreadableError: weights are missing, cut or malformed.
        MissingExtraError: a library that this checkpoint needs is not installed.
    """
    weights, where = _locate(path)
    _check_tokenizer(path)
    with quiet(), one_gguf_reader():
        model = _load_model(where, path, dtype)
        tokenizer = _load_tokenizer(where, path)
    head = model.get_output_embeddings()
    if head is None:
        raise UnsupportedFormatError(
            f"the model {path.name} has no LM head that transformers can name",
            hint="capture needs a causal language model",
            where=path,
        )
    words = tokenizer.get_vocab()
    return Verifier(
        model=model.to(device).eval().requires_grad_(False),
        tokenizer=tokenizer,
        name=path.stem if path.is_file() else path.resolve().name,
        model_sha256=sha256_files(weights),
        tokenizer_sha256=vocabulary_sha256(words),
        vocabulary=min(max(words.values()) + 1, int(head.weight.shape[0])),
    )


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a model alone, without its weights. Raises as `load_verifier` does."""
    _, where = _locate(path)
    _check_tokenizer(path)
    with quiet(), one_gguf_reader():
        return _load_tokenizer(where, path)


def vocabulary_sha256(words: dict[str, int]) -> str:
    """Hex SHA-256 of the sorted (token, id) pairs: one hash however the vocabulary was stored."""
    pairs = [list(pair) for pair in sorted(words.items())]
    return hashlib.sha256(canonical_json(pairs).encode()).hexdigest()


def _locate(path: Path) -> tuple[list[Path], dict[str, Any]]:
    """The weight files, and the arguments that name the model for `from_pretrained`."""
    if not path.exists():
        raise NotFoundError(
            f"there is no model at {path}",
            hint="give a model folder or a GGUF file; models are never fetched",
            where=path,
        )
    if path.is_dir():
        _check_config(path)
        return _folder_weights(path), {"pretrained_model_name_or_path": str(path)}
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
    return [path], {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}


def _check_config(folder: Path) -> None:
    """Refuse a folder without a config, or whose architecture only its own code knows."""
    config = _read_json(folder / "config.json")
    kind = config.get("model_type")
    # Asked here: transformers imports every model it has before it says that it knows none.
    if isinstance(kind, str) and kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return
    own_code = ", and the code beside it is never run" if "auto_map" in config else ""
    raise UnsupportedFormatError(
        f"transformers has no language model for the type {kind!r} of {folder}{own_code}",
        hint="upgrade transformers if it knows this model by now; else capture in the engine "
        "that runs it and write a trace file",
        where=folder / "config.json",
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


def _load_model(where: dict[str, Any], path: Path, dtype: torch.dtype) -> Any:
    safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            **where, **safe, dtype=dtype, output_loading_info=True
        )
    except _LOAD_ERRORS as error:
        raise _load_error(error, path, "model") from error
    # transformers fills missing weights with random numbers and only warns.
    if missing := sorted(report["missing_keys"]):
        named = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise UnreadableError(
            f"{path} lacks {len(missing)} weights of its model: {named}",
            hint="the file is incomplete, or is only a part of a model such as a draft head",
            where=path,
        )
    return model


def _load_tokenizer(where: dict[str, Any], path: Path) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            **where, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # tokenizers raises nothing more special
        raise _load_error(error, path, "tokenizer") from error
    # Where there are no files, transformers may make one that knows nothing but its special tokens.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise _no_tokenizer(path)
    return tokenizer


def _check_tokenizer(path: Path) -> None:
    """Refuse a folder without a tokenizer's files, before its weights are loaded."""
    for file in path.iterdir() if path.is_dir() else ():
        named = file.name.startswith(("tokenizer.", "vocab", "tekken", "spiece"))
        if named or file.suffix in (".model", ".tiktoken"):
            return
    if path.is_dir():
        raise _no_tokenizer(path)


def _no_tokenizer(path: Path) -> NotFoundError:
    return NotFoundError(
        f"there is no tokenizer in {path}, so no text can be read",
        hint="copy the model's tokenizer.json, or its vocabulary files, beside its weights",
        where=path,
    )


def _load_error(error: BaseException, path: Path, part: str) -> AuditError:
    """What a failure of transformers means for the user; its own first line says the rest."""
    lines = str(error).strip().splitlines()
    reason = lines[0] if lines else type(error).__name__
    message = f"transformers cannot open the {part} of {path}: {reason}"
    if isinstance(error, ImportError):
        return MissingExtraError(message, hint="install the library it names", where=path)
    unknown = ("Unrecognized", "not supported", "auto_map", "custom code")
    if any(word in str(error) for word in unknown):
        return UnsupportedFormatError(
            message, hint="capture needs a causal language model known to transformers", where=path
        )
    return UnreadableError(
        message, hint="check that the files are complete and belong together", where=path
    )
