"""Brings a server's progress on one request to whoever asked, in order, and never after the answer.

Knows tokens and numbers. The SDK's own relay makes floats of integers and starts a task for each notice,
so that one may come after the answer it belongs to.
"""

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import anyio
import structlog
from anyio.abc import TaskGroup

from adapters.ports import JsonObject, ProgressCallback

MAX_NOTICES = 256
"""Waiting for one slow listener; the oldest are dropped, since the newest says most."""
LAST_NOTICES_SECONDS = 1.0
"""How long an answer waits for the notices before it."""

log = structlog.get_logger(__name__)


class Progress:
    """The notices of one request that are not yet told."""

    def __init__(self, token: str, callback: ProgressCallback, tasks: TaskGroup) -> None:
        self.token = token
        self._callback = callback
        self._tasks = tasks
        self._waiting: deque[tuple[float, float | None, str | None]] = deque(maxlen=MAX_NOTICES)
        self._idle = anyio.Event()
        self._idle.set()

    def put(self, progress: float, total: float | None, message: str | None) -> None:
        """Queue a notice; a task tells it."""
        self._waiting.append((progress, total, message))
        if self._idle.is_set():
            self._idle = anyio.Event()
            self._tasks.start_soon(self._tell)

    async def all_told(self) -> None:
        """Wait for the queued notices, but not long."""
        with anyio.move_on_after(LAST_NOTICES_SECONDS):
            await self._idle.wait()

    def drop(self) -> None:
        """Tell no more."""
        self._waiting.clear()

    async def _tell(self) -> None:
        try:
            while self._waiting:
                await self._callback(*self._waiting.popleft())
        except Exception:
            log.warning("upstream.progress_not_told", exc_info=True)
        finally:
            self._idle.set()


class ProgressRelay:
    """The open requests of one connection that want progress."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._open: dict[str, Progress] = {}
        self._numbers = count(1)

    @contextmanager
    def open(self, callback: ProgressCallback) -> Iterator[Progress]:
        """Relay to `callback` inside the block; its token goes with the request."""
        progress = Progress(f"progress-{next(self._numbers)}", callback, self._tasks)
        self._open[progress.token] = progress
        try:
            yield progress
        finally:
            del self._open[progress.token]
            progress.drop()

    def hear(self, params: JsonObject) -> None:
        """Take a `notifications/progress`; those of no open request are dropped."""
        token = params.get("progressToken")
        found = self._open.get(token) if isinstance(token, str) else None
        done, total = _number(params.get("progress")), _number(params.get("total"))
        message = params.get("message")
        if found is not None and done is not None:
            found.put(done, total, message if isinstance(message, str) else None)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return None
    return value
