"""EAGLE-3 heads in both name styles against a forward written out plainly here."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import silu

from audit.blocks import BlockOptions, heads_in, load_block_head
from audit.chains.drafting import Anchors, draft_chains
from audit.chains.recursion import recursion_for
from audit.errors import MismatchError, NotFoundError, UnsupportedFormatError
from audit.files import open_container
from audit.heads.options import HeadOptions

from .tiny import LENGTHS, H, V, near, random_trace, save_folder, save_model, tiny_model

D, HEADS, WIDTH, F = 12, 4, 8, 64
LAYERS = (1, 2, 3)
KEPT = torch.arange(D) + torch.arange(D) // 2 * 3


def draft_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng) * shape[-1] ** -0.5

    def gain(width: int = H) -> torch.Tensor:
        return 1 + 0.3 * torch.randn(width, generator=rng)

    inner = HEADS * WIDTH
    return {
        "fc.weight": matrix(H, 3 * H),
        "layers.0.hidden_norm.weight": gain(), "layers.0.input_layernorm.weight": gain(),
        "layers.0.post_attention_layernorm.weight": gain(),
        "layers.0.self_attn.q_proj.weight": matrix(inner, 2 * H),
        "layers.0.self_attn.k_proj.weight": matrix(inner // 2, 2 * H),
        "layers.0.self_attn.v_proj.weight": matrix(inner // 2, 2 * H),
        "layers.0.self_attn.o_proj.weight": matrix(H, inner),
        "layers.0.mlp.gate_proj.weight": matrix(F, H), "layers.0.mlp.up_proj.weight": matrix(F, H),
        "layers.0.mlp.down_proj.weight": matrix(H, F), "norm.weight": gain(),
        "lm_head.weight": matrix(D, H), "d2t": KEPT - torch.arange(D),
        "embed_tokens.weight": matrix(V, H),
    }  # fmt: skip


LAYER_CONFIG = {
    "model_type": "llama", "hidden_size": H, "intermediate_size": F, "num_attention_heads": HEADS,
    "num_key_value_heads": 2, "head_dim": WIDTH, "rms_norm_eps": 1e-6, "vocab_size": V,
    "rope_theta": 10000.0, "num_hidden_layers": 1, "pad_token_id": None,
}  # fmt: skip


def midlayer_folder(folder, tensors, **config):
    """SafeAILab and SpecForge: `midlayer.*`, one flat configuration, t2d beside d2t."""
    named = {key.replace("layers.0.", "midlayer."): value for key, value in tensors.items()}
    if "d2t" in named:
        named["t2d"] = torch.zeros(V, dtype=torch.bool).index_fill(0, KEPT, True)
    flat = LAYER_CONFIG | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": D}
    return save_folder(folder, flat | config, named)


def speculators_folder(folder, tensors, **config):
    nested = {
        "speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"],
        "draft_vocab_size": D, "transformer_layer_config": LAYER_CONFIG,
        "eagle_aux_hidden_state_layer_ids": [*LAYERS, 4], "target_hidden_size": H,
    }  # fmt: skip
    return save_folder(folder, nested | config, tensors)


def rms(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain


def rotate(x):
    """[T, heads, WIDTH] turned by its position, halves rotated together as in Llama."""
    angles = torch.arange(len(x)).outer(10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH))
    cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def forward(w, states, embeddings, *, residual_normed=False):
    """One sequence: [T, 3H] and [T, H] -> [T, H], straight from the papers' formula."""
    if "input_norm.weight" in w:
        states = rms(states, w["input_norm.weight"])
    if "fc_norm.0.weight" in w:
        parts = states.chunk(3, dim=-1)
        states = torch.cat([rms(p, w[f"fc_norm.{i}.weight"]) for i, p in enumerate(parts)], dim=-1)
    state = layer(w, states @ w["fc.weight"].T, embeddings, residual_normed=residual_normed)
    return rms(state, w["norm.weight"])


def layer(w, state, embeddings, *, residual_normed=False):
    """The draft's layer on fused states [T, H], before its norm."""
    p = "layers.0."
    normed = rms(state, w[f"{p}hidden_norm.weight"])
    x = torch.cat([rms(embeddings, w[f"{p}input_layernorm.weight"]), normed], dim=-1)
    q, k, v = (
        (x @ w[f"{p}self_attn.{name}_proj.weight"].T).view(len(x), -1, WIDTH) for name in "qkv"
    )
    q, k = rotate(q), rotate(k)
    k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / math.sqrt(WIDTH)
    scores = scores.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
    attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
    y = (normed if residual_normed else state) + attended @ w[f"{p}self_attn.o_proj.weight"].T
    z = rms(y, w[f"{p}post_attention_layernorm.weight"])
    gate, up = z @ w[f"{p}mlp.gate_proj.weight"].T, z @ w[f"{p}mlp.up_proj.weight"].T
    return y + (silu(gate) * up) @ w[f"{p}mlp.down_proj.weight"].T


