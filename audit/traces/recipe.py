"""What a trace is made from, and the description that says so: known before a model is opened.

A trace is up to date when its own description is what `describe` gives for the model, the text
and the settings of today (`suite`). Whatever would change the bytes must stand in there; never a
path or a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from audit import __version__
from audit.corpora import Document
from audit.errors import BadUsageError
from audit.provenance import canonical_json, versions
from audit.records import ExtraState, OracleKind, Register, TraceInfo
from audit.traces.model_files import Identity

_TEMPERATURES = (1e-4, 1e4)
"""Beyond these logits divided by it leave float32, and impossible tokens become NaN."""
_ORACLE: OracleKind = "verifier_greedy"


@dataclass(frozen=True, slots=True)
class Source:
    """A text to run over."""

    corpus: str
    """Its name in the trace."""
    register: Register
    language: str | None
    documents: Sequence[Document]


@dataclass(frozen=True, slots=True)
class Generation:
    """How the model continues each window of text."""

    tokens: int
    """At most so many new ones; fewer where the model ends its text."""
    temperature: float | None = None
    """Sample at this temperature; None takes the greedy token."""
    top_k: int | None = None
    """Sample among so many likeliest tokens."""
    top_p: float | None = None
    """Sample among the likeliest tokens that together are this probable."""
    seed: int = 0
    """Of the sample; each sequence draws from a generator of its own."""
    ignore_eos: bool = False
    """Go on behind end-of-sequence tokens."""
    only_generated: bool = False
    """Leave the text that was given out of the counts."""

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn at random."""
        return self.temperature is not None

    def check(self) -> None:
        """Raise BadUsageError for numbers that no model can generate with."""
        _at_least_one(generate=self.tokens, top_k=self.top_k)
        low, high = _TEMPERATURES
        if self.temperature is not None and not low <= self.temperature <= high:
            raise BadUsageError(
                f"temperature is {self.temperature}",
                hint=f"it must be from {low:g} to {high:g}; leave it out for the greedy token",
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise BadUsageError(f"top_p is {self.top_p}", hint="it must be above 0, at most 1")


@dataclass(frozen=True, slots=True)
class Recipe:
    """The settings of a capture."""

    context: int = 512
    """Longest sequence in tokens, the tokenizer's own prefix (such as BOS) included."""
    max_positions: int | None = None
    """Stop after exactly this many rows, shortening the last sequence."""
    layers: tuple[int, ...] = ()
    """Also record the state entering these layers, as `layer_16` and so on."""
    batch: int = 8
    """Windows that are recorded together; only the last bits of a state may depend on it."""
    generation: Generation | None = None

    def check(self) -> None:
        """Raise BadUsageError for numbers that no model can run with."""
        _at_least_one(context=self.context, batch=self.batch, max_positions=self.max_positions)
        if self.generation is None:
            return
        self.generation.check()
        if self.generation.tokens >= self.context:
            raise BadUsageError(
                f"{self.generation.tokens} new tokens leave no room for a prompt in a context of "
                f"{self.context}",
                hint=f"use --context {self.generation.tokens + 1} or more, or generate fewer",
            )


def describe(
    model: Identity, source: Source, recipe: Recipe, *, device: str, dtype: str
) -> TraceInfo:
    """The description of the trace that these make, but for what only the open model tells.

    Args:
        device: type of the device that the model runs on, such as `cpu`.
        dtype: name of the type it runs in, such as `float32`.

    Returns:
        A description without `tokenizer_sha256` and `vocabulary`, which follow from the model.
    """
    installed = versions()
    settings: dict[str, Any] = {
        "batch": recipe.batch,
        "config_sha256": model.config_sha256,
        "context": recipe.context,
        "device": device,
        "documents": len(source.documents),
        "dtype": dtype,
        "max_positions": recipe.max_positions,
        "versions": {name: installed.get(name) for name in ("torch", "transformers")},
    }
    if recipe.generation:
        # Said here because a sampled text might be taken for its own oracle.
        settings["generation"] = asdict(recipe.generation) | {"oracle": _ORACLE}
    layers = sorted(set(recipe.layers))
    return TraceInfo(
        model=model.name,
        model_sha256=model.model_sha256,
        tokenizer_sha256=None,
        vocabulary=None,
        corpus=source.corpus,
        corpus_sha256=_text_sha256(source.documents, recipe.generation),
        register=source.register,
        language=source.language,
        stage="post_norm",
        oracle=_ORACLE,
        states=tuple(ExtraState(tensor=state_name(k), layer=k) for k in layers),
        captured_by=f"head-audit {__version__}",
        settings=settings,
    )


def state_name(layer: int) -> str:
    """The tensor that holds the state entering a layer."""
    return f"layer_{layer}"


def _at_least_one(**numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise BadUsageError(f"{name} is {value}", hint="it must be 1 or more")


def _text_sha256(documents: Sequence[Document], generation: Generation | None) -> str:
    """Of the text as it is run: what a model adds to a text makes another text of it."""
    texts: Any = [document.text for document in documents]
    if generation:
        texts = {"continued": asdict(generation), "documents": texts}
    return hashlib.sha256(canonical_json(texts).encode()).hexdigest()
