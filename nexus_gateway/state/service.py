"""Compiled state as the application sees it: an engine to wrap, a catalogue to follow, turns to prepare for.

Everything here is a matter of time alone: with it off, or with all of it failing, answers are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import structlog

from adapters.ports import ArgumentEngine, Segment
from adapters.state_port import StatefulEngine
from nexus_gateway.access.caller import Tenant
from nexus_gateway.settings import StateSettings
from nexus_gateway.state.compiler import Compilable, CompileReport, Seen
from nexus_gateway.state.parts import StateParts, has_own_memory, open_parts
from nexus_gateway.state.prefetch import Foreseen
from tool_registry.blocks.kind import REUSE
from tool_registry.index import CompiledTool
from tool_registry.tool import ToolId

log = structlog.get_logger(__name__)

FOLDER = "blocks"
"""In the cache folder."""
SAVE_EVERY_SECONDS = 60.0
LAST_SAVE_SECONDS = 2.0
"""For writing figures when the gateway stops."""

PromptOf = Callable[[CompiledTool], Sequence[Segment]]
"""The segments of a tool's prompt that depend on the tool alone."""


class StateOff(Exception):  # noqa: N818 - reads as a state
    """There is no compiled state; the message says why."""


@dataclass(frozen=True, slots=True)
class StateReport:
    """What `doctor` says.

    Attributes:
        off: why nothing is kept; empty where it is.
        note: what a user should know of it all the same.
        blocks: on disk.
        size_bytes: of these.
        faults: how often what went wrong, by kind, and the latest cause.
    """

    off: str = ""
    note: str = ""
    directory: Path = Path()
    blocks: int = 0
    size_bytes: int = 0
    in_memory: int = 0
    faults: Mapping[str, tuple[int, str]] = field(default_factory=dict)


class StateService:
    """Of one gateway. `run` has to be running; nothing is kept before the engine is there.

    Args:
        settings: of `[state]`.
        directory: of the blocks.
        prompt_of: the beginning of a tool's prompt.
    """

    def __init__(self, settings: StateSettings, directory: Path, prompt_of: PromptOf) -> None:
        self._settings = settings
        self._directory = directory
        self._prompt_of = prompt_of
        self._off = "" if settings.enabled else "[state] enabled is false"
        self._parts: StateParts | None = None
        self._tools: tuple[CompiledTool, ...] | None = None
        self._opened = anyio.Event()

    async def around(self, engine: ArgumentEngine) -> ArgumentEngine:
        """The engine with state planned for it; the engine itself where nothing can be kept."""
        if not self._off:
            self._off = _why_not(engine)
        if self._off or not isinstance(engine, StatefulEngine):
            log.info("state.off", cause=self._off)
            return engine
        opening = partial(open_parts, engine, self._settings, self._directory)
        try:
            self._parts = parts = await anyio.to_thread.run_sync(opening)
        except Exception as error:  # noqa: BLE001 - fail open: the engine works without
            self._off = f"{self._directory} can't be used: {error}"
            log.warning("state.off", cause=self._off)
            return engine
        self._follow_tools()
        self._opened.set()
        return parts.engine

    async def run(self) -> None:
        """Read, compile and keep figures in the background until cancelled."""
        await self._opened.wait()
        parts = self._there()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parts.reads.run)
            tasks.start_soon(parts.prefetcher.run)
            tasks.start_soon(parts.compiler.run)
            try:
                while True:
                    await anyio.sleep(SAVE_EVERY_SECONDS)
                    await parts.save()
            finally:
                with anyio.move_on_after(LAST_SAVE_SECONDS, shield=True):
                    await parts.save()

    def follow(self, tools: Sequence[CompiledTool]) -> None:
        """A newer catalogue; returns at once."""
        self._tools = tuple(tools)
        self._follow_tools()

    def foresee(self, tools: Sequence[CompiledTool], tenant: Tenant) -> Foreseen | None:
        """Tools that a request may need, the likeliest first; what comes of it is for `decided`. Returns at once."""
        if self._parts is None:
            return None
        return self._parts.prefetcher.foresee([self._prompt_of(tool) for tool in tools], tenant)

    def decided(self, foreseen: Foreseen | None, chosen: CompiledTool | None) -> None:
        """What the request does need. Returns at once."""
        if self._parts is not None and foreseen is not None:
            self._parts.prefetcher.decided(foreseen, None if chosen is None else self._prompt_of(chosen))

    def used(self, tool: ToolId) -> None:
        """A tool was used: its block is worth more. Returns at once."""
        if self._parts is not None:
            self._parts.usage.count(str(tool))

    async def compile(self, tools: Sequence[CompiledTool], seen: Seen) -> CompileReport:
        """Compile tools now; the engine has to be there. Raises StateOff."""
        return await self._there().compiler.compile([self._compilable(tool) for tool in tools], seen)

    async def worth_it(self, tools: Sequence[CompiledTool]) -> list[CompiledTool]:
        """Those that the background would compile, the best first, and that are not there yet. Raises StateOff."""
        by_label = {str(tool.id): tool for tool in tools}
        wanted = await self._there().compiler.worth_it([self._compilable(tool) for tool in tools])
        return [by_label[one.label] for one in wanted]

    async def settled(self, seconds: float) -> None:
        """Wait until what turns have missed is compiled, so that the next process has it; for so long at most."""
        if self._parts is not None:
            with anyio.move_on_after(seconds):
                await self._parts.compiler.settled()

    async def report(self) -> StateReport:
        """What there is. The engine has to have been loaded, well or not."""
        parts = self._parts
        if parts is None:
            return StateReport(off=self._off or "there is no argument model", directory=self._directory)
        entries = [] if parts.disk is None else await anyio.to_thread.run_sync(parts.disk.entries)
        causes = parts.faults.causes
        facts = parts.engine.engine.facts
        own = f"{facts.backend} has memory of its own: blocks are used only where their transfer measures as a gain"
        return StateReport(
            note=own if has_own_memory(facts) else "",
            directory=self._directory,
            blocks=len(entries),
            size_bytes=sum(entry.size_bytes for entry in entries),
            in_memory=len(parts.memory),
            faults={kind: (count, causes.get(kind, "")) for kind, count in parts.faults.counts.items()},
        )

    def _there(self) -> StateParts:
        if self._parts is None:
            raise StateOff(self._off or "there is no argument model")
        return self._parts

    def _follow_tools(self) -> None:
        if self._parts is not None and self._tools is not None and self._settings.compile:
            self._parts.compiler.follow([self._compilable(tool) for tool in self._tools])

    def _compilable(self, tool: CompiledTool) -> Compilable:
        return Compilable(str(tool.id), self._prompt_of(tool))


def _why_not(engine: ArgumentEngine) -> str:
    if not isinstance(engine, StatefulEngine):
        return "the argument model runs on a server, which keeps its own state"
    kind = engine.facts.kind
    if not REUSE[kind].boundary or engine.bytes_per_token <= 0:
        return f"the state of this argument model can't be kept ({kind})"
    return ""
