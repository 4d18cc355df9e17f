"""Run the verifier over documents and record a trace.

Documents are cut into windows, each a sequence of its own, so that a position never depends on
another document; where it is asked for, the model first continues each window (`generate`). Then
all are run (`states`), and the oracle is taken from the states in tiles (`oracle`).

Memory is the model, the states (N rows of the model's type, one more for each layer), and one
batch: its states after every layer where layers are recorded, else after one; then one tile of
logits, at most 20 MiB. Where text is generated, before that: the cache of `generate.GROUP`
sequences and their logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from audit.corpora import Document
from audit.errors import BadUsageError, UnreadableError, UnsupportedFormatError
from audit.traces.checks import check_finite
from audit.traces.oracle import check_once, greedy_tokens
from audit.traces.recipe import Recipe, Source, describe
from audit.traces.states import record_states
from audit.traces.trace import Trace
from audit.traces.verifier import Verifier
from audit.traces.windows import cut_windows, plan_batches

Progress = Callable[[str, int, int], None]
"""Called with (`generate` or `capture`, done, total): new tokens, or positions, of which running
the model counts half and its oracle half."""

_GREEDY_AGREEMENT = 0.9
_ENOUGH_TOKENS = 50


def capture(
    verifier: Verifier, source: Source, recipe: Recipe, progress: Progress | None = None
) -> Trace:
    """Record the verifier's states and greedy tokens over the documents of `source`.

    Returns:
        A trace in no file yet, with hidden states [N, d] in the model's dtype.

    Raises:
        BadUsageError: a setting is out of range.
        UnreadableError: the documents hold no tokens, nothing is left to count, or a state is not
            finite (NON_FINITE).
        MismatchError: the tokenizer makes ids that the model has no embedding for.
        UnsupportedFormatError: the model changes its logits after its head in an unknown way, or
            generates another text than it then reads as its own.
    """
    check_recipe(verifier, recipe)
    report = progress or (lambda what, done, total: None)
    written = _sequences(verifier, source.documents, recipe, report)
    plan = plan_batches(written.windows, recipe.batch)
    layers = sorted(set(recipe.layers))
    with torch.no_grad():
        check_once(verifier.model, plan.windows[0], verifier.vocabulary)
        hidden, states = record_states(
            verifier.model,
            plan,
            layers,
            lambda done: report("capture", done // 2, plan.rows),
        )
        for name, tensor in {"hidden": hidden, **states}.items():
            check_finite(tensor, name, where=source.corpus)
        oracle = greedy_tokens(
            hidden,
            verifier.model.get_output_embeddings(),
            verifier.vocabulary,
            progress=lambda done: report("capture", (plan.rows + done) // 2, plan.rows),
        )
    made = describe(
        verifier.identity,
        source,
        recipe,
        device=verifier.model.device.type,
        dtype=str(verifier.model.dtype).removeprefix("torch."),
    )
    known = {
        "tokenizer_sha256": verifier.tokenizer_sha256,
        "vocabulary": verifier.vocabulary,
    }
    lengths = torch.tensor([len(window) for window in plan.windows])
    trace = Trace(
        info=made.model_copy(update=known),
        hidden=hidden,
        token=torch.cat(plan.windows),
        oracle=oracle,
        sequence=torch.arange(len(lengths)).repeat_interleave(lengths),
        position=torch.cat([torch.arange(int(length)) for length in lengths]),
        states=states,
        generated=written.generated,
        counted=written.counted,
    )
    if recipe.generation and not recipe.generation.sampled:
        _check_greedy(trace)
    return trace


@dataclass(frozen=True, slots=True)
class _Sequences:
    """What is run, and which of its rows are marked."""

    windows: list[torch.Tensor]
    generated: torch.Tensor | None = None
    """[N] bool; None where nothing was generated."""
    counted: torch.Tensor | None = None
    """[N] bool; None where all rows count."""


def _sequences(
    verifier: Verifier, documents: Sequence[Document], recipe: Recipe, report: Progress
) -> _Sequences:
    """The windows of the documents, continued where that is asked for."""
    how = recipe.generation
    room = recipe.context - (how.tokens if how else 0)
    windows = cut_windows(verifier, documents, room, recipe.max_positions)
    if how is None:
        return _Sequences(windows)
    from audit.traces.generate import continue_prompts

    found = continue_prompts(
        verifier,
        windows,
        how,
        recipe.max_positions,
        lambda done, total: report("generate", done, total),
    )
    tokens = [one.tokens for one in found]
    generated = torch.cat([torch.arange(len(one.tokens)) >= one.prompt for one in found])
    counted = generated.clone() if how.only_generated else torch.ones_like(generated)
    ends = torch.tensor([len(one.tokens) for one in found]).cumsum(0) - 1
    counted[ends[torch.tensor([one.ended for one in found])]] = False
    if not bool(counted.any()):
        raise UnreadableError(
            "no generated token is left to count: the model ended every text at once, or the cap "
            "of positions ended before the prompts did",
            hint="use --ignore-eos or other prompts, more --max-positions, or a shorter --context",
        )
    return _Sequences(tokens, generated, None if bool(counted.all()) else counted)


def _check_greedy(trace: Trace) -> None:
    """Refuse a text that its own model would not write: then the generation was not its own.

    Of a type with few bits some tokens are ties, so not all must agree.
    """
    assert trace.generated is not None
    rows = trace.generated.nonzero().flatten()
    share = float((trace.token[rows] == trace.oracle[rows - 1]).double().mean())
    if len(rows) >= _ENOUGH_TOKENS and share < _GREEDY_AGREEMENT:
        raise UnsupportedFormatError(
            f"{trace.info.model} generated a text of which only {share:.0%} is what it says when "
            "it reads that text",
            hint="its cache or its padding does not work in this version of transformers: "
            "generate in the engine that serves it, and capture the text with --text",
        )


def check_recipe(verifier: Verifier, recipe: Recipe) -> None:
    """Raise BadUsageError for settings that this model cannot run with."""
    recipe.check()
    config, name = verifier.model.config.get_text_config(), verifier.identity.name
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and recipe.context > longest:
        raise BadUsageError(
            f"context is {recipe.context}, but {name} was made for {longest} tokens",
            hint=f"use --context {longest} or less",
        )
    count = int(config.num_hidden_layers)
    for layer in recipe.layers:
        if not 0 <= layer < count:
            raise BadUsageError(
                f"layer {layer} does not exist in {name}",
                hint=f"it has the layers 0 to {count - 1}; a layer's entering state is recorded",
            )
