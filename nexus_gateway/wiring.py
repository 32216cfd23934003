"""Joins the running application to the server's handlers and its relay."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
from mcp.server.request_state import AESGCMRequestStateCodec

from adapters.ports import ModelError
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import HostKey
from nexus_gateway.app import Gateway, open_gateway
from nexus_gateway.readiness import Readiness
from nexus_gateway.reloading import ReadSettings, reload_on_hangup
from nexus_gateway.routing import feedback
from nexus_gateway.routing.corrections import Corrections
from nexus_gateway.routing.feedback import FeedbackStore
from nexus_gateway.server.handlers import HandlerParts, Handlers
from nexus_gateway.server.health import Health
from nexus_gateway.server.hosts import Hosts
from nexus_gateway.server.large_results import LargeResults
from nexus_gateway.server.relay import Relay, RelayParts
from nexus_gateway.server.request_states import RequestStates
from nexus_gateway.settings import Settings
from nexus_gateway.telemetry.logs import set_up_logs
from nexus_gateway.turn.confirmation import PendingTokens
from tool_registry.tool import ToolId


@asynccontextmanager
async def open_relay(
    settings: Settings, hosts: Hosts, read: ReadSettings | None = None, health: Health | None = None
) -> AsyncIterator[Relay]:
    """Run the application and give its relay. What hosts bring back is sealed under keys of this process.

    With `read` the configuration is read again on SIGHUP; `health` is told what is still missing.
    """
    set_up_logs(settings.log.level, settings.log.format)
    results = LargeResults(max_tokens=settings.results.max_tokens, keep_seconds=settings.results.keep_seconds)
    async with open_gateway(settings, hosts.present()) as gateway:
        corrections = _corrections(settings)
        handlers = _handlers(settings, gateway, results, corrections)
        parts = RelayParts(
            fleet=gateway.fleet,
            meta_call=handlers,
            expose=settings.expose,
            hosts=hosts,
            states=RequestStates(_codec()),
            large_results=results,
            on_called=corrections.called if corrections else _unheard,
        )
        async with anyio.create_task_group() as tasks:
            relay = Relay(parts)

            def left(host: HostKey) -> None:
                tasks.start_soon(gateway.fleet.forget, host)

            hosts.follow(gateway.fleet.meet, left)
            tasks.start_soon(relay.run)
            if corrections is not None:
                tasks.start_soon(corrections.run)
            if read is not None:
                tasks.start_soon(reload_on_hangup, read, gateway.reload)
            if health is not None:
                tasks.start_soon(_tell_of, gateway.readiness, health)
            try:
                yield relay
            finally:
                hosts.follow(lambda _caller: None, lambda _key: None)  # who leaves later is nobody's business
                tasks.cancel_scope.cancel()


async def _tell_of(readiness: Readiness, health: Health) -> None:
    health.follow(readiness.missing)
    # Nobody may have asked for a turn yet when a probe asks whether one could run.
    with suppress(ModelError):  # `missing` tells of it
        await readiness.wait()


def _corrections(settings: Settings) -> Corrections | None:
    if not settings.feedback.keep:
        return None
    path = settings.cache_dir / feedback.FILE_NAME
    return Corrections(FeedbackStore(path, max_entries=settings.feedback.max_entries))


def _handlers(
    settings: Settings, gateway: Gateway, results: LargeResults, corrections: Corrections | None
) -> Handlers:
    return Handlers(
        HandlerParts(
            turns=gateway.turns,
            calls=gateway.fleet,
            tokens=PendingTokens(_codec(), ttl_seconds=settings.turn.confirm_ttl_seconds),
            explain=settings.turn.explain,
            answer_timeout_seconds=settings.turn.confirm_ttl_seconds,
            fit=results.fit,
            corrections=corrections,
        )
    )


def _unheard(_tool: ToolId, _caller: Caller) -> None:
    """Nothing is to be learnt from calls."""


def _codec() -> AESGCMRequestStateCodec:
    return AESGCMRequestStateCodec([secrets.token_bytes(32)])
