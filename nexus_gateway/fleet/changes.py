"""What hosts are told of: changes of what servers offer, of watched resources, and servers' log messages."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import structlog

from adapters.ports import JsonObject
from nexus_gateway.access.host import HostKey

log = structlog.get_logger(__name__)

ChangeKind: TypeAlias = Literal["tools", "resources", "prompts", "resource", "log"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change.

    Attributes:
        kind: a list that changed, one resource that was updated, or a log message.
        params: the notification's raw params; empty where there was none, as after a reconnect.
        host: of a log message, the one host that the connection served just then; None where it can be any.
    """

    kind: ChangeKind
    server: str
    params: JsonObject
    host: HostKey | None = None


ChangeCallback: TypeAlias = Callable[[Change], None]


class Changes:
    """Tells everybody who asked. A callback may not block; one that raises is logged and the others are told."""

    def __init__(self) -> None:
        self._callbacks: list[ChangeCallback] = []

    def add(self, callback: ChangeCallback) -> None:
        """Have `callback` told from now on."""
        self._callbacks.append(callback)

    def tell(self, change: Change) -> None:
        """Tell all."""
        for callback in self._callbacks:
            try:
                callback(change)
            except Exception:  # a bug of one listener must not end a server's connection
                log.exception("fleet.listener_failed", kind=change.kind, server=change.server)
