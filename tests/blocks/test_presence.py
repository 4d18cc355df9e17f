"""A file that lacks a head, or a part of it, is refused; what it holds beyond it is told."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from audit.blocks import load_block_head
from audit.errors import NotFoundError, UnsupportedFormatError
from audit.files import open_container
from audit.heads import load_head
from audit.heads.options import HeadOptions
from audit.heads.preflight import notes_of

from .test_eagle3 import draft_tensors, speculators_folder
from .test_medusa import medusa_folder
from .test_mtp_layouts import qwen
from .tiny import H, V, save_model, tiny_model


def load(path, name: str, base=None):
    return load_block_head(open_container(path), name, HeadOptions(), base)


def alone(path, tensors):
    """Tensors in a file of their own, without a configuration beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, path)
    return path


@pytest.fixture
def mtp(tmp_path):
    folder, tensors = qwen(tmp_path / "ref")
    block = {name: value for name, value in tensors.items() if name.startswith("mtp.")}
    return load(folder, "mtp"), block, tensors["lm_head.weight"]


def scraps(block):
    """What is no MTP head -> words of the refusal."""
    eagle = {k: v for k, v in draft_tensors().items() if k not in ("lm_head.weight", "d2t")}
    layer = {name: value for name, value in block.items() if ".layers.0." in name}
    renamed = {name.replace("mtp.", "mtp.0."): value for name, value in block.items()}
    return [
        ({"foo.weight": torch.ones(3, 4)}, "HEAD_ABSENT"),
        (eagle, "HEAD_ABSENT.*eagle3"),
        ({n: v for n, v in block.items() if n != "mtp.fc.weight"},
         "BLOCK_INCOMPLETE.*lacks mtp.fc.weight$"),
        (layer, "BLOCK_INCOMPLETE.*lacks mtp.fc.weight, mtp.pre_fc_norm_embedding.weight"),
        ({n: v for n, v in block.items() if n not in layer and n != "mtp.fc.weight"},
         r"BLOCK_INCOMPLETE.*lacks mtp.fc.weight, mtp.layers.0.\*"),
        (renamed, r"HEAD_ABSENT.*mtp\.0\.fc\.weight.*no known layout"),
        ({"layers.4.enorm.weight": torch.ones(H)},
         "BLOCK_INCOMPLETE.*lacks layers.4.eh_proj.weight, layers.4.hnorm.weight"),
        ({n: v for n, v in block.items() if n != "mtp.layers.0.mlp.up_proj.weight"},
         r"BLOCK_INCOMPLETE.*mtp\.layers\.0\.mlp\.up_proj\.weight"),
    ]  # fmt: skip


@pytest.mark.parametrize("with_rows", [False, True])
def test_a_candidate_for_mtp_holds_a_whole_block_or_rows(tmp_path, mtp, with_rows):
    ref, block, rows = mtp
    for number, (tensors, words) in enumerate(scraps(block)):
        if with_rows and "foo.weight" in tensors:
            continue  # rows beside something foreign are a cut of the rows
        more = {"lm_head.weight": rows} if with_rows else {}
        path = alone(tmp_path / f"{number}.safetensors", tensors | more)
        with pytest.raises(NotFoundError, match=words):
            load(path, "mtp", ref)


def test_the_reference_too_is_whole(tmp_path):
    folder, _ = qwen(tmp_path / "broken", mtp__fc__weight=None)
    with pytest.raises(NotFoundError, match=r"BLOCK_INCOMPLETE.*mtp\.fc\.weight"):
        load(folder, "mtp")


@pytest.mark.parametrize("name", ["exit:2", "medusa:0", "eagle3"])
def test_other_heads_too(tmp_path, name):
    if name == "exit:2":
        folder = save_model(tiny_model("llama"), tmp_path / "ref")
    elif name == "eagle3":
        folder = speculators_folder(tmp_path / "ref", draft_tensors())
    else:
        folder, _ = medusa_folder(tmp_path / "ref")
    ref = load(folder, name)
    foo = alone(tmp_path / "a" / "foo.safetensors", {"foo.weight": torch.ones(3, 4)})
    with pytest.raises(NotFoundError, match="HEAD_ABSENT"):
        load(foo, name, ref)
    rows = ref.rows.tile(0, ref.rows.count)
    more = {"d2t": ref.ids - torch.arange(len(ref.ids))} if name == "eagle3" else {}
    only = alone(tmp_path / "b" / "rows.safetensors", {"lm_head.weight": rows + 0.1, **more})
    assert load(only, name, ref).block is ref.block


