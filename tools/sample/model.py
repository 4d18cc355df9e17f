"""The sample's network: a Qwen3.5 trunk and the multi-token-prediction head beside it.

Both are built from transformers' own layers, so that whatever reads the folder later (the
auditor, transformers, a GGUF converter) computes the same numbers. transformers drops the
``mtp.*`` tensors on load, so this module also writes and reads them.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5DecoderLayer, Qwen3_5RMSNorm

WEIGHTS = "model.safetensors"
PREFIX = "mtp."


def sample_config(vocab_size: int, eos_token_id: int) -> Qwen3_5TextConfig:
    """The sample's shape: every row length is a multiple of 32, so block quantizers apply."""
    layers = 4
    return Qwen3_5TextConfig(
        vocab_size=vocab_size,
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=layers,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        layer_types=["full_attention"] * layers,
        max_position_embeddings=512,
        rope_parameters={
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.25,
            "rope_type": "default",
        },
        tie_word_embeddings=True,
        eos_token_id=eos_token_id,
        bos_token_id=None,
        pad_token_id=None,  # a padding row would never learn, and end-of-text must
        mtp_num_hidden_layers=1,
    )


class MtpHead(nn.Module):
    """One multi-token-prediction block; the attribute names are the checkpoint's names.

    Row t reads the verifier's state at t and the embedding of token t+1, and proposes t+2.
    """

    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        # A trunk may mix linear and full attention; the MTP block is always full attention.
        block = copy.deepcopy(config)
        block.layer_types = ["full_attention"]
        block._attn_implementation = "sdpa"
        width, eps = config.hidden_size, config.rms_norm_eps
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(width, eps=eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(width, eps=eps)
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.layers = nn.ModuleList([Qwen3_5DecoderLayer(block, 0)])
        self.norm = Qwen3_5RMSNorm(width, eps=eps)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=config.initializer_range)

    def forward(self, embedding: Tensor, hidden: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """States [B, T, d] that the shared LM head reads; attention is causal over the rows."""
        pair = (self.pre_fc_norm_embedding(embedding), self.pre_fc_norm_hidden(hidden))
        state = self.fc(torch.cat(pair, dim=-1))
        for layer in self.layers:
            # No mask: transformers' sdpa attention is causal by itself then.
            state = layer(state, position_embeddings=rotary, attention_mask=None)
        normed: Tensor = self.norm(state)
        return normed


class Logits(NamedTuple):
    """Verifier logits for rows 0..T-1 (row t: token t+1), head logits for 0..T-2 (t: t+2)."""

    verifier: Tensor
    head: Tensor


class Sample(nn.Module):
    """The verifier and its head as one module, for training and for measuring."""

    def __init__(self, verifier: Qwen3_5ForCausalLM, mtp: MtpHead) -> None:
        super().__init__()
        self.verifier = verifier
        self.mtp = mtp

    def head_states(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """The head's states for rows 0..T-2, from the verifier's states after its final norm.

        Position ids are the row's own, 0..T-2. Rotary attention only sees differences of
        positions, so any other offset gives the same proposals.
        """
        trunk = self.verifier.model
        positions = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        rotary = trunk.rotary_emb(hidden, positions.expand(tokens.shape[0], -1))
        states: Tensor = self.mtp(trunk.embed_tokens(tokens[:, 1:]), hidden[:, :-1], rotary)
        return states

    def forward(self, tokens: Tensor) -> Logits:
        """Both logits of one teacher-forced pass over token ids [B, T]."""
        hidden = self.verifier.model(input_ids=tokens, use_cache=False).last_hidden_state
        project = self.verifier.lm_head
        return Logits(project(hidden), project(self.head_states(tokens, hidden)))


def build(config: Qwen3_5TextConfig) -> Sample:
    """A freshly initialised sample; seed torch before calling."""
    return Sample(Qwen3_5ForCausalLM(config), MtpHead(config))


def save(sample: Sample, folder: Path) -> int:
    """Write config.json and one bfloat16 safetensors file; return the weights' size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.deepcopy(sample.verifier.config)
    config.architectures = ["Qwen3_5ForCausalLM"]
    config.dtype = "bfloat16"
    config.save_pretrained(folder)
    tensors = dict(sample.verifier.state_dict())
    if config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    tensors |= {PREFIX + name: value for name, value in sample.mtp.state_dict().items()}
    packed = {name: value.detach().to(torch.bfloat16) for name, value in sorted(tensors.items())}
    # A reader may have the last export open: replace it, never write into it.
    fresh = folder / (WEIGHTS + ".new")
    save_file(packed, fresh, metadata={"format": "pt"})
    fresh.chmod(0o644)
    fresh.replace(folder / WEIGHTS)
    return (folder / WEIGHTS).stat().st_size


def load(folder: Path) -> Sample:
    """Read a folder in the Qwen3.5 layout, trunk and head, computing in float32."""
    verifier = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    mtp = MtpHead(verifier.config)
    stored = load_file(folder / WEIGHTS)
    own = {k.removeprefix(PREFIX): v.float() for k, v in stored.items() if k.startswith(PREFIX)}
    mtp.load_state_dict(own)
    return Sample(verifier, mtp).eval()


def parameters_of(folder: Path) -> int:
    """How many stored weights the folder holds."""
    return sum(tensor.numel() for tensor in load_file(folder / WEIGHTS).values())
