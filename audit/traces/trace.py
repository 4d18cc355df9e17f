"""The trace file: one safetensors file of positions, each with its hidden state and its oracle.

Row t is the state after reading token t, and its oracle is the verifier's next token. Nothing is
shifted on disk: how far ahead a head proposes is the head's property (`lookahead_rows`).
What a trace must satisfy is in `checks`; making one is in `capture`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from audit.atomic import atomic_path
from audit.errors import BadUsageError, MismatchError, UnreadableError
from audit.provenance import canonical_json, sha256_file
from audit.records import TraceInfo, TraceRecord
from audit.traces.checks import CORE_TENSORS, MARKS, check_trace
from audit.traces.metadata import (
    METADATA_KEY,
    bad_metadata,
    check_place,
    not_safetensors,
    parse_info,
)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Recorded positions of one corpus, N rows in the order of the file."""

    info: TraceInfo
    hidden: torch.Tensor
    """[N, d] float32, bfloat16 or float16: what enters the LM head, or its final norm."""
    token: torch.Tensor
    """[N] int64: the token that was read."""
    oracle: torch.Tensor
    """[N] int64: the verifier's greedy next token; -1 where there is none."""
    sequence: torch.Tensor
    """[N] int64: 0, 1, 2 ..., one contiguous run of rows each."""
    position: torch.Tensor
    """[N] int64: 0, 1, 2 ... within the sequence."""
    states: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Further states [N, width] by tensor name; `info.states` says what they are."""
    generated: torch.Tensor | None = None
    """[N] bool: the model itself wrote the token that was read; None where none is marked."""
    counted: torch.Tensor | None = None
    """[N] bool: proposals are held against the oracle of this row; None where all are. The other
    rows are context: blocks run over them, and nothing counts them."""
    path: Path | None = None
    sha256: str | None = None
    """Hash of the file's bytes; None until it was written or read."""

    @property
    def positions(self) -> int:
        """Number of rows N."""
        return int(self.hidden.shape[0])

    @property
    def sequences(self) -> int:
        """Number of sequences, the unit that intervals resample."""
        return int(self.sequence[-1]) + 1

    @property
    def hidden_size(self) -> int:
        """Width d of the hidden state."""
        return int(self.hidden.shape[1])

    def record(self) -> TraceRecord:
        """The trace as a Run remembers it. Raises BadUsageError if it is in no file yet."""
        if self.path is None or self.sha256 is None:
            raise BadUsageError(
                f"the trace of {self.info.corpus} is in no file yet",
                hint="write it with `write_trace`, then use what that returns",
            )
        return TraceRecord(
            path=str(self.path),
            sha256=self.sha256,
            positions=self.positions,
            sequences=self.sequences,
            counted=None if self.counted is None else int(self.counted.sum()),
            hidden_size=self.hidden_size,
            info=self.info,
        )


def read_trace(path: Path) -> Trace:
    """Read and check a trace; its tensors stay mapped to the file.

    Raises:
        NotFoundError: there is no such file.
        UnreadableError: it is cut, is no trace, or holds values that no trace can hold.
    """
    check_place(path)
    try:
        with safe_open(path, framework="pt") as stored:
            info = parse_info(stored.metadata(), path)
            names = _tensor_names(info, set(stored.keys()), path)
            tensors = {name: stored.get_tensor(name) for name in names}
        digest = sha256_file(path)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise not_safetensors(path, error) from error
    core = {name: tensors.pop(name) for name in CORE_TENSORS}
    marks = {name: tensors.pop(name) for name in MARKS if name in tensors}
    trace = Trace(info, **core, states=tensors, **marks, path=path, sha256=digest)
    check_trace(core, tensors, marks, where=str(path))
    return trace


