"""What a server lists besides tools: resources, templates and prompts, kept until they may have changed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

import anyio
import structlog

from adapters.ports import JsonObject, Upstream

log = structlog.get_logger(__name__)


class ListKind(Enum):
    """A list of the protocol: its method, the key of its entries, and the change that hosts are told of."""

    RESOURCES = ("resources/list", "resources")
    TEMPLATES = ("resources/templates/list", "resourceTemplates")
    PROMPTS = ("prompts/list", "prompts")

    @property
    def method(self) -> str:
        """The method that lists."""
        return self.value[0]

    @property
    def key(self) -> str:
        """Where the entries are in its result."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Entry:
    """One raw entry of a list, and whose it is."""

    server: str
    raw: JsonObject


class Listings:
    """One server's lists. Asked for at most once at a time a kind; a change during the asking counts again."""

    def __init__(self) -> None:
        self._last: dict[ListKind, list[JsonObject]] = {}
        self._fresh: set[ListKind] = set()
        self._changes = dict.fromkeys(ListKind, 0)
        self._asking = {kind: anyio.Lock() for kind in ListKind}
        self.asked: set[ListKind] = set()
        """What hosts have asked for: they are told when it may have changed."""

    def last(self, kind: ListKind) -> list[JsonObject]:
        """What was listed last, however old."""
        return self._last.get(kind, [])

    async def get(self, kind: ListKind, server: str, upstream: Upstream) -> list[JsonObject]:
        """The entries, asked for unless they are known. The caller bounds the wait. Raises UpstreamError."""
        if kind in self._fresh:
            return self._last[kind]
        async with self._asking[kind]:
            if kind in self._fresh:
                return self._last[kind]
            before = self._changes[kind]
            entries = _objects(server, kind, await upstream.list_entries(kind.method, kind.key))
            self._last[kind] = entries
            if self._changes[kind] == before:
                self._fresh.add(kind)
            return entries

    def expire(self, *kinds: ListKind) -> None:
        """These may have changed."""
        for kind in kinds:
            self._changes[kind] += 1
            self._fresh.discard(kind)

    def restore(self, kept: Mapping[str, list[JsonObject]]) -> None:
        """Take what an earlier run kept, by key."""
        self._last = {kind: kept[kind.key] for kind in ListKind if kind.key in kept}

    def kept(self) -> dict[str, list[JsonObject]]:
        """What a later run may want, by key."""
        return {kind.key: entries for kind, entries in self._last.items()}


def _objects(server: str, kind: ListKind, entries: Iterable[object]) -> list[JsonObject]:
    usable = [entry for entry in entries if isinstance(entry, dict)]
    if dropped := len(list(entries)) - len(usable):
        log.warning("entry.set_aside", server=server, list=kind.key, entries=dropped, reason="not an object")
    return usable
