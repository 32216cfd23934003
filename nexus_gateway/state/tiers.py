"""Where blocks are kept outside the engine's context: in this process, on disk, and wherever an adapter keeps them.

A tier may be slow, fail or give the wrong block: whoever reads from one bounds the wait and compares descriptors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import anyio.to_thread
from anyio import CapacityLimiter

from tool_registry.blocks.block_file import StateBlock
from tool_registry.blocks.descriptor import BlockKey, StateDescriptor
from tool_registry.blocks.store import BlockStore
from tool_registry.blocks.worth import Candidate, make_room

DISK = "disk"
MOST_THREADS = 4
"""Reads and writes under way at once; a disk that hangs holds no more threads than these."""


class Tier(Protocol):
    """A place for blocks beyond this process."""

    @property
    def name(self) -> str:
        """In plans and figures: "disk", "remote"."""
        ...

    def has(self, key: BlockKey) -> bool:
        """Whether it seems to have a block. Microseconds; may be wrong either way."""
        ...

    def size(self, key: BlockKey) -> int:
        """Bytes of a block that it seems to have; 0 where it is not known."""
        ...

    async def get(self, wanted: StateDescriptor) -> StateBlock | None:
        """The block, checked; None where there is none that is exactly this one. Can be cancelled at once."""
        ...

    async def put(self, block: StateBlock, worth: float) -> bool:
        """Keep a block, worth so many seconds a byte; False where others are worth more or there is no room."""
        ...

    async def revalue(self, worth: Mapping[BlockKey, float]) -> None:
        """Say what blocks that are there are worth from now on."""
        ...


class DiskTier:
    """The store of blocks in the cache folder."""

    name = DISK

    def __init__(self, store: BlockStore) -> None:
        self.store = store
        self._threads = CapacityLimiter(MOST_THREADS)

    def has(self, key: BlockKey) -> bool:
        """See `Tier.has`."""
        return self.store.has(key)

    def size(self, key: BlockKey) -> int:
        """See `Tier.size`."""
        return self.store.size(key)

    async def get(self, wanted: StateDescriptor) -> StateBlock | None:
        """See `Tier.get`. A cancelled read ends in its thread and is dropped."""
        return await anyio.to_thread.run_sync(
            partial(self.store.get, wanted), limiter=self._threads, abandon_on_cancel=True
        )

    async def put(self, block: StateBlock, worth: float) -> bool:
        """See `Tier.put`."""
        return await anyio.to_thread.run_sync(
            partial(self.store.put, block, worth), limiter=self._threads, abandon_on_cancel=True
        )

    async def revalue(self, worth: Mapping[BlockKey, float]) -> None:
        """See `Tier.revalue`. Raises OSError."""
        await anyio.to_thread.run_sync(
            partial(self.store.revalue, worth), limiter=self._threads, abandon_on_cancel=True
        )


@dataclass(slots=True, eq=False)
class _Kept:
    block: StateBlock
    leases: int = 0


class MemoryTier:
    """Blocks in this process, under a byte budget. One that is leased stays.

    Args:
        budget_bytes: of all payloads.
        worth: of a block, in seconds a byte, now: what is worth least goes first.
    """

    def __init__(self, budget_bytes: int, worth: Callable[[StateBlock], float]) -> None:
        self._budget = budget_bytes
        self._worth = worth
        self._kept: dict[BlockKey, _Kept] = {}
        self.bytes_used = 0

    def __len__(self) -> int:
        return len(self._kept)

    def has(self, key: BlockKey) -> bool:
        """Whether it is here."""
        return key in self._kept

    def size(self, key: BlockKey) -> int:
        """Bytes of its payload; 0 where it is not here."""
        kept = self._kept.get(key)
        return 0 if kept is None else kept.block.payload.nbytes

    def lease(self, key: BlockKey) -> StateBlock | None:
        """The block, which stays until `release`."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        kept.leases += 1
        return kept.block

    def release(self, key: BlockKey) -> None:
        """Give a lease back."""
        kept = self._kept.get(key)
        if kept is not None:
            kept.leases = max(kept.leases - 1, 0)

    def put(self, key: BlockKey, block: StateBlock) -> bool:
        """Keep a block; False where what is here is worth more a byte, leased, or the budget too small."""
        if key in self._kept:
            return True
        newcomer = Candidate(key, block.payload.nbytes, self._worth(block))
        idle = [
            Candidate(other, kept.block.payload.nbytes, self._worth(kept.block))
            for other, kept in reversed(self._kept.items())  # of equal ones the first come goes first
            if not kept.leases
        ]
        leased = self.bytes_used - sum(one.size_bytes for one in idle)
        going = make_room(newcomer, idle, self._budget - leased)
        if going is None:
            return False
        for other in going:
            self.drop(BlockKey(other.name))
        self._kept[key] = _Kept(block)
        self.bytes_used += newcomer.size_bytes
        return True

    def drop(self, key: BlockKey) -> None:
        """Let a block go, leased or not; whoever uses it still has it."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.bytes_used -= kept.block.payload.nbytes
