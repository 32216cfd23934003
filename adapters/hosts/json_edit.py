"""Changes to one object of a JSON or JSONC text that leave every other character where it is.

Knows members, commas, indentation and line breaks. Does not know servers, files or bytes; whoever edits compares the
document's value before and after.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adapters.hosts.jsonc import Member, ObjectSpan, object_at, without_comments

Pointer = tuple[str, ...]
Rendered = tuple[str, str]
"""A member's name and the text of its value."""

_INDENTED = re.compile(r"\n([ \t]+)\S")


@dataclass(frozen=True, slots=True)
class Style:
    """How a text is written: what ends a line and what one step of indentation is."""

    newline: str
    unit: str


def style_of(text: str) -> Style:
    """The style of a text; two blanks and a line feed where it shows none."""
    indented = _INDENTED.search(text)
    return Style("\r\n" if "\r\n" in text else "\n", indented[1] if indented else "  ")


def render(value: Any, style: Style, base: str) -> str:
    """A value with one member a line, the first line at the indentation `base`; lists stay on theirs."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = base + style.unit
    members = (f"{inner}{_key(name)}: {render(one, style, inner)}" for name, one in value.items())
    return f"{{{style.newline}{(',' + style.newline).join(members)}{style.newline}{base}}}"


def replace_member(text: str, pointer: Pointer, name: str, members: Sequence[Rendered]) -> str:
    """Put members in the place of one that is there."""
    old = _named(_existing(text, pointer), name)
    style = style_of(text)
    between = f",{style.newline}{_indent_of(text, old.start)}" if _begins_line(text, old.start) else ", "
    written = between.join(f"{_key(new)}: {value}" for new, value in members)
    return text[: old.start] + written + text[old.end :]


def insert_member(text: str, pointer: Pointer, name: str, value: Any) -> str:
    """Put a member behind the last of an object, making the objects on the way that are missing."""
    depth = len(pointer)
    while depth and object_at(text, pointer[:depth]) is None:
        depth -= 1
    missing = (*pointer[depth:], name)
    for part in reversed(missing[1:]):
        value = {part: value}
    return _append(text, _existing(text, pointer[:depth]), missing[0], value)


def render_in_place(text: str, pointer: Pointer, name: str, value: Any) -> str:
    """A value as it would stand in the place of a member that is there."""
    old = _named(_existing(text, pointer), name)
    if not _begins_line(text, old.start):
        return json.dumps(value, ensure_ascii=False)
    return render(value, style_of(text), _indent_of(text, old.start))


def remove_members(text: str, pointer: Pointer, names: Sequence[str]) -> str:
    """Take members out, with their commas, and with their lines where nothing else is on them."""
    span = _existing(text, pointer)
    gone = [_named(span, name) for name in names]
    staying = [member for member in span.members if member not in gone]
    cuts = [_cut(text, member) for member in gone]
    if gone and staying and span.members[-1].comma is None and (comma := staying[-1].comma) is not None:
        first = span.members[span.members.index(staying[-1]) + 1].start
        cuts.append((comma, comma + 1 if text[comma + 1 : first].strip(" \t") else first))
    kept, at = "", 0
    for start, end in sorted(cuts):
        kept += text[at : max(at, start)]
        at = max(at, end)
    return kept + text[at:]


def member_text(text: str, pointer: Pointer, name: str) -> str | None:
    """The value of a member as it is written; None where there is none."""
    span = object_at(text, pointer)
    member = span.named(name) if span else None
    return text[member.value_start : member.end] if member else None


def repeated(text: str, pointer: Pointer) -> tuple[str, ...]:
    """Names that stand more than once in an object."""
    span = object_at(text, pointer)
    names = [member.name for member in span.members] if span else []
    return tuple(sorted({name for name in names if names.count(name) > 1}))


def _existing(text: str, pointer: Pointer) -> ObjectSpan:
    span = object_at(text, pointer)
    if span is None:
        raise KeyError(".".join(pointer))
    return span


def _named(span: ObjectSpan, name: str) -> Member:
    member = span.named(name)
    if member is None:
        raise KeyError(name)
    return member


def _append(text: str, span: ObjectSpan, name: str, value: Any) -> str:
    style, close = style_of(text), span.end - 1
    if span.members and not _begins_line(text, span.members[-1].start):
        last = span.members[-1]
        behind = last.end if last.comma is None else last.comma + 1
        comma = ", " if last.comma is None else " "
        return f"{text[:behind]}{comma}{_key(name)}: {json.dumps(value, ensure_ascii=False)}{text[behind:]}"
    if span.members:
        base = _indent_of(text, span.members[-1].start)
    else:
        base = _indent_of(text, span.start) + style.unit
    stand = max(span.start + 1, len(text[:close].rstrip()))  # behind the last member or comment
    member = f"{style.newline}{base}{_key(name)}: {render(value, style, base)}"
    if "\n" not in text[stand:close]:
        member += style.newline + _indent_of(text, span.start)
    text = text[:stand] + member + text[stand:]
    if span.members and span.members[-1].comma is None:
        end = span.members[-1].end
        text = f"{text[:end]},{text[end:]}"
    return text


def _cut(text: str, member: Member) -> tuple[int, int]:
    """What goes with a member."""
    start, end = member.start, member.end if member.comma is None else member.comma + 1
    line = text.rfind("\n", 0, start) + 1
    rest = text.find("\n", end)
    rest = len(text) if rest < 0 else rest
    if not text[line:start].strip() and not text[end:rest].strip() and rest < len(text):
        return line, rest + 1
    if member.comma is None:
        return start - (len(text[:start]) - len(text[:start].rstrip(" \t"))), end
    return start, end + len(text[end:]) - len(text[end:].lstrip(" \t"))


def _begins_line(text: str, position: int) -> bool:
    line = text.rfind("\n", 0, position) + 1
    return line > 0 and not text[line:position].strip()


def _indent_of(text: str, position: int) -> str:
    """The blanks at the beginning of the line that a position is on."""
    line = text[text.rfind("\n", 0, position) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def with_object(text: str) -> str:
    """The text, with an empty object behind its comments where it has no value."""
    if not is_blank(text):
        return text
    return text + (style_of(text).newline if text.strip() and not text.endswith("\n") else "") + "{}\n"


def is_blank(text: str) -> bool:
    """Whether a document has nothing in it but blanks and comments."""
    return not without_comments(text).strip()
