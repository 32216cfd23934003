"""What may fill one argument: the options its schema and the request leave.

First version of grounding: strings, numbers and dates are copied from the request or the context, never
made up; enums and booleans may be inferred; optional arguments need evidence.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nexus_gateway.turn.result import Ground, GroundKind
from nexus_gateway.turn.sources import Option, Source
from nexus_gateway.turn.spans import STOPWORDS, SpanKind
from nexus_gateway.turn.validation import accepts
from tool_registry.question import main_type
from tool_registry.text import split_words

MAX_OPTIONS = 200
"""More would only slow the mask; the earliest in the request stay."""

MAX_DEPTH = 4
"""Arguments nested deeper are not written; a required one is asked for."""

MAX_DIGITS = 40

_WORD_NUMBERS = {
    word: value
    for value, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
        ]
    )
}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KIND_WORDS: tuple[tuple[frozenset[str], tuple[SpanKind, ...]], ...] = (
    (_words("url uri link href website webpage endpoint"), (SpanKind.URL,)),
    (_words("email emails mail recipient recipients attendee attendees to cc bcc"), (SpanKind.EMAIL,)),
    (
        _words("path paths file files filename filepath dir directory folder source destination src dst"),
        (SpanKind.PATH,),
    ),
    (
        _words("date day since until deadline due start end starts ends when datetime timestamp"),
        (SpanKind.DATE, SpanKind.TIME),
    ),
    (_words("time"), (SpanKind.TIME, SpanKind.DATE)),
    (
        _words("id key sha hash ref commit branch ticket issue identifier slug"),
        (SpanKind.IDENTIFIER, SpanKind.NUMBER),
    ),
)
"""What an argument's name says about its value."""

_STRICT = {SpanKind.URL, SpanKind.EMAIL}
"""Kinds whose mention is evidence for an optional argument."""

_ONLY = _words("url uri email emails mail")
"""Names that admit nothing but their kind; a recipient may also be a name."""

