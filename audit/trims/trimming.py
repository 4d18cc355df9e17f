"""A head under a trim: written for one engine, read back, and audited before it is called done.

The file is made in a folder of its own beside the place it is meant for and moved there only when
everything holds: the map gives exactly the ids that were chosen, every row equals the reference's
(or what quantizing that row gives), and on a trace, where one is given, proposals are those of the
reference's own rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from audit.blocks import BlockHead, BlockOptions
from audit.errors import BadUsageError, UnreadableError
from audit.files import open_container
from audit.forge import Cut, Forged, forge_head
from audit.forge.damage import weight_errors
from audit.forge.target import check_target
from audit.forge.trim import CONSUMERS, Consumer
from audit.heads import Head, HeadOptions
from audit.heads.vocab_map import read_id_list
from audit.measure import measure_trace
from audit.pair import HeadChoice, load_cand
from audit.records.base import Record
from audit.traces import Trace
from audit.trims.emitted import Ids
from audit.trims.reading import check_rows
from audit.trims.sweep import head_bytes, trimmed

_NEAR = 1e-4
"""Two equal rows multiplied in tiles of other shapes round differently by about 1e-6."""


class Proven(Record):
    """What the file does on one trace, beside the reference's own rows for the same ids."""

    corpus: str
    positions: int
    differing: int
    """Positions where the two propose different ids. Without quantizing, only near-ties can."""
    near_ties: int
    """Of those, where the two ids' logits are equal but for rounding."""


class Trimmed(Record):
    """A trimmed head that was read back."""

    file: str
    consumer: str
    rows: int
    vocabulary: int
    row_ratio: float
    encoding: str
    head_bytes: int
    head_bytes_before: int
    relative_error: float | None
    """Of the rows kept, norm of change over norm; null where they are unchanged."""
    proven: list[Proven]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be written."""

    card: Path
    ids: Ids
    """Best first."""
    consumer: str | None
    encoding: str | None
    out: Path
    force: bool = False
    """A file that is there already may be replaced, whoever made it."""


def write_trim(
    ref: Head,
    choice: HeadChoice,
    wanted: Wanted,
    traces: Sequence[Trace],
    block: BlockOptions | None = None,
) -> Trimmed:
    """Write the trimmed head and prove it; `block` is what REF's block was read with.

    Raises:
        BadUsageError: the engine reads no such file, or the place can not be written.
        UnreadableError: what was written does not read back as it was meant; nothing is left.
        AuditError: as forging does.
    """
    consumer = check_wanted(ref, wanted, traces)
    try:
        wanted.out.parent.mkdir(parents=True, exist_ok=True)
        if wanted.out.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        with tempfile.TemporaryDirectory(prefix=".trim-", dir=wanted.out.parent) as folder:
            draft = Path(folder) / wanted.out.name
            if draft.suffix.lower() == ".pt":
                done = _token_map(ref, wanted, consumer, draft)
            else:
                made = _forge(ref, wanted, consumer, draft)
                head = load_cand(draft, choice, HeadOptions(), block or BlockOptions(), ref)
                assert isinstance(head, Head)
                done = _prove(ref, head, wanted, consumer, traces, made)
            draft.replace(wanted.out)
    except OSError as error:
        raise BadUsageError(
            f"the head can not be written: {error.strerror or error}",
            hint="choose another -o",
            where=wanted.out,
        ) from error
    return done


def check_wanted(ref: Head, wanted: Wanted, traces: Sequence[Trace]) -> Consumer:
    """The engine that the file is for, once it is known that the file could be made.

    Raises:
        BadUsageError: the engine reads no such file or encoding, nothing would be trimmed, or
            another file would be overwritten.
    """
    if len(wanted.ids) >= ref.rows.count:
        raise BadUsageError(
            f"{len(wanted.ids):,} rows of {ref.rows.count:,} would trim nothing",
            hint="ask for fewer: --rows",
        )
    read = [wanted.card, *(trace.path for trace in traces if trace.path)]
    read += open_container(Path(ref.record.path)).files
    if isinstance(ref, BlockHead):
        read += ref.block.container.files
    check_target(wanted.out, read, force=wanted.force)
    return _consumer(ref, wanted)


def _consumer(ref: Head, wanted: Wanted) -> Consumer:
    """The engine named, or the one that the file's name implies."""
    suffix = wanted.out.suffix.lower()
    usual = {".gguf": "llama.cpp", ".safetensors": "vllm", ".pt": "sglang"}
    name = wanted.consumer or usual.get(suffix, "llama.cpp")
    medusa = name == "vllm" and ref.record.kind.startswith("medusa")
    consumer = CONSUMERS["vllm-medusa" if medusa else name]
    if suffix not in consumer.suffixes:
        raise BadUsageError(
            f"{name} reads a trimmed head from {' or '.join(consumer.suffixes)}, "
            f"not from {wanted.out.name}",
            hint=f"name it {wanted.out.stem or 'head'}{consumer.suffixes[0]}",
            where=wanted.out,
        )
    if wanted.encoding and suffix != ".gguf":
        raise BadUsageError(
            f"--to {wanted.encoding.lower()} needs a .gguf file: {suffix} has no such type",
            hint="leave out --to, or write for llama.cpp or memra",
            where=wanted.out,
        )
    return consumer


