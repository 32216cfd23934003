"""The host's side of a bridge: its lines in, its answers out, each request in a task of its own.

Knows which requests are under way and gives up those that the host cancels. Every request gets exactly one answer,
unless it was cancelled.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup
from mcp_types import INVALID_REQUEST, PARSE_ERROR

from adapters.ports import JsonObject
from adapters.raw_endpoint import BrokenOffError, EndpointError, NotTakenError, RawEndpoint, encoded
from nexus_gateway.bridge.messages import (
    CANCELLED,
    INITIALIZED,
    LISTEN,
    failure,
    is_request,
    missed_notices,
    modern_version,
    params_of,
)
from nexus_gateway.bridge.remote_session import RemoteSession, waiting

MAX_REQUESTS: Final = 256
"""Under way at once; further ones are refused."""
MAX_ASIDE: Final = 256
"""Notices and answers of the host on their way; further ones hold up its lines."""
ASIDE_SECONDS: Final = 30.0
"""For one of them to be taken."""
LAST_SECONDS: Final = 1.0
"""For answers that are under way when the host closes its end."""
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"

ReadLine: TypeAlias = Callable[[], Awaitable[bytes]]
"""The host's next line. Raises anyio.EndOfStream at its end."""
WriteLine: TypeAlias = Callable[[bytes], Awaitable[None]]
"""A line for the host. Raises anyio.BrokenResourceError when it reads no more."""

log = structlog.get_logger(__name__)


class Bridge:
    """One host on one endpoint."""

    def __init__(
        self, endpoint: RawEndpoint, read: ReadLine, write: WriteLine, *, patience_seconds: float
    ) -> None:
        self._read = read
        self._write = write
        self._shown = endpoint.shown
        self._session = RemoteSession(endpoint, self._tell, patience_seconds=patience_seconds)
        self._under_way: dict[Any, anyio.CancelScope] = {}
        self._aside, self._from_host = anyio.create_memory_object_stream[JsonObject](MAX_ASIDE)
        self._listening: anyio.CancelScope | None = None
        self._idle = anyio.Event()

    async def run(self) -> None:
        """Relay until the host closes its end, or reads no more."""
        async with self._aside, self._from_host, _ending_with_the_host() as tasks:
            tasks.start_soon(self._pass_aside)
            try:
                while True:
                    await self._take(await self._read(), tasks)
            except anyio.EndOfStream:
                with anyio.move_on_after(LAST_SECONDS):
                    await self._all_answered()
            finally:
                with anyio.move_on_after(LAST_SECONDS, shield=True):
                    await self._session.end()
                tasks.cancel_scope.cancel()

    async def _all_answered(self) -> None:
        while self._under_way:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def _take(self, line: bytes, tasks: TaskGroup) -> None:
        if not line.strip():
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            await self._tell(failure(None, "the line is no JSON", PARSE_ERROR))
            return
        if not isinstance(message, dict):
            await self._tell(failure(None, "a message is one JSON object", INVALID_REQUEST))
        elif is_request(message):
            await self._take_request(message, tasks)
        elif message.get("method") == CANCELLED:
            await self._cancel(message)
        elif message.get("method") == INITIALIZED:
            await self._initialized(message, tasks)
        else:
            await self._aside.send(message)

    async def _take_request(self, message: JsonObject, tasks: TaskGroup) -> None:
        request_id = message["id"]
        if not isinstance(request_id, str | int) or request_id in self._under_way:
            await self._tell(failure(None, "the id is taken, or no text or number", INVALID_REQUEST))
        elif len(self._under_way) >= MAX_REQUESTS:
            await self._tell(failure(request_id, f"{MAX_REQUESTS} requests are under way; wait for one"))
        else:
            self._under_way[request_id] = anyio.CancelScope()
            tasks.start_soon(self._answer, message)

    async def _answer(self, message: JsonObject) -> None:
        request_id = message["id"]
        try:
            with self._under_way[request_id]:
                if message["method"] == LISTEN:
                    await self._keep_listening(message)
                else:
                    await self._session.exchange(message, self._tell)
        except EndpointError as error:
            log.warning("bridge.failed", method=message["method"], cause=str(error))
            await self._tell(failure(request_id, _said(error)))
        finally:
            del self._under_way[request_id]
            self._idle.set()

    async def _keep_listening(self, message: JsonObject) -> None:
        """A modern subscription lives as long as its host wants it; over a restart it is made again."""
        acknowledged = False
        waits = waiting()

        async def heard(answer: JsonObject) -> None:
            nonlocal acknowledged, waits
            if answer.get("method") != _ACKNOWLEDGED:
                waits = waiting()  # not before: a stream may be closed as soon as it is acknowledged
                await self._tell(answer)
                return
            # The protocol has no replay: whoever listens again is told that everything may have changed.
            for notice in missed_notices(answer) if acknowledged else [answer]:
                await self._tell(notice)
            acknowledged = True

        while True:
            try:
                await self._session.exchange(message, heard)
            except (BrokenOffError, NotTakenError):
                if not acknowledged:
                    raise
                await anyio.sleep(next(waits))
            else:
                return

    async def _cancel(self, message: JsonObject) -> None:
        """Below 2026-07-28 the notice is the signal; since then the closed connection is."""
        request_id = params_of(message).get("requestId")
        scope = self._under_way.get(request_id) if isinstance(request_id, str | int) else None
        if modern_version(message) is None and self._listening is not None:
            await self._aside.send(message)
        if scope is not None:
            scope.cancel()

    async def _initialized(self, message: JsonObject, tasks: TaskGroup) -> None:
        # In line: the host's next request must not overtake it.
        await self._pass(message)
        if self._listening is not None:
            self._listening.cancel()
        self._listening = anyio.CancelScope()
        tasks.start_soon(self._listen, self._listening)

    async def _listen(self, scope: anyio.CancelScope) -> None:
        with scope:
            await self._session.listen(self._tell)

    async def _pass_aside(self) -> None:
        async for message in self._from_host:
            await self._pass(message)

    async def _pass(self, message: JsonObject) -> None:
        cause = f"not taken within {ASIDE_SECONDS:g} s"
        with anyio.move_on_after(ASIDE_SECONDS):
            try:
                await self._session.exchange(message, self._tell)
            except EndpointError as error:
                cause = str(error)
            else:
                return
        log.warning("bridge.dropped", method=message.get("method", "an answer"), cause=cause)

    async def _tell(self, message: JsonObject) -> None:
        await self._write(encoded(message) + b"\n")


def _said(error: EndpointError) -> str:
    if isinstance(error, NotTakenError):
        return f"The gateway did not take the request: {error}. It was not carried out; try again later."
    if isinstance(error, BrokenOffError):
        return (
            f"The gateway went away during the request: {error}. Whether it was carried out is not known; "
            "the next request reconnects."
        )
    return str(error)


@asynccontextmanager
async def _ending_with_the_host() -> AsyncIterator[TaskGroup]:
    """A task group in which a host that reads no more is an end, not a failure."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
    except* anyio.BrokenResourceError:
        pass
