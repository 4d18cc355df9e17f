"""`audit chain` against the sample's own training code, run one token at a time."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from audit.chains.reading import read_chain
from audit.chains.records import ChainResult
from audit.chains.verifying import Checker, check_model
from audit.errors import MismatchError
from audit.traces import read_trace
from tools.sample.model import load

from .conftest import CODE, GERMAN, MODEL, run

K = 3


def _chain(*args: object, code: int = 0) -> dict[str, Any]:
    done = run("chain", *args, "--json", "--resamples", 200)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def by_hand():
    """The sample as it was trained: its own MTP layers and verifier."""
    return load(MODEL)


def _drafted(sample, tokens: torch.Tensor, hidden: torch.Tensor, slots: int) -> list[int]:
    """Recursive drafting with the training code: own output state, drafted token."""
    found: list[int] = []
    for _ in range(slots):
        # The last of the rows that head_states takes is a state without a next token.
        rows = torch.cat([hidden, hidden[-1:]]).unsqueeze(0)
        state = sample.head_states(tokens.unsqueeze(0), rows)[0, -1]
        found.append(int(sample.verifier.lm_head(state).argmax()))
        tokens = torch.cat([tokens, torch.tensor(found[-1:])])
        hidden = torch.cat([hidden, state.unsqueeze(0)])
    return found


def _accepted(sample, tokens: torch.Tensor, drafts: list[int], oracle: int) -> int:
    """Drafts that the verifier itself says, one step after the other."""
    count, wanted = 0, oracle
    for draft in drafts:
        if draft != wanted:
            return count
        count += 1
        if draft == 0:  # <|endoftext|>
            return count
        tokens = torch.cat([tokens, torch.tensor([draft])])
        wanted = int(sample.verifier(input_ids=tokens.unsqueeze(0)).logits[0, -1].argmax())
    return count


def test_chains_are_those_of_the_training_code(by_hand) -> None:
    from audit.chains.asking import ChainRequest, run_chain
    from audit.chains.drafting import Anchors, draft_chains
    from audit.chains.recursion import recursion_for
    from audit.heads import HeadOptions
    from audit.pair import PairOptions, choose_head, load_ref
    from audit.stats import Resampling

    pair = PairOptions(head="mtp")
    request = ChainRequest(
        MODEL, slots=K, traces=(CODE,), anchors=60, pair=pair,
        resampling=Resampling(resamples=200, seed=3),
    )  # fmt: skip
    result = run_chain(request)
    trace = read_trace(CODE)
    # The anchors that the seed draws, found again by the same rule.
    from audit.chains.anchors import draw_anchors

    anchors, _ = draw_anchors(trace, 2, K, 60, 3, ends=[0], context=512)
    head = load_ref(MODEL, choose_head(MODEL, [], "mtp"), HeadOptions(), pair.block)
    drafts = draft_chains(
        head, recursion_for(head, None), trace, anchors, slots=K, valid=head.vocabulary
    )
    counts, drafted = [], []
    with torch.no_grad():
        for row, target in zip(anchors.rows.tolist(), anchors.targets.tolist(), strict=True):
            first = target - int(trace.position[target])
            text, hidden = trace.token[first : target + 1], trace.hidden[first : row + 1].float()
            mine = _drafted(by_hand, text, hidden, K)
            drafted.append(mine)
            counts.append(_accepted(by_hand, text, mine, int(trace.oracle[target])))
    assert drafts.tokens.tolist() == drafted
    accepted = np.array([[count > slot for slot in range(K)] for count in counts])
    (figures, pooled) = result.heads[0].figures
    assert figures.accepted == tuple(accepted.sum(0)) and 0 < accepted[:, K - 1].sum() < 60
    p = accepted.mean(0)
    assert [e.value for e in figures.p] == pytest.approx(p)
    assert [e.value for e in figures.c] == pytest.approx([p[0], p[1] / p[0], p[2] / p[1]])
    assert figures.chain_acceptance.value == pytest.approx(p.sum() / K)
    assert figures.tokens_per_round.value == pytest.approx(1 + np.mean(counts))
    assert pooled.accepted == figures.accepted
    assert isinstance(anchors, Anchors)


def test_slot_0_is_what_compare_measures(mtp_q4) -> None:
    args = (MODEL, mtp_q4, "--head", "mtp", "--trace", GERMAN)
    done = run("compare", *args, "--resamples", 200, "--json", "--ledger", mtp_q4.parent / "ledger")
    assert done.exit_code == 0, done.output
    known = {
        e["measure"]: e
        for e in json.loads(done.stdout)["candidates"][0]["estimates"]
        if e["corpus"] == "german" and e["token_class"] is None
    }
    # Without a verifier, as from a bare head file: the first slot of all positions.
    ref, cand = _chain(*args, "--slots", 1, "--anchors", 0)["heads"]
    (here, *_), (there, *_) = ref["figures"], cand["figures"]
    rows = known["acceptance_ref"]["positions"]
    assert here["chains"] == rows
    assert here["p"][0]["value"] == pytest.approx(known["acceptance_ref"]["value"])
    assert there["p"][0]["value"] == pytest.approx(known["acceptance_cand"]["value"])
    (harm, *_) = cand["harm"]
    assert harm["disagreements"][0] / rows == pytest.approx(known["disagreement"]["value"])
    assert harm["harm"][0]["value"] == pytest.approx(known["harm"]["value"])
    # The same sequences, drawn alike: the intervals are the same too.
    for mine, theirs in ((here, "acceptance_ref"), (there, "acceptance_cand")):
        assert mine["p"][0]["low"] == pytest.approx(known[theirs]["low"])
        assert mine["p"][0]["macro"] == pytest.approx(known[theirs]["macro"])


def test_several_heads_one_document(mtp_q4, mtp_trim, tmp_path) -> None:
    out = tmp_path / "chain.json"
    args = (MODEL, mtp_q4, mtp_trim, "--head", "mtp", "--trace", CODE, "--trace", GERMAN)
    found = _chain(*args, "--slots", 2, "--anchors", 40, "-o", out)
    written = ChainResult.model_validate_json(out.read_text())
    assert written.model_dump(mode="json", by_alias=True) == found
    assert [len(head["figures"]) for head in found["heads"]] == [4, 4, 4]
    for head in found["heads"][1:]:
        for harm, mine, ref in zip(
            head["harm"], head["figures"], found["heads"][0]["figures"], strict=True
        ):
            # Tokens lost are the difference of tokens per round, and the sum of what each p lost.
            lost = ref["tokens_per_round"]["value"] - mine["tokens_per_round"]["value"]
            assert harm["tokens_lost"]["value"] == pytest.approx(lost)
            assert sum(e["value"] for e in harm["loss"]) == pytest.approx(lost)
            assert harm["both"][0] == mine["chains"]
            assert harm["both"][1] <= min(mine["accepted"][0], ref["accepted"][0])
    cost = run("cost", MODEL, mtp_q4, mtp_trim, "--head", "mtp", "--chain", out, "--slots", 2,
               "--bandwidth", 100, "--json")  # fmt: skip
    assert cost.exit_code == 0, cost.output
    worth = {one["name"]: one["worth"] for one in json.loads(cost.stdout)["scenarios"]}
    assert worth["python-code"][2]["tokens_per_round"] == pytest.approx(
        found["heads"][2]["figures"][0]["tokens_per_round"]["value"]
    )
    shown = run("chain", *args, "--slots", 2, "--anchors", 10, "--resamples", 200)
    assert shown.exit_code == 0 and "tokens per round" in shown.output


def test_p_min_stops_drafting() -> None:
    args = (MODEL, "--head", "mtp", "--trace", CODE, "--anchors", 30, "--slots", 2)
    (free, *_) = _chain(*args)["heads"][0]["figures"]
    (kept, *_) = _chain(*args, "--p-min", 0.5)["heads"][0]["figures"]
    assert free["drafted"] == [30, 30]
    assert 30 > kept["drafted"][0] >= kept["drafted"][1]
    assert all(a <= b for a, b in zip(kept["accepted"], free["accepted"], strict=True))
    assert all(a <= d for a, d in zip(kept["accepted"], kept["drafted"], strict=True))
    (none, *_) = _chain(*args, "--p-min", 1)["heads"][0]["figures"]
    assert none["drafted"][0] < kept["drafted"][0]


def test_bad_input(tmp_path) -> None:
    base = (MODEL, "--head", "mtp", "--trace", CODE)

    def refused(*args: object) -> dict[str, str]:
        return _chain(*args, code=2)["error"]

    assert "1 to 64 slots" in refused(*base, "--slots", 0)["message"]
    assert "no probability" in refused(*base, "--p-min", 1.5)["message"]
    assert "no probability" in refused(*base, "--p-min", "nan")["message"]
    assert "device 'abacus' can not be used" in refused(*base, "--device", "abacus")["message"]
    assert "CHAIN_HEAD" in refused(MODEL, "--head", "lm", "--trace", CODE)["message"]
    alone = tmp_path / "alone"
    alone.mkdir()
    # A head without its verifier: one slot from the trace alone, more need the model.
    (alone / "config.json").write_bytes((MODEL / "config.json").read_bytes())
    (alone / "model.safetensors").write_bytes((MODEL / "model.safetensors").read_bytes())
    draft = (alone, "--head", "mtp", "--trace", CODE, "--anchors", 20)
    error = refused(*draft, "--slots", 2)
    assert "need the verifier's model" in error["message"] and "--slots 1" in error["hint"]
    one = _chain(*draft, "--slots", 1)
    assert one["verifier"] is None and one["heads"][0]["figures"][0]["chains"] == 20


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's model with one layer changed."""
    folder = tmp_path_factory.mktemp("other") / "other"
    shutil.copytree(MODEL, folder)
    weights = load_file(folder / "model.safetensors")
    name = next(
        n for n in weights if n.endswith("layers.0.mlp.down_proj.weight") and "mtp" not in n
    )
    noise = torch.randn(weights[name].shape, generator=torch.Generator().manual_seed(0))
    changed = weights[name].float()
    weights[name] = (changed + 0.5 * changed.std() * noise).to(weights[name].dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_another_verifier_is_told_or_refused(other: Path, tmp_path: Path) -> None:
    args = (MODEL, "--head", "mtp", "--slots", 2, "--trace", CODE, "--verifier", other)
    few = tmp_path / "few.json"
    found = _chain(*args, "--anchors", 6, "-o", few)
    (warning,) = found["findings"]
    assert (warning["code"], warning["severity"]) == ("VERIFIER_OTHER", "warning")
    assert "not the model that this trace was captured from" in warning["sentence"]
    shown = run("chain", *args, "--anchors", 6)
    assert "warning: python-code: other is not the model" in shown.output
    assert read_chain(few).findings  # what was written is read again
    own = _chain(*args[:-2], "--anchors", 6)
    assert own["findings"] == []


def test_agreement_of_a_few_positions_is_held_against_the_verifier(verifier) -> None:
    """25 of 30: at 99 % its upper end is 0.962, at 90 % 0.932 (scipy.stats.beta)."""
    trace = read_trace(CODE)

    def checked(agreed: int, of: int, sha256: str | None) -> Checker:
        info = trace.info.model_copy(update={"model_sha256": sha256})
        checker = Checker(verifier, replace(trace, info=info))
        checker.agreed, checker.checked = agreed, of
        return checker

    own = trace.info.model_sha256
    check_model([checked(25, 30, own)])
    assert [f.code for f in checked(25, 30, own).findings()] == ["VERIFIER_DISAGREES"]
    assert not list(checked(29, 30, own).findings())
    with pytest.raises(MismatchError, match="83% of 30 positions"):
        check_model([checked(25, 30, "0" * 64)])
    # Neither trace alone is sure, both together are.
    with pytest.raises(MismatchError, match="83% of 60 positions"):
        check_model([checked(25, 30, own), checked(25, 30, own)])
    check_model([checked(0, 0, own)])
