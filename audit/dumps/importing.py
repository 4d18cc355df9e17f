"""A dump becomes a trace. Read this first.

The order is fixed: which tool (`detect`), the verifier's files (`model`), the sequences
(`collect`), then what no dump says: the norm stage (`stage`), the layers (`layers`), the alignment
(`alignment`), and last the oracle (`oracle`). Nothing is written here.
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
from audit.dumps.oracle import Oracle, States, find_oracle
from audit.dumps.reader import Reader
from audit.dumps.request import ImportRequest
from audit.dumps.stage import check_not_normalised, decide_stage, measure_rms
from audit.dumps.strays import Strays, find_strays, require_no_strays
from audit.errors import BadUsageError, MismatchError
from audit.provenance import versions
from audit.records import ExtraState, Finding, Stage, TraceInfo
from audit.traces import Trace
from audit.traces.repeats import repeated


@dataclass(frozen=True, slots=True)
class Imported:
    """A trace in no file yet, the tool it is from, and what was noticed."""

    trace: Trace
    source: str
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Measured:
    """What the dump did not say, with the settings that a trace keeps of it."""

    stage: Stage
    stage_facts: dict[str, Any]
    layers: Layers
    alignment: dict[str, Any]
    findings: list[Finding]


def import_dump(request: ImportRequest, progress: Progress | None = None) -> Imported:
    """Read, check and measure a dump.

    Raises:
        AuditError: what is missing, contradicts itself or belongs to something else, by name.
    """
    report = progress or (lambda what, done, total: None)
    reader = open_dump(request.dump, request.format, request.tokens, request.limit_files)
    _check_options(request, reader)
    model = open_model(request.model) if request.model else None
    nameable = bool(request.layers) or (model is not None and model.depth is not None)
    found = collect(reader, request.max_positions, nameable, report)
    if model is not None:
        _check_fits(found, model, reader)
    measured = _measure(request, reader, found, model)
    states = States(found.hidden, model, measured.stage)
    oracle = find_oracle(request, reader, found, states, report)
    trace = _trace(request, reader, found, model, measured, oracle)
    findings = [*reader.findings, *measured.findings, *oracle.findings, *repeated(trace)]
    return Imported(trace, reader.name, findings)


def _check_options(request: ImportRequest, reader: Reader) -> None:
    """Refuse what is missing, and what would be ignored, before anything large is read."""
    if request.model is None and request.stage is None:
        decide_stage(None, None, reader, None)
    if request.numbering and not request.layers:
        raise BadUsageError(
            "--layer-numbering says how --layers is to be read, and there is no --layers",
            hint="give the layers too, or leave both away for the documented default",
        )
    if request.tokens and not (reader.needs_tokens and len(reader.files) == 1):
        why = "several files" if reader.needs_tokens else "its own tokens"
        raise BadUsageError(
            f"--tokens is of one file of states without tokens, and this dump of {reader.name} "
            f"has {why}",
            hint="leave --tokens away; beside each file of llama.cpp may lie NAME-tokens.txt",
            where=request.dump,
        )


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


def _measure(
    request: ImportRequest, reader: Reader, found: Collected, model: Model | None
) -> _Measured:
    stage, facts, findings = _stage(request, reader, found, model)
    layers = name_layers(
        reader,
        len(found.further),
        model.depth if model else None,
        request.layers,
        request.numbering or reader.numbering_of(stage),
    )
    states = States(found.hidden, model, stage)
    alignment, more = _alignment(request, reader, found, states)
    return _Measured(stage, facts, layers, alignment, [*findings, *layers.findings, *more])


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
        bounds = {"rms_low": round(rms.low, 4), "rms_high": round(rms.high, 4)}
        facts |= {"source": "measured", **bounds}
    return stage, facts, findings


def _alignment(
    request: ImportRequest, reader: Reader, found: Collected, states: States
) -> tuple[dict[str, Any], list[Finding]]:
    """Where there is a head: shown, or refused, or forced and marked."""
    if states.model is None:
        return {"status": "unchecked"}, [
            _warning(
                "ALIGNMENT_UNCHECKED",
                "without the model nothing shows that these states belong to these tokens; give "
                "--model to have the alignment checked",
            )
        ]
    evidence = text_logits(states.model.head, states, found.token, found.sequence)
    require_alignment(evidence, reader.dump, force=request.force)
    strays = find_strays(evidence)
    require_no_strays(strays, found.names, reader.dump, force=request.force)
    z = {f"{shift:+d}": round(value, 2) for shift, value in evidence.z.items()}
    texts = {"shown": strays.shown, "untold": strays.untold, "astray": len(strays.astray)}
    settings = {"positions": evidence.positions, "standard_errors": z, "texts": texts}
    if evidence.shown and not strays.astray:
        return settings | {"status": "shown"}, _untold(strays, len(found.names))
    sentence = "the alignment of states and tokens could not be shown, and --force went on"
    return settings | {"status": "forced"}, [_warning("ALIGNMENT_FORCED", sentence)]


def _untold(strays: Strays, texts: int) -> list[Finding]:
    if not strays.untold:
        return []
    sentence = (
        f"{strays.untold:,} of {texts:,} texts are too short, or too little known to the model, to "
        "show their alignment each by itself; all together they do"
    )
    return [Finding(code="ALIGNMENT_UNTOLD", severity="note", subject="dump", sentence=sentence)]


def _trace(
    request: ImportRequest,
    reader: Reader,
    found: Collected,
    model: Model | None,
    measured: _Measured,
    oracle: Oracle,
) -> Trace:
    kept = [(i, layer) for i, layer in enumerate(measured.layers.entering) if layer is not None]
    info = TraceInfo(
        model=model.name if model else "not given",
        model_sha256=model.sha256 if model else None,
        tokenizer_sha256=model.tokenizer_sha256 if model else None,
        vocabulary=model.vocabulary if model else None,
        corpus=request.corpus,
        corpus_sha256=found.sha256(),
        register=request.register,
        language=request.language,
        stage=measured.stage,
        oracle=oracle.kind,
        states=tuple(ExtraState(tensor=f"layer_{layer}", layer=layer) for _, layer in kept),
        captured_by=f"head-audit {__version__} from {reader.name}",
        settings={
            "alignment": measured.alignment,
            "dtype": str(found.hidden.dtype).removeprefix("torch."),
            "files": found.files,
            "layers": measured.layers.settings,
            "loss_mask": oracle.mask,
            "max_positions": request.max_positions,
            "oracle": oracle.settings,
            "source": reader.name,
            "stage": measured.stage_facts,
            "versions": {"torch": versions().get("torch")},
        },
    )
    states = {f"layer_{layer}": found.further[i] for i, layer in kept}
    columns = (found.token, oracle.token, found.sequence, found.position)
    return Trace(info, found.hidden, *columns, states, counted=oracle.counted)


def _warning(code: str, sentence: str) -> Finding:
    return Finding(code=code, severity="warning", subject="dump", sentence=sentence)
