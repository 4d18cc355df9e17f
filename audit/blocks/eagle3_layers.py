"""The modules of an EAGLE-3 head, around transformers' attention and MLP.

The order of norms is after cnets.py (SafeAILab) and eagle3/core.py (speculators).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from audit.blocks.architecture import Decoder, empty_linear, norm_like
from audit.blocks.eagle3_draft import Draft


class EagleLayer(nn.Module):
    """A decoder layer whose attention reads embedding and state side by side."""

    def __init__(
        self, layer: nn.Module, embedding: int, hidden: int, residual_normed: bool
    ) -> None:
        super().__init__()
        self.widths, self.residual_normed = [embedding, hidden], residual_normed
        norm = layer.get_submodule("input_layernorm")
        self.input_layernorm, self.hidden_norm = norm_like(norm, embedding), norm_like(norm, hidden)
        self.self_attn = layer.get_submodule("self_attn")
        for name in ("q_proj", "k_proj", "v_proj"):
            old = self.self_attn.get_submodule(name)
            assert isinstance(old, nn.Linear)
            wide = empty_linear(embedding + hidden, old.out_features, old.bias is not None)
            self.self_attn.set_submodule(name, wide)
        self.post_attention_layernorm = layer.get_submodule("post_attention_layernorm")
        self.mlp = layer.get_submodule("mlp")
        self.attention_type = getattr(layer, "attention_type", None)

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Tensor:
        """[B, T, embedding + hidden] -> [B, T, hidden]; masks and angles come in `kwargs`."""
        embedding, state = hidden_states.split(self.widths, dim=-1)
        normed = self.hidden_norm(state)
        residual = normed if self.residual_normed else state
        both = torch.cat([self.input_layernorm(embedding), normed], dim=-1)
        attended, _ = self.self_attn(hidden_states=both, **kwargs)
        state = residual + attended
        left: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return left


class EagleBlock(nn.Module):
    """Fusion of the auxiliary states, the layer, the draft's norm."""

    def __init__(
        self, model: nn.Module, draft: Draft, widths: tuple[int, int, int], bias: bool, offset: int
    ) -> None:
        super().__init__()
        count, target, embedding = widths
        layers = model.layers
        assert isinstance(layers, nn.ModuleList)
        hidden, norm = int(draft.layer["hidden_size"]), model.get_submodule("norm")
        self.count = count
        self.fc = empty_linear(count * target, hidden, bias)
        if draft.norm_before_fc:
            self.input_norm = norm_like(norm, count * target)
        if draft.fc_norms:
            self.fc_norm = nn.ModuleList(norm_like(norm, target) for _ in range(count))
        layers[0] = EagleLayer(layers[0], embedding, hidden, draft.norm_before_residual)
        self.decoder = Decoder(model, [0], offset)

    def forward(self, states: Tensor, embeddings: Tensor | None = None) -> Tensor:
        """States [B, T, count * target], embeddings [B, T, e] -> [B, T, hidden]."""
        assert embeddings is not None
        return self.draft(self.fuse(states), embeddings)

    def fuse(self, states: Tensor) -> Tensor:
        """The verifier's states [B, T, count * target] as the one that the layer reads."""
        if hasattr(self, "fc_norm"):
            parts = states.chunk(self.count, dim=-1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            states = torch.cat(normed, dim=-1)
        if hasattr(self, "input_norm"):
            states = self.input_norm(states)
        fused: Tensor = self.fc(states)
        return fused

    def draft(self, fused: Tensor, embeddings: Tensor) -> Tensor:
        """The layer and its norm on fused states, or on the draft's own in their place."""
        left: Tensor = self.decoder(torch.cat([embeddings, fused], dim=-1))
        return left
