"""Release a draft head only if the policy lets it pass: `python gate.py CAND`."""

import sys

import audit

try:
    run = audit.compare("model/", sys.argv[1], head="mtp", traces=["traces/"])
    judged = audit.gate(run, "policy.toml")
except audit.AuditError as error:
    sys.exit(f"{error.message}\n{error.hint}")
for candidate in judged.candidates:
    print(candidate.verdict.sentence)
    print(candidate.gate.sentence)
sys.exit(audit.exit_code(judged))
