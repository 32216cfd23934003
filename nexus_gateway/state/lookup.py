"""Where a state is now, and the plan that follows: one decision, without input or output."""

from collections.abc import Sequence

from adapters.state_port import StatefulEngine
from nexus_gateway.state.anchors import Anchored
from nexus_gateway.state.planner import MEMORY, Planner, ReusePlan
from nexus_gateway.state.tiers import MemoryTier, Tier
from tool_registry.blocks.descriptor import BlockKey


class Lookup:
    """Looks through the engine's context, this process, and the tiers beyond, the fastest first."""

    def __init__(
        self, engine: StatefulEngine, memory: MemoryTier, tiers: Sequence[Tier], planner: Planner
    ) -> None:
        self._engine = engine
        self._memory = memory
        self._tiers = tuple(tiers)
        self._planner = planner
        self._refused: set[BlockKey] = set()

    def plan(self, anchored: Anchored) -> ReusePlan:
        """What to do about a prompt's beginning."""
        tier, size = self._where(anchored)
        return self._planner.plan(anchored.wanted, self._engine.live_tokens(anchored.anchor), tier, size)

    def plan_ahead(self, anchored: Anchored, probability: float) -> ReusePlan:
        """Whether to read a block that is used with this probability."""
        tier, size = self._where(anchored)
        live = self._engine.live_tokens(anchored.anchor)
        return self._planner.prefetch(anchored.wanted, live, tier, size, probability)

    def refuse(self, anchored: Anchored) -> None:
        """The engine could not use what is kept of it: it is not planned with any more."""
        self._refused.add(anchored.key)

    def stored(self, anchored: Anchored) -> bool:
        """Whether a tier beyond this process seems to have it."""
        return any(tier.has(anchored.key) for tier in self._tiers)

    def tier(self, name: str) -> Tier | None:
        """A tier beyond this process by its name."""
        return next((tier for tier in self._tiers if tier.name == name), None)

    def _where(self, anchored: Anchored) -> tuple[str, int]:
        key = anchored.key
        if key in self._refused:
            return "", 0
        if self._memory.has(key):
            return MEMORY, self._memory.size(key)
        for tier in self._tiers:
            if tier.has(key):
                return tier.name, tier.size(key)
        return "", 0