_FORMATS = {
    "uri": (SpanKind.URL,),
    "url": (SpanKind.URL,),
    "email": (SpanKind.EMAIL,),
    "date": (SpanKind.DATE,),
    "date-time": (SpanKind.DATE,),
    "time": (SpanKind.TIME,),
}
SAID = _words("content contents text body message comment note description")
NAMED = _words("title name subject label")
_PROSE = SAID | NAMED | _words("summary prompt query question")
"""Words that are in an argument's name and in any request: no evidence for an optional one."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of a tool.

    Attributes:
        rivals: required arguments still open that take the same kind of text, this one included.
    """

    name: str
    schema: Mapping[str, Any]
    required: bool
    rivals: int = 1

    @property
    def words(self) -> list[str]:
        """The words of its name."""
        return split_words(self.name)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a slot may hold: `options` (one: no choice is left), or a `free` schema for the model to fill in.

    Neither means that nothing in the request can fill it.
    """

    options: tuple[Option, ...] = ()
    free: Mapping[str, Any] | None = None


NOTHING = Choice()


def choose(slot: Slot, sources: Sequence[Source]) -> Choice:
    """The options of one slot; the first source that has any decides."""
    if "const" in slot.schema:
        return _fixed(slot.schema["const"], GroundKind.DEFAULT) if slot.required else NOTHING
    choice = _from_sources(slot, sources)
    if choice != NOTHING or not slot.required:
        return choice
    return unstated(slot)


def unstated(slot: Slot) -> Choice:
    """What a required argument may hold that no text states."""
    if "default" in slot.schema:
        return _fixed(slot.schema["default"], GroundKind.DEFAULT)
    return _inferred(slot)


def _from_sources(slot: Slot, sources: Sequence[Source]) -> Choice:
    for source in sources:
        if not slot.required and not has_evidence(slot, source):
            continue
        choice = _of_type(slot, source)
        if choice != NOTHING:
            return choice
    return NOTHING


def _of_type(slot: Slot, source: Source) -> Choice:
    if "enum" in slot.schema:
        return Choice(tuple(_enum_options(slot.schema["enum"], source)))
    reader = _READERS.get(main_type(slot.schema))
    if reader is None:
        return NOTHING
    choice = reader(slot, source)
    return _valid(choice, slot.schema) if choice.options else choice


def _valid(choice: Choice, schema: Mapping[str, Any]) -> Choice:
    options = tuple(option for option in choice.options if accepts(schema, option.value))[:MAX_OPTIONS]
    return Choice(options) if options else NOTHING


def _fixed(value: object, kind: GroundKind) -> Choice:
    return Choice((Option(value, Ground(kind)),))


def _inferred(slot: Slot) -> Choice:
    """Booleans and enums may be inferred: the model picks one of all."""
    values = slot.schema.get("enum")
    if values is None and main_type(slot.schema) == "boolean":
        values = [True, False]
    ground = Ground(GroundKind.INFERENCE)
    return Choice(tuple(Option(value, ground) for value in values or ()))


def span_kinds(slot: Slot) -> tuple[SpanKind, ...]:
    """The typed spans that suit a slot, by its format and by the words of its name; empty for plain text."""
    declared = slot.schema.get("format")
    if isinstance(declared, str) and declared in _FORMATS:
        return _FORMATS[declared]
    words = slot.words
    for vocabulary, kinds in _KIND_WORDS:
        if words and (words[-1] in vocabulary or words[0] in vocabulary):
            return kinds
    return ()


def has_evidence(slot: Slot, source: Source) -> bool:
    """Whether the text speaks of an optional argument: by a word of its name, a value of its enum, or its kind."""
    if "enum" in slot.schema and main_type(slot.schema) != "array":
        return bool(_enum_options(slot.schema["enum"], source))
    named = [word for word in slot.words if word not in STOPWORDS and word not in _PROSE]
    if named and any(word in source.words for word in named):
        return True
    strict = [kind for kind in span_kinds(slot) if kind in _STRICT or kind is SpanKind.DATE]
    return bool(strict) and bool(source.of_kinds(strict))


def _string(slot: Slot, source: Source) -> Choice:
    """Options of a text; as many as there are rivals for them are given out in order, targets last.

    A small model can't tell source from destination; people name them in the order of the parameters, or say
    "to" before the target.
    """
    choice = _text(slot, source)
    if slot.rivals == 1 or len(choice.options) != slot.rivals:
        return choice
    first = min(choice.options, key=lambda option: _is_target(option, source))
    typed = first.span is not None and first.span.kind is not SpanKind.WORDS
    return Choice((first if typed else first.chosen(),))


def _is_target(option: Option, source: Source) -> bool:
    """Whether the text says "to", "into" or "as" before the option."""
    before = source.text[: option.span.start] if option.span else ""
    return re.search(r"\b(?:to|into|onto|as)\s+[\"'“`]?$", before, re.IGNORECASE) is not None


def _text(slot: Slot, source: Source) -> Choice:
    kinds = span_kinds(slot)
    if typed := source.of_kinds(kinds) if kinds else []:
        return Choice(tuple(typed))
    if "format" in slot.schema or _ONLY & set(slot.words):
        return NOTHING
    if SpanKind.PATH not in kinds and (marked := _marked(slot, source)):
        return Choice(tuple(marked))
    if quoted := source.of_kinds([SpanKind.QUOTED]):
        return Choice(tuple(quoted))
    named = _after_name(slot, source)
    return Choice(tuple(named or source.runs(joined=slot.rivals == 1)))


def _marked(slot: Slot, source: Source) -> list[Option]:
    """What the request marks as a name ("called Garden") or as text ("saying plant tulips"), for such a slot."""
    if NAMED & set(slot.words):
        return source.named()
    return source.said() if SAID & set(slot.words) else []


def _after_name(slot: Slot, source: Source) -> list[Option]:
    """Runs that begin right after a word of the argument's name ("branch main", "tag urgent")."""
    options: list[Option] = []
    for word in slot.words:
        for match in re.finditer(rf"\b{re.escape(word)}s?\b[\s:=]+", source.text, re.IGNORECASE):
            options += [run for run in source.runs() if run.span and run.span.start == match.end()]
    return options


def _number(slot: Slot, source: Source) -> Choice:
    whole = main_type(slot.schema) == "integer"
    found = source.of_kinds([SpanKind.NUMBER])
    numbers = [Option(_to_number(str(option.value), whole), option.ground, option.span) for option in found]
    numbers += [
        Option(value, Ground(source.kind, word))
        for word, value in _WORD_NUMBERS.items()
        if not numbers and word in source.words and word not in ("one", "zero")
    ]
    options = tuple(option for option in numbers if option.value is not None)
    return Choice(options) if options else NOTHING


