"""The host at the other end of one connection: what it can do, what it may be asked and told."""

from typing import NewType, Protocol

from adapters.ports import JsonObject

HostKey = NewType("HostKey", str)
"""Unique for one host connection of this process; answers to a question never go to another one."""


class Host(Protocol):
    """One connected host."""

    @property
    def key(self) -> HostKey:
        """Which connection this is."""
        ...

    @property
    def capabilities(self) -> JsonObject:
        """The raw client capabilities it declared."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Put a server's own request to it and return its raw result. Raises HostRefused."""
        ...
