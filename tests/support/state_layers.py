"""The layer of compiled state around an engine double, on a store in a temporary folder, with its background running."""

from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from adapters.ports import Segment, SegmentKind
from adapters.state_double import StatefulDouble
from nexus_gateway.settings import StateSettings
from nexus_gateway.state.parts import StateParts, open_parts
from nexus_gateway.state.purpose import asked_for

SYSTEM = Segment(SegmentKind.SYSTEM, "you fill in the arguments of one call")
LABEL = "files/read_file"
TOOL_TEXT = "read_file path string " + "reads the text of a file " * 8
SCHEMA = {"type": "string"}


@dataclass
class Layer:
    """An engine, what is around it, and a short way to ask."""

    engine: StatefulDouble
    parts: StateParts

    async def ask(self, request="read a.txt", *, tool=TOOL_TEXT, tenant="local", label=LABEL):
        with asked_for(tenant, label), anyio.fail_after(20):
            return await self.parts.engine.complete(prompt(tool, request), SCHEMA, max_tokens=8)

    async def compiled(self):
        """Wait until what was missed is compiled, then have the engine forget, as a new process would."""
        with anyio.fail_after(20):
            await self.parts.compiler.settled()
        self.engine.forget()
        self.engine.states.clear()

    async def anchored(self, tool=TOOL_TEXT, tenant="local"):
        return await self.parts.anchors.of(prompt(tool), tenant)


def prompt(tool=TOOL_TEXT, request="read a.txt"):
    return [SYSTEM, Segment(SegmentKind.TOOL, tool), Segment(SegmentKind.REQUEST, request)]


async def plain_answer(request="read a.txt", *, tool=TOOL_TEXT):
    """What an engine says that has nothing kept."""
    return (await StatefulDouble().complete(prompt(tool, request), SCHEMA, max_tokens=8)).text


@asynccontextmanager
async def layer(folder, engine=None, **settings):
    engine = engine or StatefulDouble()
    parts = open_parts(engine, StateSettings(**settings), folder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.reads.run)
        tasks.start_soon(parts.prefetcher.run)
        tasks.start_soon(parts.compiler.run)
        await anyio.wait_all_tasks_blocked()
        yield Layer(engine, parts)
        tasks.cancel_scope.cancel()