def test_a_part_of_an_eagle3_head(tmp_path):
    w = draft_tensors()
    ref = load(speculators_folder(tmp_path / "ref", w), "eagle3")
    named = {name.replace("layers.0.", "midlayer."): value for name, value in w.items()}
    del named["fc.weight"]
    path = alone(tmp_path / "cand" / "c.safetensors", named)
    with pytest.raises(NotFoundError, match=r"BLOCK_INCOMPLETE.*lacks fc\.weight"):
        load(path, "eagle3", ref)


def test_a_medusa_block_without_its_rows_is_still_a_block(tmp_path):
    """What `--only block` writes; taken for nothing it would be the reference itself."""
    folder, w = medusa_folder(tmp_path / "ref")
    ref = load(folder, "medusa:0")
    cut = {name: 0.5 * value for name, value in w.items() if name.startswith("0.0.")}
    cand = load(alone(tmp_path / "cand" / "c.safetensors", cut), "medusa:0", ref)
    assert cand.block.sha256 != ref.block.sha256 and cand.rows is ref.rows
    with pytest.raises(NotFoundError, match=r"HEAD_ABSENT.*medusa:0"):
        load(tmp_path / "cand" / "c.safetensors", "medusa:1", load(folder, "medusa:1"))


def test_rows_of_an_mtp_head_by_the_references_name(tmp_path):
    own = torch.randn(V, H)
    folder, _ = qwen(tmp_path / "ref", mtp__shared_head__head__weight=own)
    ref = load(folder, "mtp")
    path = alone(tmp_path / "cand" / "c.safetensors", {"mtp.shared_head.head.weight": 2 * own})
    cand = load(path, "mtp", ref)
    assert cand.block is ref.block and torch.equal(cand.rows.tile(0, V), 2 * own)


def unread(head) -> list[str]:
    [found] = [f for f in notes_of(head, "x") if f.code == "UNREAD_TENSORS"] or [None]
    assert found is None or found.severity == "warning"
    return [] if found is None else list(head.unread)


def test_what_an_mtp_head_does_not_use_is_told(tmp_path):
    folder, _ = qwen(tmp_path / "ref")
    assert unread(load(folder, "mtp")) == []
    more = {
        "mtp__extra": torch.ones(2), "mtp__layers__0__mlp__gate_proj__bias": torch.ones(64),
        "mtp__layers__1__input_layernorm__weight": torch.ones(H),
        "visual__patch__weight": torch.ones(2, 2),
    }  # fmt: skip
    folder, _ = qwen(tmp_path / "more", **more)
    head = load(folder, "mtp")
    assert sorted(unread(head)) == [
        "mtp.extra", "mtp.layers.0.mlp.gate_proj.bias", "mtp.layers.1.input_layernorm.weight",
    ]  # fmt: skip
    assert all(name in notes_of(head, "x")[1].sentence for name in unread(head))


def test_what_other_heads_do_not_use_is_told(tmp_path):
    bias = {"model.layers.3.mlp.up_proj.bias": torch.ones(64)}
    elsewhere = {"model.layers.0.mlp.up_proj.bias": torch.ones(64)}
    model = tiny_model("llama")
    folder = save_model(model, tmp_path / "exit", **bias, **elsewhere)
    assert unread(load(folder, "exit:2")) == list(bias)
    assert unread(load(save_model(model, tmp_path / "plain"), "exit:2")) == []

    w = draft_tensors()
    assert unread(load(speculators_folder(tmp_path / "eagle", w), "eagle3")) == []
    more = w | {"gate.weight": torch.ones(H)}
    assert unread(load(speculators_folder(tmp_path / "e", more), "eagle3")) == ["gate.weight"]

    folder, w = medusa_folder(tmp_path / "medusa")
    assert unread(load(folder, "medusa:0")) == []
    more = {**w, "0.0.norm.weight": torch.ones(H), "1.0.norm.weight": torch.ones(H)}
    path = alone(tmp_path / "m" / "m.safetensors", more)
    assert unread(load(path, "medusa:0")) == ["0.0.norm.weight"]


def test_what_lies_beside_rows_and_is_not_theirs_is_told(tmp_path):
    rows = {"lm_head.weight": torch.randn(V, H)}
    assert unread(load_head(alone(tmp_path / "a.safetensors", rows))) == []
    biased = rows | {"lm_head.bias": torch.ones(V)}
    assert unread(load_head(alone(tmp_path / "b.safetensors", biased))) == []
    more = rows | {"lm_head.gates": torch.ones(V)}
    assert unread(load_head(alone(tmp_path / "c.safetensors", more))) == ["lm_head.gates"]
    scaled = rows | {"lm_head.weight_scale": torch.ones(V)}
    with pytest.raises(UnsupportedFormatError, match="SCALE_UNUSED"):
        load_head(alone(tmp_path / "d.safetensors", scaled))
