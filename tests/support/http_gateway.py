"""The real fleet and relay, without the turn's models, in this process over HTTP; and the official SDK's client on it."""

import secrets
from contextlib import asynccontextmanager

import anyio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.request_state import AESGCMRequestStateCodec
from support.fake_relay import PATIENCE, meta_call
from support.fleets import SOON, running

from adapters.mcp_upstream import connect
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.server.gateway import Relaying, build_server
from nexus_gateway.server.hosts import Hosts
from nexus_gateway.server.http import PATH, serve_http
from nexus_gateway.server.large_results import LargeResults
from nexus_gateway.server.listening import listen
from nexus_gateway.server.relay import Relay, RelayParts
from nexus_gateway.server.request_states import RequestStates
from nexus_gateway.settings.snapshot import ExposeSettings, HttpSettings


def relay_of(fleet, expose, hosts):
    return Relay(
        RelayParts(
            fleet=fleet,
            meta_call=meta_call,
            expose=expose,
            hosts=hosts,
            states=RequestStates(AESGCMRequestStateCodec([secrets.token_bytes(32)])),
            large_results=LargeResults(max_tokens=0, keep_seconds=60),
            patience_seconds=PATIENCE,
        )
    )


@asynccontextmanager
async def gateway(*members):
    """The fleet's gateway over HTTP: its URL and its fleet, once each server is up or has failed."""
    fleet = Fleet(members, connect, policy=SOON, restart_patience_seconds=PATIENCE / 2)
    hosts, stop = Hosts(), anyio.Event()
    expose, http = ExposeSettings(tools="all"), HttpSettings(port=0)
    relay, listening = relay_of(fleet, expose, hosts), listen(http)
    port = listening[0].getsockname()[1]

    async def get():
        return relay

    server = build_server(relay.call, relaying=Relaying(get, lambda: relay, expose, hosts))
    async with running(fleet), anyio.create_task_group() as tasks:
        hosts.follow(fleet.meet, lambda host: tasks.start_soon(fleet.forget, host))
        for part in (hosts.run, relay.run):
            tasks.start_soon(part)
        served = anyio.Event()

        async def serve():
            await serve_http(http, None, listening, server, stop)
            served.set()

        tasks.start_soon(serve)
        await fleet.first_sync()
        try:
            yield f"http://127.0.0.1:{port}{PATH}", fleet
            stop.set()
            await served.wait()
        finally:
            hosts.follow(lambda _caller: None, lambda _host: None)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def host(url, era, **options):
    """The official SDK's client, connected over HTTP."""
    transport = streamable_http_client(url)
    async with Client(transport, mode=era, read_timeout_seconds=PATIENCE, **options) as client:
        yield client
