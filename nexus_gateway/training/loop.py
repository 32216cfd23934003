"""The optimiser's loop, the same for every model: AdamW, clipped gradients, checkpoints, progress."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from nexus_gateway.training.checkpoint import EVERY_STEPS, Checkpoint
from nexus_gateway.training.recipe import Recipe, learning_rate


@dataclass(frozen=True, slots=True)
class Run:
    """Where a training keeps its state, and who is told of each step done and its loss."""

    checkpoint: Path
    report: Callable[[int, float], None] = lambda _step, _loss: None


def train(
    model: nn.Module,
    parameters: Sequence[nn.Parameter],
    loss_at: Callable[[int], Tensor],
    recipe: Recipe,
    run: Run,
) -> None:
    """Run the steps that are left, and forget the checkpoint when the last is done."""
    checkpoint = Checkpoint(run.checkpoint, recipe)
    optimiser = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=0.01)
    done = checkpoint.load(parameters, optimiser)
    model.train()
    for step in range(done, recipe.steps):
        torch.manual_seed(recipe.seed * 1_000_003 + step)  # dropout depends on the step alone
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step)
        loss = loss_at(step)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        run.report(step + 1, loss.item())
        if (step + 1) % EVERY_STEPS == 0:
            checkpoint.save(step + 1, parameters, optimiser)
    model.eval()
    checkpoint.remove()
