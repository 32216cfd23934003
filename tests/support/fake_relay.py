"""The relay on a fleet of scripted answers: the real server, names, routes and questions, no upstream."""

import secrets
from collections import Counter, defaultdict
from contextlib import asynccontextmanager

import anyio
from mcp import Client
from mcp.server.request_state import AESGCMRequestStateCodec
from mcp.shared.memory import create_client_server_memory_streams

from adapters.ports import Era, UpstreamRefused, UpstreamUnavailable
from nexus_gateway.fleet.changes import Change
from nexus_gateway.fleet.listings import Entry
from nexus_gateway.fleet.status import ServerState, ServerStatus
from nexus_gateway.server.gateway import Relaying, build_server
from nexus_gateway.server.hosts import Hosts
from nexus_gateway.server.large_results import LargeResults
from nexus_gateway.server.relay import Relay, RelayParts
from nexus_gateway.server.request_states import RequestStates
from nexus_gateway.settings.snapshot import ExposeSettings
from tool_registry.catalog import ToolCatalog, read_listing

PATIENCE = 30
MODERN = "2026-07-28"
BOTH_ERAS = ("legacy", MODERN)
TEXT = {"content": [{"type": "text", "text": "done"}]}


class FakeFleet:
    """Servers whose answers a test writes.

    `answers` by method: async functions of server, params, caller and on_progress. `lists` by kind and server.
    """

    def __init__(self, tools=None, *, lists=None, answers=None, eras=None, said=()):
        self.catalog = ToolCatalog()
        self.lists = defaultdict(dict, lists or {})
        self.answers, self.eras, self.said = answers or {}, eras or {}, said
        self.requests = []
        self.watched = Counter()
        self.synced = anyio.Event()
        self.synced.set()
        self._callbacks = []
        for server, definitions in (tools or {}).items():
            self.set_tools(server, definitions)

    def set_tools(self, server, definitions):
        self.catalog = self.catalog.with_server(server, read_listing(server, definitions))

    def statuses(self):
        names = dict.fromkeys([*self.eras, *(tool.id.server for tool in self.catalog)])
        return [ServerStatus(name, ServerState.READY, era=self.eras.get(name, Era.LEGACY)) for name in names]

    async def first_sync(self):
        await self.synced.wait()
        return self.statuses()

    async def request(self, server, method, params, *, caller, timeout_seconds=None, on_progress=None):
        self.requests.append((server, method, params))
        if method not in self.answers:
            raise UpstreamRefused(server, -32601, "Method not found")
        return await self.answers[method](server, params, caller, on_progress)

    async def call_tool(self, server, tool, params, *, caller=None, on_progress=None):
        assert tool == params["name"]
        return await self.request(server, "tools/call", params, caller=caller, on_progress=on_progress)

    async def entries(self, kind):
        return [Entry(server, raw) for server, listed in self.lists[kind].items() for raw in listed]

    def instructions(self):
        return self.said

    async def watch(self, server, uri, host_key):
        if uri == "gone:1":
            raise UpstreamUnavailable(server, "gone")
        self.watched[server, uri] += 1

    async def unwatch(self, server, uri, host_key):
        self.watched[server, uri] -= 1

    def on_change(self, callback):
        self._callbacks.append(callback)

    def change(self, kind, server="s", params=None, host=None):
        for callback in self._callbacks:
            callback(Change(kind, server, params or {}, host))


def always(result):
    """An answer that is the same whatever is asked."""

    async def answer(_server, _params, _caller, _on_progress):
        return result

    return answer


async def meta_call(name, arguments, ctx, caller):
    return {"content": [{"type": "text", "text": f"meta {name}"}]}


@asynccontextmanager
async def relaying_server(
    fleet, *, patience_seconds=PATIENCE, meta=meta_call, on_called=lambda _tool, _caller: None, **expose
):
    """The server on a fleet; `expose` are `ExposeSettings`, all tools by default."""
    settings, hosts = ExposeSettings(**{"tools": "all", **expose}), Hosts()
    relay = Relay(
        RelayParts(
            fleet=fleet,
            meta_call=meta,
            expose=settings,
            hosts=hosts,
            states=RequestStates(AESGCMRequestStateCodec([secrets.token_bytes(32)])),
            large_results=LargeResults(max_tokens=0, keep_seconds=60),
            patience_seconds=patience_seconds,
            on_called=on_called,
        )
    )

    async def get():
        return relay

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hosts.run)
        tasks.start_soon(relay.run)
        await anyio.wait_all_tasks_blocked()
        yield build_server(relay.call, relaying=Relaying(get, lambda: relay, settings, hosts))
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def over_streams(server):
    """A transport for the client: JSON-RPC through memory, as on stdio, in both eras."""
    async with create_client_server_memory_streams() as (near, far), anyio.create_task_group() as tasks:
        tasks.start_soon(server.run, *far, server.create_initialization_options())
        yield near
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def host_of(fleet, era, *, expose=None, **options):
    """The official SDK's client on the gateway; `options` are the client's, such as its callbacks."""
    with anyio.fail_after(100):
        async with (
            relaying_server(fleet, **(expose or {})) as server,
            Client(over_streams(server), mode=era, read_timeout_seconds=PATIENCE, **options) as client,
        ):
            yield client


async def raw_request(client, method, params=None):
    """A request as the SDK's client sends it, and the raw result."""
    session = client.session
    stamped = {"method": method, "params": dict(params or {})}
    options = {}
    session._stamp(stamped, options)
    return await session._dispatcher.send_raw_request(method, stamped["params"], options)
