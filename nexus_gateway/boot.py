"""Start-up in two steps: answer the host first, load the application after.

A host drops a server that is slow to initialise. The MCP server needs the meta-tools' definitions alone, so
it is up before anything heavy is imported; a call that comes early waits, and is told what it waits for.
"""

import importlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_thread
from mcp.server import Server

from nexus_gateway.server.gateway import Relaying, build_server
from nexus_gateway.server.hosts import Hosts
from nexus_gateway.settings import Settings

if TYPE_CHECKING:
    from nexus_gateway.reloading import ReadSettings
    from nexus_gateway.server.health import Health
    from nexus_gateway.server.relay import Relay

FIRST_LIST_PATIENCE_SECONDS = 1.0
"""Loading starts after the first `tools/list`, or after this long: imports would compete with the answer."""


class _Late:
    """The relay, once there is one."""

    def __init__(self) -> None:
        self._there = anyio.Event()
        self._relay: Relay | None = None

    def set(self, relay: "Relay") -> None:
        self._relay = relay
        self._there.set()

    def loaded(self) -> "Relay | None":
        return self._relay

    async def get(self) -> "Relay":
        await self._there.wait()
        if self._relay is None:
            raise RuntimeError("set before it is announced")
        return self._relay

    async def call(self, *call: Any) -> Any:
        return await (await self.get()).call(*call)


Transport: TypeAlias = Callable[[Server[Any], anyio.Event], Awaitable[None]]
"""Serves hosts until they are gone, or until the event is set."""


async def serve(
    settings: Settings,
    transport: Transport,
    read: "ReadSettings | None" = None,
    health: "Health | None" = None,
) -> None:
    """Serve hosts through `transport` until it ends, or SIGINT or SIGTERM comes; leaves no child behind.

    A second signal doesn't wait for running requests. SIGHUP has the configuration taken anew from `read`; `health`
    is told what is still missing.
    """
    late, listed, stop, hosts = _Late(), anyio.Event(), anyio.Event(), Hosts()
    relaying = Relaying(late.get, late.loaded, settings.expose, hosts)
    server = build_server(late.call, on_listed=listed.set, relaying=relaying)
    # Signals are ours until the end: one that comes while children are being stopped must not leave them behind.
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, signals, stop, tasks.cancel_scope)
            tasks.start_soon(hosts.run)
            tasks.start_soon(_load, lambda: running_relay(settings, hosts, read, health), late, listed)
            await transport(server, stop)
            tasks.cancel_scope.cancel()


async def _stop_on_signal(
    signals: AsyncIterator[signal.Signals], stop: anyio.Event, everything: anyio.CancelScope
) -> None:
    async for _ in signals:
        if stop.is_set():
            everything.cancel()
        stop.set()


async def _load(
    open_relay: Callable[[], AbstractAsyncContextManager["Relay"]], late: _Late, listed: anyio.Event
) -> None:
    with anyio.move_on_after(FIRST_LIST_PATIENCE_SECONDS):
        await listed.wait()
    async with open_relay() as relay:
        late.set(relay)
        await anyio.sleep_forever()


@asynccontextmanager
async def running_relay(
    settings: Settings, hosts: Hosts, read: "ReadSettings | None" = None, health: "Health | None" = None
) -> AsyncIterator["Relay"]:
    """The application with all that answers hosts; imported here, in a worker thread, and nowhere earlier."""
    wiring = await anyio.to_thread.run_sync(importlib.import_module, "nexus_gateway.wiring")
    async with wiring.open_relay(settings, hosts, read, health) as relay:
        yield relay
