"""Calibrations and policies: small immutable files, named by their content.

    calibrations/<reference>.<hash>.json  a reference's yardsticks, from `audit study`
    policies/<hash>.toml                  the text of a policy that judged a run

Of a reference's calibrations that one counts which was made on the traces in question, the newest
where several were. Older ledgers hold `<reference>.json`, which is read as well, but nothing can
tell whether it was changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from audit.calibration import Calibration
from audit.errors import NotFoundError, UnreadableError, first_line
from audit.ledger.documents import ID_LENGTH, changed
from audit.ledger.store import Store
from audit.provenance import json_text

CALIBRATIONS, POLICIES = "calibrations", "policies"
_CALIBRATION = re.compile(rf"([0-9a-f]{{{ID_LENGTH}}})(?:\.([0-9a-f]{{{ID_LENGTH}}}))?\.json")
_POLICY = re.compile(r"([0-9a-f]{64})\.toml")


def save_calibration(store: Store, calibration: Calibration) -> str:
    """Keep a reference's calibration and return its name."""
    text = json_text(calibration.model_dump(by_alias=True, mode="json"), indent=None)
    content = f"{text}\n".encode()
    name = f"{calibration.reference[:ID_LENGTH]}.{_sha256(content)[:ID_LENGTH]}"
    store.write(f"{CALIBRATIONS}/{name}.json", content)
    return name


def load_calibration(
    store: Store, reference: str, traces: Mapping[str, str] | None = None
) -> Calibration | None:
    """The newest calibration of the reference head with this hash; None when there is none.

    Args:
        traces: corpus -> hash of its trace; a calibration on all of these comes before newer ones.

    Raises:
        UnreadableError: it is there and can not be read, or was changed.
    """
    mine = [
        f"{CALIBRATIONS}/{name}"
        for name in store.children(CALIBRATIONS)
        if (match := _CALIBRATION.fullmatch(name)) and match[1] == reference[:ID_LENGTH]
    ]
    mine.sort(key=lambda name: (store.modified(name), name), reverse=True)
    found = (read_calibration(store, name) for name in mine)
    newest = next(found, None)
    if newest is None or newest.covers(traces or {}):
        return newest
    return next((one for one in found if one.covers(traces or {})), newest)


def read_calibration(store: Store, name: str) -> Calibration:
    """One calibration file, checked against its name. Raises UnreadableError."""
    where = store.where(name)
    try:
        content = store.read(name)
        found = Calibration.model_validate_json(content)
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"this calibration can not be read: {first_line(error)}",
            hint="make it again with `audit study`, or remove the file",
            where=where,
        ) from error
    match = _CALIBRATION.fullmatch(name.rpartition("/")[2])
    if match is None or match[1] != found.reference[:ID_LENGTH]:
        raise changed("calibration", "it is of another reference than its name", where)
    if match[2] and match[2] != _sha256(content)[:ID_LENGTH]:
        raise changed("calibration", "its content no longer gives its name", where)
    return found


def save_policy(store: Store, text: str) -> str:
    """Keep a policy's text and return its hash."""
    content = text.encode()
    digest = _sha256(content)
    store.write(f"{POLICIES}/{digest}.toml", content)
    return digest


def policy_text(store: Store, sha256: str) -> str:
    """The text of a policy, checked against its hash.

    Raises:
        NotFoundError: no such policy was kept here.
        UnreadableError: it was changed.
    """
    name = f"{POLICIES}/{sha256}.toml"
    where = store.where(name)
    try:
        if not _POLICY.fullmatch(f"{sha256}.toml"):
            raise FileNotFoundError(name)
        content = store.read(name)
        if _sha256(content) != sha256:
            raise changed("policy", "its text no longer gives its name", where)
        return content.decode()
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no policy {sha256[:ID_LENGTH]} in this ledger",
            hint="`audit gate RUN --policy FILE` keeps the policy it judged by",
            where=where,
        ) from error
    except UnicodeDecodeError as error:
        raise changed("policy", "it is no UTF-8 text", where) from error


def policy_hash(name: str) -> str:
    """The hash that a policy's file name holds."""
    return name.rpartition("/")[2].removesuffix(".toml")


def kept(store: Store, folder: str) -> list[str]:
    """Names of the calibrations or policies; other files do not count."""
    pattern = _CALIBRATION if folder == CALIBRATIONS else _POLICY
    return [f"{folder}/{name}" for name in store.children(folder) if pattern.fullmatch(name)]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
