"""The verifier: a causal language model and its tokenizer, opened with transformers.

Nothing in the model's folder is ever run: architectures come from transformers alone, and weights
from safetensors or GGUF, never from pickles. Nothing is fetched either.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from audit.errors import (
    AuditError,
    NotFoundError,
    UnreadableError,
    UnsupportedFormatError,
)
from audit.files import Container, open_container
from audit.files.depth import check_depth, layers_held
from audit.provenance import vocabulary_sha256
from audit.traces.model_files import Identity, ModelFiles, find_model, identify, read_config
from audit.traces.quiet import one_gguf_reader, quiet
from audit.traces.unloadable import load_error, model_error


@dataclass(frozen=True, slots=True, eq=False)
class Verifier:
    """The target model, ready to run."""

    model: Any
    """A transformers causal language model in evaluation mode."""
    tokenizer: Any
    identity: Identity
    tokenizer_sha256: str
    """Hash of the vocabulary alone, so that it is the same for a folder and its GGUF."""
    vocabulary: int
    """Ids below this are the tokenizer's; rows of the head from here on are padding."""


def load_verifier(
    path: Path,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    identity: Identity | None = None,
) -> Verifier:
    """Open a Hugging Face folder or a GGUF file (whose weights are then dequantized).

    A GGUF file with a large vocabulary takes half a minute: transformers rebuilds its tokenizer.

    Args:
        identity: the model's, where it is known already; else the weights are hashed.

    Raises:
        NotFoundError: `path`, its config or its weights are not there.
        UnsupportedFormatError: an architecture, container or split that cannot be opened.
        UnreadableError: weights are missing, cut or malformed.
        MissingExtraError: a library that this checkpoint needs is not installed.
    """
    files = _find(path)
    _check_tokenizer(path)
    with quiet(), one_gguf_reader():
        model = _load_model(files.arguments, path, dtype)
        tokenizer = _load_tokenizer(files.arguments, path)
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
        identity=identity or identify(files),
        tokenizer_sha256=vocabulary_sha256(words),
        vocabulary=min(max(words.values()) + 1, int(head.weight.shape[0])),
    )


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a model alone, without its weights. Raises as `load_verifier` does."""
    files = _find(path)
    _check_tokenizer(path)
    with quiet(), one_gguf_reader():
        return _load_tokenizer(files.arguments, path)


def _find(path: Path) -> ModelFiles:
    """The model's files; UnsupportedFormatError for a folder that transformers can not open,
    UnreadableError for a configuration that they do not bear out."""
    files = find_model(path)
    if path.is_dir():
        _check_config(path)
    container = _opened(files.weights[0])
    if container is not None:
        fields = read_config(path) if path.is_dir() else container.metadata
        check_depth(fields, layers_held(container), path)
    return files


def _opened(weights: Path) -> Container | None:
    """The headers of the weights; None where they are damaged, of which transformers tells."""
    try:
        return open_container(weights)
    except AuditError:
        return None


def _check_config(folder: Path) -> None:
    """Refuse a folder whose architecture only its own code knows."""
    config = read_config(folder)
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


def _load_model(where: dict[str, Any], path: Path, dtype: torch.dtype) -> Any:
    safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            **where, **safe, dtype=dtype, output_loading_info=True
        )
    except Exception as error:  # a lying configuration fails anywhere, also by a division by 0
        held = _opened(find_model(path).weights[0])
        raise model_error(error, where, path, held) from error
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
        raise load_error(error, path, "tokenizer") from error
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
