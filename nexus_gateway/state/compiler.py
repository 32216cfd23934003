"""Compiles tools' blocks in the background: those of a new catalogue that are worth it, and what a turn has missed.

Stands back while the engine is busy. What goes wrong with one tool leaves the others alone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio
import structlog

from adapters.ports import Segment
from adapters.state_port import Anchor, StatefulEngine, StatePayload
from nexus_gateway.state.anchors import Anchored, Anchors
from nexus_gateway.state.costs import Costs
from nexus_gateway.state.faults import Faults
from nexus_gateway.state.tiers import MemoryTier, Tier
from tool_registry.blocks.block_file import StateBlock
from tool_registry.blocks.descriptor import BlockKey
from tool_registry.blocks.kind import REUSE
from tool_registry.blocks.usage import PRIOR_USES
from tool_registry.blocks.worth import Candidate, choose, worth

log = structlog.get_logger(__name__)

QUIET_SECONDS = 2.0
"""Between a new catalogue and compiling it: a command that runs one turn has ended by then."""
MOST_NEVER_USED = 200
"""Tools of a fleet that are compiled although nobody used them yet; of a larger fleet only those that were used."""
MOST_MISSED = 64
"""Missed states that wait to be compiled; further ones are dropped."""
LONGEST_SAVE_SECONDS = 300.0
"""For one tool, waiting for turns included."""
LONGEST_WRITE_SECONDS = 60.0
"""For a tier to take one block, or what all are worth."""
_LOOK_SECONDS = 0.05
_HARDLY_USED = 2 * PRIOR_USES


@dataclass(frozen=True, slots=True)
class Compilable:
    """A tool as far as compiling it goes: "server/tool" and the beginning of its prompt."""

    label: str
    prompt: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class CompileReport:
    """What became of a run.

    Attributes:
        wanted: tools looked at.
        compiled: blocks made and kept.
        present: tools whose block was there.
        refused: blocks made that other blocks are worth more than, or that there is no room for.
        failed: tools that could not be compiled, by label, and why.
        size_bytes: of the blocks made and kept.
    """

    wanted: int = 0
    compiled: int = 0
    present: int = 0
    refused: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    size_bytes: int = 0
    seconds: float = 0.0


Seen = Callable[[int, int, str], None]
"""Told how many of how many tools are done, and which is next."""


@dataclass(frozen=True, slots=True)
class CompilerParts:
    """What a compiler works with.

    Attributes:
        store: the tier that blocks go to; None where there is none, and memory takes them.
        budget_bytes: of that tier.
        expected_uses: of a tool by its label.
    """

    engine: StatefulEngine
    anchors: Anchors
    memory: MemoryTier
    store: Tier | None
    budget_bytes: int
    costs: Costs
    faults: Faults
    expected_uses: Callable[[str], float]


def _unseen(_done: int, _wanted: int, _label: str) -> None:
    return


class BlockCompiler:
    """One engine's compiler. `run` has to be running for what happens in the background."""

    def __init__(self, parts: CompilerParts, tenant: str) -> None:
        self._parts = parts
        self._tenant = tenant
        self._tools: tuple[Compilable, ...] | None = None
        self._missed: dict[BlockKey, tuple[Anchored, str]] = {}
        self._moved = anyio.Event()
        self._idle = anyio.Event()
        self._idle.set()
        self._valued_keys: set[BlockKey] = set()
        self.progress = CompileReport()
        """Of the latest catalogue."""

    def follow(self, tools: Sequence[Compilable]) -> None:
        """A newer catalogue; what is still to do of the last one is given up. Returns at once."""
        self._tools = tuple(tools)
        self._moved.set()

    def missed(self, anchored: Anchored, label: str) -> None:
        """A state that a turn would have used; it is compiled soon, while the context still has it. Returns at once."""
        if len(self._missed) < MOST_MISSED and anchored.key not in self._missed:
            self._missed[anchored.key] = anchored, label
            if self._idle.is_set():
                self._idle = anyio.Event()
            self._moved.set()

    async def settled(self) -> None:
        """Wait until nothing that was missed is left to compile."""
        await self._idle.wait()

    async def run(self) -> None:
        """Compile until cancelled."""
        while True:
            await self._moved.wait()
            self._moved = anyio.Event()
            await self._catch_up()
            tools, self._tools = self._tools, None
            if tools is not None:
                await self._compile_catalogue(tools)

    async def compile(
        self, tools: Sequence[Compilable], seen: Seen = _unseen, *, stop: Callable[[], bool] = lambda: False
    ) -> CompileReport:
        """Compile tools one after the other, present ones excepted, until `stop` says so."""
        report, started = CompileReport(wanted=len(tools)), time.perf_counter()
        for done, tool in enumerate(tools):
            if stop():
                break
            seen(done, len(tools), tool.label)
            try:
                anchored = await self._parts.anchors.of(tool.prompt, self._tenant)
                report = _counted(report, await self._one(anchored, tool.label))
            except Exception as error:  # noqa: BLE001 - one bad tool leaves the others alone
                self._parts.faults.note("compiling", f"{tool.label}: {error}")
                report = replace(report, failed=report.failed | {tool.label: str(error)})
            self.progress = report = replace(report, seconds=time.perf_counter() - started)
            await self._catch_up()
        seen(len(tools), len(tools), "")
        return report

    def considered(self, tools: Sequence[Compilable]) -> list[Compilable]:
        """The whole of a small fleet; of one with many tools that nobody used, those that somebody did."""
        used = [tool for tool in tools if self._parts.expected_uses(tool.label) > _HARDLY_USED]
        return used if len(tools) - len(used) > MOST_NEVER_USED else list(tools)

    def valued(self, tokens: Mapping[str, int]) -> list[Candidate]:
        """What blocks of so many tokens would be worth, by the label of their tools."""
        parts = self._parts
        values: list[Candidate] = []
        for label, count in tokens.items():
            size = max(int(count * parts.engine.bytes_per_token), 1)
            saved = parts.costs.prefill.seconds(count) - parts.costs.restore.seconds(size)
            values.append(Candidate(label, size, worth(parts.expected_uses(label), saved, size)))
        return values

    async def _compile_catalogue(self, tools: Sequence[Compilable]) -> None:
        while self._tools is None:
            with anyio.move_on_after(QUIET_SECONDS) as quiet:
                await self._moved.wait()
            if quiet.cancelled_caught:
                break
            self._moved = anyio.Event()
            await self._catch_up()
        if self._tools is not None:  # a newer one came meanwhile
            return
        try:
            wanted = await self.worth_it(tools)
        except Exception as error:  # noqa: BLE001 - nothing is compiled ahead then
            self._parts.faults.note("compiling", error)
            return
        if not wanted:
            await self._warm(tools)
            return
        log.info("state.compiling", tools=len(wanted), of=len(tools))
        report = await self.compile(wanted, stop=lambda: self._tools is not None)
        log.info(
            "state.compiled",
            blocks=report.compiled,
            refused=report.refused,
            failed=len(report.failed),
            megabytes=round(report.size_bytes / 1e6, 1),
            seconds=round(report.seconds, 1),
        )

    async def _warm(self, tools: Sequence[Compilable]) -> None:
        """Have the system's tokens, which all tools share, in the context before the first turn."""
        engine = self._parts.engine
        if not tools or not REUSE[engine.facts.kind].share:
            return
        try:
            anchor = (await self._parts.anchors.of(tools[0].prompt, self._tenant)).anchor
            if not engine.live_tokens(anchor):
                await self._saved(anchor)
        except Exception as error:  # noqa: BLE001 - the first turn reads them then
            self._parts.faults.note("warming up", error)

    async def worth_it(self, tools: Sequence[Compilable]) -> list[Compilable]:
        """Those to compile, the best first: by seconds gained a byte, under the budget, and not there yet."""
        anchored = await self._anchored(self.considered(tools))
        values = self.valued({label: one.wanted.end - one.wanted.start for label, one in anchored.items()})
        await self._say_worth({anchored[one.name].key: one.worth for one in values})
        by_label = {tool.label: tool for tool in tools}
        chosen = choose([one for one in values if one.worth > 0], self._parts.budget_bytes)
        return [by_label[one.name] for one in chosen if not self._kept(anchored[one.name].key)]

    async def _say_worth(self, now: Mapping[BlockKey, float]) -> None:
        """Tell the store what blocks are worth, those of tools that left since the last catalogue with them: nothing."""
        store, left = self._parts.store, self._valued_keys - now.keys()
        if store is None:
            return
        self._valued_keys = set(now)
        kept = {key: worth for key, worth in {**dict.fromkeys(left, 0.0), **now}.items() if self._kept(key)}
        try:
            with anyio.fail_after(LONGEST_WRITE_SECONDS):
                await store.revalue(kept)
        except Exception as error:  # noqa: BLE001 - the old worths hold
            self._parts.faults.note("worth not kept", error)

    async def _anchored(self, tools: Sequence[Compilable]) -> dict[str, Anchored]:
        """By label; what the engine can't make tokens of is left out."""
        found: dict[str, Anchored] = {}
        for tool in tools:
            await self._stand_back()
            try:
                found[tool.label] = await self._parts.anchors.of(tool.prompt, self._tenant)
            except Exception as error:  # noqa: BLE001 - as in `compile`
                self._parts.faults.note("compiling", f"{tool.label}: {error}")
        return found

    def _kept(self, key: BlockKey) -> bool:
        store = self._parts.store
        return self._parts.memory.has(key) if store is None else store.has(key)

    async def _catch_up(self) -> None:
        """Compile what turns have missed."""
        while self._missed:
            key, (anchored, label) = next(iter(self._missed.items()))
            try:
                await self._one(anchored, label)
            except Exception as error:  # noqa: BLE001 - as in `compile`
                self._parts.faults.note("compiling", f"{label}: {error}")
            self._missed.pop(key, None)  # `compile` may run beside `run`
        self._idle.set()

    async def _one(self, anchored: Anchored, label: str) -> StateBlock | str:
        """Compile one block: the block if it is kept, else what became of it."""
        parts, wanted = self._parts, anchored.wanted
        if self._kept(anchored.key):
            return "present"
        payload = await self._saved(anchored.anchor)
        if (payload.start, payload.end) != (wanted.start, wanted.end):
            raise ValueError(
                f"the engine saved {payload.start} to {payload.end} of {wanted.start} to {wanted.end}"
            )
        tokens = wanted.end - wanted.start
        parts.costs.prefill.learn(tokens, payload.seconds)
        seconds = payload.seconds or parts.costs.prefill.seconds(tokens)
        block = StateBlock(wanted, memoryview(payload.data).toreadonly(), label, seconds)
        size = block.payload.nbytes
        saved = parts.costs.prefill.seconds(tokens) - parts.costs.restore.seconds(size)
        if parts.store is None:
            return block if parts.memory.put(anchored.key, block) else "refused"
        value = worth(parts.expected_uses(label), saved, size)
        with anyio.fail_after(LONGEST_WRITE_SECONDS):
            return block if await parts.store.put(block, value) else "refused"

    async def _saved(self, anchor: Anchor) -> StatePayload:
        await self._stand_back()
        with anyio.fail_after(LONGEST_SAVE_SECONDS):
            return await self._parts.engine.save(anchor)

    async def _stand_back(self) -> None:
        while self._parts.engine.busy:  # noqa: ASYNC110 - an engine says no more than this, and nobody waits here
            await anyio.sleep(_LOOK_SECONDS)


def _counted(report: CompileReport, became: StateBlock | str) -> CompileReport:
    if isinstance(became, StateBlock):
        size = report.size_bytes + became.payload.nbytes
        return replace(report, compiled=report.compiled + 1, size_bytes=size)
    if became == "present":
        return replace(report, present=report.present + 1)
    return replace(report, refused=report.refused + 1)
