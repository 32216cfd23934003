"""Results that are too large for a host: their text is cut, said so, and kept whole as a resource to page through.

Knows raw `CallToolResult` objects and who called; knows no transport and no tool. Only text is cut: structured
content, images, audio, blobs, links, `isError` and unknown fields stay as the upstream said them. Structured
content stays even where it alone is over the limit, since half a JSON value is none and its tool may have promised
a schema; the text that repeats it is cut.

A token is taken as four bytes of UTF-8: near enough for English and code, and not far too few for other scripts.
"""

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from adapters.ports import JsonObject
from nexus_gateway.access.caller import Caller, Principal, Tenant

BYTES_A_TOKEN: Final = 4
KEPT_BYTES: Final = 64 * 1024 * 1024
"""Memory for all whole results together; the oldest go first."""
META_KEY: Final = "nexus-gateway/cut"
RESULT_TEMPLATE: Final = "nexus://results/{id}{?from}"
"""The URIs of kept results; `from` is a character position."""
_PREFIX: Final = "nexus://results/"
_NOTE_BYTES: Final = 400
_CONTINUATION: Final = bytes(range(0x80, 0xC0))


def text_of(block: object) -> str | None:
    """The text of a text block or an embedded text resource; None for anything else."""
    if not isinstance(block, Mapping):
        return None
    holder = block.get("resource") if block.get("type") == "resource" else block
    text = holder.get("text") if isinstance(holder, Mapping) and _is_text(block) else None
    return text if isinstance(text, str) else None


def _is_text(block: Mapping[str, Any]) -> bool:
    return block.get("type") in ("text", "resource")