def expected(w, trace, **more):
    out = torch.zeros(trace.positions, H)
    states = torch.cat([trace.states[f"layer_{layer}"] for layer in LAYERS], dim=1)
    for number in range(trace.sequences):
        rows = (trace.sequence == number).nonzero().flatten()[:-1]
        if len(rows):
            embedded = w["embed_tokens.weight"][trace.token[rows + 1]]
            out[rows] = forward(w, states[rows], embedded, **more)
    return out


def load(folder, block: BlockOptions | None = None, base=None):
    container = open_container(folder)
    return load_block_head(container, "eagle3", HeadOptions(), base, block or BlockOptions())


@pytest.fixture
def trace():
    return random_trace(layers=LAYERS)


def test_both_name_styles_are_the_plain_forward(tmp_path, trace):
    w = draft_tensors()
    one = load(speculators_folder(tmp_path / "s", w))
    other = load(midlayer_folder(tmp_path / "m", w), BlockOptions(aux_layers=LAYERS))
    assert near(one.block.run(trace), expected(w, trace))
    assert torch.equal(one.block.run(trace), other.block.run(trace))
    assert one.lookahead == other.lookahead == 2
    for head in (one, other):
        assert torch.equal(head.ids, KEPT)
        assert head.vocabulary == V
        assert heads_in(head.block.container) == ["eagle3"]


def test_a_chain_reads_the_own_state_in_place_of_the_fused_ones(tmp_path, trace):
    """Three slots, each with the state of the slot before, taken before the norm."""
    w = draft_tensors()
    head = load(speculators_folder(tmp_path / "s", w))
    targets = torch.tensor([5, 14, 19])  # in the sequences of 7, 11 and 11 rows
    drafts = draft_chains(
        head, recursion_for(head, None), trace, Anchors(targets - 1, targets), slots=3, valid=V
    )
    for target, drafted in zip(targets.tolist(), drafts.tokens.tolist(), strict=True):
        rows = torch.arange(target - int(trace.position[target]), target)
        states = torch.cat([trace.states[f"layer_{one}"][rows] for one in LAYERS], dim=1)
        fused, tokens = states @ w["fc.weight"].T, trace.token[rows + 1]
        for wanted in drafted:
            state = layer(w, fused, w["embed_tokens.weight"][tokens])[-1:]
            logits = rms(state, w["norm.weight"]) @ w["lm_head.weight"].T
            assert int(KEPT[logits[0].argmax()]) == wanted
            fused = torch.cat([fused, state])
            tokens = torch.cat([tokens, torch.tensor([wanted])])


@pytest.mark.parametrize("form", ["norm_before_residual", "norm_before_fc", "fc_norm"])
def test_forms_of_speculators(tmp_path, trace, form):
    w, config, more = draft_tensors(), {}, {}
    if form == "norm_before_residual":
        config, more = {form: True}, {"residual_normed": True}
    elif form == "norm_before_fc":
        config, w["input_norm.weight"] = {form: True}, torch.rand(3 * H) + 0.5
    else:
        config = {form: True}
        w |= {f"fc_norm.{index}.weight": torch.rand(H) + 0.5 for index in range(3)}
    head = load(speculators_folder(tmp_path, w, **config))
    assert near(head.block.run(trace), expected(w, trace, **more))


def test_embedding_and_layers_come_from_the_verifier(tmp_path):
    """A published draft has no embedding, and says nothing of the layers it reads."""
    model = tiny_model("llama", num_hidden_layers=8)
    verifier = open_container(save_model(model, tmp_path / "target"))
    w = draft_tensors()
    own = {key: value for key, value in w.items() if key != "embed_tokens.weight"}
    head = load(midlayer_folder(tmp_path / "draft", own), BlockOptions(verifier=verifier))
    assert head.block.reads.layers == (2, 4, 5)
    assert any("embed_tokens" in note and "target" in note for note in head.record.notes)
    with pytest.raises(NotFoundError, match="EMBEDDING_ABSENT"):
        load(tmp_path / "draft")


def test_missing_states_name_the_flags(tmp_path):
    head = load(speculators_folder(tmp_path, draft_tensors()))
    with pytest.raises(MismatchError, match="layer_2, layer_3") as caught:
        head.block.run(random_trace(layers=[1]))
    assert "--layer 1 --layer 2 --layer 3" in caught.value.hint


