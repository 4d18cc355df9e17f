"""Section C: draft blocks under the wrong scale, precision or head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from audit.blocks import BlockOptions, load_block_head
from audit.blocks.preflight import check_blocks, check_container, check_served
from audit.errors import AuditError
from audit.files import open_container
from audit.heads.options import HeadOptions
from tests.blocks.test_eagle3 import draft_tensors, midlayer_folder
from tests.blocks.test_mtp_layouts import qwen
from tests.blocks.tiny import H, V, save_folder, save_model, tiny_model
from tests.bugs.use import refused

FC = "mtp.fc.weight"


def load(folder: Path, name: str = "mtp", verifier: Path | None = None, borrow: bool = False):
    target = open_container(verifier) if verifier else None
    options = BlockOptions(verifier=target, borrow_target_head=borrow)
    return load_block_head(open_container(folder), name, HeadOptions(), None, options)


@pytest.fixture(scope="module")
def mtp_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, _ = qwen(tmp_path_factory.mktemp("mtp"))
    return folder


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    container = open_container(folder)
    return {name: container.values(name) for name in container.entries}


def rewritten(folder: Path, place: Path, changes: dict[str, torch.Tensor | None]) -> Path:
    """The same model with some tensors changed, added or (None) left out."""
    tensors = {k: v for k, v in {**tensors_of(folder), **changes}.items() if v is not None}
    return save_folder(place, dict(open_container(folder).config or {}), tensors)


def codes(found) -> dict[str, str]:
    return {code: sentence for code, _, sentence in found}


def test_bug_22_a_quantized_mtp_head_read_as_bf16(tmp_path: Path, mtp_folder: Path) -> None:
    weight = tensors_of(mtp_folder)[FC]
    scale = weight.abs().amax(1, keepdim=True) / 127
    stored = {FC: (weight / scale).round().to(torch.int8)}
    without = rewritten(mtp_folder, tmp_path / "without", stored)
    with pytest.raises(AuditError, match="SCALE_MISSING"):
        load(without)
    # Scales that would go unused beside plain numbers are refused too.
    beside = rewritten(mtp_folder, tmp_path / "beside", {"mtp.fc.weight_scale_inv": scale})
    with pytest.raises(AuditError, match="SCALE_UNUSED"):
        load(beside)
    both = rewritten(mtp_folder, tmp_path / "both", {**stored, "mtp.fc.weight_scale": scale})
    assert not codes(check_blocks(load(mtp_folder), load(both)))
    # Read as plain numbers, the codes are what a lost scale looks like.
    lost = rewritten(mtp_folder, tmp_path / "lost", {FC: (weight / scale).round()})
    assert (
        "row norms of mtp.fc.weight are"
        in codes(check_blocks(load(mtp_folder), load(lost)))["SCALE_SUSPECT"]
    )


def test_bug_23_int4_per_row_rounds_half_of_the_input_to_nothing(
    tmp_path: Path, mtp_folder: Path
) -> None:
    """[A | B] with |A| about 0.05 and |B| about 1.5, one absmax / 7 scale per row."""
    rng = torch.Generator().manual_seed(0)
    small = torch.empty(H, H).uniform_(-0.05, 0.05, generator=rng)
    large = torch.empty(H, H).uniform_(-1.5, 1.5, generator=rng)
    weight = torch.cat([small, large], 1)
    scale = weight.abs().amax(1, keepdim=True) / 7
    rounded = (weight / scale).round() * scale
    ref = load(rewritten(mtp_folder, tmp_path / "ref", {FC: weight}))
    cand = load(rewritten(mtp_folder, tmp_path / "cand", {FC: rounded}))
    sentence = codes(check_blocks(ref, cand))["BLOCK_COLLAPSE"]
    assert sentence.startswith(
        f"100 % of the weights in the first half of the {2 * H} columns of mtp.fc.weight are zero, "
        "in the reference 0 %"
    )
    per_half = torch.cat([half / half.abs().amax(1, keepdim=True) for half in (small, large)], 1)
    halves = torch.cat(
        [half.abs().amax(1, keepdim=True).expand(H, H) for half in (small, large)], 1
    )
    grouped = (per_half * 7).round() / 7 * halves
    good = load(rewritten(mtp_folder, tmp_path / "good", {FC: grouped}))
    assert not codes(check_blocks(ref, good))


def test_bug_32_a_draft_without_a_head(tmp_path: Path) -> None:
    tensors = draft_tensors()
    full = {k: v for k, v in tensors.items() if k not in ("lm_head.weight", "d2t")}
    folder = midlayer_folder(tmp_path / "draft", full, draft_vocab_size=V)
    verifier = save_model(tiny_model("llama"), tmp_path / "verifier")
    with pytest.raises(AuditError, match=r"DRAFT_HEAD_ABSENT.*random numbers") as caught:
        load(folder, "eagle3", verifier)
    assert "--borrow-target-head" in caught.value.hint
    head = load(folder, "eagle3", verifier, borrow=True)
    assert any("the target's head is used" in note for note in head.record.notes)
    trimmed = {k: v for k, v in tensors.items() if k != "lm_head.weight"}
    narrow = midlayer_folder(tmp_path / "narrow", trimmed)
    with pytest.raises(AuditError, match="DRAFT_HEAD_ABSENT"):  # D < V: borrowing is no answer
        load(narrow, "eagle3", verifier, borrow=True)


def test_bug_33_the_drafts_own_head_is_not_overwritten(tmp_path: Path) -> None:
    tensors = draft_tensors()
    folder = midlayer_folder(tmp_path / "draft", tensors)
    verifier = save_model(tiny_model("llama"), tmp_path / "verifier")
    head = load(folder, "eagle3", verifier)
    order = torch.argsort(head.ids)
    assert torch.equal(head.rows.tile(0, head.rows.count), tensors["lm_head.weight"][order])
    assert head.projection.tensors == ("lm_head.weight",)
    assert head.projection.path == str(folder) and len(head.projection.sha256) == 64
    assert head.projection.sha256 != load(midlayer_folder(tmp_path / "other", draft_tensors(1)),
                                          "eagle3", verifier).projection.sha256  # fmt: skip


def test_bug_35_a_draft_scored_by_a_head_that_is_not_served(
    tmp_path: Path, mtp_folder: Path
) -> None:
    own = "mtp.shared_head.head.weight"
    served = tensors_of(mtp_folder)["lm_head.weight"]
    copy = rewritten(mtp_folder, tmp_path / "copy", {own: served.clone()})
    assert "REFERENCE_NOT_SERVED" not in codes(check_served(load(copy), None))
    changed = served.clone()
    changed[::2] += 0.25
    other = rewritten(mtp_folder, tmp_path / "other", {own: changed})
    head = load(other)
    assert head.projection.tensors == (own,)
    sentence = codes(check_served(head, None))["REFERENCE_NOT_SERVED"]
    assert f"the draft's own {own} differs from lm_head.weight" in sentence
    assert "by up to 0.25" in sentence


def test_bug_36_random_embeddings_exported_with_the_draft(tmp_path: Path) -> None:
    verifier = save_model(tiny_model("llama"), tmp_path / "verifier")
    target = tensors_of(verifier)["model.embed_tokens.weight"]
    folder = midlayer_folder(tmp_path / "draft", draft_tensors() | {"embed_tokens.weight": target})
    assert "EMBEDDING_OTHER" not in codes(
        check_served(load(folder, "eagle3", verifier), open_container(verifier))
    )
    random = midlayer_folder(tmp_path / "random", draft_tensors())
    found = codes(check_served(load(random, "eagle3", verifier), open_container(verifier)))
    assert "nothing in common with model.embed_tokens.weight" in found["EMBEDDING_OTHER"]
    # Without a target, only a table that is large enough can be told from a trained one.
    head = load(random, "eagle3", verifier)
    from audit.heads.rows import DenseRows

    wide = 0.02 * torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
    assert head.block.embedding is not None
    embedding = replace(head.block.embedding, rows=DenseRows(wide))
    block = replace(head.block, embedding=embedding)
    assert "UNTRAINED" in codes(check_served(replace(head, block=block), None))


def test_another_models_block_and_dead_tensors(tmp_path: Path, mtp_folder: Path) -> None:
    ref = load(mtp_folder)
    weight = tensors_of(mtp_folder)[FC]
    shuffled = rewritten(mtp_folder, tmp_path / "a", {FC: weight.flip(0)})
    assert codes(check_blocks(ref, load(shuffled)))["OTHER_MODEL"].startswith(FC)
    dead = rewritten(mtp_folder, tmp_path / "b", {FC: torch.zeros_like(weight)})
    assert codes(check_blocks(ref, load(dead))) == {"DEAD_TENSOR": f"every weight of {FC} is zero"}
    noisy = weight + 0.3 * weight.std() * torch.randn(weight.shape)
    assert not codes(check_blocks(ref, load(rewritten(mtp_folder, tmp_path / "c", {FC: noisy}))))


def test_a_file_of_the_wrong_head_is_refused_by_name(tmp_path: Path) -> None:
    folder = midlayer_folder(tmp_path / "draft", draft_tensors())
    message = refused("inspect", folder, "--head", "mtp")
    assert message.startswith("HEAD_ABSENT") and "eagle3" in message
    assert codes(check_container(open_container(folder))) == {}
