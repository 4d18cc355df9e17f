"""From files to results: what `audit rank` does, without its words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from audit.errors import MismatchError
from audit.files import Container, open_container
from audit.heads.keeping import kept_ids
from audit.heads.lm import container_rules
from audit.heads.tokens import Tokens, read_tokens
from audit.stats import Resampling
from audit.traces import Trace, find_traces, read_traces
from audit.trims.card import CardFacts, CorpusShare, write_card
from audit.trims.checking import CardCheck, check_card
from audit.trims.emitted import Emitted, emitted, vocabulary_of
from audit.trims.making import Ranks, make_ranks
from audit.trims.weights import weights_of


def make_card(
    *,
    traces: Sequence[Path],
    model: Path,
    out: Path,
    rows: int | None,
    flavour: str,
    weights: Sequence[str],
    pad: bool,
) -> CardFacts:
    """Make a ranks card and its JSON; see `making.make_ranks`.

    Raises:
        AuditError: files that can not be read or do not belong together, or too few ids.
    """
    found, tokens, vocabulary = _inputs(traces, model)
    assert tokens is not None
    weight = weights_of([trace.info for trace in found], flavour, weights)
    given = [emitted(trace) for trace in found]
    ranks = make_ranks(given, weight, kept_ids(tokens), vocabulary, rows, pad=pad)
    first = found[0].info
    about = {
        "vocabulary": vocabulary,
        "seen": ranks.seen,
        "seen_kept": ranks.seen_kept,
        "forced": ranks.forced,
        "padded": ranks.padded,
        "counts": ranks.counts[ranks.ids].tolist(),
        "corpora": [_share(one, float(weight[one.corpus]), ranks) for one in given],
        "flavour": flavour,
        "model": first.model,
        "model_sha256": first.model_sha256,
        "tokenizer_sha256": first.tokenizer_sha256,
    }
    return write_card(out, ranks.ids.tolist(), about)


def check_list(
    card: Path, traces: Sequence[Path], model: Path | None, how: Resampling
) -> CardCheck:
    """Judge a list; see `checking.check_card`. Raises AuditError as that does."""
    found, tokens, vocabulary = _inputs(traces, model)
    return check_card(card, [emitted(t, tokens) for t in found], vocabulary, how, tokens)


def tokens_for(container: Container, traces: Sequence[Trace]) -> Tokens:
    """The container's tokens, which must be those that the traces are written in.

    Raises:
        MismatchError: their tokenizers differ.
    """
    tokens = read_tokens(container)
    for trace in traces:
        if not tokens.of_trace(trace.info.tokenizer_sha256):
            raise MismatchError(
                f"the tokenizer of {container.path.name} is not that of the trace of "
                f"{trace.info.corpus}",
                hint="name the model that the traces were captured from",
                where=container.path,
            )
    return tokens


def _inputs(paths: Sequence[Path], model: Path | None) -> tuple[list[Trace], Tokens | None, int]:
    """Traces, what the model says of its tokens, and the number of target ids."""
    traces = read_traces(find_traces(paths, model or Path()))
    given = [emitted(trace) for trace in traces]
    if model is None:
        return traces, None, vocabulary_of(given, None)
    container = open_container(model)
    rules = container_rules(container)
    return traces, tokens_for(container, traces), vocabulary_of(given, rules.valid)


def _share(one: Emitted, weight: float, ranks: Ranks) -> CorpusShare:
    return CorpusShare(
        corpus=one.corpus,
        register_=one.trace.info.register_,
        weight=weight,
        positions=len(one.oracle),
        distinct=len(np.unique(one.oracle)),
        coverage=float(np.isin(one.oracle, ranks.ids).mean()),
        trace_sha256=one.trace.sha256,
    )
