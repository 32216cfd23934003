"""This process's stdin and stdout as pipes on the event loop: what hosts start a gateway with.

Knows descriptors, lines and JSON-RPC messages; nothing of MCP. The SDK's `stdio_server` hands each read, write and
flush to a worker thread, which costs more than all else in a relayed call; here a message costs two system calls.
Terminals, files and Windows stay with the SDK (see `server.stdio`): the shell shares a terminal's descriptor, and
must not find it non-blocking.
"""

import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

_CHUNK_BYTES = 65_536
_LAST_FRAME_SECONDS = 1.0
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def on_pipes() -> bool:
    """Whether `stdio_pipes` can serve: fds 0 and 1 are pipes or sockets, and stderr is not the same one as stdout."""
    try:
        return _is_pipe(_STDIN) and _is_pipe(_STDOUT) and not os.path.sameopenfile(_STDOUT, _STDERR)
    except OSError:  # one of them is closed
        return False


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


@asynccontextmanager
async def stdio_pipes() -> AsyncIterator[tuple["MessageReader", "MessageWriter"]]:
    """The two streams that the SDK's server runs on. Until the end of the block fd 1 is stderr: no print gets on the wire."""
    with claimed_stdout() as wire:
        yield MessageReader(_STDIN), MessageWriter(wire)


@contextmanager
def claimed_stdout() -> Iterator[int]:
    """A non-blocking descriptor of stdout, which itself is stderr until the end of the block."""
    wire = os.dup(_STDOUT)
    blocking = os.get_blocking(wire)
    try:
        os.dup2(_STDERR, _STDOUT)
        os.set_blocking(wire, False)
        yield wire
    finally:
        os.set_blocking(wire, blocking)
        os.dup2(wire, _STDOUT)
        os.close(wire)


class LineReader:
    """The lines that come through a pipe.

    Waiting can be cancelled. Reads only when asked: a slow reader slows the writer, nothing piles up.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] = []  # whole ones, the next one last
        self._partial: list[bytes] = []
        self._closed = False

    async def receive_line(self) -> bytes:
        """The next line. Raises EndOfStream when the other side has closed, ClosedResourceError after `aclose`."""
        while not self._lines:
            if self._closed:
                raise anyio.ClosedResourceError
            await anyio.wait_readable(self._descriptor)
            self._take(os.read(self._descriptor, _CHUNK_BYTES))
        return self._lines.pop()

    def _take(self, chunk: bytes) -> None:
        if not chunk and not any(self._partial):
            raise anyio.EndOfStream
        *whole, rest = chunk.split(b"\n") if chunk else (b"", b"")  # at the end, what is there is a line
        for line in whole:
            self._lines.append(b"".join([*self._partial, line]))
            self._partial.clear()
        self._partial.append(rest)
        self._lines.reverse()

    async def aclose(self) -> None:
        """Read no more; the descriptor stays open."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


class MessageReader(LineReader):
    """The messages that come through a pipe, one a line; a line that is none comes as the exception it caused."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage | Exception:
        """The next message. Raises as `receive_line`."""
        line = await self.receive_line()
        try:
            text = line.decode("utf-8", errors="replace")
            return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValueError as error:
            return error


class LineWriter:
    """Lines into a non-blocking pipe; senders that find it full wait in order.

    A sender may be cancelled in the middle of its line. The rest of it is kept and goes before whatever is sent
    next: half a line would make two messages unreadable.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = memoryview(b"")
        self._turn = anyio.Lock(fast_acquire=True)
        self._closed = False

    async def send_line(self, line: bytes) -> None:
        """Write a line, its end included.

        Raises:
            BrokenResourceError: nobody reads any more.
            ClosedResourceError: after `aclose`.
        """
        async with self._turn:
            if self._closed:
                raise anyio.ClosedResourceError
            await self._write_rest()
            self._rest = memoryview(line)
            await self._write_rest()

    async def _write_rest(self) -> None:
        while self._rest:
            try:
                written = os.write(self._descriptor, self._rest)
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except OSError as error:
                self._rest = memoryview(b"")
                raise anyio.BrokenResourceError from error
            else:
                self._rest = self._rest[written:]

    async def aclose(self) -> None:
        """Finish a line that was begun, within a second; the descriptor stays open."""
        if self._closed:
            return
        self._closed = True
        with anyio.move_on_after(_LAST_FRAME_SECONDS, shield=True):
            async with self._turn:
                await self._write_rest()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


class MessageWriter(LineWriter):
    """Messages into a non-blocking pipe, one a line."""

    async def send(self, item: SessionMessage, /) -> None:
        """Write a message. Raises as `send_line`, and ValueError for what can't be written as JSON."""
        await self.send_line(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
