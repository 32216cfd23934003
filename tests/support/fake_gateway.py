"""A whole gateway on in-memory parts: the real server, turn, fleet and indexer on doubles of upstreams and models."""

import json
import secrets
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import mcp_types as types
from mcp import Client
from mcp.server import Server
from mcp.server.request_state import AESGCMRequestStateCodec

from adapters.embedder_double import HashingEmbedder
from adapters.engine_double import ScriptedEngine
from adapters.ports import StdioSpec, UpstreamSpec
from adapters.upstream_double import FakeUpstream, fake_connect
from nexus_gateway.fleet.fleet import Fleet, Member
from nexus_gateway.readiness import Readiness
from nexus_gateway.registry.indexer import Indexer
from nexus_gateway.routing.router import Router
from nexus_gateway.server.gateway import build_server
from nexus_gateway.server.handlers import HandlerParts, Handlers
from nexus_gateway.settings import Settings
from nexus_gateway.settings.snapshot import ServerSettings
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.bindings import Bindings
from nexus_gateway.turn.confirmation import Approvals, PendingTokens
from nexus_gateway.turn.parts import TurnParts
from nexus_gateway.turn.service import TurnService
from tool_registry.compiled_store import CompiledStore
from tool_registry.routing import Gate

MODERN = "2026-07-28"
BOTH_ERAS = ("legacy", MODERN)
PATIENCE = 30


@dataclass
class FakeGateway:
    """The server under test, and the upstreams behind it by name."""

    server: Server
    fleet: Fleet
    indexer: Indexer
    upstreams: dict[str, FakeUpstream]

    async def relist(self, upstream, tools):
        """Let an upstream list other tools, and wait until the gateway knows."""
        before = self.fleet.catalog.epoch
        self.upstreams[upstream].change_tools(tools)
        with anyio.fail_after(PATIENCE):
            while self.fleet.catalog.epoch == before:
                await anyio.lowlevel.checkpoint()
            await self.indexer.current()


@asynccontextmanager
async def fake_gateway(
    cache,
    *upstreams,
    synced=True,
    connect=None,
    answer_timeout_seconds=PATIENCE,
    corrections=None,
    bindings=None,
    **server_options,
):
    """Run a gateway over fake upstreams; `server_options` are `ServerSettings` of every server."""
    by_name = {upstream.server: upstream for upstream in upstreams}
    specs = {name: UpstreamSpec(name, StdioSpec("not-started")) for name in by_name}
    settings = Settings(
        servers={name: ServerSettings(spec=spec, **server_options) for name, spec in specs.items()},
        cache_dir=cache,
    )
    embedder, engine = HashingEmbedder(), ScriptedEngine([])

    async def get_embedder():
        return embedder

    async def get_engine():
        return engine

    indexer = Indexer(CompiledStore(cache / "compiled", lambda *_: None), get_embedder)
    connect = connect or fake_connect({name: lambda one=one: one for name, one in by_name.items()})
    fleet = Fleet(map(Member, specs.values()), connect, on_catalog=indexer.follow)
    turns = TurnService(
        TurnParts(
            calls=fleet,
            ready=Readiness(fleet, indexer, []).wait,
            router=Router(get_embedder, Gate()),
            writer=ArgumentWriter(get_engine, max_tokens=64),
            approvals=Approvals(cache / "approvals.json"),
            rules=settings,
            deadline_seconds=PATIENCE,
            bindings=bindings or Bindings(),
        )
    )
    tokens = PendingTokens(AESGCMRequestStateCodec([secrets.token_bytes(32)]), ttl_seconds=300)
    handlers = Handlers(
        HandlerParts(
            turns=turns,
            calls=fleet,
            tokens=tokens,
            explain=True,
            answer_timeout_seconds=answer_timeout_seconds,
            corrections=corrections,
        )
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.run)
        tasks.start_soon(indexer.run)
        if synced:
            with anyio.fail_after(PATIENCE):
                await fleet.first_sync()
        yield FakeGateway(build_server(handlers), fleet, indexer, by_name)
        tasks.cancel_scope.cancel()


def tool(name, properties=None, *, required=None, **annotations):
    """A definition with string arguments; all required unless said otherwise."""
    properties = properties or {}
    definition = {
        "name": name,
        "description": f"{name.replace('_', ' ')}.",
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": list(properties) if required is None else required,
        },
    }
    return definition | ({"annotations": annotations} if annotations else {})


class User:
    """A host's user, who answers the questions of a test in order and remembers them."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []

    async def __call__(self, _context, params):
        self.asked.append(params)
        return self._answers.pop(0)


def accept(**content):
    """The form sent with these values."""
    return types.ElicitResult(action="accept", content=content)


DECLINE = types.ElicitResult(action="decline")
DISMISS = types.ElicitResult(action="cancel")
YES = accept(confirm=True)
NO = accept(confirm=False)


def host(gateway, era, user=None):
    """The official SDK's client on the gateway."""
    return Client(gateway.server, mode=era, elicitation_callback=user, read_timeout_seconds=PATIENCE)


def said(result):
    """All text of a result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def outcome(result):
    """How the gateway says that a turn ended."""
    structured = result.structured_content or {}
    return structured.get("outcome") or json.loads(json.dumps(result.meta))["nexus-gateway/turn"]["outcome"]
