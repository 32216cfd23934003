"""Notifications on their way to one host: capped, and coalesced where only the latest news counts.

Knows no transport: whoever runs it says how to send.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

import anyio

from adapters.ports import JsonObject

CAPACITY = 256

Send = Callable[[str, JsonObject], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class OutboxStatistics:
    """How full it is, and how many notifications were dropped for want of room."""

    waiting: int
    dropped: int


class Outbox:
    """A queue that never blocks the one who puts: a host that doesn't read loses log messages, never a change."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._waiting: dict[Hashable, tuple[str, JsonObject]] = {}
        self._numbered = 0
        self._dropped = 0
        self._closed = False
        self._news = anyio.Event()

    def put(self, method: str, params: JsonObject, *, about: str | None = None) -> None:
        """Queue a notification.

        One that is `about` the same thing as one that still waits says nothing new. At the cap the oldest that is
        about nothing gives way; where there is none, the new one.
        """
        if about is None:
            self._numbered += 1
        key: Hashable = self._numbered if about is None else about
        if key in self._waiting:
            return
        if len(self._waiting) >= self._capacity and not self._make_room():
            return
        self._waiting[key] = (method, params)
        self._news.set()

    def close(self) -> None:
        """Let `run` end once everything that waits is sent."""
        self._closed = True
        self._news.set()

    async def run(self, send: Send) -> None:
        """Send in order until closed and empty, or cancelled."""
        while True:
            while self._waiting:
                await send(*self._waiting.pop(next(iter(self._waiting))))
            if self._closed:
                return
            self._news = anyio.Event()
            await self._news.wait()

    def statistics(self) -> OutboxStatistics:
        """The present numbers."""
        return OutboxStatistics(len(self._waiting), self._dropped)

    def _make_room(self) -> bool:
        self._dropped += 1
        oldest = next((key for key in self._waiting if isinstance(key, int)), None)
        if oldest is None:
            return False
        del self._waiting[oldest]
        return True
