"""JSON with comments and trailing commas: its value, and where each member of an object stands in the text.

Comments and trailing commas are blanked, so that every position in the remaining JSON is one in the text itself.
Does not know what a document is for, and changes none.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from adapters.hosts.json_text import JsonSyntaxError, decode_json

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_BLANKS = re.compile(r"[ \t\r\n]*")
_NO_LINE_BREAK = re.compile(r"[^\r\n]")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object; positions count characters of the text.

    Attributes:
        start: of its name's opening quote.
        value_start: of its value.
        end: behind its value.
        comma: of the comma behind it; None behind the last, unless a trailing one is there.
    """

    name: str
    start: int
    value_start: int
    end: int
    comma: int | None = None


@dataclass(frozen=True, slots=True)
class ObjectSpan:
    """An object in a text: `start` of its opening brace, `end` behind its closing one."""

    start: int
    end: int
    members: tuple[Member, ...] = field(default=())

    def named(self, name: str) -> Member | None:
        """The member that counts: of a repeated name the last."""
        return next((member for member in reversed(self.members) if member.name == name), None)


def decode_jsonc(text: str, *, strict: bool) -> Any:
    """The value of a document; `strict` allows neither comments nor trailing commas.

    Raises:
        JsonSyntaxError: with the line and what to change.
    """
    plain = text if strict else _without(_TRAILING_COMMA, without_comments(text))
    if not strict and (unclosed := plain.rfind("/*")) >= 0 and not _in_string(plain, unclosed):
        raise JsonSyntaxError(
            "the comment that begins here is never closed", plain.count("\n", 0, unclosed) + 1
        )
    return decode_json(plain.encode("utf-8", "surrogatepass"))[1]


def without_comments(text: str) -> str:
    """The text with blanks in place of comments; of the same length, with the same line breaks."""
    return _without(_COMMENT, text)


@lru_cache(maxsize=2)
def object_at(text: str, pointer: tuple[str, ...]) -> ObjectSpan | None:
    """Where an object of a *valid* document stands; None where there is none at this place."""
    bare = without_comments(text)
    plain = _without(_TRAILING_COMMA, bare)
    start = _behind_blanks(bare, 0)
    if bare[start : start + 1] != "{":
        return None
    span = _object(bare, plain, start)
    for part in pointer:
        member = span.named(part)
        if member is None or bare[member.value_start] != "{":
            return None
        span = _object(bare, plain, member.value_start)
    return span


def value_at(document: Any, pointer: tuple[str, ...]) -> Any:
    """The value at a place of a document; None where there is none."""
    for part in pointer:
        if not isinstance(document, Mapping) or part not in document:
            return None
        document = document[part]
    return document


def _object(bare: str, plain: str, start: int) -> ObjectSpan:
    """The members of the object whose brace is at `start`; `plain` is `bare` without trailing commas."""
    members: list[Member] = []
    at = _behind_blanks(bare, start + 1)
    while bare[at] != "}":
        name, colon = _DECODER.raw_decode(plain, at)
        value_start = _behind_blanks(bare, bare.index(":", colon) + 1)
        _, end = _DECODER.raw_decode(plain, value_start)
        comma = _behind_blanks(bare, end)
        has_comma = bare[comma] == ","
        members.append(Member(name, at, value_start, end, comma if has_comma else None))
        at = _behind_blanks(bare, comma + 1) if has_comma else comma
    return ObjectSpan(start, at + 1, tuple(members))


def _behind_blanks(text: str, start: int) -> int:
    match = _BLANKS.match(text, start)
    return match.end() if match else start


def _without(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: match[1] or _NO_LINE_BREAK.sub(" ", match[0]), text)


def _in_string(text: str, position: int) -> bool:
    return any(m.start() < position < m.end() for m in re.finditer(_STRING, text, re.DOTALL))