def _to_number(text: str, whole: bool) -> int | float | None:
    plain = text.replace(",", "")
    if len(plain) > MAX_DIGITS:
        return None
    if "." not in plain:
        return int(plain)
    value = float(plain)
    if whole:
        return int(value) if value.is_integer() else None
    return value


def _boolean(slot: Slot, source: Source) -> Choice:
    named = [word for word in slot.words if word not in STOPWORDS]
    if not named or not all(word in source.words for word in named):
        return NOTHING
    negated = re.search(
        rf"\b(?:no|not|non|without|never|don't)\b[^.;]{{0,20}}\b{re.escape(named[0])}",
        source.text,
        re.IGNORECASE,
    )
    return Choice((Option(negated is None, Ground(source.kind, " ".join(named))),))


def _array(slot: Slot, source: Source) -> Choice:
    items = slot.schema.get("items")
    items = items if isinstance(items, Mapping) else {}
    if "enum" in items:
        members = _enum_options(items["enum"], source)
        return _list_of(members) if members else NOTHING
    element = Slot(slot.name, items, slot.required)
    if main_type(items) in ("object", "array"):
        return _structure(slot, source)
    inner = _of_type(element, source)
    if not inner.options:
        return inner
    if any(option.span and option.span.kind is not SpanKind.WORDS for option in inner.options):
        return _list_of(inner.options)
    return Choice(
        tuple(Option(_split_list(option.value), option.ground, option.span) for option in inner.options)
    )


def _list_of(options: Sequence[Option]) -> Choice:
    text = ", ".join(option.ground.text for option in options)
    return Choice((Option([option.value for option in options], Ground(options[0].ground.kind, text)),))


def _split_list(value: object) -> list[object]:
    parts = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", value) if isinstance(value, str) else [value]
    return [part for part in parts if part]


def _structure(slot: Slot, source: Source) -> Choice:
    """Nested values: the model writes them under the schema with each leaf narrowed to what the text holds."""
    narrowed = narrow(slot.schema, source)
    return NOTHING if narrowed is None else Choice(free=narrowed)


def narrow(
    schema: Mapping[str, Any], source: Source, depth: int = 0, name: str = ""
) -> dict[str, Any] | None:
    """The schema with every leaf limited to values of the text; None where a required leaf has none."""
    kind = main_type(schema)
    if depth > MAX_DEPTH:
        return None
    if kind == "array":
        items = schema.get("items")
        inner = narrow(items if isinstance(items, Mapping) else {}, source, depth + 1, name)
        return None if inner is None else {"type": "array", "items": inner, "minItems": 1, "maxItems": 1}
    if kind == "object":
        return _narrow_object(schema, source, depth)
    choice = choose(Slot(name, schema, required=True), [source])
    return {"enum": [option.value for option in choice.options]} if choice.options else None


def _narrow_object(schema: Mapping[str, Any], source: Source, depth: int) -> dict[str, Any] | None:
    properties = schema.get("properties")
    needed = set(schema.get("required", ()))
    kept: dict[str, Any] = {}
    for name, sub in (properties if isinstance(properties, Mapping) else {}).items():
        sub_schema = sub if isinstance(sub, Mapping) else {}
        if name not in needed and not has_evidence(Slot(name, sub_schema, required=False), source):
            continue
        inner = narrow(sub_schema, source, depth + 1, name)
        if inner is not None:
            kept[name] = inner
        elif name in needed:
            return None
    if not kept:
        return None
    return {"type": "object", "properties": kept, "required": list(kept), "additionalProperties": False}


def _enum_options(values: object, source: Source) -> list[Option]:
    """Enum members whose words all stand in the text, the most specific ones."""
    found: list[tuple[int, Option]] = []
    for value in values if isinstance(values, list) else ():
        words = split_words(value if isinstance(value, str) else json.dumps(value))
        if words and all(word in source.words for word in words):
            found.append((len(words), Option(value, Ground(GroundKind.ENUM, " ".join(words)))))
    longest = max((count for count, _ in found), default=0)
    return [option for count, option in found if count == longest]


_READERS: dict[str, Callable[[Slot, Source], Choice]] = {
    "string": _string,
    "integer": _number,
    "number": _number,
    "boolean": _boolean,
    "array": _array,
    "object": _structure,
}
