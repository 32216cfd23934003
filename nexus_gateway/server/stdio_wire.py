"""This process's stdin and stdout as pipes on the event loop: what hosts start a gateway with.

Knows descriptors and lines. The SDK's own `stdio_server` hands each read, write and flush to a worker thread,
which costs more than all else in a relayed call; here a message costs two system calls. Terminals, files and
Windows are left to threads (see `server.stdio`): a terminal's descriptor is shared with the shell, which must not
find it non-blocking.
"""

import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import anyio

_CHUNK_BYTES = 65_536
_LAST_FRAME_SECONDS = 1.0
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def is_pipe(descriptor: int) -> bool:
    """Whether it is a pipe or socket on a system whose event loop can wait for one."""
    if sys.platform == "win32":
        return False
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def stdin_is_pipe() -> bool:
    """Whether `PipeLines` can read fd 0."""
    return is_pipe(_STDIN)


def stdout_is_pipe() -> bool:
    """Whether `claimed_stdout` can write to fd 1: a pipe that stderr does not write to as well."""
    if not is_pipe(_STDOUT):
        return False
    try:
        return not os.path.sameopenfile(_STDOUT, _STDERR)
    except OSError:
        return True


class PipeLines:
    """The lines of a pipe. Waiting for one can be cancelled; a slow reader slows the writer, nothing piles up."""

    def __init__(self, descriptor: int = _STDIN) -> None:
        self._descriptor = descriptor

    async def __aiter__(self) -> AsyncIterator[str]:
        buffered: list[bytes] = []
        while chunk := await self._read():
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                yield b"".join([*buffered, line]).decode("utf-8", errors="replace")
                buffered.clear()
            buffered.append(rest)
        if any(buffered):
            yield b"".join(buffered).decode("utf-8", errors="replace")

    async def _read(self) -> bytes:
        await anyio.wait_readable(self._descriptor)
        return os.read(self._descriptor, _CHUNK_BYTES)


class PipeWriter:
    """Writes text to a non-blocking pipe, for one writer at a time. Has of a file what the SDK's server uses."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = memoryview(b"")

    async def write(self, text: str) -> None:
        """Write all of `text`. Raises OSError when nobody reads any more."""
        self._rest = memoryview(text.encode())
        try:
            await self._write_rest()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_LAST_FRAME_SECONDS, shield=True):
                await self._write_rest()  # half a message would be the last that the host reads
            raise

    async def flush(self) -> None:
        """Nothing is held back."""

    async def _write_rest(self) -> None:
        while self._rest:
            try:
                written = os.write(self._descriptor, self._rest)
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            else:
                self._rest = self._rest[written:]


@contextmanager
def claimed_stdout() -> Iterator[PipeWriter]:
    """A writer to what fd 1 was; until the end of the block fd 1 is stderr, so that a stray print stays off the wire."""
    wire = os.dup(_STDOUT)
    blocking = os.get_blocking(wire)
    try:
        os.dup2(_STDERR, _STDOUT)
        os.set_blocking(wire, False)
        yield PipeWriter(wire)
    finally:
        os.set_blocking(wire, blocking)
        os.dup2(wire, _STDOUT)
        os.close(wire)
