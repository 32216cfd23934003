"""An argument that has a bound value: what a text says instead of it.

A binding is for what is left unsaid, so a request may hold many values and state none for this argument. Only a
value that stands by the argument's name ("in project p-2", "the p-2 project") or has the form of the bound one
("conn-7" for "conn-42") overrules it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from nexus_gateway.turn.bound_values import BoundValue, fitted
from nexus_gateway.turn.result import Ground, GroundKind
from nexus_gateway.turn.slots import Choice, Slot, choose, span_kinds
from nexus_gateway.turn.sources import Option, Source
from nexus_gateway.turn.spans import MAX_TYPED_CHARACTERS, Span, SpanKind, says_something
from tool_registry.question import main_type

_OPEN_KINDS = frozenset({SpanKind.IDENTIFIER, SpanKind.NUMBER})
"""Kinds that many a word has: the place of such a value decides. A URL or a path speaks for itself."""
_NOT_THE_NOUN = frozenset({"gid", "id", "key", "name", "number", "ref", "slug", "uuid"})
_NO_VALUE = frozenset({"called", "current", "default", "named", "present", "same", "usual"}) | _NOT_THE_NOUN
_QUOTES = "\"'\u201c`"
_VALUE = r"(?P<value>[\w#@][\w./@+-]*+)"
_OPENED = rf"[{_QUOTES}]?{_VALUE}"
_MARK = r"(?:(?:\s+is)?(?:\s+(?:id|key|name|number|slug|called|named)\b)+(?:\s+is\b)?\s*[:=]?|\s*[:=#])\s*"
_BEFORE = r"\b(?:in|of|for|from|by|under|on|to|with)\s+"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class _Sure(IntEnum):
    """How sure a word beside an argument's name is its value. A likely one is used, as one of several."""

    NO = 0
    LIKELY = 1
    YES = 2


def bound_choice(slot: Slot, sources: Sequence[Source], value: BoundValue) -> Choice:
    """What fills a slot with a binding: what the first source states that states anything, or the bound value.

    The binding counts as one of several where a text speaks of the argument in a way that is not understood.
    """
    for source in sources:
        if options := _stated(slot, source, value):
            return Choice(options)
    doubtful = any(beside for source in sources for beside in _beside_name(slot, source))
    return Choice((Option(value, Ground(GroundKind.BINDING, chosen=doubtful)),))


def _stated(slot: Slot, source: Source, value: BoundValue) -> tuple[Option, ...]:
    if "enum" in slot.schema or main_type(slot.schema) not in ("string", "integer", "number"):
        return choose(replace(slot, required=False), [source]).options
    closed = [kind for kind in span_kinds(slot) if kind not in _OPEN_KINDS]
    if closed:
        return _valid(slot, source, _enough(slot, source.of_kinds(closed)))
    beside = {span: sure for span, sure in _beside_name(slot, source) if sure is not _Sure.NO}
    named = tuple(
        option.chosen() if option.span and beside[option.span] is _Sure.LIKELY else option
        for option in _valid(slot, source, list(beside))
    )
    return named or _valid(slot, source, _enough(slot, _alike(value, source)))


def _enough(slot: Slot, options: Sequence[Option]) -> list[Span]:
    """The spans, if there is one for each argument that could take it."""
    spans = [option.span for option in options if option.span is not None]
    return spans if len(spans) >= slot.rivals else []


def _alike(value: BoundValue, source: Source) -> list[Option]:
    form = _form(str(value))
    options = source.of_kinds([SpanKind.IDENTIFIER]) if form else []
    return [option for option in options if option.span and _form(option.span.text) == form]


def _form(text: str) -> str:
    """A text with its numbers left open; empty where that says nothing."""
    if _UUID.fullmatch(text):
        return "uuid"
    telling = text[:1].isalpha() and any(character.isdigit() for character in text)
    return re.sub(r"\d+", "9", text) if telling else ""


def _valid(slot: Slot, source: Source, spans: Sequence[Span]) -> tuple[Option, ...]:
    values = {span.text: (span, fitted(span.text, slot.schema)) for span in spans}
    return tuple(
        Option(value, Ground(source.kind, text), span)
        for text, (span, value) in values.items()
        if value is not None
    )


def _beside_name(slot: Slot, source: Source) -> Iterator[tuple[Span, _Sure]]:
    """What says something right after or before the argument's noun."""
    noun = next((word for word in reversed(slot.words) if word not in _NOT_THE_NOUN), None)
    if noun is None:
        return
    name, noun = re.escape(slot.name), re.escape(noun)
    after = (
        (rf"\b{noun}\s+(?:is\s+)?{_OPENED}", _Sure.NO),
        (rf"{_BEFORE}{noun}\s+{_OPENED}", _Sure.LIKELY),
        (rf"\b{noun}\b{_MARK}{_OPENED}", _Sure.YES),
        (rf"\b{name}\b[\s:=]+{_OPENED}", _Sure.YES if name != noun else _Sure.NO),
    )
    before = rf"(?<![\w./@+-]){_VALUE}[{_QUOTES}\u201d]?\s+{noun}\b"
    text = source.text[:MAX_TYPED_CHARACTERS]
    for pattern, sure in after:
        for span in _spans(pattern, text, source):
            yield span, _Sure.YES if _looks_chosen(span, text) else sure
    for span in _spans(before, text, source):
        if not span.text.isdigit():  # "5 project issues"
            yield span, _Sure.YES if _looks_chosen(span, text) else _Sure.NO


def _spans(pattern: str, text: str, source: Source) -> Iterator[Span]:
    for match in re.finditer(pattern, text, re.IGNORECASE):
        value = match["value"].rstrip(".").removeprefix("#")
        if value.lower() not in _NO_VALUE and says_something(value, source.known):
            yield Span(SpanKind.IDENTIFIER, value, text.index(value, match.start("value")))


def _looks_chosen(span: Span, text: str) -> bool:
    """Whether a word is more than a word of the sentence: quoted, or a name by its digits, dashes or capital."""
    before = text[max(span.start - 1, 0) : span.start]
    marked = any(character.isdigit() or character in "_@#-" for character in span.text)
    return marked or (bool(before) and (before in _QUOTES or span.text[0].isupper()))
