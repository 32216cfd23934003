"""A lock for threads that is given in the order it was asked for. Knows nothing of what it guards."""

import threading
from collections import deque
from types import TracebackType


class TicketLock:
    """`threading.Lock` lets whoever released it take it again at once, and the others starve."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()  # waits for one batch of each thread before this one, no longer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()  # stays held, by the next in turn
            else:
                self._held = False
