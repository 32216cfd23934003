"""What the state layer of one engine is made of, opened in a worker thread: store, usage, costs, and all upon them."""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread

from adapters.state_port import StatefulEngine
from nexus_gateway.access.caller import LOCAL_TENANT
from nexus_gateway.settings import StateSettings
from nexus_gateway.state import costs as cost_file
from nexus_gateway.state.anchors import Anchored, Anchors
from nexus_gateway.state.compiler import BlockCompiler, CompilerParts
from nexus_gateway.state.costs import Costs
from nexus_gateway.state.faults import Faults
from nexus_gateway.state.lookup import Lookup
from nexus_gateway.state.planned_engine import EngineState, PlannedEngine
from nexus_gateway.state.planner import Planner
from nexus_gateway.state.prefetch import Prefetcher
from nexus_gateway.state.purpose import Purpose
from nexus_gateway.state.reads import BlockReads
from nexus_gateway.state.tiers import DISK, DiskTier, MemoryTier
from tool_registry.blocks import usage as usage_file
from tool_registry.blocks.block_file import StateBlock
from tool_registry.blocks.descriptor import RuntimeFacts
from tool_registry.blocks.store import BlockStore
from tool_registry.blocks.usage import Usage
from tool_registry.blocks.worth import worth

MB = 1_000_000
_IN_THE_MACHINES_MEMORY = ("cpu", "metal", "mtl", "blas", "accelerate")
_KINDS_IN_THE_MACHINES_MEMORY = ("cpu", "integrated gpu", "accelerator")


def has_own_memory(facts: RuntimeFacts) -> bool:
    """Whether some device keeps state in memory of its own, so that it has to be carried over: a discrete GPU.

    Names of devices are listed in `backend`, their kinds in the same order in `device`. In doubt it has.
    """
    names = facts.backend.lower().split(", ")
    kinds = [*facts.device.lower().split("; "), *[""] * len(names)]
    return any(
        not name.startswith(_IN_THE_MACHINES_MEMORY) and not kind.startswith(_KINDS_IN_THE_MACHINES_MEMORY)
        for name, kind in zip(names, kinds, strict=False)
    )


@dataclass(frozen=True, slots=True)
class StateParts:
    """All of it.

    Attributes:
        disk: the store of blocks; None where it can't be used.
    """

    engine: PlannedEngine
    anchors: Anchors
    lookup: Lookup
    memory: MemoryTier
    disk: BlockStore | None
    reads: BlockReads
    prefetcher: Prefetcher
    compiler: BlockCompiler
    costs: Costs
    costs_path: Path
    usage: Usage
    faults: Faults

    async def save(self) -> None:
        """Write costs and counts of uses, and see what other processes stored meanwhile. A fault is noted."""
        written = self.costs.to_json()  # here, since the event loop changes them
        await anyio.to_thread.run_sync(self._exchange, written, abandon_on_cancel=True)

    def _exchange(self, costs: Mapping[str, Any]) -> None:
        try:
            if self.disk is not None:
                self.disk.refresh()
            cost_file.save(self.costs_path, self.engine.identity, costs)
            self.usage.save()
        except Exception as error:  # noqa: BLE001 - whatever it is, turns go on
            self.faults.note("figures not kept", error)


def open_parts(engine: StatefulEngine, settings: StateSettings, directory: Path) -> StateParts:
    """Open the store in `directory`, and build the rest around an engine. Blocks; raises nothing for a bad store."""
    faults = Faults()
    disk = _open_store(directory, settings.disk_mb * MB, faults)
    costs_path = directory / cost_file.FILE_NAME
    costs = cost_file.load(costs_path, engine.identity)
    usage = Usage(directory / usage_file.FILE_NAME)
    usage.load()
    tiers = [] if disk is None else [DiskTier(disk)]
    anchors = Anchors(engine, secrets.token_bytes(32) if disk is None else disk.secret)
    memory = MemoryTier(settings.memory_mb * MB, _worth_in_memory(costs, usage, kept_on_disk=bool(tiers)))
    lookup = Lookup(engine, memory, tiers, Planner(costs, own_memory=has_own_memory(engine.facts)))
    reads = BlockReads(memory, costs, faults)
    store, budget = (tiers[0], settings.disk_mb) if tiers else (None, settings.memory_mb)
    compiler = BlockCompiler(
        CompilerParts(engine, anchors, memory, store, budget * MB, costs, faults, usage.expected),
        LOCAL_TENANT,
    )

    def missed(anchored: Anchored, purpose: Purpose) -> None:
        if settings.compile and purpose.tool:
            compiler.missed(anchored, purpose.tool)

    planned = PlannedEngine(engine, EngineState(anchors, lookup, memory, reads, costs, faults, missed))
    return StateParts(
        engine=planned,
        anchors=anchors,
        lookup=lookup,
        memory=memory,
        disk=disk,
        reads=reads,
        prefetcher=Prefetcher(anchors, lookup, reads, faults),
        compiler=compiler,
        costs=costs,
        costs_path=costs_path,
        usage=usage,
        faults=faults,
    )


def _worth_in_memory(costs: Costs, usage: Usage, *, kept_on_disk: bool) -> Callable[[StateBlock], float]:
    """What a block in memory saves: a read, or decoding its tokens where no disk has it."""

    def worth_of(block: StateBlock) -> float:
        size = block.payload.nbytes
        saved = costs.read(DISK).seconds(size) if kept_on_disk else block.compute_seconds
        return worth(usage.expected(block.label), saved, size)

    return worth_of


def _open_store(directory: Path, budget_bytes: int, faults: Faults) -> BlockStore | None:
    try:
        store = BlockStore(
            directory,
            budget_bytes,
            lambda path, reason: faults.note(f"block: {_kind(reason)}", f"{path} {reason}"),
        )
        store.secret  # noqa: B018 - made here, in a worker thread, and not by the first turn
    except OSError as error:
        faults.note("store", error)
        return None
    return store


def _kind(reason: str) -> str:
    """The beginning of what the store says, so that each kind is logged once."""
    return re.split(r"[,:;(]", reason, maxsplit=1)[0].strip()
