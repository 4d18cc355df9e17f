"""What head is in a file: for `audit inspect`, without comparing anything."""

from __future__ import annotations

from pathlib import Path

from audit.files import open_container
from audit.heads.loading import load_head
from audit.heads.options import HeadOptions
from audit.heads.preflight import check_alone
from audit.heads.scan import scan_rows
from audit.heads.tokens import token_kinds
from audit.records import Inspection


def inspect_head(path: Path, options: HeadOptions) -> Inspection:
    """Read a head, look at every weight once, and report.

    Raises:
        AuditError: what `load_head` raises; the message names where the head was looked for.
    """
    container = open_container(path)
    head = load_head(path, options)
    scan = scan_rows(head.rows)
    return Inspection(
        head=head.record,
        files=tuple(str(file) for file in container.files),
        tensors_in_file=len(container.entries),
        norm_found=head.norm is not None,
        valid_ids=head.valid,
        row_norm_median=float(scan.norms.median()),
        dead_rows=int(scan.dead_rows.sum()),
        dead_columns=int(scan.dead_columns.sum()),
        preflight=tuple(check_alone(head, scan, token_kinds(container))),
    )
