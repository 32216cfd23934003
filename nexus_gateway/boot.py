"""Start-up in two steps: answer the host first, load the application after.

A host drops a server that is slow to initialise. The MCP server needs the meta-tools' definitions alone, so
it is up before anything heavy is imported; a call that comes early waits, and is told what it waits for.
"""

import importlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_thread
from mcp.server import Server

from nexus_gateway.server.gateway import build_server
from nexus_gateway.settings import Settings

if TYPE_CHECKING:
    from nexus_gateway.server.handlers import Handlers

FIRST_LIST_PATIENCE_SECONDS = 1.0
"""Loading starts after the first `tools/list`, or after this long: imports would compete with the answer."""


class _Late:
    """The handlers, once there are any."""

    def __init__(self) -> None:
        self._there = anyio.Event()
        self._handlers: Handlers | None = None

    def set(self, handlers: "Handlers") -> None:
        self._handlers = handlers
        self._there.set()

    async def __call__(self, *call: Any) -> Any:
        await self._there.wait()
        if self._handlers is None:
            raise RuntimeError("set before it is announced")
        return await self._handlers(*call)


Transport: TypeAlias = Callable[[Server[Any], anyio.Event], Awaitable[None]]
"""Serves hosts until they are gone, or until the event is set."""


async def serve(settings: Settings, transport: Transport) -> None:
    """Serve hosts through `transport` until it ends, or SIGINT or SIGTERM comes; leaves no child behind."""
    late, listed, stop = _Late(), anyio.Event(), anyio.Event()
    server = build_server(late, on_listed=listed.set)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_stop_on_signal, stop)
        tasks.start_soon(_load, settings, late, listed)
        await transport(server, stop)
        tasks.cancel_scope.cancel()


async def _stop_on_signal(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            stop.set()


async def _load(settings: Settings, late: _Late, listed: anyio.Event) -> None:
    with anyio.move_on_after(FIRST_LIST_PATIENCE_SECONDS):
        await listed.wait()
    async with running_handlers(settings) as handlers:
        late.set(handlers)
        await anyio.sleep_forever()


@asynccontextmanager
async def running_handlers(settings: Settings) -> AsyncIterator["Handlers"]:
    """The application with its meta-tool handlers; imported here, in a worker thread, and nowhere earlier."""
    wiring = await anyio.to_thread.run_sync(importlib.import_module, "nexus_gateway.wiring")
    async with wiring.open_handlers(settings) as handlers:
        yield handlers
