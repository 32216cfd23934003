"""One upstream's life: connect, list its tools, serve, and connect again when it ends.

Knows one server only: whatever happens here, however it fails, ends in a status with a cause.
"""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

import anyio
import structlog

from adapters.ports import (
    Connect,
    Era,
    HostSide,
    JsonObject,
    Upstream,
    UpstreamError,
    UpstreamSpec,
    UpstreamUnavailable,
)
from tool_registry.catalog import Listing, read_listing

log = structlog.get_logger(__name__)


class ServerState(StrEnum):
    """Where a server stands."""

    CONNECTING = "connecting"
    READY = "ready"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known of one server.

    Attributes:
        cause: why it is down, for people; empty while it is not.
        attempts: connections tried since it was last ready.
        tools: usable tools it listed last.
    """

    server: str
    state: ServerState = ServerState.CONNECTING
    cause: str = ""
    attempts: int = 0
    era: Era | None = None
    instructions: str | None = None
    tools: int = 0
    connect_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When to connect again: the n-th wait is `first * 2**n` seconds, at most `longest`, with half of it random."""

    first_seconds: float = 0.2
    longest_seconds: float = 30.0
    healthy_seconds: float = 10.0
    """A connection that lived this long starts the waits from the beginning."""

    def wait(self, attempt: int) -> float:
        """Seconds before attempt number `attempt` (from 0)."""
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(attempt, 16))
        return full / 2 + random.random() * full / 2  # noqa: S311 - jitter, not a secret


class Supervisor:
    """Owns one upstream connection at a time."""

    def __init__(
        self,
        spec: UpstreamSpec,
        connect: Connect,
        *,
        connect_timeout_seconds: float,
        policy: RestartPolicy,
        on_listing: Callable[[str, Listing], None],
    ) -> None:
        self.spec = spec
        self._connect = connect
        self._connect_timeout = connect_timeout_seconds
        self._policy = policy
        self._on_listing = on_listing
        self._status = ServerStatus(spec.server)
        self._upstream: Upstream | None = None
        self._changed = anyio.Event()  # replaced at each status change
        self._listing_stale = anyio.Event()
        self._wake = anyio.Event()

    @property
    def status(self) -> ServerStatus:
        """The present status."""
        return self._status

    async def run(self) -> None:
        """Keep the server connected until cancelled."""
        failures = 0
        while True:
            self._set(state=ServerState.CONNECTING, attempts=failures + 1)
            started = time.monotonic()
            cause = await self._live_once()
            lived = self._status.state is ServerState.READY
            healthy = lived and time.monotonic() - started >= self._policy.healthy_seconds
            failures = 0 if healthy else failures + 1
            self._set(state=ServerState.DOWN, cause=cause, attempts=failures)
            log.warning("upstream.down", server=self.spec.server, cause=cause, failures=failures)
            await self._pause(self._policy.wait(failures - 1 if failures else 0))

    async def upstream(self, timeout_seconds: float) -> Upstream:
        """The live connection, waiting for one at most `timeout_seconds`.

        Raises:
            UpstreamUnavailable: none came; the message has the cause.
        """
        self._wake.set()
        with anyio.move_on_after(timeout_seconds):
            while self._upstream is None:
                await self._changed.wait()
        if self._upstream is None:
            cause = self._status.cause or "it is still connecting"
            raise UpstreamUnavailable(
                self.spec.server, f"server {self.spec.server!r} is not available: {cause}"
            )
        return self._upstream

    async def first_verdict(self) -> ServerStatus:
        """Wait until the server is ready, or has failed once."""
        while self._status.state is ServerState.CONNECTING and not self._status.cause:
            await self._changed.wait()
        return self._status

    async def _pause(self, seconds: float) -> None:
        self._wake = anyio.Event()
        with anyio.move_on_after(seconds):
            await self._wake.wait()
            # Somebody waits for this server: try soon, but never in a tight loop.
            await anyio.sleep(min(seconds, self._policy.first_seconds))

    async def _live_once(self) -> str:
        """One connection from beginning to end; returns why it ended. Only cancellation leaves it as an exception."""
        with anyio.CancelScope(deadline=anyio.current_time() + self._connect_timeout) as connecting:
            try:
                return await self._serve(connecting)
            except UpstreamError as error:
                return str(error)
            except Exception as error:
                log.debug("upstream.failed", server=self.spec.server, exc_info=True)
                return describe(error)
            finally:
                self._upstream = None
        return f"server {self.spec.server!r} did not answer within {self._connect_timeout:g} s (connect_timeout_seconds)"

    async def _serve(self, connecting: anyio.CancelScope) -> str:
        started = time.monotonic()
        self._listing_stale = anyio.Event()
        async with self._connect(self.spec, HostSide(heard=self._hear)) as upstream:
            listing = read_listing(self.spec.server, await upstream.list_tools())
            connecting.deadline = math.inf
            self._upstream = upstream
            self._publish(listing)
            self._set(
                state=ServerState.READY,
                cause="",
                attempts=0,
                era=upstream.era,
                instructions=upstream.instructions,
                connect_seconds=time.monotonic() - started,
            )
            log.info(
                "upstream.ready", server=self.spec.server, era=str(upstream.era), tools=len(listing.tools)
            )
            return await self._until_closed(upstream)

    async def _until_closed(self, upstream: Upstream) -> str:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._refresh_when_stale, upstream)
            cause = await upstream.wait_closed()
            self._upstream = None
            tasks.cancel_scope.cancel()
        return cause

    def _hear(self, method: str, _params: JsonObject) -> None:
        if method == "notifications/tools/list_changed":
            self._listing_stale.set()

    async def _refresh_when_stale(self, upstream: Upstream) -> None:
        while True:
            await self._listing_stale.wait()
            # Replaced before the list is asked for: a change during the listing counts again.
            self._listing_stale = anyio.Event()
            try:
                with anyio.fail_after(self._connect_timeout):
                    self._publish(read_listing(self.spec.server, await upstream.list_tools()))
            except (UpstreamError, TimeoutError) as error:
                log.warning("upstream.refresh_failed", server=self.spec.server, cause=str(error) or "timeout")

    def _publish(self, listing: Listing) -> None:
        for aside in listing.set_aside:
            log.warning("tool.set_aside", server=aside.server, tool=aside.name, reason=aside.reason)
        self._set(tools=len(listing.tools))
        self._on_listing(self.spec.server, listing)

    def _set(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]
        self._changed.set()
        self._changed = anyio.Event()


def describe(error: BaseException) -> str:
    """The innermost message of an exception, through exception groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
