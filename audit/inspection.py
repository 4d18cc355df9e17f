"""What head is in a file: for `audit inspect`, without comparing anything."""

from __future__ import annotations

from pathlib import Path

from audit.blocks import heads_in
from audit.files import open_container
from audit.heads import HeadOptions
from audit.heads.dialects import absent_heads, dialects_in
from audit.heads.lost import class_coverage
from audit.heads.scan import scan_rows
from audit.heads.tokens import read_tokens
from audit.pair import PairOptions, choose_head, load_ref
from audit.preflight import findings_alone
from audit.records import Inspection

_CHOOSE = PairOptions()


def inspect_head(path: Path, options: HeadOptions, pair: PairOptions = _CHOOSE) -> Inspection:
    """Read a head, look at every weight once, and report.

    Args:
        path, options: the file, and what the user said of it.
        pair: which head, by default the LM head or the only one there is, and its block.

    Raises:
        AuditError: what loading raises; the message names where the head was looked for.
    """
    container = open_container(path)
    head = load_ref(path, choose_head(path, [], pair.head), options, pair.block)
    scan = scan_rows(head.rows)
    heads = tuple(heads_in(container)) or ("lm",)
    tokens = read_tokens(container)
    return Inspection(
        head=head.record,
        files=tuple(str(file) for file in container.files),
        tensors_in_file=len(container.entries),
        heads=heads,
        norm_found=head.norm is not None,
        valid_ids=head.valid,
        row_norm_median=float(scan.norms.median()),
        dead_rows=int(scan.dead_rows.sum()),
        dead_columns=int(scan.dead_columns.sum()),
        dialects=dialects_in(container),
        absent=absent_heads(container, heads),
        coverage=class_coverage(head, tokens),
        preflight=tuple(findings_alone(container, head, scan, tokens, pair.block.verifier)),
    )
