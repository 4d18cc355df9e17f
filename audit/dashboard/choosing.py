"""What can be chosen for a new audit: files of the server, uploads, and what the package brings.

Every choice has a key by which it is asked for. Only a key of this list becomes a path, and a
file of the server is checked once more then: what a browser sends is never a path itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from audit.errors import BadUsageError
from audit.jobs import JobRequest, ServedFiles, safe_name
from audit.jobs.along import Kind
from audit.jobs.files import kind_of
from audit.report.wording import clean

SAMPLE_MODEL, SAMPLE_TRACES, RELEASE = "sample:model", "sample:traces", "package:policy"
_SERVED, _UPLOAD = "file:", "upload:"


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that can be chosen."""

    key: str
    label: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Asked:
    """What was chosen, by keys."""

    ref: str | None
    cands: tuple[str, ...]
    traces: tuple[str, ...]
    policy: str | None
    head: str
    kl: bool


def choices(served: ServedFiles | None, uploads: Sequence[str]) -> dict[str, Choice]:
    """All choices by key: uploads first, then files of the server, then the package's own.

    Args:
        uploads: names as the browser tells them.

    Raises:
        AuditError: the served folder is not there, or an upload is of a kind that is not taken.
    """
    listed: list[Choice] = []
    for name in map(safe_name, uploads):
        listed += [Choice(upload_key(name), f"{name} (upload)", kind) for kind in kind_of(name)]
    for one in served.listing() if served else ():
        # A folder may hold a model and traces too, so the kind is part of the key.
        listed.append(Choice(f"{_SERVED}{one.kind}:{one.name}", clean(one.name), one.kind))
    listed += [
        Choice(SAMPLE_MODEL, "sample: the model in this package", "head"),
        Choice(SAMPLE_TRACES, "sample: its traces", "trace"),
        Choice(RELEASE, "release: the policy of `audit policy init`", "policy"),
    ]
    return {one.key: one for one in listed}


def upload_key(name: str) -> str:
    """The key of an upload that the browser calls `name`."""
    return _UPLOAD + safe_name(name)


def of_kinds(known: Mapping[str, Choice], *kinds: Kind) -> list[str]:
    """Keys of the choices of some kinds."""
    return [key for key, one in known.items() if one.kind in kinds]


def request_fields(
    asked: Asked, known: Mapping[str, Choice], served: ServedFiles | None, uploads: Path
) -> dict[str, object]:
    """The fields of the job that was asked for.

    Args:
        uploads: the folder where uploads will lie.

    Raises:
        AuditError: something is missing, or a file is not to be served.
    """

    def path(key: str, *, finds_traces: bool = False) -> str:
        return str(_path(key, known, served, uploads, finds_traces=finds_traces))

    if asked.ref is None:
        raise BadUsageError("no reference was chosen", hint="choose the head before the cut")
    if not asked.cands:
        raise BadUsageError("no candidate was chosen", hint="choose one cut or more")
    ranks = [key for key in asked.cands if key in known and known[key].kind == "ranks"]
    fields: dict[str, object] = {
        "ref": path(asked.ref, finds_traces=not asked.traces),
        "cands": tuple(path(key) for key in asked.cands if key not in ranks),
        "trims": tuple(path(key) for key in ranks),
        "traces": tuple(map(path, asked.traces)),
        "head": asked.head.strip() or None,
        "policy": path(asked.policy) if asked.policy else None,
        "kl": asked.kl,
    }
    # A command line tells options by their dash.
    if str(fields["head"]).startswith("-"):
        raise BadUsageError(f"no head is called {asked.head!r}", hint="lm, mtp, exit:16, …")
    assert set(fields) <= set(JobRequest.model_fields)
    return fields


def _path(
    key: str,
    known: Mapping[str, Choice],
    served: ServedFiles | None,
    uploads: Path,
    *,
    finds_traces: bool,
) -> Path:
    if key not in known:
        raise BadUsageError(
            "what was chosen is not there any more", hint="choose again among what is listed"
        )
    package = Path(str(files("audit")))
    own = {
        SAMPLE_MODEL: package / "sample" / "model",
        SAMPLE_TRACES: package / "sample" / "traces",
        RELEASE: package / "policy" / "release.toml",
    }
    if key in own:
        return own[key]
    if key.startswith(_UPLOAD):
        return uploads / key.removeprefix(_UPLOAD)
    assert served is not None
    name = key.removeprefix(_SERVED).partition(":")[2]
    return served.path(name, known[key].kind, finds_traces=finds_traces)
