"""Turns replayed under a budget of bytes, with costs that were measured: which blocks are kept, what is found again.

A miss decodes the tool and offers its block, as a gateway does beside the turn; a hit puts the block back where the
planner finds that sooner. Knows costs and policies; runs no model and touches no file.
"""

import random
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from nexus_gateway.bench.reuse import ToolCost
from nexus_gateway.state.costs import Costs
from nexus_gateway.state.planner import Action, Planner
from tool_registry.blocks.usage import Usage
from tool_registry.blocks.worth import Candidate, make_room, worth

ZIPF_EXPONENT = 1.0
DISK = "disk"


class Policy(Protocol):
    """Which blocks are kept. All of it is asked with the label of a tool."""

    def has(self, label: str) -> bool:
        """Whether the block is there."""
        ...

    def used(self, label: str) -> None:
        """A turn wants this tool; told first."""
        ...

    def offer(self, cost: ToolCost) -> None:
        """The block was made just now."""
        ...


class NoReuse:
    """Keeps nothing."""

    def has(self, label: str) -> bool:
        """Never."""
        del label
        return False

    def used(self, label: str) -> None:
        """Of no consequence."""

    def offer(self, cost: ToolCost) -> None:
        """Declined."""


class _Kept(ABC):
    """Blocks under a budget of bytes, the last used last."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.kept: OrderedDict[str, ToolCost] = OrderedDict()

    @property
    def bytes(self) -> int:
        """Of all that is kept."""
        return sum(cost.file_bytes for cost in self.kept.values())

    def has(self, label: str) -> bool:
        """Whether the block is there."""
        return label in self.kept

    def used(self, label: str) -> None:
        """A turn wants this tool."""
        if label in self.kept:
            self.kept.move_to_end(label)

    @abstractmethod
    def offer(self, cost: ToolCost) -> None:
        """The block was made just now."""


class LeastRecentlyUsed(_Kept):
    """Takes every block that can fit at all; what was not used for longest goes."""

    def offer(self, cost: ToolCost) -> None:
        """Take it."""
        if cost.file_bytes > self.budget_bytes:
            return
        free = self.budget_bytes - self.bytes
        while cost.file_bytes > free:
            _, gone = self.kept.popitem(last=False)
            free += gone.file_bytes
        self.kept[cost.label] = cost


class WorthAByte(_Kept):
    """The gateway's own: `tool_registry.blocks.worth` and `usage` decide, with the gain that its planner predicts."""

    def __init__(self, budget_bytes: int, planner: Planner) -> None:
        super().__init__(budget_bytes)
        self._planner = planner
        self._usage = Usage(Path("usage.json"))  # in memory alone: neither loaded nor saved

    def used(self, label: str) -> None:
        """Count it."""
        super().used(label)
        self._usage.count(label)

    def offer(self, cost: ToolCost) -> None:
        """Take it if it is worth more than what would have to go."""
        kept = [self._candidate(one) for one in reversed(self.kept.values())]
        victims = make_room(self._candidate(cost), kept, self.budget_bytes)
        if victims is None:
            return
        for victim in victims:
            del self.kept[victim.name]
        self.kept[cost.label] = cost

    def _candidate(self, cost: ToolCost) -> Candidate:
        gain = predicted_gain(self._planner, cost)
        uses = self._usage.expected(cost.label)
        return Candidate(cost.label, cost.file_bytes, worth(uses, gain, cost.file_bytes))


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of all turns.

    Attributes:
        hit: share of the turns that used a block.
        mean_seconds: to the first argument token.
        reused: for each turn, whether it used a block.
    """

    hit: float
    mean_seconds: float
    reused: tuple[bool, ...]


def zipf(pool: int, turns: int, seed: int) -> list[int]:
    """A tool for each turn: its rank is drawn by Zipf's law, s = 1, ranks are dealt to tools at random."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    tools = list(range(pool))
    rng.shuffle(tools)
    weights = list(accumulate((rank + 1) ** -ZIPF_EXPONENT for rank in range(pool)))
    return rng.choices(tools, cum_weights=weights, k=turns)


def learned(costs: Sequence[ToolCost]) -> tuple[Planner, list[float]]:
    """A planner that has seen all costs, and what it had predicted of each one's gain before it saw it, in seconds."""
    known = Costs()
    planner = Planner(known)
    predicted = []
    for cost in costs:
        predicted.append(predicted_gain(planner, cost))
        known.prefill.learn(cost.tokens, cost.prefill)
        known.read(DISK).learn(cost.file_bytes, cost.reading)
        known.restore.learn(cost.payload_bytes, cost.placing)
    return planner, predicted


def predicted_gain(planner: Planner, cost: ToolCost) -> float:
    """G of a tool's block on disk, in seconds; below 0 where decoding is sooner."""
    return planner.plan(cost.descriptor, cost.descriptor.start, DISK, cost.file_bytes).gain_seconds


def replay(costs: Sequence[ToolCost], turns: Sequence[int], policy: Policy, planner: Planner) -> Replayed:
    """Play all turns; `turns` are places in `costs`."""
    sooner = [
        planner.plan(cost.descriptor, cost.descriptor.start, DISK, cost.file_bytes).action
        is Action.MATERIALIZE
        for cost in costs
    ]
    reused: list[bool] = []
    seconds = 0.0
    for place in turns:
        cost = costs[place]
        policy.used(cost.label)
        found = policy.has(cost.label)
        reused.append(found and sooner[place])
        seconds += cost.first_argument(reused=reused[-1])
        if not found:
            policy.offer(cost)
    return Replayed(sum(reused) / len(turns), seconds / len(turns), tuple(reused))


def policies(budget_bytes: int, planner: Planner) -> Mapping[str, Policy]:
    """Those that are compared, by name."""
    return {
        "ours": WorthAByte(budget_bytes, planner),
        "lru": LeastRecentlyUsed(budget_bytes),
        "none": NoReuse(),
    }
