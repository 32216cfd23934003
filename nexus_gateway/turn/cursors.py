"""Cursors of `find_tools`: where the next page of one ranking begins, good while the tools stay as they are.

Opaque to hosts and not secret: what it says is checked, and it shows nobody a tool that it could not find.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable

MAX_CHARACTERS = 200


class CursorError(ValueError):
    """A cursor that can't be used; the message says why and what to do."""


def digest(parts: Iterable[str]) -> str:
    """16 hex digits that differ where any part does."""
    hashed = hashlib.blake2b(digest_size=8)
    for part in parts:
        hashed.update(part.encode("utf-8", "surrogatepass"))
        hashed.update(b"\0")
    return hashed.hexdigest()


def to_cursor(offset: int, *, search: str, tools: str) -> str:
    """A cursor for the entries from `offset` on; `search` and `tools` are digests."""
    payload = json.dumps([offset, search, tools], separators=(",", ":"))
    return base64.urlsafe_b64encode(payload.encode()).decode().rstrip("=")


def offset_of(cursor: str, *, search: str, tools: str) -> int:
    """Where the page begins.

    Raises:
        CursorError: it is no cursor of ours, belongs to another search, or the tools have changed since.
    """
    try:
        offset, for_search, for_tools = _parts(cursor)
    except ValueError as error:
        raise CursorError(
            "this cursor is not one that find_tools gave; search again without a cursor"
        ) from error
    if for_search != search:
        raise CursorError("this cursor belongs to another query; give the query that it came with")
    if for_tools != tools:
        raise CursorError("the tools have changed since this cursor was given; search again without a cursor")
    return offset


def _parts(cursor: str) -> tuple[int, str, str]:
    if len(cursor) > MAX_CHARACTERS or not cursor.isascii():
        raise ValueError(cursor[:MAX_CHARACTERS])
    try:
        payload = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    match json.loads(payload):
        case [int(offset), str(search), str(tools)] if offset >= 0:
            return offset, search, tools
    raise ValueError("not a place")
