"""One upstream's life: connect, list its tools, serve, stop when idle, and connect again when it ends.

Knows one server's base connection only, and not what it is used for: whatever happens here, however it fails,
ends in a status with a cause.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Protocol

import anyio
import structlog

from adapters.ports import Connect, HostSide, Upstream, UpstreamError, UpstreamUnavailable
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.policy import RestartPolicy
from nexus_gateway.fleet.racing import first_of
from nexus_gateway.fleet.status import ServerState, ServerStatus, describe

log = structlog.get_logger(__name__)


class Attendant(Protocol):
    """Whoever makes something of the connection. None of these may raise."""

    def host_side(self) -> HostSide:
        """The gateway's side of the connection that is about to be made."""
        ...

    def idle_seconds(self) -> float:
        """How long nobody has needed the connection; 0 while somebody does."""
        ...

    async def listed(self, definitions: Sequence[Any], upstream: Upstream) -> int:
        """The server listed these tools; returns how many are usable."""
        ...

    async def connected(self, upstream: Upstream) -> None:
        """The connection is ready for use from here on."""
        ...

    async def polled(self, upstream: Upstream) -> None:
        """`poll_seconds` have gone by."""
        ...

    def ended(self) -> None:
        """The connection is not to be used any more."""
        ...


class _End(Enum):
    DIED = auto()
    IDLE = auto()
    RENEWED = auto()


@dataclass(frozen=True, slots=True)
class _Life:
    """How one connection went."""

    end: _End
    cause: str
    started: bool = True


