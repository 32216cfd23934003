"""Reads of blocks from slow tiers into memory, in the background: whoever needs one waits for it, for so long.

A read that is late goes on and ends in memory; how many there are is bounded. Nothing that goes wrong in one is
raised: the block is not there then.
"""

import time
from typing import TYPE_CHECKING

import anyio

from nexus_gateway.state.anchors import Anchored
from nexus_gateway.state.costs import Costs
from nexus_gateway.state.faults import Faults
from nexus_gateway.state.tiers import MemoryTier, Tier
from tool_registry.blocks.block_file import StateBlock
from tool_registry.blocks.descriptor import BlockKey, mismatch

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

MOST_READS = 8
LONGEST_READ_SECONDS = 10.0
_TIMER_SECONDS = 0.001
"""Timers of an event loop ring up to this late."""


class Read:
    """One block on its way."""

    def __init__(self, anchored: Anchored) -> None:
        self.anchored = anchored
        self.done = anyio.Event()
        self.block: StateBlock | None = None
        self.scope = anyio.CancelScope()
        self.waiting = 0
        """Turns that wait for it: it is not cancelled then."""


class BlockReads:
    """Reads under way, one for each block. `run` has to be running."""

    def __init__(self, memory: MemoryTier, costs: Costs, faults: Faults) -> None:
        self._memory = memory
        self._costs = costs
        self._faults = faults
        self._tasks: TaskGroup | None = None
        self._running: dict[BlockKey, Read] = {}
        self.dropped = 0
        """Reads that were not begun, since too many were under way."""

    async def run(self) -> None:
        """Own the reads until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    def begin(self, tier: Tier, anchored: Anchored) -> Read | None:
        """Begin a read, or join the one that is under way; None where there are too many."""
        read = self._running.get(anchored.key)
        if read is not None:
            return read
        if self._tasks is None or len(self._running) >= MOST_READS:
            self.dropped += 1
            return None
        read = self._running[anchored.key] = Read(anchored)
        self._tasks.start_soon(self._read, tier, read)
        return read

    async def wait(self, read: Read, seconds: float) -> StateBlock | None:
        """The block of a read if it comes in time."""
        read.waiting += 1
        try:
            with anyio.move_on_after(max(seconds - _TIMER_SECONDS, 0.0)):
                await read.done.wait()
        finally:
            read.waiting -= 1
        return read.block

    def cancel(self, read: Read) -> None:
        """Give up a read that no turn waits for."""
        if not read.waiting:
            read.scope.cancel()

    async def _read(self, tier: Tier, read: Read) -> None:
        started = time.perf_counter()
        try:
            with read.scope, anyio.fail_after(LONGEST_READ_SECONDS):
                block = await tier.get(read.anchored.wanted)
                self._take(tier, read, block, time.perf_counter() - started)
        except Exception as error:  # noqa: BLE001 - fail open: a tier's fault costs a prefill
            self._faults.note(f"{tier.name}: read failed", error)
        finally:
            self._running.pop(read.anchored.key, None)
            read.done.set()

    def _take(self, tier: Tier, read: Read, block: StateBlock | None, seconds: float) -> None:
        if block is None:
            return
        if difference := mismatch(block.descriptor, read.anchored.wanted):
            self._faults.note(f"{tier.name}: another state", difference)
            return
        read.block = block
        self._costs.read(tier.name).learn(block.payload.nbytes, seconds)
        self._memory.put(read.anchored.key, block)
