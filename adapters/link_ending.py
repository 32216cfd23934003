"""How a connection ended: the first cause wins, and all who wait for the end learn it.

Knows events and text; nothing of processes, HTTP or the protocol.
"""

import anyio


class Ending:
    """The end of one connection.

    A transport sets it *before* it closes its read stream, so whoever sees a closed connection can
    already read the cause.
    """

    def __init__(self) -> None:
        self._happened = anyio.Event()
        self._cause: str | None = None

    @property
    def cause(self) -> str | None:
        """Why the connection ended; None while it lives."""
        return self._cause

    def set(self, cause: str) -> None:
        """Record the end; later causes are ignored."""
        if self._cause is None:
            self._cause = cause
            self._happened.set()

    async def wait(self) -> str:
        """Return the cause once the connection has ended."""
        await self._happened.wait()
        return self._cause or ""
