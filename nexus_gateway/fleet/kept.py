"""Listings kept on disk, so that a lazy server's tools are known without starting it."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio.to_thread
import structlog

from adapters.ports import HttpSpec, JsonObject, TransportSpec
from nexus_gateway.files import write_atomically

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KeptListing:
    """What a server said last.

    Attributes:
        tools: raw entries of `tools/list`.
        entries: raw entries of the other lists, by key (`resources`, ...).
    """

    tools: list[Any] = field(default_factory=list)
    instructions: str | None = None
    entries: dict[str, list[JsonObject]] = field(default_factory=dict)


class KeptListings:
    """One file a server, under `folder`. What can't be read or written is as if it weren't there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, server: str, transport: TransportSpec) -> KeptListing | None:
        """What was kept of this server, started or reached in this way. Blocks."""
        path = self._path(server)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept.pop("started_as") != _fingerprint(transport):
                return None
            return _checked(KeptListing(**kept))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            log.warning("listing.unreadable", path=str(path), cause=str(error), fix="the server is started")
            return None

    def write(self, server: str, transport: TransportSpec, kept: KeptListing) -> None:
        """Keep it. Blocks."""
        path = self._path(server)
        try:
            text = json.dumps({"started_as": _fingerprint(transport), **asdict(kept)})
            write_atomically(path, text)
        except (OSError, ValueError, RecursionError) as error:
            log.warning("listing.unwritable", path=str(path), cause=str(error))

    def _path(self, server: str) -> Path:
        return self._folder / f"{quote(server, safe=' ')}.json"


class ServerMemory:
    """What one server said last, for the next run."""

    def __init__(self, server: str, listings: KeptListings | None) -> None:
        self._server = server
        self._listings = listings

    async def recall(self, transport: TransportSpec) -> KeptListing | None:
        """What an earlier run kept of this server."""
        if self._listings is None:
            return None
        return await anyio.to_thread.run_sync(self._listings.read, self._server, transport)

    async def keep(self, transport: TransportSpec, kept: KeptListing) -> None:
        """Keep it for later runs."""
        if self._listings is not None:
            await anyio.to_thread.run_sync(self._listings.write, self._server, transport, kept)


def _fingerprint(transport: TransportSpec) -> str:
    """Another command or address may be another server. Values that may be secret take no part."""
    parts = [transport.url] if isinstance(transport, HttpSpec) else [transport.command, *transport.args]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _checked(kept: KeptListing) -> KeptListing:
    lists = [kept.tools, *kept.entries.values()]
    if not all(isinstance(entries, list) for entries in lists):
        raise TypeError("its lists are no lists")
    return kept