def test_unstated_layers_are_the_traces_own(tmp_path, trace):
    w = draft_tensors()
    head = load(midlayer_folder(tmp_path, w))
    assert near(head.block.run(trace), expected(w, trace))
    assert any("not stated" in note for note in head.record.notes)
    with pytest.raises(MismatchError, match="does not say which") as caught:
        head.block.run(random_trace(layers=[1, 2]))
    assert "3 times `--layer N`" in caught.value.hint


def test_no_head_of_its_own(tmp_path):
    """sglang#27829: filled with random numbers, such a draft has every proposal refused."""
    w = draft_tensors()
    for name in ("lm_head.weight", "d2t"):
        del w[name]
    folder = midlayer_folder(tmp_path / "draft", w, draft_vocab_size=V)
    model = tiny_model("llama")
    verifier = open_container(save_model(model, tmp_path / "target"))
    with pytest.raises(NotFoundError, match=r"DRAFT_HEAD_ABSENT") as caught:
        load(folder, BlockOptions(verifier=verifier))
    assert "--borrow-target-head" in caught.value.hint
    with pytest.raises(NotFoundError, match=r"DRAFT_HEAD_ABSENT"):
        load(folder, BlockOptions(borrow_target_head=True))
    head = load(folder, BlockOptions(verifier=verifier, borrow_target_head=True))
    assert head.rows.count == V
    assert any("target's head is used" in note for note in head.record.notes)


def test_a_trimmed_draft_may_not_borrow(tmp_path):
    w = draft_tensors()
    del w["lm_head.weight"]
    verifier = open_container(save_model(tiny_model("llama"), tmp_path / "target"))
    options = BlockOptions(verifier=verifier, borrow_target_head=True)
    with pytest.raises(NotFoundError, match=r"DRAFT_HEAD_ABSENT.*d2t"):
        load(midlayer_folder(tmp_path / "draft", w), options)


def test_the_drafts_own_head_is_used(tmp_path):
    """vllm PR#38493: a trained draft head overwritten by the target's accepts 4 %."""
    verifier = open_container(save_model(tiny_model("llama"), tmp_path / "target"))
    w = draft_tensors()
    head = load(midlayer_folder(tmp_path / "draft", w), BlockOptions(verifier=verifier))
    assert torch.equal(head.rows.tile(0, D), w["lm_head.weight"])


def test_fc_that_does_not_fit(tmp_path):
    w = draft_tensors() | {"fc.weight": torch.randn(H, 2 * H)}
    with pytest.raises(MismatchError, match=r"BLOCK_SHAPE.*fc.weight"):
        load(speculators_folder(tmp_path, w))


def test_other_forms_are_refused(tmp_path):
    more = {"layers.1.mlp.up_proj.weight": torch.randn(F, H)}
    with pytest.raises(UnsupportedFormatError, match="several layers"):
        load(speculators_folder(tmp_path / "two", draft_tensors() | more))
    with pytest.raises(UnsupportedFormatError, match="mask_hidden"):
        load(speculators_folder(tmp_path / "p", draft_tensors() | {"mask_hidden": torch.ones(H)}))
    with pytest.raises(NotFoundError, match=r"HEAD_ABSENT"):
        load(save_model(tiny_model("llama"), tmp_path / "model"))


def test_the_config_is_needed(tmp_path):
    folder = speculators_folder(tmp_path, draft_tensors())
    (folder / "config.json").unlink()
    with pytest.raises(NotFoundError, match=r"config.json"):
        load(folder)


def test_hash_covers_block_and_conventions(tmp_path):
    w = draft_tensors()
    ref = load(speculators_folder(tmp_path / "a", w))
    nudged = w | {"layers.0.mlp.up_proj.weight": w["layers.0.mlp.up_proj.weight"] + 0.01}
    others = [
        load(speculators_folder(tmp_path / "b", nudged)),
        load(speculators_folder(tmp_path / "c", w, norm_before_residual=True)),
        load(tmp_path / "a", BlockOptions(aux_layers=(3, 2, 1))),
        load(speculators_folder(tmp_path / "d", w | {"embed_tokens.weight": torch.randn(V, H)})),
    ]
    hashes = {head.record.sha256 for head in (ref, *others)}
    assert len(hashes) == 5
    assert load(speculators_folder(tmp_path / "e", w)).record.sha256 == ref.record.sha256


def test_lengths_match_the_trace(trace):
    assert trace.positions == sum(LENGTHS)