class Supervisor:
    """Owns one upstream connection at a time.

    Attributes:
        member: may be replaced by `reconfigure`.
    """

    def __init__(
        self, member: Member, connect: Connect, attendant: Attendant, *, policy: RestartPolicy
    ) -> None:
        self.member = member
        self._connect = connect
        self._attendant = attendant
        self._policy = policy
        self._status = ServerStatus(member.spec.server)
        self._upstream: Upstream | None = None
        self._changed = anyio.Event()  # replaced at each status change
        self._listing_stale = anyio.Event()
        self._reconfigured = anyio.Event()
        self._renew = anyio.Event()
        self._renew_cause = ""
        self._called = anyio.Event()
        self._waiting = 0
        self._failed_attempts = 0  # since the beginning of time

    @property
    def status(self) -> ServerStatus:
        """The present status."""
        return self._status

    def reconfigure(self, member: Member) -> None:
        """Take other deadlines and options; the spec must be the same."""
        polls = self.member.poll_seconds != member.poll_seconds
        self.member = member
        self._reconfigured.set()
        self._reconfigured = anyio.Event()
        if polls:
            self._listing_stale.set()  # listing once more is how the new interval begins

    def relist(self) -> None:
        """List the tools again soon."""
        self._listing_stale.set()

    def renew(self, cause: str) -> None:
        """Give up the present connection, also one that is being made, and make another."""
        self._renew_cause = cause
        self._lose()
        self._renew.set()

    def known(self, *, tools: int, instructions: str | None) -> None:
        """What an earlier run knew; the status of a server that is not started says so."""
        self._set(tools=tools, instructions=instructions)

    async def run(self, *, asleep: bool = False) -> None:
        """Keep the server connected, or ready to be, until cancelled. `asleep`: start at the first use only."""
        if asleep:
            await self._sleep()
        failures = failed_starts = 0
        while True:
            self._set(state=ServerState.CONNECTING, attempts=failures + 1)
            began = time.monotonic()
            life = await self._live_once()
            if life.end is _End.IDLE:
                log.info("upstream.idle", server=self.member.spec.server)
                await self._sleep()
            if life.end is not _End.DIED:
                failures = failed_starts = 0
                continue
            healthy = life.started and time.monotonic() - began >= self._policy.healthy_seconds
            failures = 0 if healthy else failures + 1
            failed_starts = 0 if life.started else failed_starts + 1
            self._failed_attempts += not life.started
            await self._recover(life.cause, failures, failed_starts)

    async def upstream(self, timeout_seconds: float) -> Upstream:
        """The live connection, waiting for one at most `timeout_seconds`.

        A server whose circuit breaker is open is tried once, and the wait ends with that try.

        Raises:
            UpstreamUnavailable: none came; the message has the cause.
        """
        failed_before = self._failed_attempts
        with self._wanted(), anyio.move_on_after(timeout_seconds):
            while self._upstream is None:
                if self._status.resting and self._failed_attempts > failed_before:
                    break
                await self._changed.wait()
        if self._upstream is None:
            server = self.member.spec.server
            cause = self._status.cause or "it is still connecting"
            raise UpstreamUnavailable(server, f"server {server!r} is not available: {cause}")
        return self._upstream

    async def first_verdict(self) -> ServerStatus:
        """Wait until the server is ready, is known without being started, or has failed once."""
        while self._status.state is ServerState.CONNECTING and not self._status.cause:
            await self._changed.wait()
        return self._status

    @contextmanager
    def _wanted(self) -> Iterator[None]:
        self._waiting += 1
        self._called.set()
        try:
            yield
        finally:
            self._waiting -= 1

    async def _until_wanted(self) -> None:
        if not self._waiting:
            self._called = anyio.Event()
            await self._called.wait()

    async def _sleep(self) -> None:
        self._set(state=ServerState.IDLE, cause="", attempts=0)
        await self._until_wanted()

    async def _recover(self, cause: str, failures: int, failed_starts: int) -> None:
        resting = self._policy.rests(failed_starts)
        seconds = self._policy.wait(failures, failed_starts)
        if resting:
            cause += (
                f" ({failed_starts} starts failed in a row: tried again in {seconds:.0f} s, or when called)"
            )
        news = failures <= 1 or resting != self.status.resting
        self._set(state=ServerState.DOWN, cause=cause, attempts=failures, resting=resting)
        # A server that stays down would fill the log with the same line.
        write = log.warning if news else log.debug
        write("upstream.down", server=self.member.spec.server, cause=cause, failures=failures)
        # Never in a tight loop, however many wait for it.
        earliest = anyio.current_time() + min(seconds, self._policy.first_seconds)
        with anyio.move_on_after(seconds):
            await self._until_wanted()
            await anyio.sleep_until(earliest)

    async def _live_once(self) -> _Life:
        """One connection from beginning to end. Only cancellation leaves it as an exception."""
        seconds = self.member.connect_timeout_seconds
        with anyio.CancelScope(deadline=anyio.current_time() + seconds) as connecting:
            try:
                return await self._serve(connecting)
            except UpstreamError as error:
                return self._died(str(error))
            except Exception as error:
                log.debug("upstream.failed", server=self.member.spec.server, exc_info=True)
                return self._died(describe(error))
            finally:
                self._lose()
        server = self.member.spec.server
        return self._died(f"server {server!r} did not answer within {seconds:g} s (connect_timeout_seconds)")

    def _died(self, cause: str) -> _Life:
        return _Life(_End.DIED, cause, started=self._status.state is ServerState.READY)

    async def _serve(self, connecting: anyio.CancelScope) -> _Life:
        began = time.monotonic()
        self._listing_stale, self._renew = anyio.Event(), anyio.Event()
        async with self._connect(self.member.spec, self._attendant.host_side()) as upstream:
            tools = await self._attendant.listed(await upstream.list_tools(), upstream)
            connecting.deadline = math.inf
            await self._attendant.connected(upstream)
            if self._renew.is_set():
                return _Life(_End.RENEWED, self._renew_cause)
            self._upstream = upstream
            self._set(
                state=ServerState.READY,
                cause="",
                attempts=0,
                resting=False,
                era=upstream.era,
                instructions=upstream.instructions,
                tools=tools,
                connect_seconds=time.monotonic() - began,
            )
            log.info("upstream.ready", server=self.member.spec.server, era=str(upstream.era), tools=tools)
            return await self._until_ended(upstream)

    async def _until_ended(self, upstream: Upstream) -> _Life:
        async def until_died() -> _Life:
            cause = await upstream.wait_closed()
            self._lose()  # at once, as in the others: a call that comes now must wait for the next connection
            return _Life(_End.DIED, cause)

        async def until_renewed() -> _Life:
            await self._renew.wait()
            return _Life(_End.RENEWED, self._renew_cause)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_listed, upstream)
            life = await first_of(until_died, until_renewed, self._until_idle)
            tasks.cancel_scope.cancel()
        return life

    async def _until_idle(self) -> _Life:
        while True:
            limit = self.member.idle_stop_seconds
            left = math.inf if limit is None else limit - self._attendant.idle_seconds()
            if left <= 0:
                self._lose()
                return _Life(_End.IDLE, "idle")
            with anyio.move_on_after(left):
                await self._reconfigured.wait()

    async def _keep_listed(self, upstream: Upstream) -> None:
        while True:
            with anyio.move_on_after(self.member.poll_seconds or math.inf) as interval:
                await self._listing_stale.wait()
            # Replaced before the list is asked for: a change during the listing counts again.
            self._listing_stale = anyio.Event()
            try:
                with anyio.fail_after(self.member.connect_timeout_seconds):
                    tools = await self._attendant.listed(await upstream.list_tools(), upstream)
                    self._set(tools=tools)
                    if interval.cancelled_caught:
                        await self._attendant.polled(upstream)
            except (UpstreamError, TimeoutError) as error:
                cause = str(error) or "timeout"
                log.warning("upstream.refresh_failed", server=self.member.spec.server, cause=cause)

    def _lose(self) -> None:
        self._upstream = None
        self._attendant.ended()

    def _set(self, **changes: object) -> None:
        self._status = replace(self._status, **changes)  # type: ignore[arg-type]
        self._changed.set()
        self._changed = anyio.Event()
