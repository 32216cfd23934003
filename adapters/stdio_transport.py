"""A server as a child process that speaks JSON-RPC, one message a line, over its stdin and stdout.

Knows processes, pipes and lines; nothing of negotiation, tools or eras. Own code rather than the SDK's
`stdio_client` because: what a server leaves behind must end also when the server exits by itself, the
last stderr lines explain a failure, and a line of many MB must not cost quadratic time.
"""

import json
import re
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import structlog
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import StdioServerParameters, stdio_client
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from adapters.careful_dispatcher import CarefulDispatcher
from adapters.link_ending import Ending
from adapters.ports import StdioSpec, UpstreamUnavailable
from adapters.process_group import exit_text, exits_within, stop_group
from adapters.spawn_failure import spawn_failure

MAX_LINE_BYTES = 256 * 1024 * 1024
"""A longer line ends the connection."""
STDERR_LINES = 20
"""Kept for error messages."""
UNWRITTEN_MESSAGES = 64
"""Queued for a server that is slow to read; further senders wait. Without a queue, giving up on a call
to a server that reads nothing would itself wait, for its cancellation to be written."""
_STDERR_LINE_BYTES = 2_000
_RUBBISH_SHOWN = 200
_EXIT_POLL_SECONDS = 0.25
_LAST_WORDS_SECONDS = 0.5
_MANY_DIGITS = 1_000
_ANSWER_BEGINS = re.compile(r'\s*\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"result"')
"""How an answer begins, in the order that most servers write it; for one that is nested too deeply to be read."""
_CLOSED = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_stdio(server: str, spec: StdioSpec, ending: Ending) -> AsyncIterator[CarefulDispatcher]:
    """Start the process; ends it and its group on the way out. `ending` is set when it exits by itself.

    Raises:
        UpstreamUnavailable: it can't be started; the message says why and what to do.
    """
    if sys.platform == "win32":
        async with _open_on_windows(spec, ending) as dispatcher:
            yield dispatcher
        return
    pipes = _Pipes(server, await _spawn(server, spec), ending)
    # No await between the spawn and here: a cancellation in the gap would leave the process behind.
    async with anyio.create_task_group() as tasks:
        for job in (pipes.read_stdout, pipes.write_stdin, pipes.read_stderr, pipes.watch):
            tasks.start_soon(job)
        try:
            yield pipes.dispatcher
        finally:
            with anyio.CancelScope(shield=True):
                await pipes.close()
            tasks.cancel_scope.cancel()


async def _spawn(server: str, spec: StdioSpec) -> Process:
    env = get_default_environment() | dict(spec.env)
    try:
        return await anyio.open_process(
            [spec.command, *spec.args], env=env, cwd=spec.cwd, start_new_session=True
        )
    except (OSError, ValueError) as error:
        message = f"{server}: {spawn_failure(error, spec, env)}"
        raise UpstreamUnavailable(server, message) from error