def _forge(ref: Head, wanted: Wanted, consumer: Consumer, draft: Path) -> Forged:
    cut = Cut(
        "trim", card=wanted.card, count=len(wanted.ids), encoding=wanted.encoding,
        ids=tuple(wanted.ids.tolist()), consumer=consumer.name,
    )  # fmt: skip
    return forge_head(ref, cut, draft)


def _prove(
    ref: Head,
    head: Head,
    wanted: Wanted,
    consumer: Consumer,
    traces: Sequence[Trace],
    made: Forged,
) -> Trimmed:
    """Compare what was read with what was meant."""
    own = trimmed(ref, wanted.ids, "own rows")
    check_rows(own, head, wanted.encoding)
    proven = [_prove_on(trace, ref, own, head, exact=not wanted.encoding) for trace in traces]
    errors = weight_errors(own, head, made.parts, {}) if wanted.encoding else {}
    record = head.projection if isinstance(head, BlockHead) else head.record
    return Trimmed(
        file=str(wanted.out),
        consumer=consumer.name,
        rows=len(wanted.ids),
        vocabulary=ref.vocabulary,
        row_ratio=ref.rows.count / len(wanted.ids),
        encoding=record.encoding,
        head_bytes=head_bytes(head, len(wanted.ids), None),
        head_bytes_before=head_bytes(ref, ref.rows.count, None),
        relative_error=errors.get("projection"),
        proven=proven,
        notes=[*made.notes, *_advice(consumer, ref, wanted)],
    )


def _prove_on(trace: Trace, ref: Head, own: Head, head: Head, *, exact: bool) -> Proven:
    """Run the file beside the reference's own rows, with equal states."""
    measured = measure_trace(ref, [own, head], trace)
    mine, theirs = (torch.tensor(frame["cand"].to_numpy()) for frame in measured.frames)
    differ = (mine != theirs).nonzero().squeeze(1)
    near = _near_ties(own, measured.ref_states[differ], mine[differ], theirs[differ])
    if exact and near < len(differ):
        raise UnreadableError(
            f"on {trace.info.corpus} the file proposes other ids than the reference's own rows at "
            f"{len(differ) - near} of {len(mine)} positions",
            hint="this is a fault of the writer or the reader: report it",
        )
    return Proven(
        corpus=trace.info.corpus, positions=len(mine), differing=len(differ), near_ties=near
    )


def _near_ties(own: Head, states: Tensor, mine: Tensor, theirs: Tensor) -> int:
    """At how many positions the two ids have the same logit but for rounding."""
    if len(states) == 0:
        return 0
    inputs = own.project_in(states).double()
    logits = []
    for ids in (mine, theirs):
        rows = torch.searchsorted(own.ids, ids)
        logit = (inputs * own.rows.gather(rows).double()).sum(-1)
        logits.append(logit if own.bias is None else logit + own.bias[rows].double())
    gap = (logits[0] - logits[1]).abs()
    return int((gap <= _NEAR * logits[0].abs().clamp(min=1.0)).sum())


def _token_map(ref: Head, wanted: Wanted, consumer: Consumer, draft: Path) -> Trimmed:
    """SGLang's token map: a list of ids, best first; the engine gathers the rows itself."""
    ids = wanted.ids.tolist()
    torch.save(ids, draft)
    if read_id_list(draft).tolist() != ids:
        raise UnreadableError("the token map does not read back", where=wanted.out)
    return Trimmed(
        file=str(wanted.out), consumer=consumer.name, rows=len(ids), vocabulary=ref.vocabulary,
        row_ratio=ref.rows.count / len(ids), encoding=ref.record.encoding,
        head_bytes=head_bytes(ref, len(ids), None),
        head_bytes_before=head_bytes(ref, ref.rows.count, None), relative_error=None, proven=[],
        notes=["a list of ids for --speculative-token-map; SGLang gathers the rows itself"],
    )  # fmt: skip


def _advice(consumer: Consumer, ref: Head, wanted: Wanted) -> list[str]:
    """What the engine wants beside the file."""
    if consumer.suffixes[0] == ".safetensors":
        return [f'config.json beside it must say "draft_vocab_size": {len(wanted.ids)}']
    if wanted.encoding == "NVFP4" and ref.record.kind == "eagle3":
        return ["llama.cpp's eagle3 graph does not apply output.scale, which NVFP4 needs"]
    return []
