"""Blocks read ahead while a request is still being routed: bounded, and given up once the decision makes them useless.

Knows tools by the segments of their prompts; knows no router and no turn.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from adapters.ports import Segment
from nexus_gateway.state.anchors import Anchors
from nexus_gateway.state.faults import Faults
from nexus_gateway.state.lookup import Lookup
from nexus_gateway.state.planner import Action
from nexus_gateway.state.reads import BlockReads, Read

MOST_FORESEEN = 3
"""Tools read ahead for one request."""
PROBABILITIES = (0.7, 0.12, 0.06)
"""That the first, second and third of a ranking is taken: recall of the ranking alone at 250 tools (README)."""
MOST_WAITING = 16
"""Requests whose tools wait to be read ahead; further ones are dropped."""


@dataclass(slots=True, eq=False)
class Foreseen:
    """What is read ahead for one request."""

    prompts: Sequence[Sequence[Segment]]
    tenant: str
    reads: list[Read] = field(default_factory=list)
    decided: bool = False


class Prefetcher:
    """Reads ahead what is foreseen. `run` has to be running."""

    def __init__(self, anchors: Anchors, lookup: Lookup, reads: BlockReads, faults: Faults) -> None:
        self._anchors = anchors
        self._lookup = lookup
        self._reads = reads
        self._faults = faults
        self._waiting: deque[Foreseen] = deque()
        self._moved = anyio.Event()
        self.begun = self.dropped = self.cancelled = 0

    def foresee(self, prompts: Sequence[Sequence[Segment]], tenant: str) -> Foreseen:
        """Tools that a request may need, the likeliest first, by the beginnings of their prompts. Returns at once."""
        foreseen = Foreseen(prompts[:MOST_FORESEEN], tenant)
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(foreseen)
            self._moved.set()
        else:
            self.dropped += 1
        return foreseen

    def decided(self, foreseen: Foreseen, chosen: Sequence[Segment] | None) -> None:
        """The request needs this tool, or none: what was to be read of the others is given up."""
        foreseen.decided = True
        kept = None if chosen is None else self._anchors.known(chosen, foreseen.tenant)
        for read in foreseen.reads:
            if (kept is None or read.anchored.key != kept.key) and not read.done.is_set():
                self._reads.cancel(read)
                self.cancelled += 1

    async def run(self) -> None:
        """Read ahead until cancelled."""
        while True:
            await self._moved.wait()
            self._moved = anyio.Event()
            while self._waiting:
                try:
                    await self._ahead(self._waiting.popleft())
                except Exception as error:  # noqa: BLE001 - reading ahead is never needed
                    self._faults.note("reading ahead", error)

    async def _ahead(self, foreseen: Foreseen) -> None:
        for prompt, probability in zip(foreseen.prompts, PROBABILITIES, strict=False):
            if foreseen.decided:
                return
            anchored = await self._anchors.of(prompt, foreseen.tenant)
            plan = self._lookup.plan_ahead(anchored, probability)
            tier = self._lookup.tier(plan.tier) if plan.action is Action.PREFETCH else None
            read = None if tier is None or foreseen.decided else self._reads.begin(tier, anchored)
            if read is not None:
                foreseen.reads.append(read)
                self.begun += 1
