"""An argument engine around one that keeps state: plans each completion, and learns from what it cost.

Fail-open: whatever goes wrong here costs a prefill. Fail-closed: a block whose descriptor is not exactly the wanted
one is not handed over.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from adapters.ports import Completion, Segment
from adapters.state_port import StatefulEngine, StatePayload
from nexus_gateway.state.anchors import Anchored, Anchors
from nexus_gateway.state.costs import Costs
from nexus_gateway.state.faults import Faults
from nexus_gateway.state.lookup import Lookup
from nexus_gateway.state.planner import LIVE, MEMORY, Action, ReusePlan
from nexus_gateway.state.purpose import Purpose, purpose
from nexus_gateway.state.reads import BlockReads
from nexus_gateway.state.tiers import MemoryTier
from nexus_gateway.state.use import PlannedCompletion, StateUse, planned
from tool_registry.blocks.block_file import StateBlock

PLANNING_SECONDS = 2.0
"""For the tokens of the prompt's beginning, which the engine makes in a thread; without them there is no plan."""

Missed = Callable[[Anchored, Purpose], None]
"""Told, without blocking, of a state that would have been of use and is kept nowhere."""

_NO_PLAN = ReusePlan(Action.RECOMPUTE, "", 0, 0, 0.0, 0.0, 0.0, "there was no plan")


@dataclass(slots=True, eq=False)
class _Prepared:
    """A plan as far as it was carried out before the engine is asked."""

    plan: ReusePlan = _NO_PLAN
    anchored: Anchored | None = None
    block: StateBlock | None = None
    leased: bool = False
    read_seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class EngineState:
    """What a planned engine works with."""

    anchors: Anchors
    lookup: Lookup
    memory: MemoryTier
    reads: BlockReads
    costs: Costs
    faults: Faults
    missed: Missed


class PlannedEngine:
    """An `ArgumentEngine` whose answers are the inner engine's, sooner."""

    def __init__(self, engine: StatefulEngine, state: EngineState) -> None:
        self.engine = engine
        self._state = state

    @property
    def identity(self) -> str:
        """The inner engine's: state changes no answer."""
        return self.engine.identity

    @property
    def holds_local_state(self) -> bool:
        """True."""
        return True

    async def complete(
        self, segments: Sequence[Segment], schema: Mapping[str, Any], *, max_tokens: int
    ) -> PlannedCompletion:
        """As `ArgumentEngine.complete`, with the use of state beside it."""
        alone = not self.engine.busy  # what others hold up says nothing about the cost of tokens
        prepared = await self._prepare(segments)
        try:
            payload = None if prepared.block is None else _payload(prepared.block)
            completion = await self.engine.complete(segments, schema, max_tokens=max_tokens, state=payload)
        finally:
            if prepared.leased and prepared.anchored is not None:
                self._state.memory.release(prepared.anchored.key)
        self._learn(prepared, completion, alone=alone)
        if (
            prepared.anchored is not None
            and prepared.plan.action is Action.RECOMPUTE
            and not prepared.plan.tier
        ):
            self._state.missed(
                prepared.anchored, purpose()
            )  # only now: the completion comes before what is for later
        return planned(completion, _use(prepared, completion))

    async def _prepare(self, segments: Sequence[Segment]) -> _Prepared:
        prepared = _Prepared()
        try:
            with anyio.fail_after(PLANNING_SECONDS):
                prepared.anchored = await self._state.anchors.of(segments, purpose().tenant)
            prepared.plan = self._state.lookup.plan(prepared.anchored)
            if prepared.plan.action is Action.MATERIALIZE:
                await self._fetch(prepared, prepared.anchored)
        except Exception as error:  # noqa: BLE001 - fail open: the engine decodes what is not put back
            self._state.faults.note("planning", error)
            prepared.note = "the plan could not be carried out"
        return prepared

    async def _fetch(self, prepared: _Prepared, anchored: Anchored) -> None:
        started, state, plan = time.perf_counter(), self._state, prepared.plan
        if plan.tier == MEMORY:
            block = state.memory.lease(anchored.key)
            prepared.leased = block is not None
        else:
            tier = state.lookup.tier(plan.tier)
            read = None if tier is None else state.reads.begin(tier, anchored)
            block = None if read is None else await state.reads.wait(read, plan.budget_seconds)
        prepared.read_seconds = time.perf_counter() - started
        if block is None:
            prepared.note = "the block did not come in time"
        elif block.descriptor == anchored.wanted:
            prepared.block = block
        else:
            state.faults.note("memory: another state", block.label)
            prepared.note = "the block was another one"

    def _learn(self, prepared: _Prepared, completion: Completion, *, alone: bool) -> None:
        costs, block, anchored = self._state.costs, prepared.block, prepared.anchored
        if alone:
            costs.prefill.learn(_decoded(completion), completion.prefill_seconds)
        if prepared.plan.action is Action.RECOMPUTE and prepared.plan.tier:
            costs.doubt(prepared.plan.tier)
        if block is None or anchored is None:
            return
        if completion.restored_tokens:
            if alone:
                costs.restore.learn(block.payload.nbytes, completion.restore_seconds)
        elif completion.reused_tokens < anchored.anchor.tokens:
            self._state.faults.note("engine: refused a state", block.label)
            self._state.memory.drop(anchored.key)
            self._state.lookup.refuse(anchored)
            prepared.note = "the engine refused the block"


def _payload(block: StateBlock) -> StatePayload:
    found = block.descriptor
    return StatePayload(found.start, found.end, block.payload, block.compute_seconds)


def _decoded(completion: Completion) -> int:
    return max(completion.prompt_tokens - completion.reused_tokens, 0)


def _use(prepared: _Prepared, completion: Completion) -> StateUse:
    plan, restored = prepared.plan, completion.restored_tokens
    action, reason = plan.action, prepared.note or plan.reason
    if action is Action.MATERIALIZE and not restored:
        action = Action.RECOMPUTE if prepared.note else Action.SKIP
        reason = prepared.note or "another turn has read it meanwhile"
    return StateUse(
        action,
        {Action.MATERIALIZE: plan.tier, Action.SKIP: LIVE}.get(action, ""),
        reason,
        live_tokens=max(completion.reused_tokens - restored, 0),
        restored_tokens=restored,
        prefilled_tokens=_decoded(completion),
        predicted_compute_ms=plan.compute_seconds * 1000,
        predicted_cache_ms=plan.cache_seconds * 1000,
        read_ms=prepared.read_seconds * 1000,
        restore_ms=completion.restore_seconds * 1000,
        prefill_ms=completion.prefill_seconds * 1000,
    )
