"""Where audits are kept, and what people decided on them.

    LEDGER/runs/<id>/                    a run: its document and its table of positions
    LEDGER/calibrations/, policies/      yardsticks of references, texts of policies
    LEDGER/index.sqlite                  index, reviews, waivers, judgements; or AUDIT_DB_URL

The files are immutable and named by their content; what is read is checked again. `store` and
`objects` know where files lie, `runs` and `keep` what they are, `database`, `migrations` and
`schema` the tables, `index` and `listing` the runs in them, `entries` and `reviewing` what people
said, `verify` what is damaged, `info` what there is. `ledger` brings them together.
"""

from audit.ledger.documents import (
    ID_LENGTH,
    Judgement,
    content_id,
    find_candidate,
    parse_run,
    run_json,
    seal,
    storable,
)
from audit.ledger.info import LedgerInfo, describe
from audit.ledger.ledger import LATEST, Ledger, open_ledger
from audit.ledger.listing import CandidateRow, RunFilter, RunList, RunRow
from audit.ledger.reviewing import WHOLE_GATE, in_force, limits_to_waive, standing
from audit.ledger.verify import Problem, Verification, verify
from audit.provenance import json_text

__all__ = [
    "ID_LENGTH",
    "LATEST",
    "WHOLE_GATE",
    "CandidateRow",
    "Judgement",
    "Ledger",
    "LedgerInfo",
    "Problem",
    "RunFilter",
    "RunList",
    "RunRow",
    "Verification",
    "content_id",
    "describe",
    "find_candidate",
    "in_force",
    "json_text",
    "limits_to_waive",
    "open_ledger",
    "parse_run",
    "run_json",
    "seal",
    "standing",
    "storable",
    "verify",
]
