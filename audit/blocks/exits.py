"""Early exits: the verifier's own last layers on the state that enters an earlier one."""

from __future__ import annotations

from torch import Tensor, nn

from audit.blocks.architecture import Decoder, config_record, empty_decoder, text_config
from audit.blocks.assembly import Origin, assemble, config_fields, weights_of
from audit.blocks.block import Block
from audit.blocks.head_names import HeadName, exit_point
from audit.blocks.reads import LayerStates
from audit.blocks.weights import fill
from audit.files.depth import layers_held


class ExitBlock(nn.Module):
    """Decoder layers and the final norm; the parameter names hold the layers' own numbers."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, states: Tensor, embeddings: Tensor | None = None) -> Tensor:
        """States [B, T, hidden] entering layer K -> [B, T, hidden] after the final norm."""
        left: Tensor = self.decoder(states)
        return left


def build_exit(origin: Origin, name: HeadName) -> Block:
    """The early exit `name` of the model in `origin`.

    Raises:
        AuditError: the model has no such layers, its tensors are missing or do not fit, or
            transformers does not know it.
    """
    where = origin.container.path
    fields, notes = config_fields(origin)
    config = text_config(fields, where, layers_held(*origin.containers()))
    point = exit_point(name, int(config.num_hidden_layers))
    module = ExitBlock(Decoder(empty_decoder(config, where), point.layers))
    stem = "decoder.model."
    wanted = {key: key.removeprefix(stem) for key in module.state_dict()}
    source = weights_of(origin.container, config.to_dict())
    filled = fill(module, wanted, source)
    layers = f"{point.layers[0]}-{point.layers[-1]}" if len(point.layers) > 1 else point.layers[0]
    width = int(config.hidden_size)
    return assemble(
        str(name),
        1,
        origin,
        module,
        filled,
        hidden_size=width,
        reads=LayerStates((point.state,), 1, width),
        conventions={"state_entering_layer": point.state, "layers_run": str(layers)},
        config=config_record(config),
        notes=notes,
    )
