"""Candidates that are not plain heads: LoRA adapters and proposals; and what preflight sees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from audit.errors import AuditError, BadUsageError, MismatchError, UnreadableError
from audit.heads import HeadOptions, Proposals, load_candidate, load_head, trim_reference
from audit.heads.head import Head
from audit.heads.preflight import check_alive, check_pair
from audit.heads.scan import scan_rows
from audit.heads.tokens import TokenKinds
from tests.heads.files import H, V, safetensors, weights


@pytest.fixture
def ref(tmp_path: Path) -> Head:
    return load_head(safetensors(tmp_path / "ref.safetensors", lm_head__weight=weights()))


def adapter(folder: Path, config: dict[str, object] | None, rows: int = V) -> Path:
    tensors = {
        "base_model.model.lm_head.lora_A.weight": weights(4, H, seed=1),
        "base_model.model.lm_head.lora_B.weight": weights(rows, 4, seed=2),
    }
    path = safetensors(folder / "adapter_model.safetensors", **tensors)
    if config is not None:
        (folder / "adapter_config.json").write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(("root", "scale"), [(False, 16 / 4), (True, 16 / 2)])
def test_lora_adapter_on_the_head(tmp_path: Path, ref: Head, root: bool, scale: float) -> None:
    path = adapter(tmp_path / "a", {"r": 4, "lora_alpha": 16, "use_rslora": root})
    head = load_candidate(path, HeadOptions(), ref)
    assert isinstance(head, Head)
    whole = weights() + scale * weights(V, 4, seed=2) @ weights(4, H, seed=1)
    torch.testing.assert_close(head.rows.tile(0, V), whole)
    torch.testing.assert_close(head.rows.gather(torch.tensor([5, 2])), whole[[5, 2]])


def test_lora_without_its_base_or_its_scale(tmp_path: Path, ref: Head) -> None:
    path = adapter(tmp_path / "a", None)
    with pytest.raises(BadUsageError, match=r"LoRA adapter"):
        load_head(path)
    with pytest.raises(UnreadableError, match=r"adapter_config.json"):
        load_candidate(path, HeadOptions(), ref)
    other = adapter(tmp_path / "b", {"r": 8, "lora_alpha": 16})
    with pytest.raises(MismatchError, match=r"says r = 8, the factors have rank 4"):
        load_candidate(other, HeadOptions(), ref)
    wrong = adapter(tmp_path / "c", {"r": 4, "lora_alpha": 16}, rows=V + 1)
    with pytest.raises(MismatchError, match=r"do not fit a head of 16 x 32"):
        load_candidate(wrong, HeadOptions(), ref)


@pytest.mark.parametrize(
    "config", [{"use_dora": True}, {"alpha_pattern": {"lm_head": 160}}, {"lora_bias": True}]
)
def test_adapters_of_other_kinds_are_refused_by_name(
    tmp_path: Path, ref: Head, config: dict[str, object]
) -> None:
    path = adapter(tmp_path / "a", {"r": 4, "lora_alpha": 16} | config)
    with pytest.raises(AuditError, match=f"{next(iter(config))} is not applied"):
        load_candidate(path, HeadOptions(), ref)


def test_further_tensors_of_an_adapter_are_refused(tmp_path: Path, ref: Head) -> None:
    tensors = {
        "base_model.model.lm_head.lora_A.weight": weights(4, H),
        "base_model.model.lm_head.lora_B.weight": weights(V, 4),
        "base_model.model.lm_head.lora_magnitude_vector": torch.ones(V),
    }
    path = safetensors(tmp_path / "a" / "adapter_model.safetensors", **tensors)
    (tmp_path / "a" / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 16}')
    with pytest.raises(AuditError, match="lora_magnitude_vector for the head"):
        load_candidate(path, HeadOptions(), ref)


def test_proposals_file(tmp_path: Path, ref: Head) -> None:
    meta = {"trace_sha256": "ab" * 32}
    path = safetensors(tmp_path / "p.safetensors", meta, proposal=torch.tensor([1, 2, 15]))
    found = load_candidate(path, HeadOptions(), ref)
    assert isinstance(found, Proposals) and found.proposal.tolist() == [1, 2, 15]
    assert found.record.rows is None and found.trace_sha256 == "ab" * 32
    with pytest.raises(BadUsageError, match=r"proposals, not a head"):
        load_head(path)


def test_options_about_weights_are_not_ignored(tmp_path: Path, ref: Head) -> None:
    meta = {"trace_sha256": "ab" * 32}
    path = safetensors(tmp_path / "p.safetensors", meta, proposal=torch.tensor([1]))
    with pytest.raises(BadUsageError, match="--map is about weights"):
        load_candidate(path, HeadOptions(map=tmp_path / "ids.txt"), ref)
    full = safetensors(tmp_path / "full.safetensors", lm_head__weight=weights())
    with pytest.raises(MismatchError, match=r"16 rows, more than the 5 ids of --vocabulary"):
        load_head(full, HeadOptions(vocabulary=5))


@pytest.mark.parametrize(
    ("proposal", "metadata", "words"),
    [
        (torch.tensor([1]), None, "do not say on which trace"),
        (torch.tensor([16]), {"trace_sha256": "x"}, r"outside 0\.\.15, the first at row 0: 16"),
        (torch.tensor([-1]), {"trace_sha256": "x"}, r"outside 0\.\.15"),
        (torch.tensor([1.0]), {"trace_sha256": "x"}, "not whole numbers"),
        (torch.tensor([[1]]), {"trace_sha256": "x"}, "not whole numbers"),
    ],
)
def test_faulty_proposals(
    tmp_path: Path, ref: Head, proposal: torch.Tensor, metadata: dict[str, str] | None, words: str
) -> None:
    path = safetensors(tmp_path / "p.safetensors", metadata, proposal=proposal)
    with pytest.raises(AuditError, match=words):
        load_candidate(path, HeadOptions(), ref)


def codes(ref: Head, weight: torch.Tensor, kinds: TokenKinds | None = None) -> dict[str, str]:
    from tests.heads_in_memory import head_of

    cand = head_of(weight, "cand")
    found = check_pair(ref, scan_rows(ref.rows), cand, scan_rows(cand.rows), kinds or TokenKinds())
    return {finding.code: finding.sentence for finding in found}


def test_preflight_sees_a_dropped_scale(ref: Head) -> None:
    assert "200 times" in codes(ref, 200 * weights())["SCALE_SUSPECT"]
    assert "SCALE_SUSPECT" not in codes(ref, 1.1 * weights())


def test_preflight_sees_new_dead_rows_only(ref: Head) -> None:
    dead = weights()
    dead[7] = 0
    assert "1 row of zeros" in codes(ref, dead)["DEAD_ROWS"]
    assert "(ids 7)" in codes(ref, dead)["DEAD_ROWS"]
    assert "DEAD_ROWS" not in codes(ref, weights())


def test_preflight_sees_a_collapsed_half(ref: Head) -> None:
    # int4 with one scale per row: |A| = 0.05 beside |B| = 1.5 rounds to nothing.
    collapsed = weights()
    collapsed[:, : H // 2] = 0
    told = codes(ref, collapsed)["BLOCK_COLLAPSE"]
    assert told.startswith("100 % of the weights in the first half of the 32 columns are zero")
    assert "in the reference 0 %" in told
    few = weights()
    few[:, [3, 9]] = 0
    assert "2 of 32 columns" in codes(ref, few)["PRUNED_COLUMNS"]


def test_a_single_row_has_no_flat_columns(tmp_path: Path, ref: Head) -> None:
    (tmp_path / "ranks.txt").write_text("5\n")
    cand = trim_reference(ref, tmp_path / "ranks.txt")
    found = check_pair(ref, scan_rows(ref.rows), cand, scan_rows(cand.rows), TokenKinds())
    assert not {one.code for one in found} & {"FLAT_COLUMNS", "ODD_ROWS", "PRUNED_COLUMNS"}


def test_preflight_names_lost_stop_tokens(tmp_path: Path, ref: Head) -> None:
    (tmp_path / "ranks.txt").write_text("1\n2\n3\n")
    cand = trim_reference(ref, tmp_path / "ranks.txt")
    kinds = TokenKinds(stop=frozenset({1, 9}), special=frozenset({0}), byte=frozenset({2}))
    found = check_pair(ref, scan_rows(ref.rows), cand, scan_rows(cand.rows), kinds)
    said = {finding.code: finding for finding in found}
    assert said["STOP_LOST"].sentence == "1 of 2 stop tokens have no row (ids 9)"
    assert said["STOP_LOST"].severity == "warning" and "BYTE_LOST" not in said


def test_dead_and_non_finite_heads_stop_the_audit(ref: Head) -> None:
    from tests.heads_in_memory import head_of

    dead = head_of(torch.zeros(V, H), "dead")
    with pytest.raises(UnreadableError, match=r"DEAD_HEAD"):
        check_alive(dead, scan_rows(dead.rows))
    flat = head_of(torch.ones(V, H), "flat")
    with pytest.raises(UnreadableError, match=r"DEAD_HEAD.*every row of flat is the same"):
        check_alive(flat, scan_rows(flat.rows))
    for factor in (1e-25, 1e19):
        odd = head_of(weights() * factor, "odd")
        check_alive(odd, scan_rows(odd.rows))
    broken = weights()
    broken[4, 0] = torch.nan
    sick = replace(head_of(broken, "sick"))
    with pytest.raises(UnreadableError, match=r"NON_FINITE.*1 row of sick.*ids 4 to 4"):
        check_alive(sick, scan_rows(sick.rows))
