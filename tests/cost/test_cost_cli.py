"""`audit cost` from files: bytes against the files' headers, sources of acceptance, bad input."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gguf import GGUFReader

from audit.cli.main import group
from audit.cost.tensors import expert_share, kv_layers

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample"
MODEL = SAMPLE / "model"


def _run(*args: object) -> Any:
    return CliRunner().invoke(group, [str(arg) for arg in args])


def _cost(*args: object) -> dict[str, Any]:
    done = _run("cost", MODEL, *args, "--head", "mtp", "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def _refused(*args: object) -> dict[str, str]:
    done = _run("cost", MODEL, *args, "--head", "mtp", "--json")
    assert done.exit_code == 2, done.output
    return json.loads(done.stdout)["error"]


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's MTP head with 1,000 rows in Q8_0, as GGUF."""
    folder = tmp_path_factory.mktemp("trim")
    card, out = folder / "ranks.txt", folder / "trim.gguf"
    card.write_text("".join(f"{i}\n" for i in range(1000)))
    done = _run("trim", MODEL, "--head", "mtp", "--ranks", card, "--to", "q8_0", "-o", out)
    assert done.exit_code == 0, done.output
    return out


def _header() -> dict[str, int]:
    """Bytes of each tensor of the sample, from its header."""
    raw = (MODEL / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    found = json.loads(raw[8 : 8 + size])
    found.pop("__metadata__", None)
    return {name: one["data_offsets"][1] - one["data_offsets"][0] for name, one in found.items()}


def test_bytes_are_those_of_the_files(trimmed: Path) -> None:
    found = _cost(trimmed)
    ref, cand = found["heads"]
    stored = _header()
    embedding = next(size for name, size in stored.items() if "embed_tokens" in name)
    block = sum(size for name, size in stored.items() if name.startswith("mtp."))
    assert (ref["block_bytes"], ref["projection_bytes"], ref["map_bytes"]) == (block, embedding, 0)
    assert found["verifier"]["weight_bytes"] == sum(stored.values()) - block
    tensors = {one.name: int(one.n_bytes) for one in GGUFReader(trimmed).tensors}
    assert cand["map_bytes"] == tensors["d2t"] == 8 * 1000
    head = "blk.4.nextn.shared_head_head.weight"
    assert cand["projection_bytes"] == tensors.get(head, tensors.get("output.weight"))
    assert cand["projection_bytes"] == 1000 * 192 // 32 * 34
    assert cand["row_ratio"] == pytest.approx(8.192)
    for head_cost in (ref, cand):
        parts = ("block_bytes", "projection_bytes", "map_bytes")
        assert head_cost["bytes_per_step"] == sum(head_cost[part] for part in parts)
    assert found["scenarios"] == []


def test_a_plan_costs_what_the_file_then_has(trimmed: Path) -> None:
    _, cand, plan = _cost(trimmed, "--plan", "1000:q8_0")["heads"]
    assert plan["projection_bytes"] == cand["projection_bytes"]
    assert plan["map_bytes"] == cand["map_bytes"]
    assert plan["sha256"] is None


def test_a_round_by_hand(trimmed: Path) -> None:
    found = _cost(
        trimmed, "--acceptance", 0.6, "--acceptance", 0.5, "--slots", 2,
        "--draft-ms", 1, "--draft-ms", 0.5, "--verify-ms", 10, "--plain-ms", 8,
    )  # fmt: skip
    (scenario,) = found["scenarios"]
    ref, cand = scenario["worth"]
    assert ref["tokens_per_round"] == pytest.approx(1 + 0.6 + 0.36)
    assert ref["tokens_per_second"] == pytest.approx(1000 * 1.96 / 12)
    assert cand["round_ms"] == 11
    assert cand["against_plain"] == pytest.approx(1.75 / 11 * 8)
    assert cand["against_ref"] == pytest.approx((1.75 / 11) / (1.96 / 12))
    # 1 + a + a^2 = 11 / 8, and = 11 * 1.96 / 12 against the reference.
    for key, tokens in (
        ("break_even_acceptance", 11 / 8),
        ("break_even_against_ref", 11 * 1.96 / 12),
    ):
        even = (-1 + (1 + 4 * (tokens - 1)) ** 0.5) / 2
        assert cand[key] == pytest.approx(even)
    assert cand["break_even_margin"] == pytest.approx(0.5 - cand["break_even_acceptance"])
    assert any("not measured speeds" in said for said in found["assumptions"])


def test_what_never_pays_says_so() -> None:
    (one,) = _cost("--acceptance", 1, "--draft-ms", 9, "--verify-ms", 8)["scenarios"][0]["worth"]
    assert one["break_even_acceptance"] is None
    assert "never pays" in one["reason"]
    (one,) = _cost("--acceptance", 1, "--verify-ms", 8)["scenarios"][0]["worth"]
    assert one["tokens_per_second"] is None
    assert one["reason"] == "not known: the time of a draft step"


def test_context_and_users_move_the_model() -> None:
    (scenario,) = _cost(
        "--acceptance", 0.7, "--bandwidth", 100, "--tflops", 1, "--slots", 2
    )["scenarios"]  # fmt: skip
    base = scenario["worth"][0]
    by = {(one["slots"], one["context"], one["users"]): one for one in scenario["sweep"]}
    assert by[2, 512, 1]["verify_ms"] > base["verify_ms"]
    # One user's cache: four layers of one head of 64, keys and values, 2 bytes.
    moved = 512 * 4 * 2 * 64 * 2
    assert by[2, 512, 1]["verify_ms"] - base["verify_ms"] == pytest.approx(moved / 100e6)
    assert by[2, 0, 256]["against_plain"] < base["against_plain"]
    assert by[8, 0, 1]["draft_ms"] == base["draft_ms"]


def test_acceptance_of_a_recorded_run(trimmed: Path, tmp_path: Path) -> None:
    traces = ("--trace", SAMPLE / "traces" / "german.trace.safetensors")
    where = ("--ledger", tmp_path / "ledger")
    done = _run("compare", MODEL, trimmed, "--head", "mtp", *traces, "--resamples", 200, *where,
                "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    run = json.loads(done.stdout)
    known = {
        e["measure"]: e["value"]
        for e in run["candidates"][0]["estimates"]
        if e["corpus"] == "german" and e["token_class"] is None
    }
    found = _cost(trimmed, "--run", "latest", *where, "--bandwidth", 100)
    named = {one["name"]: one["worth"] for one in found["scenarios"]}
    ref, cand = named["german"]
    assert ref["acceptance"] == known["acceptance_ref"]
    assert cand["acceptance"] == known["acceptance_cand"]
    assert "all domain shift" in named
    other = _run("cost", MODEL, "--run", "latest", *where, "--head", "lm", "--json")
    assert other.exit_code == 2
    assert json.loads(other.stdout)["error"]["kind"] == "mismatch"


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_an_engines_measurements_stand_beside(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"bench.{kind}"
    line = {"head": "model", "tokens_per_second": 121.7, "plain_tokens_per_second": 80, "runs": 5}
    text = json.dumps([line]) if kind == "json" else f"{','.join(line)}\nmodel,121.7,80,5\n"
    file.write_text(text)
    (found,) = _cost("--measured", file)["measured"]
    assert found == line | {"engine": None}
    shown = _run("cost", MODEL, "--head", "mtp", "--measured", file, "--acceptance", 0.7,
                 "--bandwidth", 100)  # fmt: skip
    assert "1.521" in shown.output and "assumed: " in shown.output


def test_bad_input(tmp_path: Path) -> None:
    bench = tmp_path / "bench.csv"
    bench.write_text("head,runs\nmodel,0\n")
    assert "tokens_per_second" in _refused("--measured", bench)["message"]
    bench.write_text("head,runs\nmodel,1,2\n")
    assert "line 2 has more values than the first line" in _refused("--measured", bench)["message"]
    bench.write_text("")
    assert "no measurement" in _refused("--measured", bench)["message"]
    assert "no share" in _refused("--acceptance", 1.2)["message"]
    assert "no share" in _refused("--acceptance", "nan")["message"]
    assert "2 acceptances for 1" in _refused("--acceptance", 0.1, "--acceptance", 0.2)["message"]
    assert "2 draft steps" in _refused("--draft-ms", 1, "--draft-ms", 2)["message"]
    assert "9,000 rows" in _refused("--plan", 9000)["message"]
    assert "no number of rows" in _refused("--plan", "x:q8_0")["message"]
    assert "is no type" in _refused("--plan", "100:prune:0.5")["message"]
    for args in (("--slots", 0), ("--bandwidth", "inf"), ("--verify-ms", "nan")):
        assert _run("cost", MODEL, *args).exit_code == 2
    bench.write_text("head,tokens_per_second,plain_tokens_per_second,runs\nmodel,1e300,1e-300,1\n")
    assert "tokens_per_second" in _refused("--measured", bench)["message"]
    chain = tmp_path / "chain.json"
    chain.write_text("{}")
    assert "no document of audit chain" in _refused("--chain", chain)["message"]


def test_one_head_twice_is_refused(trimmed: Path, tmp_path: Path) -> None:
    """Its document could not be read again, where figures are joined by a head's hash."""
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(trimmed.read_bytes())
    error = _refused(trimmed, copy)
    assert "trim and copy are the same head" in error["message"].replace(".gguf", "")
    assert error["hint"] == "give each head once"
    done = _run("chain", MODEL, trimmed, copy, "--head", "mtp", "--slots", 1, "--json")
    assert done.exit_code == 2 and "are the same head" in done.stdout


@pytest.mark.parametrize("option", ["--bandwidth", "--tflops", "--draft-ms", "--verify-ms"])
@pytest.mark.parametrize("value", ["1e308", "1e-300", "0", "-1"])
def test_numbers_that_would_overflow_are_refused(option: str, value: str) -> None:
    done = _run("cost", MODEL, "--head", "mtp", option, value)
    assert done.exit_code == 2, done.output
    assert "is not in the range" in done.output


@pytest.mark.parametrize("option", ["--context", "--users"])
def test_loads_are_bounded(option: str) -> None:
    done = _run("cost", MODEL, "--head", "mtp", "--bandwidth", 1, option, "9" * 330)
    assert done.exit_code == 2, done.output
    assert "is not in the range" in done.output


@pytest.mark.parametrize("bandwidth", [1e-9, 1e9])
def test_the_ends_of_every_range_give_numbers(bandwidth: float) -> None:
    found = _cost(
        "--acceptance", 0.6, "--slots", 4, "--bandwidth", bandwidth, "--tflops", 1e-9,
        "--context", 2**40, "--users", 2**20, "--draft-ms", 1e9, "--plain-ms", 1e-9,
    )  # fmt: skip
    (worth,) = found["scenarios"][0]["worth"]
    assert worth["tokens_per_second"] > 0 and "never pays" in worth["reason"]


def test_configurations_tell_experts_and_caches() -> None:
    fields = {
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
        "sliding_window": 128, "layer_types": ["linear_attention", "full_attention"] * 2,
    }  # fmt: skip
    full = kv_layers(fields)
    assert [one.bytes_per_token for one in full] == [2 * 2 * 16 * 2] * 2
    swa = kv_layers(fields | {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]})
    assert [one.bytes_at(1000) for one in swa] == [128 * 128] * 3 + [128 * 1000]
    mla = {"num_hidden_layers": 2, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert [one.bytes_per_token for one in kv_layers(mla)] == [2 * 576] * 2
    assert kv_layers({}) == ()
    assert expert_share({"num_experts": 64, "num_experts_per_tok": 8}) == 0.125
    assert expert_share({}) == 1.0


def test_a_window_is_that_of_the_layers_that_have_one() -> None:
    """Gemma 3 270M at 32,768 tokens: 15 layers keep 512 of them and 3, every sixth, all."""
    gemma = {
        "model_type": "gemma3_text", "num_hidden_layers": 18, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
    }  # fmt: skip
    assert sum(one.bytes_at(32768) for one in kv_layers(gemma)) == 1024 * (15 * 512 + 3 * 32768)
    assert [one.window is None for one in kv_layers(gemma)] == ([False] * 5 + [True]) * 3
    every = gemma | {"sliding_window_pattern": 2}
    assert [one.window is None for one in kv_layers(every)] == [False, True] * 9
    plain = gemma | {"model_type": "mistral"}
    assert {one.window for one in kv_layers(plain)} == {512}
    off = gemma | {"model_type": "qwen2", "use_sliding_window": False}
    assert {one.window for one in kv_layers(off)} == {None}
    for odd in ("no such type", "llama"):
        assert len(kv_layers(gemma | {"model_type": odd})) == 18


def test_contexts_beyond_the_models_are_told(tmp_path: Path) -> None:
    timed = ("--acceptance", 0.6, "--bandwidth", 100)
    found = _cost(*timed, "--context", 600)
    assert any("was made for 512 tokens" in note for note in found["notes"])
    found = _cost(*timed, "--context", 300)
    (scenario,) = found["scenarios"]
    assert not any("was made for" in note for note in found["notes"])
    assert {worth["context"] for worth in scenario["sweep"]} == {300, 512}


def test_a_sweep_says_which_sizes_pay(tmp_path: Path) -> None:
    card = tmp_path / "ranks.txt"
    card.write_text("".join(f"{i}\n" for i in range(2000)))
    args = ("trim", MODEL, "--head", "mtp", "--ranks", card, "--trace",
            SAMPLE / "traces" / "german.trace.safetensors", "--resamples", 200)  # fmt: skip
    speed = ("--draft-ms", 2, "--verify-ms", 4, "--slots", 2)
    done = _run(*args, "--sweep", "500,2000", *speed, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (scenario,) = found["worth"]
    assert scenario["corpus"] == "german" and found["assumptions"]
    by_name = {size["name"]: size for size in found["sizes"]}
    ref, *sizes = scenario["worth"]
    for one in sizes:
        known = {e["measure"]: e["value"] for e in by_name[one["head"]]["estimates"]
                 if e["corpus"] == "german"}  # fmt: skip
        assert one["acceptance"] == known["acceptance_cand"]
        assert ref["acceptance"] == known["acceptance_ref"]
        # REF's 2 ms by the bytes: the block stays as it is, rows and map are the trim's.
        stored = _header()
        block = sum(size for name, size in stored.items() if name.startswith("mtp."))
        whole = block + next(size for name, size in stored.items() if "embed_tokens" in name)
        rows = by_name[one["head"]]["rows"]
        bytes_read = block + rows * 192 * 2 + rows * 8
        assert one["draft_ms"] == pytest.approx(2 * bytes_read / whole)
        a = known["acceptance_cand"]
        rate = (1 + a + a * a) / (2 * one["draft_ms"] + 4)
        assert one["against_plain"] == pytest.approx(rate * 4)
    shown = _run(*args, "--sweep", "500,2000", *speed)
    assert "model, not measured" in shown.output and "assumed: " in shown.output
    assert _run(*args, *speed).exit_code == 2
