"""All preflight checks in their order, for one file and for a reference with its candidates.

Most real failures end here. What is checked, and under which code, is in `heads.preflight` (rows),
`heads.lost` and `heads.special_ids` (tokens) and `blocks.preflight` (draft heads).
"""

from __future__ import annotations

from dataclasses import dataclass

from audit.blocks import BlockHead
from audit.blocks.preflight import check_blocks, check_container, check_served
from audit.files import Container
from audit.heads import Head
from audit.heads.lost import class_coverage, coverage_findings
from audit.heads.preflight import check_alone, check_pair
from audit.heads.scan import HeadScan
from audit.heads.special_ids import check_ids_known, check_same_words
from audit.heads.tokens import Tokens, read_tokens
from audit.heads.told import findings
from audit.records import Finding


def findings_alone(
    container: Container, head: Head, scan: HeadScan, tokens: Tokens, verifier: Container | None
) -> list[Finding]:
    """Everything one file shows by itself; raises as `check_alone`."""
    name = head.record.name
    covered = coverage_findings(class_coverage(head, tokens))
    found = check_alone(head, scan, tokens.kinds)
    return findings(covered, name) + of_file(container, head, name, verifier) + found


def of_file(
    container: Container, head: Head, subject: str, verifier: Container | None = None
) -> list[Finding]:
    """What a file says beside its head's rows: draft heads declared and there, special ids.

    Args:
        verifier: the target model, to hold a draft's own projection and embedding against.
    """
    served = check_served(head, verifier) if isinstance(head, BlockHead) else ()
    found = [*check_container(container), *check_ids_known(container, head), *served]
    return findings(found, subject)


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """A reference, to hold candidates against."""

    container: Container
    ref: Head
    scan: HeadScan
    tokens: Tokens
    """What is known of the target's ids."""
    own: Tokens
    """What the reference's own files say of them; the same unless a draft took its verifier's."""

    def findings(self, container: Container | None, cand: Head, scan: HeadScan) -> list[Finding]:
        """Everything a candidate shows beside the reference.

        Args:
            container: its file; None for the reference's own rows under a ranks card.

        Raises:
            AuditError: as `check_pair`, and TOKENS_DIFFER.
        """
        name = cand.record.name
        more = list(coverage_findings(class_coverage(cand, self.tokens)))
        if isinstance(self.ref, BlockHead) and isinstance(cand, BlockHead):
            more += check_blocks(self.ref, cand)
        of_its_file = []
        if container is not None:
            of_its_file = of_file(container, cand, name)
            pair = (self.container, self.own, container, read_tokens(container))
            more += check_same_words(*pair, cand.is_full)
        found = check_pair(self.ref, self.scan, cand, scan, self.tokens.kinds)
        return findings(more, name) + of_its_file + found
