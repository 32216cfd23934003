"""Whose calls a connection with a back-channel carries, so that a server's question never reaches another host.

A question over a legacy connection does not say which call it belongs to. So a connection carries the calls of one
host at a time; others wait in order, and get another connection while its user is asked something. Two things make
it that host's for good: a call that was given up, since its server may still ask about it, and roots, which a server
asks for once and keeps.

Known limit: a server that asks after it has answered asks whoever holds the connection then. The protocol wants
questions to belong to a running request.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from adapters.ports import HostRefused, JsonObject, UpstreamUnavailable
from nexus_gateway.access.host import Host, HostKey
from nexus_gateway.fleet.back_channel import ROOTS

MAX_WAITING = 512
"""Calls of other hosts that wait for one connection; more fail at once."""
QUESTION_SECONDS = 600.0
"""How long a host's user may take to answer. The calls of that host don't run out of time meanwhile."""
_NOBODY_TO_ASK = -32603


@dataclass(slots=True, eq=False)
class _Waiter:
    host: Host
    scope: anyio.CancelScope
    settled: anyio.Event = field(default_factory=anyio.Event)
    admitted: bool = False


class Lease:
    """The back-channel of one connection."""

    def __init__(self, server: str, capabilities: frozenset[str], opener: Host) -> None:
        """`opener` is the host the connection is made for: it is asked for its roots before any call."""
        self._server = server
        self._keeps_roots = ROOTS in capabilities
        self._opener = opener
        self._owner: HostKey | None = opener.key if self._keeps_roots else None
        self._calls: dict[
            anyio.CancelScope, Host
        ] = {}  # all of one host; each came over a request of its own
        self._waiting: deque[_Waiter] = deque()
        self._questions = 0  # out to the holder's user
        self._closed = False

    @property
    def owner(self) -> HostKey | None:
        """The only host this connection is for; None while any may have it."""
        return self._owner

    @property
    def holder(self) -> HostKey | None:
        """Whose calls it carries now."""
        host = self._holder
        return host.key if host else None

    @property
    def busy(self) -> bool:
        """Whether it carries calls or some wait for it."""
        return bool(self._calls or self._waiting)

    def serves(self, host: HostKey) -> bool:
        """Whether this host may have it, if need be after waiting.

        While a user ponders a question only the host that was asked may: others would wait for a person.
        """
        if self._closed or self._owner not in (None, host):
            return False
        return not self._questions or self.holder == host

    async def enter(self, host: Host, scope: anyio.CancelScope) -> bool:
        """Wait for the connection. False: it is not for this host any more, choose another.

        `scope` bounds the call; its deadline moves while the host's user answers a question. Raises
        UpstreamUnavailable where too many wait. The caller calls `leave` after True.
        """
        if not self.serves(host.key):
            return False
        if self.holder is None or (self.holder == host.key and not self._waiting):
            self._admit(host, scope)
            return True
        if len(self._waiting) >= MAX_WAITING:
            message = f"server {self._server!r} is busy: {MAX_WAITING} calls of other hosts wait for it"
            raise UpstreamUnavailable(self._server, message)
        waiter = _Waiter(host, scope)
        self._waiting.append(waiter)
        try:
            await waiter.settled.wait()
        except anyio.get_cancelled_exc_class():
            self._withdraw(waiter)
            raise
        return waiter.admitted

    def leave(self, scope: anyio.CancelScope, *, given_up: bool) -> None:
        """A call has ended. `given_up`: it was not answered, so its server may still ask about it."""
        host = self._calls.pop(scope)
        if given_up:
            self._keep_for(host.key)
        self._admit_next()

    def close(self) -> None:
        """The connection has ended: who waits must choose another."""
        self._closed = True
        self._dismiss(lambda _waiter: True)

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Put a server's question to the host whose call runs. Raises HostRefused."""
        host = self._holder or (self._opener if method == "roots/list" else None)
        if host is None:
            raise HostRefused(
                _NOBODY_TO_ASK, f"{method}: no host has a call running that this could belong to"
            )
        with self._asking(host.key), self._stopped_clock(), anyio.move_on_after(QUESTION_SECONDS):
            return await host.ask(method, params)
        raise HostRefused(_NOBODY_TO_ASK, f"{method}: the host did not answer within {QUESTION_SECONDS:g} s")

    @property
    def _holder(self) -> Host | None:
        # The request that came last is the likeliest to be open still, and so to reach its host.
        return next(reversed(self._calls.values()), None)

    def _admit(self, host: Host, scope: anyio.CancelScope) -> None:
        self._calls[scope] = host
        if self._keeps_roots:
            self._keep_for(host.key)

    def _admit_next(self) -> None:
        while self._waiting and self.holder in (None, self._waiting[0].host.key):
            waiter = self._waiting.popleft()
            waiter.admitted = True
            self._admit(waiter.host, waiter.scope)
            waiter.settled.set()

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter.admitted:  # between being admitted and running
            self.leave(waiter.scope, given_up=False)
        elif waiter in self._waiting:
            self._waiting.remove(waiter)
            self._admit_next()  # it may have kept back calls of the present host

    def _keep_for(self, host: HostKey) -> None:
        self._owner = host
        self._dismiss(lambda waiter: waiter.host.key != host)

    def _dismiss(self, which: Callable[[_Waiter], bool]) -> None:
        for waiter in [waiter for waiter in self._waiting if which(waiter)]:
            self._waiting.remove(waiter)
            waiter.settled.set()

    @contextmanager
    def _asking(self, host: HostKey) -> Iterator[None]:
        self._questions += 1
        self._dismiss(lambda waiter: waiter.host.key != host)
        try:
            yield
        finally:
            self._questions -= 1

    @contextmanager
    def _stopped_clock(self) -> Iterator[None]:
        """Give the running calls the time that a question takes."""
        scopes, asked = list(self._calls), anyio.current_time()
        for scope in scopes:
            scope.deadline += QUESTION_SECONDS
        try:
            yield
        finally:
            unused = max(0.0, QUESTION_SECONDS - (anyio.current_time() - asked))
            for scope in scopes:
                scope.deadline -= unused
