"""The file that trained weights are shipped in: low-rank deltas and whole tensors in float16."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from adapters.low_rank import base_hash


def write_weights(path: Path, weights: Mapping[str, Tensor], *, kind: str, base: Path) -> None:
    """Write the deltas of one model, by the layers' names in it."""
    halves = {name: tensor.to(torch.float16).contiguous() for name, tensor in weights.items()}
    save_file(halves, path, metadata={"kind": kind, "base": base_hash(base)})
