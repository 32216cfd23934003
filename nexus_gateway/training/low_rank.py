"""Low-rank deltas over a frozen transformer: W + B A, after LoRA (Hu et al., arXiv 2106.09685), without scaling."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    """The delta of one weight of shape (outputs, inputs): `up` (outputs, rank) times `down` (rank, inputs)."""

    def __init__(self, outputs: int, inputs: int, rank: int) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, inputs) / rank**0.5 * 0.1)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight that is used."""
        return weight + self.up @ self.down


def add_low_rank(model: nn.Module, rank: int) -> list[nn.Parameter]:
    """Freeze a model and give each linear layer of its encoder a delta; returns the parameters to train."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    added: list[nn.Parameter] = []
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear) and "encoder.layer" in name:
            outputs, inputs = layer.weight.shape
            delta = LowRank(outputs, inputs, rank)
            parametrize.register_parametrization(layer, "weight", delta)
            added += [delta.down, delta.up]
    return added


def low_rank_deltas(model: nn.Module) -> dict[str, Tensor]:
    """`<layer>.down` and `<layer>.up` of each delta, by the layer's name in the unchanged model."""
    found: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, LowRank):
            layer = name.removesuffix(".parametrizations.weight.0")
            found[f"{layer}.down"], found[f"{layer}.up"] = module.down.detach(), module.up.detach()
    return found
