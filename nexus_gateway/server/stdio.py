"""Serving one host over this process's stdin and stdout."""

import os
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server import Server
from mcp.server.stdio import stdio_server

from nexus_gateway.server.stdio_wire import on_pipes, stdio_pipes

_CHUNK_BYTES = 65_536


async def serve_stdio(server: Server[Any], stop: anyio.Event) -> None:
    """Serve until the host closes stdin, or `stop` is set."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_when, stop, tasks.cancel_scope)
        async with stdio_pipes() if on_pipes() else _sdk_streams() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        tasks.cancel_scope.cancel()


def _sdk_streams() -> AbstractAsyncContextManager[tuple[Any, Any]]:
    # Of a file, the SDK uses the iteration alone.
    return stdio_server(stdin=cast("anyio.AsyncFile[str]", StdinLines()))


async def _cancel_when(stop: anyio.Event, scope: anyio.CancelScope) -> None:
    await stop.wait()
    scope.cancel()


class StdinLines:
    """The lines of fd 0, a terminal or file, read by a daemon thread, so that waiting for one can be cancelled.

    The SDK's own reader blocks in a thread that nothing interrupts: SIGTERM would have to wait for the host's
    next message. Plain `os.read`, since a daemon thread that holds a buffered reader's lock aborts the
    interpreter's shutdown.
    """

    async def __aiter__(self) -> AsyncIterator[str]:
        send, receive = anyio.create_memory_object_stream[bytes](0)
        token = anyio.lowlevel.current_token()
        threading.Thread(target=_read_stdin, args=(send, token), name="stdin", daemon=True).start()
        buffered: list[bytes] = []
        async with receive:
            async for chunk in receive:
                *whole, rest = chunk.split(b"\n")
                for line in whole:
                    yield b"".join([*buffered, line]).decode("utf-8", errors="replace")
                    buffered.clear()
                buffered.append(rest)
        if any(buffered):
            yield b"".join(buffered).decode("utf-8", errors="replace")


def _read_stdin(send: MemoryObjectSendStream[bytes], token: Any) -> None:
    """Hand over chunks one by one: a slow loop slows the host, nothing piles up."""
    try:
        while chunk := os.read(0, _CHUNK_BYTES):
            anyio.from_thread.run(send.send, chunk, token=token)
        anyio.from_thread.run_sync(send.close, token=token)
    except (OSError, RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # stdin or the event loop is gone
