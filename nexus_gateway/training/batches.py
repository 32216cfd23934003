"""Which examples a step learns from: a function of the recipe's seed and the step, so that runs can be resumed."""

import random
from collections import defaultdict
from collections.abc import Sequence

from nexus_gateway.training.data import TrainingData
from nexus_gateway.training.negatives import Negatives
from nexus_gateway.training.recipe import Recipe

MADE = "made"
_WRITTEN_SHARE = 3
"""One in this many MCP requests of a batch was written by a person or an agent; the others are made."""
_WRITTEN_TURNS = 20
"""A batch takes at most one of so many written requests, so that a few are not repeated too often."""


class Batches:
    """Draws a step's examples, all from one pool: in-batch negatives of another pool would be too easy."""

    def __init__(self, data: TrainingData, recipe: Recipe) -> None:
        self._recipe = recipe
        self._written: dict[str, list[int]] = defaultdict(list)
        self._made: dict[str, list[int]] = defaultdict(list)
        for place, example in enumerate(data.examples):
            (self._made if example.source == MADE else self._written)[example.pool].append(place)

    def random(self, step: int) -> random.Random:
        """What a step draws with."""
        return random.Random(f"{self._recipe.seed}:{step}")  # noqa: S311 - not for secrets

    def at(self, step: int) -> list[int]:
        """Places of the step's examples."""
        rng, count = self.random(step), self._recipe.requests
        names, shares = zip(*self._recipe.shares, strict=True)
        pool = rng.choices(names, shares)[0]
        written, made = self._written[pool], self._made[pool]
        if not made:
            return rng.sample(written, count)
        few = min(len(written) // _WRITTEN_TURNS, count // _WRITTEN_SHARE)
        return [*rng.sample(written, few), *rng.sample(made, count - few)]


def chosen_negatives(found: Negatives, count: int, rng: random.Random) -> list[str]:
    """A neighbour on the right tool's own server, then any of the hardest."""
    own: Sequence[str] = found.own_server[:4]
    first = [rng.choice(own)] if own else []
    others = [key for key in found.pool[:8] if key not in first]
    return first + rng.sample(others, min(len(others), count - len(first)))
