"""The blocks of a benchmark: compiled in its context, put into a real store, read from there and put back.

A block holds the tool's part of a prompt alone where the kind of model allows that, else all up to its end. The
system's part stays in the context. Knows a context and a store; knows no arms.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from adapters.state_port import Chunk
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.state_lab import Lab, Place
from tool_registry.blocks.block_file import StateBlock
from tool_registry.blocks.descriptor import (
    BlockKey,
    RuntimeFacts,
    StateDescriptor,
    block_key,
    chain_of,
    tenant_salt,
)
from tool_registry.blocks.kind import REUSE
from tool_registry.blocks.store import BlockStore

_TENANT = "bench"
_KEPT = 1.0
"""Worth of every block here: the store is to keep what is measured, not to choose."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """A tool's block.

    Attributes:
        payload: read-only; made by this process.
        seconds: what decoding its tokens took.
    """

    descriptor: StateDescriptor
    payload: memoryview
    label: str
    seconds: float


class Blocks:
    """Makes blocks and puts them back."""

    def __init__(self, lab: Lab, facts: RuntimeFacts, directory: Path, budget_bytes: int) -> None:
        """Open the store. Raises BenchError where the model's kind of state can't be put back at all."""
        reuse = REUSE[facts.kind]
        if not reuse.boundary:
            raise BenchError(f"the state of this model ({facts.kind}) can't be kept: nothing to measure")
        self._lab = lab
        self._facts = facts
        self._shares = reuse.share
        self._budget = budget_bytes
        self._faults: list[str] = []
        self._store = BlockStore(directory, budget_bytes, self._on_fault)
        self._salt = tenant_salt(self._store.secret, _TENANT)

    def settle(self, system: Chunk) -> None:
        """Have the system's part in the context, and nothing else."""
        lab = self._lab
        if lab.tokens(Place.SYSTEM) != len(system):
            lab.clear()
            lab.decode(Place.SYSTEM, system)
            lab.logits()
        lab.drop(*(place for place in Place if place is not Place.SYSTEM))

    def compile(self, label: str, system: Chunk, tool: Chunk) -> Compiled:
        """Decode a tool behind the system's part and copy its state out. Leaves the context settled."""
        lab = self._lab
        self.settle(system)
        lab.share(Place.SYSTEM, Place.WORK)
        started = time.perf_counter()
        lab.decode(Place.WORK, tool)
        lab.logits()
        seconds = time.perf_counter() - started
        start = len(system) if self._shares else 0
        lab.share(Place.WORK, Place.SCRATCH, start)
        payload = lab.save(Place.SCRATCH)
        self.settle(system)
        return Compiled(self._descriptor((system, tool), start), payload, label, seconds)

    def put(self, compiled: Compiled) -> None:
        """Write a block into the store. Raises BenchError where it does not fit."""
        block = StateBlock(
            descriptor=compiled.descriptor,
            payload=compiled.payload,
            label=compiled.label,
            compute_seconds=compiled.seconds,
        )
        if not self._store.put(block, _KEPT):
            told = "; ".join(self._faults) or f"it has {len(compiled.payload):,} bytes of {self._budget:,}"
            raise BenchError(f"{compiled.label}: the store did not take the block ({told}); raise --disk-mb")

    def read(self, compiled: Compiled) -> memoryview:
        """The block's state as the store gives it, checked. Raises BenchError."""
        found = self._store.get(compiled.descriptor)
        if found is None:
            raise BenchError(
                f"{compiled.label}: the store lost the block: {'; '.join(self._faults) or 'no cause'}"
            )
        return found.payload

    def put_back(self, payload: bytes | memoryview) -> None:
        """Make the prompt that is measured the system's part and a block. Raises BenchError."""
        self._lab.restore(Place.WORK, payload)
        if self._shares:
            self._lab.share(Place.SYSTEM, Place.WORK)

    def file_bytes(self, compiled: Compiled) -> int:
        """What the store counts for a block that it has."""
        return self._store.size(self._key(compiled))

    def forget(self, compiled: Compiled) -> None:
        """Take a block out of the store."""
        self._store.remove(self._key(compiled))

    def _key(self, compiled: Compiled) -> BlockKey:
        return block_key(self._store.secret, compiled.descriptor)

    def _descriptor(self, chunks: Sequence[Chunk], start: int) -> StateDescriptor:
        return StateDescriptor(
            facts=self._facts,
            chain=chain_of(chunks),
            start=start,
            end=sum(map(len, chunks)),
            tenant=self._salt,
        )

    def _on_fault(self, path: Path, reason: str) -> None:
        self._faults.append(f"{path.name}: {reason}")
