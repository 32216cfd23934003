"""Where an interrupted training goes on: the deltas and the optimiser after some step, replaced atomically."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from nexus_gateway.training.recipe import Recipe

EVERY_STEPS = 50


class Checkpoint:
    """One file beside the weights; it belongs to one recipe."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self._path = path
        self._made_by = str(asdict(recipe))

    def load(self, parameters: Sequence[nn.Parameter], optimiser: torch.optim.Optimizer) -> int:
        """Put back what was saved; returns the steps done, 0 where nothing fits this recipe."""
        if not self._path.is_file():
            return 0
        kept = torch.load(self._path, weights_only=True)
        if kept["made_by"] != self._made_by:
            return 0
        with torch.no_grad():
            for parameter, value in zip(parameters, kept["parameters"], strict=True):
                parameter.copy_(value)
        optimiser.load_state_dict(kept["optimiser"])
        return int(kept["steps"])

    def save(self, steps: int, parameters: Sequence[nn.Parameter], optimiser: torch.optim.Optimizer) -> None:
        """Keep the state after so many steps."""
        state = {
            "made_by": self._made_by,
            "steps": steps,
            "parameters": [parameter.detach() for parameter in parameters],
            "optimiser": optimiser.state_dict(),
        }
        partial = self._path.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self._path)  # noqa: PTH105 - the atomic one

    def remove(self) -> None:
        """Forget it: the weights are written."""
        self._path.unlink(missing_ok=True)
