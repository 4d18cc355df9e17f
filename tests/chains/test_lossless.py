"""The loop against plain decoding, and what it accepts against what `chain` predicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from audit.chains import live as live_module
from audit.chains.live import Live, Plain, decode_plainly
from audit.chains.lossless import difference
from audit.traces import read_trace

from .conftest import CODE, MODEL, run

PROMPTS, TOKENS = 50, 6


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory, verifier) -> Path:
    """Fifty pieces of the sample's held-out code, 12 to 24 tokens each."""
    trace, lines = read_trace(CODE), []
    for number in range(PROMPTS):
        first = number * 40
        ids = trace.token[first : first + 12 + number % 13].tolist()
        lines.append(json.dumps({"text": verifier.tokenizer.decode(ids)}))
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def _lossless(*args: object, code: int = 0) -> dict[str, Any]:
    done = run("lossless", MODEL, *args, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_the_head_its_trim_and_its_q4_0_on_fifty_prompts(prompts, mtp_trim, mtp_q4) -> None:
    found = _lossless(
        mtp_trim, mtp_q4, "--head", "mtp", "--prompts", prompts, "--tokens", TOKENS, "--slots", 2
    )
    assert (found["prompts"], len(found["heads"])) == (PROMPTS, 3)
    for head in found["heads"]:
        assert head["identical"] and head["differences"] == []
        # Two ways to the same numbers, round by round.
        assert head["rounds_apart"] == 0 and head["predicted"] == head["accepted"]
        assert head["rounds"] == head["drafted"][0] > head["accepted"][0] > head["accepted"][1] > 0
        assert head["tokens_per_round"] == pytest.approx(1 + sum(head["accepted"]) / head["rounds"])
    ref, trim, _ = found["heads"]
    assert trim["accepted"][0] / trim["rounds"] <= ref["accepted"][0] / ref["rounds"]


def test_an_early_exit_runs_its_own_layers(prompts) -> None:
    args = ("--head", "exit:2", "--prompts", prompts, "--max-prompts", 4, "--tokens", 8)
    found = _lossless(*args, "--slots", 2)
    (head,) = found["heads"]
    assert head["identical"] and head["rounds_apart"] == 0
    assert head["accepted"][1] > 0
    # A head that is never sure enough drafts nothing, and the text is the same.
    (shy,) = _lossless(*args, "--slots", 2, "--p-min", 1)["heads"]
    assert shy["drafted"] == [0, 0] and shy["identical"] and shy["tokens_per_round"] == 1.0


def test_plain_decoding_is_transformers_own(verifier) -> None:
    prompt = read_trace(CODE).token[:20]
    plain = decode_plainly(verifier, prompt, 24, ends=[0])
    config = GenerationConfig(max_new_tokens=24, do_sample=False, eos_token_id=0, pad_token_id=0)
    with torch.no_grad():
        theirs = verifier.model.generate(prompt.unsqueeze(0), generation_config=config)
        whole = verifier.model(torch.cat([prompt, torch.tensor(plain.tokens)]).unsqueeze(0))
    assert plain.tokens == theirs[0, 20:].tolist()
    best = whole.logits[0, 19:-1].topk(2).values
    assert plain.margins == pytest.approx((best[:, 0] - best[:, 1]).tolist(), abs=1e-3)


def test_without_a_cache_the_text_is_the_same(verifier, monkeypatch) -> None:
    prompt = read_trace(CODE).token[:20]
    cached = decode_plainly(verifier, prompt, 12, ends=[0])
    monkeypatch.setattr(live_module, "_cache", lambda model, longest: None)
    assert decode_plainly(verifier, prompt, 12, ends=[0]).tokens == cached.tokens


def test_a_loop_that_accepts_too_much_is_caught(prompts, monkeypatch) -> None:
    """The check can fail: believe every draft, and the texts part."""
    monkeypatch.setattr(live_module, "_accepted", lambda drafts, right, ends: len(drafts))
    args = ("--head", "mtp", "--prompts", prompts, "--max-prompts", 6, "--tokens", 8)
    found = _lossless(*args, code=1)
    (head,) = found["heads"]
    assert not head["identical"] and head["rounds_apart"] > 0
    first = head["differences"][0]
    assert f"prompt {first['prompt']}, new token {first['position']}: token " in first["sentence"]
    assert first["plain_token"] != first["token"] and first["margin"] > 0
    shown = run("lossless", MODEL, *args)
    assert shown.exit_code == 1 and "are NOT those without the head" in shown.output


def test_differences_by_hand() -> None:
    plain = Plain([5, 6, 7], [2.0, 1e-6, 3.0])
    assert difference(0, plain, Live(tokens=[5, 6, 7])) is None
    near = difference(3, plain, Live(tokens=[5, 9, 7]))
    assert near is not None and near.near_tie
    assert (near.prompt, near.position, near.plain_token, near.token) == (3, 1, 6, 9)
    assert "near-tie that rounding decides" in near.sentence
    sure = difference(3, plain, Live(tokens=[5, 6, 8]))
    assert sure is not None and not sure.near_tie and sure.position == 2
    short = difference(3, plain, Live(tokens=[5, 6]))
    assert short is not None and (short.position, short.token) == (2, None)
    long = difference(3, plain, Live(tokens=[5, 6, 7, 8]))
    assert long is not None and (long.plain_token, long.margin) == (None, None)


def test_bad_input(prompts, tmp_path) -> None:
    def refused(*args: object) -> str:
        return _lossless("--prompts", prompts, *args, code=2)["error"]["message"]

    assert "1 to 64 slots" in refused("--head", "mtp", "--slots", 0)
    assert "CHAIN_HEAD" in refused("--head", "lm")
    assert "device 'abacus' can not be used" in refused("--device", "abacus")
    assert "was made for 512" in refused("--head", "mtp", "--tokens", 500)
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"text": "x = 1\n" * 400}) + "\n")
    error = _lossless("--prompts", long, "--head", "mtp", code=2)["error"]
    assert error["message"].startswith("prompt 0 has ")
    assert run("lossless", MODEL, "--head", "mtp").exit_code == 2
