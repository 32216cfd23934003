"""How long one decision about state takes: what is live, what is stored, what it costs.

Knows the planner and its look-up; the engine and the tier it asks are tables.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adapters.ports import Completion, Segment, SegmentKind
from adapters.state_port import Anchor, StatePayload
from nexus_gateway.state.anchors import Anchors
from nexus_gateway.state.costs import Costs
from nexus_gateway.state.lookup import Lookup
from nexus_gateway.state.planner import Planner
from nexus_gateway.state.tiers import MemoryTier
from tool_registry.blocks.block_file import StateBlock
from tool_registry.blocks.descriptor import BlockKey, RuntimeFacts, StateDescriptor
from tool_registry.blocks.kind import StateKind

TOOLS = 500
_TOKENS = 60


def decision_us(rounds: int = 20_000) -> dict[str, float]:
    """Percentiles of one decision in µs, the clock's own cost included: {"p50":, "p99":}.

    Over 500 tools in turn, of which a third each are stored, in memory and kept nowhere. Everything that a turn does is in it: finding the anchor by its texts, asking the engine what is live, looking
    through memory and a listing of blocks, the arithmetic.
    """
    engine, listing = _Table(), _Listing()
    anchors, memory = Anchors(engine, b"secret"), MemoryTier(1 << 40, lambda _block: 1.0)
    costs = Costs()
    costs.prefill.learn(_TOKENS, 0.2)
    lookup = Lookup(engine, memory, [listing], Planner(costs))
    prompts = [_prompt(tool) for tool in range(TOOLS)]
    for tool, prompt in enumerate(prompts):
        anchored = anchors.made(prompt, "local", engine.anchor_of(prompt))
        if tool % 3 == 0:
            listing.sizes[anchored.key] = 1 << 20
        elif tool % 3 == 1:
            memory.put(anchored.key, StateBlock(anchored.wanted, memoryview(bytes(64)), "s/t", 0.2))
    taken = np.empty(rounds)
    for turn in range(rounds):
        prompt = prompts[turn * 7 % TOOLS]
        started = time.perf_counter_ns()
        known = anchors.known(prompt, "local")
        if known is not None:
            lookup.plan(known)
        taken[turn] = (time.perf_counter_ns() - started) / 1000
    p50, p99 = np.percentile(taken, (50, 99))
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}


def _prompt(tool: int) -> list[Segment]:
    return [
        Segment(SegmentKind.SYSTEM, "You fill in the arguments of one function call as JSON."),
        Segment(
            SegmentKind.TOOL, f"\nFunction: tool_{tool}(path: string, mode?: string)\nPurpose: number {tool}"
        ),
        Segment(SegmentKind.REQUEST, "read the file notes.txt"),
    ]


class _Listing:
    """A tier that knows sizes alone."""

    name = "disk"

    def __init__(self) -> None:
        self.sizes: dict[BlockKey, int] = {}

    def has(self, key: BlockKey) -> bool:
        return key in self.sizes

    def size(self, key: BlockKey) -> int:
        return self.sizes[key]

    async def get(self, wanted: StateDescriptor) -> StateBlock | None:
        raise NotImplementedError

    async def put(self, block: StateBlock, worth: float) -> bool:
        raise NotImplementedError

    async def revalue(self, worth: Mapping[BlockKey, float]) -> None:
        raise NotImplementedError


class _Table:
    """An engine that has the system part live and decodes nothing."""

    identity = "table"
    holds_local_state = True
    bytes_per_token = 1.0
    busy = False
    facts = RuntimeFacts("m", "b", "cpu", "d", "f16", "f16", False, True, "", "", "", "", StateKind.DENSE)

    def __init__(self) -> None:
        self._live = {tuple(range(30)): 30}

    def anchor_of(self, segments: Sequence[Segment]) -> Anchor:
        number = hash(segments[1].text)
        return Anchor((tuple(range(30)), tuple(number + step for step in range(_TOKENS))))

    def live_tokens(self, anchor: Anchor) -> int:
        return self._live.get(anchor.chunks[0], 0)

    async def anchor(self, segments: Sequence[Segment]) -> Anchor:
        return self.anchor_of(segments)

    async def save(self, anchor: Anchor) -> StatePayload:
        raise NotImplementedError

    async def complete(
        self,
        segments: Sequence[Segment],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,
        state: StatePayload | None = None,
    ) -> Completion:
        raise NotImplementedError