def tokens(text: str) -> int:
    """About how many tokens a text is, rounded up."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN)


def cap(result: JsonObject, max_tokens: int, keep: Callable[[str], str | None]) -> JsonObject:
    """The result, with its text cut where all of it is over `max_tokens`; the same object where it is not.

    Text is kept in order until the limit, text blocks beyond it are left out, and a last text block says what was
    cut and where the whole is.

    Args:
        result: a raw result; it is not changed.
        max_tokens: for all text of the result with the note; 0 never cuts.
        keep: takes the whole text, blocks joined by line breaks, and gives its URI; None if it can't be kept.
    """
    content = result.get("content")
    if not max_tokens or not isinstance(content, list):
        return result
    texts = [text for block in content if (text := text_of(block)) is not None]
    # No character is more than four bytes, so what has few characters needs no counting.
    if sum(map(len, texts)) <= max_tokens or sum(map(tokens, texts)) <= max_tokens:
        return result
    shown, characters = _cut(content, max(0, max_tokens * BYTES_A_TOKEN - _NOTE_BYTES))
    whole = "\n".join(texts)
    cut = _Cut(whole, characters, keep(whole))
    meta = result.get("_meta")
    return {
        **result,
        "content": [*shown, {"type": "text", "text": cut.note()}],
        "_meta": {**(meta if isinstance(meta, dict) else {}), META_KEY: cut.meta()},
    }


@dataclass(frozen=True, slots=True)
class _Cut:
    whole: str
    characters: int
    uri: str | None

    def note(self) -> str:
        size = f"{len(self.whole):,} characters (about {tokens(self.whole):,} tokens)"
        said = f"[nexus: this result was cut: its text has {size}, of which the first {self.characters:,} are above."
        if self.uri is None:
            return f"{said} The whole was too large to keep; ask the tool for less.]"
        return f"{said} Read on in the resource {self.uri}?from={self.characters}; the whole is {self.uri}]"

    def meta(self) -> JsonObject:
        said: JsonObject = {"characters": len(self.whole), "shown": self.characters}
        return said if self.uri is None else said | {"uri": self.uri}


def _cut(content: list[Any], budget: int) -> tuple[list[Any], int]:
    """Blocks whose text is at most `budget` bytes, and how many characters of the whole text that is."""
    shown: list[Any] = []
    characters, full = 0, False
    for block in content:
        text = text_of(block)
        if text is None:
            shown.append(block)
            continue
        if full:
            continue
        part = beginning(text, budget)
        full = len(part) < len(text)
        if part or not full:
            shown.append(_with_text(block, part))
        budget = max(0, budget - len(part.encode("utf-8", "surrogatepass")))
        characters += len(part) + (not full)  # the line break that joins it to the next
    return shown, characters


def beginning(text: str, most_bytes: int) -> str:
    """The longest beginning of a text that is at most so many bytes of UTF-8; no character is split."""
    data = text[: most_bytes + 1].encode("utf-8", "surrogatepass")
    if len(data) <= most_bytes:
        return text[:most_bytes]
    characters = len(data[:most_bytes].translate(None, _CONTINUATION))
    split = data[most_bytes] in _CONTINUATION
    return text[: characters - split]


def _with_text(block: JsonObject, text: str) -> JsonObject:
    if block.get("type") == "resource":
        return {**block, "resource": {**block["resource"], "text": text}}
    return {**block, "text": text}


@dataclass(frozen=True, slots=True)
class _Kept:
    tenant: Tenant
    principal: Principal
    text: str
    expires: float
    size: int


class LargeResults:
    """Cuts results and keeps the whole text of those it cut, in memory, for whoever called and nobody else."""

    def __init__(
        self,
        *,
        max_tokens: int,
        keep_seconds: float,
        keep_bytes: int = KEPT_BYTES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_tokens = max_tokens
        self._keep_seconds = keep_seconds
        self._keep_bytes = keep_bytes
        self._now = now
        self._kept: dict[str, _Kept] = {}  # oldest first
        self._size = 0

    def statistics(self) -> tuple[int, int]:
        """How many results are kept, and their bytes."""
        self._forget_expired()
        return len(self._kept), self._size

    def fit(self, result: JsonObject, caller: Caller) -> JsonObject:
        """The result as it may be sent to the caller's host."""
        return cap(result, self._max_tokens, lambda text: self._keep(text, caller))

    def read(self, uri: str, caller: Caller) -> JsonObject | None:
        """One page of a kept result, as a raw `ReadResourceResult`.

        None where there is no such result, any more or for this caller, or the URI is malformed.
        """
        if not uri.startswith(_PREFIX):
            return None
        self._forget_expired()
        parts = urlsplit(uri)
        kept = self._kept.get(parts.path.removeprefix("/"))
        if kept is None or (kept.tenant, kept.principal) != (caller.tenant, caller.principal):
            return None
        start = parse_qs(parts.query).get("from", ["0"])[-1]
        if not (start.isascii() and start.isdecimal()) or len(start) > len(str(sys.maxsize)):
            return None
        return self._page(uri, uri.partition("?")[0], kept.text, int(start))

    def _page(self, uri: str, base: str, text: str, start: int) -> JsonObject:
        budget = max(BYTES_A_TOKEN, self._max_tokens * BYTES_A_TOKEN - _NOTE_BYTES)
        page = beginning(text[start : start + budget], budget)
        following = start + len(page)
        contents = [{"uri": uri, "mimeType": "text/plain", "text": page}]
        if following < len(text):
            note = f"[nexus: characters {start:,} to {following:,} of {len(text):,}; read on in {base}?from={following}]"
            contents.append({"uri": uri, "mimeType": "text/plain", "text": note})
        return {"contents": contents}

    def _keep(self, text: str, caller: Caller) -> str | None:
        size = sys.getsizeof(text)
        if size > self._keep_bytes:
            return None
        self._forget_expired()
        while self._size + size > self._keep_bytes:
            self._forget(next(iter(self._kept)))
        key = secrets.token_urlsafe(16)
        self._kept[key] = _Kept(caller.tenant, caller.principal, text, self._now() + self._keep_seconds, size)
        self._size += size
        return f"{_PREFIX}{key}"

    def _forget_expired(self) -> None:
        now = self._now()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest].expires > now:
                break
            self._forget(oldest)

    def _forget(self, key: str) -> None:
        self._size -= self._kept.pop(key).size