class _Tail:
    """The last lines of a byte stream, each cut to a sane length."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)
        self._partial = b""

    def feed(self, chunk: bytes) -> list[str]:
        """Take bytes; return the lines they complete."""
        *whole, partial = (self._partial + chunk).split(b"\n")
        self._partial = partial[:_STDERR_LINE_BYTES]
        lines = [_text(line[:_STDERR_LINE_BYTES]).rstrip() for line in whole]
        self._lines.extend(line for line in lines if line)
        return lines

    def __str__(self) -> str:
        unfinished = _text(self._partial).strip()
        return "\n".join([*self._lines, unfinished] if unfinished else self._lines)


class _Pipes:
    """The four tasks around one process, and the streams between them and the dispatcher."""

    def __init__(self, server: str, process: Process, ending: Ending) -> None:
        self._server = server
        self._process = process
        self._ending = ending
        self._tail = _Tail()
        self._rubbish_lines = 0
        self._to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, self._from_session = anyio.create_memory_object_stream[SessionMessage](UNWRITTEN_MESSAGES)
        self._streams = (self._to_session, from_server, to_server, self._from_session)
        self._stdout_done, self._stdin_done, self._stderr_done = anyio.Event(), anyio.Event(), anyio.Event()
        self._hung_up = anyio.Event()
        self.dispatcher = CarefulDispatcher(from_server, to_server)

    async def read_stdout(self) -> None:
        """Hand each message to the session; ends with the process's output."""
        assert self._process.stdout is not None  # noqa: S101 - pipes are open_process's default
        lines = BufferedByteReceiveStream(self._process.stdout)
        try:
            while True:
                await self._deliver(await lines.receive_until(b"\n", MAX_LINE_BYTES))
        except anyio.DelimiterNotFound:
            self._ending.set(f"sent a line of over {MAX_LINE_BYTES // 2**20} MB, which no message needs")
        except (anyio.IncompleteRead, *_CLOSED):
            pass
        finally:
            self._stdout_done.set()
            self._hung_up.set()

    async def _deliver(self, line: bytes) -> None:
        message = _message(line)
        if message is None:
            self._count_rubbish(line)
            return
        try:
            await self._to_session.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The session is over. Go on reading: a server stuck in a write could not see its stdin close.
            return

    def _count_rubbish(self, line: bytes) -> None:
        if not line.strip():
            return
        self._rubbish_lines += 1
        if self._rubbish_lines == 1:
            shown = _text(line[:_RUBBISH_SHOWN])
            log.warning(
                "upstream.rubbish_on_stdout",
                server=self._server,
                line=shown,
                fix="its stdout must carry JSON-RPC alone; such lines are skipped, logs belong on stderr",
            )

    async def write_stdin(self) -> None:
        """Write what the session sends; ends with the session or a broken pipe."""
        assert self._process.stdin is not None  # noqa: S101 - pipes are open_process's default
        try:
            async for item in self._from_session:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._process.stdin.send(line.encode() + b"\n")
        except _CLOSED:
            self._hung_up.set()
        finally:
            self._stdin_done.set()

    async def read_stderr(self) -> None:
        """Keep the last lines and log all at debug level."""
        assert self._process.stderr is not None  # noqa: S101 - pipes are open_process's default
        try:
            async for chunk in self._process.stderr:
                for line in self._tail.feed(chunk):
                    log.debug("upstream.stderr", server=self._server, line=line)
        except _CLOSED:
            pass
        finally:
            self._stderr_done.set()

    async def watch(self) -> None:
        """Notice the end, find its cause, and only then let the session see it."""
        while not self._hung_up.is_set() and self._process.returncode is None:
            with anyio.move_on_after(_EXIT_POLL_SECONDS):
                await self._hung_up.wait()
        # The last answers may still be in the pipe; a grandchild may hold it open, hence the bounds.
        for done in (self._stdout_done, self._stderr_done):
            with anyio.move_on_after(_LAST_WORDS_SECONDS):
                await done.wait()
        await exits_within(self._process, _LAST_WORDS_SECONDS)
        last_words = str(self._tail)
        how = exit_text(self._process.returncode)
        self._ending.set(f"{how}: {last_words}" if last_words else how)
        self._to_session.close()

    async def close(self) -> None:
        """Flush, end the process group, free the streams. Bounded."""
        _, from_server, to_server, _ = self._streams
        from_server.close()
        to_server.close()
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await self._stdin_done.wait()
        await stop_group(self._process)
        for stream in self._streams:
            stream.close()
        if self._rubbish_lines:
            log.info("upstream.rubbish_lines", server=self._server, count=self._rubbish_lines)


def _message(line: bytes) -> Any:
    """Parse one line; None for what is not JSON-RPC. A broken answer becomes an error for its caller."""
    text = _text(line)
    try:
        return jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        return _broken_answer(text)


def _broken_answer(text: str) -> JSONRPCError | None:
    # Skipping it would leave its caller waiting for the whole deadline.
    call = _answered_call(text)
    if call is None:
        return None
    error = ErrorData(code=INTERNAL_ERROR, message="the server's answer is not a valid JSON-RPC response")
    return JSONRPCError(jsonrpc="2.0", id=call, error=error)


def _answered_call(text: str) -> int | None:
    """The id that a line would answer; ours are numbers."""
    try:
        # Of a number with too many digits for Python only the sign of its presence is needed.
        answer = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < _MANY_DIGITS else 0)
    except RecursionError:
        found = _ANSWER_BEGINS.match(text)
        return int(found[1]) if found else None
    except ValueError:
        return None
    if not isinstance(answer, dict) or "method" in answer or not ("result" in answer or "error" in answer):
        return None
    call = answer.get("id")
    return call if isinstance(call, int) and not isinstance(call, bool) else None


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


@asynccontextmanager
async def _open_on_windows(spec: StdioSpec, ending: Ending) -> AsyncIterator[CarefulDispatcher]:
    # Windows has no process groups to signal; the SDK's job objects end the tree there.
    parameters = StdioServerParameters(
        command=spec.command, args=list(spec.args), env=dict(spec.env), cwd=spec.cwd
    )
    send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    async with stdio_client(parameters) as (read, write), anyio.create_task_group() as tasks:

        async def pump() -> None:
            async with send:
                async for item in read:
                    await send.send(item)
                ending.set("exited")

        tasks.start_soon(pump)
        yield CarefulDispatcher(receive, write)
        tasks.cancel_scope.cancel()