def write_trace(trace: Trace, path: Path) -> Trace:
    """Check `trace` and write it; the same content gives the same bytes.

    Returns the same trace with `path` and `sha256` set, so that `record()` works.

    Raises:
        UnreadableError: it holds values that no trace can hold.
        BadUsageError: `path` cannot be written.
    """
    core = {name: getattr(trace, name) for name in CORE_TENSORS}
    declared = set(_state_names(trace.info, path))
    if declared != set(trace.states):
        raise UnreadableError(
            f"the trace's metadata names the states {sorted(declared)}, "
            f"but it holds {sorted(trace.states)}",
            hint="`info.states` must name every further state, and nothing else",
            where=path,
        )
    marks = {name: mark for name in MARKS if (mark := getattr(trace, name)) is not None}
    check_trace(core, trace.states, marks, where=str(path))
    metadata = {METADATA_KEY: canonical_json(trace.info.model_dump(by_alias=True))}
    try:
        with atomic_path(path) as temporary:
            save_file(_unshared(core | marks | dict(trace.states)), temporary, metadata=metadata)
        digest = sha256_file(path)
    except (SafetensorError, OSError) as error:
        raise BadUsageError(
            f"the trace cannot be written to {path}: {error}",
            hint="choose another place with -o",
            where=path,
        ) from error
    return replace(trace, path=path, sha256=digest)


def lookahead_rows(trace: Trace, lookahead: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows whose proposal can be judged, and the rows that hold their oracle.

    A head with lookahead L (1: LM head or early exit, 2: MTP head) proposes at row t and is held
    against the oracle of row t + L - 1 of the same sequence. Rows without such a row, or whose
    oracle there is -1 or does not count, are left out: the same oracles are asked of every head.
    For sequences of 3 and 2 rows, L = 2 gives the rows (0, 1, 3) with oracles at (1, 2, 4).

    Returns:
        Two int64 tensors of equal length: rows t, and t + lookahead - 1.

    Raises:
        BadUsageError: `lookahead` is below 1.
        MismatchError: no row is left.
    """
    if lookahead < 1:
        raise BadUsageError(f"lookahead {lookahead} is not possible", hint="it is 1 or more")
    ahead = lookahead - 1
    rows = torch.arange(max(trace.positions - ahead, 0))
    targets = rows + ahead
    kept = (trace.sequence[rows] == trace.sequence[targets]) & (trace.oracle[targets] >= 0)
    if trace.counted is not None:
        kept &= trace.counted[targets]
    if not bool(kept.any()):
        raise MismatchError(
            f"no position of the trace of {trace.info.corpus} has an oracle "
            f"that counts {lookahead} tokens ahead",
            hint="capture longer sequences, or a trace with the verifier's own tokens",
            where=trace.path or "",
        )
    return rows[kept], targets[kept]


def _tensor_names(info: TraceInfo, stored: set[str], path: Path) -> list[str]:
    """Names to read: the five of every trace, the states that the metadata names, the marks."""
    names = [*CORE_TENSORS, *_state_names(info, path)]
    if missing := [name for name in names if name not in stored]:
        raise UnreadableError(
            f"{path} lacks the tensor {', '.join(missing)}",
            hint=f"every trace holds {', '.join(CORE_TENSORS)}, and the states it names",
            where=path,
        )
    return [*names, *(name for name in MARKS if name in stored)]


def _state_names(info: TraceInfo, path: Path) -> list[str]:
    """The tensors of further states; UnreadableError where their names would hide another."""
    names = [state.tensor for state in info.states]
    if len(set(names)) < len(names) or set(names) & {*CORE_TENSORS, *MARKS}:
        raise bad_metadata(path, "two states have one name, or the name of a tensor of the format")
    return names


def _unshared(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Contiguous tensors of separate storages; safetensors refuses views of one storage."""
    seen: set[int] = set()
    separate: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        whole = tensor.detach().cpu().contiguous()
        storage = whole.untyped_storage().data_ptr()
        separate[name] = whole.clone() if storage in seen else whole
        seen.add(storage)
    return separate
