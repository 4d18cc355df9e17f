"""A dump becomes a trace. Read this first.

The order is fixed: which tool (`detect`), the verifier's files (`model`), the sequences
(`collect`), then what no dump says: the norm stage (`stage`), the layers (`layers`), the alignment
(`alignment`), and last the oracle. Nothing is written here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from audit import __version__
from audit.dumps.alignment import require_alignment, text_logits
from audit.dumps.collect import Collected, Progress, collect
from audit.dumps.detect import open_dump
from audit.dumps.layers import Layers, name_layers
from audit.dumps.model import Model, open_model
from audit.dumps.oracle import States, count_marked, find_oracle, mask_notes, mask_settings
from audit.dumps.reader import Reader
from audit.dumps.request import ImportRequest
from audit.dumps.stage import check_not_normalised, decide_stage, measure_rms
from audit.errors import MismatchError
from audit.provenance import versions
from audit.records import ExtraState, Finding, OracleKind, Stage, TraceInfo
from audit.traces import Trace


@dataclass(frozen=True, slots=True)
class Imported:
    """A trace in no file yet, the tool it is from, and what was noticed."""

    trace: Trace
    source: str
    findings: list[Finding] = field(default_factory=list)


def import_dump(request: ImportRequest, progress: Progress | None = None) -> Imported:
    """Read, check and measure a dump.

    Raises:
        AuditError: what is missing, contradicts itself or belongs to something else, by name.
    """
    report = progress or (lambda what, done, total: None)
    reader = open_dump(request.dump, request.format, request.tokens, request.limit_files)
    model = open_model(request.model) if request.model else None
    if model is None and request.stage is None:
        decide_stage(None, None, reader, None)  # before anything large is read
    named = bool(request.layers) or (model is not None and model.depth is not None)
    found = collect(reader, request.max_positions, named, report)
    if model is not None:
        _check_fits(found, model, reader)
    stage, facts, findings = _stage(request, reader, found, model)
    layers = _layers(request, reader, found, model, stage)
    states = States(found.hidden, model, stage)
    alignment, more = _alignment(request, reader, found, states)
    oracle, kind, source, told = find_oracle(request, reader, found, states, report)
    counted = count_marked(request, reader, found, oracle)
    settings = {
        "alignment": alignment,
        "dtype": str(found.hidden.dtype).removeprefix("torch."),
        "files": found.files,
        "layers": layers.settings,
        "loss_mask": mask_settings(request, found),
        "max_positions": request.max_positions,
        "oracle": source,
        "source": reader.name,
        "stage": facts,
        "versions": {"torch": versions().get("torch")},
    }
    info = _info(request, reader, found, model, stage, kind, layers, settings)
    kept = [(i, k) for i, k in enumerate(layers.entering) if k is not None]
    trace = Trace(
        info, found.hidden, found.token, counted, found.sequence, found.position,
        {f"layer_{layer}": found.further[i] for i, layer in kept},
    )  # fmt: skip
    notes = [*reader.findings, *findings, *layers.findings, *more, *told]
    return Imported(trace, reader.name, [*notes, *mask_notes(request, found)])


def _check_fits(found: Collected, model: Model, reader: Reader) -> None:
    """Refuse states or tokens that can not be of this model."""
    width, wanted = found.hidden.shape[1], model.head.hidden_size
    if width != wanted:
        raise MismatchError(
            f"the states of {reader.dump} are {width} wide, {model.name} reads {wanted}",
            hint="the dump is of another model than --model",
            where=reader.dump,
            code="WIDTH",
        )
    outside = torch.nonzero(found.token >= model.vocabulary).flatten()
    if len(outside):
        row = int(outside[0])
        raise MismatchError(
            f"{reader.dump} holds the token {int(found.token[row])} (position {row}), "
            f"{model.name} knows {model.vocabulary:,} ids",
            hint="the dump is of another model than --model, or of text with tokens for images",
            where=reader.dump,
            code="TOKENS_OUTSIDE",
        )


def _stage(
    request: ImportRequest, reader: Reader, found: Collected, model: Model | None
) -> tuple[Stage, dict[str, Any], list[Finding]]:
    norm = model.head.norm if model else None
    rms = measure_rms(found.hidden, norm) if norm else None
    stage, findings = decide_stage(rms, request.stage, reader, found.claimed)
    if rms is None or stage == "pre_norm":
        check_not_normalised(found.hidden, reader)
    if model and stage == "pre_norm" and norm is None:
        raise MismatchError(
            f"the states were taken before the final norm, and {model.name} holds no norm that "
            "could be applied",
            hint="give the whole model with --model (its folder or GGUF), or leave --model away",
            where=request.model or "",
        )
    facts: dict[str, Any] = {"documented": reader.documented, "source": "--stage"}
    if rms is not None:
        facts |= {
            "source": "measured",
            "rms_low": round(rms.low, 4),
            "rms_high": round(rms.high, 4),
        }
    return stage, facts, findings


def _layers(
    request: ImportRequest, reader: Reader, found: Collected, model: Model | None, stage: Stage
) -> Layers:
    numbering = request.numbering or reader.numbering_of(stage)
    depth = model.depth if model else None
    return name_layers(reader, len(found.further), depth, request.layers, numbering)


def _alignment(
    request: ImportRequest, reader: Reader, found: Collected, states: States
) -> tuple[dict[str, Any], list[Finding]]:
    """Where there is a head: shown, or refused, or forced and marked."""
    if states.model is None:
        sentence = (
            "without the model nothing shows that these states belong to these tokens; give "
            "--model to have the alignment checked"
        )
        note = Finding(
            code="ALIGNMENT_UNCHECKED", severity="warning", subject="dump", sentence=sentence
        )
        return {"status": "unchecked"}, [note]
    evidence = text_logits(states.model.head, states, found.token, found.sequence)
    require_alignment(evidence, reader.dump, force=request.force)
    z = {f"{shift:+d}": round(value, 2) for shift, value in evidence.z.items()}
    settings = {"positions": evidence.positions, "standard_errors": z}
    if evidence.shown:
        return settings | {"status": "shown"}, []
    sentence = "the alignment of states and tokens could not be shown, and --force went on"
    note = Finding(code="ALIGNMENT_FORCED", severity="warning", subject="dump", sentence=sentence)
    return settings | {"status": "forced"}, [note]


def _info(
    request: ImportRequest,
    reader: Reader,
    found: Collected,
    model: Model | None,
    stage: Stage,
    kind: OracleKind,
    layers: Layers,
    settings: dict[str, Any],
) -> TraceInfo:
    named = [layer for layer in layers.entering if layer is not None]
    return TraceInfo(
        model=model.name if model else "not given",
        model_sha256=model.sha256 if model else None,
        tokenizer_sha256=model.tokenizer_sha256 if model else None,
        vocabulary=model.vocabulary if model else None,
        corpus=request.corpus,
        corpus_sha256=found.sha256(),
        register=request.register,
        language=request.language,
        stage=stage,
        oracle=kind,
        states=tuple(ExtraState(tensor=f"layer_{k}", layer=k) for k in named),
        captured_by=f"head-audit {__version__} from {reader.name}",
        settings=settings,
    )
