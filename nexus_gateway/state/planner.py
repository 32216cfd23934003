"""The decision about one prompt: put state back, or read the tool anew, by G = T_compute - T_cache.

Arithmetic on costs that are known: no disk, no hash, no engine, microseconds. It may be wrong, and costs a
prefill then; whether a block may be used at all is not decided here.
"""

from dataclasses import dataclass
from enum import StrEnum

from nexus_gateway.state.costs import Costs
from tool_registry.blocks.descriptor import StateDescriptor

LIVE, MEMORY = "live", "memory"
"""Where state may be besides the slower tiers: in the engine's context, and in this process."""

LEAST_BUDGET_SECONDS = 0.005
"""A read gets at least this long: below it timers and threads say more than the disk."""
MOST_BUDGET_SECONDS = 2.0
MEASUREMENTS_OF_A_DEVICE = 3
"""Restores that tell whether the transfer to a device with memory of its own is a gain."""


class Action(StrEnum):
    """What a plan does with state."""

    MATERIALIZE = "materialize"
    """Put a block back."""
    PREFETCH = "prefetch"
    """Read a block ahead of its use."""
    SKIP = "skip"
    """Nothing: the engine has all of it, or there is nothing to put back."""
    RECOMPUTE = "recompute"
    """Decode the tokens."""


@dataclass(frozen=True, slots=True)
class ReusePlan:
    """What to do, and why.

    Attributes:
        tier: where the state is; empty where there is none to use.
        live_tokens: of the anchor, what the context has.
        restored_tokens: what would be put back.
        compute_seconds: predicted for decoding what is put back.
        cache_seconds: predicted for reading and putting it back.
        budget_seconds: longest wait for a read before the tokens are decoded instead.
        reason: for people.
    """

    action: Action
    tier: str
    live_tokens: int
    restored_tokens: int
    compute_seconds: float
    cache_seconds: float
    budget_seconds: float
    reason: str

    @property
    def gain_seconds(self) -> float:
        """G = T_compute - T_cache (NexusKV, sec. 'Gain')."""
        return self.compute_seconds - self.cache_seconds


class Planner:
    """Plans over the costs of one engine.

    Args:
        costs: as measured so far; they move while this is in use.
        own_memory: the device has memory of its own: state has to be carried over, and whether that is a gain is
            taken from measurements alone.
    """

    def __init__(self, costs: Costs, *, own_memory: bool = False) -> None:
        self._costs = costs
        self._own_memory = own_memory

    def plan(self, wanted: StateDescriptor, live: int, tier: str, size_bytes: int) -> ReusePlan:
        """Decide about one anchor.

        Args:
            wanted: its state.
            live: how many of its tokens the context has.
            tier: the fastest one that seems to have it; empty where none does.
            size_bytes: of the block there.
        """
        if live >= wanted.end:
            return ReusePlan(Action.SKIP, LIVE, live, 0, 0.0, 0.0, 0.0, "the context has it already")
        covered = wanted.end - max(wanted.start, live)
        compute = self._costs.prefill.seconds(covered)
        if not tier:
            return ReusePlan(Action.RECOMPUTE, "", live, 0, compute, 0.0, 0.0, "no block of it is kept")
        restore = self._costs.restore.seconds(size_bytes)
        read = 0.0 if tier == MEMORY else self._costs.read(tier).seconds(size_bytes)
        cache = restore + read
        if self._own_memory and self._costs.restore.measured < MEASUREMENTS_OF_A_DEVICE:
            action, reason = Action.MATERIALIZE, "measuring what the transfer to this device costs"
        elif compute > cache:
            action, reason = Action.MATERIALIZE, "putting it back is sooner than reading it anew"
        else:
            return ReusePlan(
                Action.RECOMPUTE,
                tier,
                live,
                0,
                compute,
                cache,
                0.0,
                "reading it anew is sooner than putting it back",
            )
        budget = min(max(compute - restore, LEAST_BUDGET_SECONDS), MOST_BUDGET_SECONDS)
        return ReusePlan(action, tier, live, covered, compute, cache, budget, reason)

    def prefetch(
        self, wanted: StateDescriptor, live: int, tier: str, size_bytes: int, probability: float
    ) -> ReusePlan:
        """Decide whether to read a block ahead: E[G] = P·G - (1 - P)·T_read > 0 (NexusKV, sec. 'Prefetch').

        `probability` is that of its being used.
        """
        plan = self.plan(wanted, live, tier, size_bytes)
        if plan.action is not Action.MATERIALIZE or tier == MEMORY:
            return plan
        wasted = self._costs.read(tier).seconds(size_bytes)
        expected = probability * plan.gain_seconds - (1 - probability) * wasted
        action = Action.PREFETCH if expected > 0 else Action.SKIP
        reason = f"expected gain {expected * 1000:.1f} ms at {probability:.0%}"
        return ReusePlan(
            action,
            tier,
            live,
            plan.restored_tokens,
            plan.compute_seconds,
            plan.cache_seconds,
            plan.budget_seconds,
            reason,
        )
