"""Which examples a step learns from: a function of the recipe's seed and the step, so that runs can be resumed."""

import random
from collections import defaultdict
from collections.abc import Sequence

from nexus_gateway.training.data import MADE, WRITTEN, TrainingData
from nexus_gateway.training.negatives import Negatives
from nexus_gateway.training.recipe import Recipe

_SHARES = {MADE: 0.25, WRITTEN: 0.55}
"""Of a batch; the others are public requests."""
_PUBLIC_TURNS = 60
"""A batch takes at most one of so many public requests, so that a few are not repeated too often."""


class Batches:
    """Draws a step's examples, all from one pool: in-batch negatives of another pool would be too easy."""

    def __init__(self, data: TrainingData, recipe: Recipe) -> None:
        self._recipe = recipe
        self._made: dict[str, list[int]] = defaultdict(list)
        self._written: dict[str, list[int]] = defaultdict(list)
        self._public: dict[str, list[int]] = defaultdict(list)
        groups = {MADE: self._made, WRITTEN: self._written}
        for place, example in enumerate(data.examples):
            groups.get(example.source, self._public)[example.pool].append(place)

    def random(self, step: int) -> random.Random:
        """What a step draws with."""
        return random.Random(f"{self._recipe.seed}:{step}")  # noqa: S311 - not for secrets

    def at(self, step: int) -> list[int]:
        """Places of the step's examples."""
        rng, count = self.random(step), self._recipe.requests
        names, shares = zip(*self._recipe.shares, strict=True)
        pool = rng.choices(names, shares)[0]
        public, written, made = self._public[pool], self._written[pool], self._made[pool]
        if not made:
            return rng.sample(public, count)
        by_rule = round(count * _SHARES[MADE])
        by_hand = min(round(count * _SHARES[WRITTEN]), len(written))
        few = min(len(public) // _PUBLIC_TURNS, count - by_rule - by_hand)
        drawn = rng.sample(public, few) + rng.sample(written, by_hand)
        return drawn + rng.sample(made, count - len(drawn))


def chosen_negatives(found: Negatives, count: int, rng: random.Random) -> list[str]:
    """A neighbour on the right tool's own server, then any of the hardest."""
    own: Sequence[str] = found.own_server[:4]
    first = [rng.choice(own)] if own else []
    others = [key for key in found.pool[:8] if key not in first]
    return first + rng.sample(others, min(len(others), count - len(first)))
