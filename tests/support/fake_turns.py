"""A turn service on in-memory parts: fixed tools, a fleet that answers every call, rules of one policy."""

from dataclasses import dataclass, field, replace

import anyio
from support.making_tools import ADDS, DESTROYS, READS, STRING, catalog_of, definition, index_of

from adapters.embedder_double import HashingEmbedder
from adapters.engine_double import ScriptedEngine
from nexus_gateway.access.caller import Caller
from nexus_gateway.routing.router import Router
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.confirmation import Approvals
from nexus_gateway.turn.parts import TurnOptions, TurnParts
from nexus_gateway.turn.service import TurnService
from tool_registry.routing import Gate

CALLER = Caller()
ANSWER = {"content": [{"type": "text", "text": "done"}], "futureField": {"x": 1}}
READ = definition("read_file", "Read the text of a file", {"path": STRING}, ["path"], annotations=READS)
DELETE = definition("delete_file", "Delete a file for ever", {"path": STRING}, ["path"], annotations=DESTROYS)
COPY = definition(
    "copy_file",
    "Copy one file",
    {"source": STRING, "target_path": STRING},
    ["source", "target_path"],
    annotations=ADDS,
)
WEATHER = definition("get_weather", "Weather forecast of a city", {"city": STRING}, ["city"])
FILES = {"files": [READ, DELETE, COPY], "sky": [WEATHER]}


class FakeCalls:
    """A fleet that answers every call, or raises."""

    def __init__(self, catalog, error=None):
        self.catalog, self.error, self.calls, self.synced = catalog, error, [], 0

    async def first_sync(self):
        self.synced += 1

    async def call_tool(self, server, tool, params, *, caller=None, on_progress=None):
        self.calls.append((server, tool, params))
        if self.error:
            raise self.error
        return ANSWER


@dataclass
class FakeRules:
    policy: str = "auto"
    read_only: dict = field(default_factory=dict)

    def confirm_policy(self, tool):
        return self.policy

    def approved_read_only(self, tool):
        return self.read_only.get(tool.name)


async def service_of(
    servers=None,
    *,
    answers=(),
    error=None,
    rules=None,
    gate=None,
    ready=None,
    engine=None,
    embedder_of=None,
    embedder=None,
    **parts,
):
    catalog, embedder = catalog_of(**(servers or FILES)), embedder or HashingEmbedder()
    index, engine, calls = (
        await index_of(catalog, embedder),
        engine or ScriptedEngine(answers),
        FakeCalls(catalog, error),
    )

    async def at_once(on_progress):
        return index

    async def get_embedder():
        return embedder

    async def get_engine():
        return engine

    given = TurnParts(
        calls=calls,
        ready=ready or at_once,
        router=Router(embedder_of or get_embedder, gate or Gate(margin=0.0, floor=0.05)),
        writer=ArgumentWriter(get_engine, max_tokens=64),
        approvals=Approvals(None),
        rules=rules or FakeRules(),
        deadline_seconds=30,
    )
    return TurnService(replace(given, **parts)), calls


async def turn(service, request, context="", caller=CALLER, **options):
    with anyio.fail_after(30):
        return await service.turn(request, caller, context=context, options=TurnOptions(**options))


async def call(service, tool, arguments, **options):
    with anyio.fail_after(30):
        return await service.call(tool, arguments, CALLER, **options)
