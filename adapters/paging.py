"""Every page of a listing, raw: what is odd in one page costs that page at the most.

Knows cursors; nothing of what is listed.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from adapters.ports import JsonObject, UpstreamUnavailable

MAX_LIST_PAGES = 1_000

log = structlog.get_logger(__name__)

Page = Callable[[JsonObject], Awaitable[JsonObject]]
"""Fetches one page, given its params."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Which list of which server, and the key its entries are under."""

    server: str
    method: str
    key: str


async def every_page(listing: Listing, fetch: Page) -> list[Any]:
    """All entries.

    Raises:
        UpstreamUnavailable: the first page has no list.
        UpstreamError: what `fetch` raises.
    """
    entries: list[Any] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_LIST_PAGES):
        page = await fetch({"cursor": cursor} if cursor else {})
        entries += _entries(listing, page, after=entries)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor:
            return entries
        if cursor in seen:
            _warn("upstream.repeated_cursor", listing, entries)
            return entries
        seen.add(cursor)
    _warn("upstream.too_many_pages", listing, entries)
    return entries


def _entries(listing: Listing, page: JsonObject, *, after: list[Any]) -> list[Any]:
    entries = page.get(listing.key)
    if isinstance(entries, list):
        return entries
    if not after:
        fault = f"its answer to {listing.method} has no list `{listing.key}`; the server is at fault"
        raise UpstreamUnavailable(listing.server, f"{listing.server}: {fault}")
    _warn("upstream.bad_page", listing, after)
    return []


def _warn(event: str, listing: Listing, entries: list[Any]) -> None:
    log.warning(event, server=listing.server, list=listing.method, entries=len(entries))
