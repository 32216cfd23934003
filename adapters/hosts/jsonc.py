"""JSON with comments and trailing commas: its value, and where each member of an object stands in the text.

Comments and trailing commas are blanked, so that every position in the remaining JSON is one in the text itself.
Does not know what a document is for, and changes none.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapters.hosts.json_text import JsonSyntaxError, decode_json

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"({_STRING})|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_LEXEME = re.compile(rf'{_STRING}|[{{}}\[\],:]|[^\s{{}}\[\],:"]+', re.DOTALL)
_NO_LINE_BREAK = re.compile(r"[^\r\n]")


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


def comments(text: str) -> tuple[tuple[int, int], ...]:
    """Where the comments of a text are."""
    return tuple(match.span() for match in _COMMENT.finditer(text) if match[1] is None)


def object_at(text: str, pointer: tuple[str, ...]) -> ObjectSpan | None:
    """Where an object of a *valid* document stands; None where there is none at this place."""
    bare = without_comments(text)
    start = bare.find("{")
    if start < 0 or bare[:start].strip():
        return None
    span = _object(bare, start)
    for part in pointer:
        member = span.named(part)
        if member is None or bare[member.value_start] != "{":
            return None
        span = _object(bare, member.value_start)
    return span


def value_at(document: Any, pointer: tuple[str, ...]) -> Any:
    """The value at a place of a document; None where there is none."""
    for part in pointer:
        if not isinstance(document, Mapping) or part not in document:
            return None
        document = document[part]
    return document


def _object(bare: str, start: int) -> ObjectSpan:
    """The members of the object whose brace is at `start`."""
    members: list[Member] = []
    depth, name, begun, value_start = 0, "", -1, -1
    for match in _LEXEME.finditer(bare, start):
        lexeme, here = match[0], match.start()
        if lexeme in "}]":
            depth -= 1
            if depth == 0:
                return ObjectSpan(start, match.end(), tuple(members))
        if depth == 1 and begun < 0 and lexeme[0] == '"':
            name, begun = json.loads(lexeme), here
            continue
        if depth == 1 and begun >= 0 and value_start < 0 and lexeme != ":":
            value_start = here
        if lexeme in "{[":
            depth += 1
        if depth == 1 and lexeme == "," and members:
            members[-1] = _with_comma(members[-1], here)
        elif depth == 1 and value_start >= 0:
            members.append(Member(name, begun, value_start, match.end()))
            begun = value_start = -1
    raise JsonSyntaxError("an object is never closed")


def _with_comma(member: Member, comma: int) -> Member:
    return Member(member.name, member.start, member.value_start, member.end, comma)


def _without(pattern: re.Pattern[str], text: str) -> str:
    return pattern.sub(lambda match: match[1] or _NO_LINE_BREAK.sub(" ", match[0]), text)


def _in_string(text: str, position: int) -> bool:
    return any(m.start() < position < m.end() for m in re.finditer(_STRING, text, re.DOTALL))
