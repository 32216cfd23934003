"""Who calls an engine: how many at once, how many wait, when nobody does, and whether it is closed. Owned by the event loop."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from adapters.ports import ModelUnusable


class Desk:
    """Counts calls. Threads may read `calls` and `closed`."""

    def __init__(self, name: str, most: int, waiting: int) -> None:
        """`most` calls run at once, `waiting` more may wait."""
        self._name = name
        self._most = most
        self._waiting = waiting
        self._in_all = 0
        self._changed = anyio.Event()
        self.calls = 0
        self.closed = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """A call that background work stands back for.

        Raises:
            ModelUnusable: closed, or too many wait.
        """
        if self.calls >= self._most + self._waiting:
            raise ModelUnusable(f"{self._name} is busy: {self._waiting} calls wait; try again later")
        with self.background():
            self.calls += 1
            try:
                yield
            finally:
                self.calls -= 1
                self._tell()

    @contextmanager
    def background(self) -> Iterator[None]:
        """Work that stands back for calls. Raises ModelUnusable if closed."""
        if self.closed:
            raise ModelUnusable(f"{self._name} is closed")
        self._in_all += 1
        try:
            yield
        finally:
            self._in_all -= 1
            self._tell()

    async def no_calls(self) -> None:
        """Wait until none runs or waits."""
        while self.calls:
            await self._changed.wait()

    async def close(self) -> None:
        """Refuse new work, and wait for what there is."""
        self.closed = True
        while self._in_all:
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
