"""Where a server stands, for people and for those who wait for it."""

from dataclasses import dataclass
from enum import StrEnum

from adapters.ports import Era


class ServerState(StrEnum):
    """Where a server stands."""

    CONNECTING = "connecting"
    READY = "ready"
    IDLE = "idle"
    """Not running on purpose: it starts at its next use."""
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known of one server.

    Attributes:
        cause: why it is down, for people; empty while it is not.
        attempts: connections tried since it was last ready.
        resting: its circuit breaker is open: it failed to start so often that it is tried rarely, or when called.
        tools: usable tools it listed last.
    """

    server: str
    state: ServerState = ServerState.CONNECTING
    cause: str = ""
    attempts: int = 0
    resting: bool = False
    era: Era | None = None
    instructions: str | None = None
    tools: int = 0
    connect_seconds: float = 0.0


def describe(error: BaseException) -> str:
    """The innermost message of an exception, through exception groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
