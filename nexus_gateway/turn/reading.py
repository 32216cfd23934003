"""From what a request says to each argument to values: text as it stands, numbers, dates, lists, nested objects.

Knows schemas and the answers of a reading model; makes nothing up: a value is a part of the text, a number or date
written in it, or one of the values that the schema lists.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from adapters.reading_port import Reading, ReadingAnswer
from nexus_gateway.turn.dated import Moments, dated
from nexus_gateway.turn.hints import hinted
from nexus_gateway.turn.numbers import Number, numbers
from nexus_gateway.turn.result import Ground, GroundKind
from nexus_gateway.turn.slots import NAMED, SAID
from nexus_gateway.turn.spans import Span, SpanKind, given_name, said_text, typed_spans
from nexus_gateway.turn.validation import accepts
from tool_registry.question import Leaf, Question, main_type
from tool_registry.text import identifier_words, split_words

# Probabilities of what the reading model does not say, and weights of what it does; tuned on BFCL `simple_python` and
# `multiple` and on the `calib` rows of MCP servers.
SPELT_OUT = 0.8
"""Probability of a listed value that stands in the text, letter for letter."""
MARKED = 0.95
"""Probability of a name after "called" and the like, and of a text after "saying" and the like."""
ANY_NUMBER = 0.02
"""Probability of a number that the reading model does not name, for an argument that needs one."""
UNSPELT = 0.1
"""Weight of a listed value that the text does not spell out, for an optional argument."""
ALONE = 0.3
"""Weight of a list around one answer, beside the one of the marked items."""
PART, OTHER_PART = 0.5, 0.15
"""Weights of the parts of a dotted name beside the whole: the one that the model means, and the other."""
LEAST_ITEM = 0.4
"""Least probability of a list's item."""
_MOST_NUMBERS = 12
_WHOLE = {SpanKind.URL, SpanKind.EMAIL, SpanKind.PATH, SpanKind.QUOTED, SpanKind.IDENTIFIER, SpanKind.DATE}
"""Spans that are values as a whole: an answer that lies in one is that one."""
_AROUND = " \t\n.,;:!?\"'`()[]{}“”«»\u2018\u2019"


@dataclass(frozen=True, slots=True)
class Stated:
    """A value of a leaf.

    Attributes:
        probability: of the answer, by the reading model.
        extents: the parts of the text that it takes, start and end.
        spelt: whether it is a listed value that the text spells out.
    """

    value: Any
    ground: Ground
    probability: float
    extents: tuple[tuple[int, int], ...] = ()
    spelt: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class StatedText:
    """A text that was read, with what in it is a value as a whole."""

    text: str
    kind: GroundKind
    typed: Sequence[Span]
    moments: Moments
    numbers: Sequence[Number]

    @classmethod
    def of(cls, text: str, kind: GroundKind, clock: date) -> "StatedText":
        """Find typed spans, dates, times and numbers; "tomorrow" counts from `clock`."""
        return cls(text, kind, typed_spans(text), Moments.of(text, clock), numbers(text))


def candidates(leaf: Leaf, asked: Question, reading: Reading, text: StatedText) -> list[Stated]:
    """The values that a text may give a leaf, likeliest first; only those that its schema allows."""
    leaf = replace(leaf, schema=_with_its_name(leaf))
    if asked.many:
        found = _lists(leaf, asked, reading, text)
    else:
        each = [one for answer in reading.answers for one in _each(leaf, asked, answer, text)]
        found = [*_spelt_options(asked, text), *each]
        if leaf.needed and main_type(leaf.schema) in ("integer", "number"):
            found += _any_number(leaf.schema, text)
        if main_type(leaf.schema) == "string" and "enum" not in leaf.schema:
            found += _marked(leaf, text)
    return [one for one in _summed(found) if accepts(leaf.schema, one.value) and not _says_nothing(leaf, one)]


def _with_its_name(leaf: Leaf) -> dict[str, Any]:
    """The schema with the argument's name before its description: either may say what is wanted."""
    described = f"{' '.join(identifier_words(leaf.path[-1]))}: {leaf.schema.get('description', '')}"
    return {**leaf.schema, "description": described}


def _says_nothing(leaf: Leaf, one: Stated) -> bool:
    """Whether a value that was inferred is what the tool takes anyway."""
    inferred = not (one.extents or one.spelt)
    return inferred and not leaf.needed and leaf.schema.get("default", _NO_DEFAULT) == one.value


_NO_DEFAULT = object()


def _each(leaf: Leaf, asked: Question, answer: ReadingAnswer, text: StatedText) -> list[Stated]:
    """What an answer may mean: the value, and where it is a dotted name, `database.collection`, its parts."""
    one = _one(leaf.schema, asked, answer, text)
    if one is None:
        return []
    if answer.option is not None:
        if leaf.needed:
            return [one]
        weighed = replace(one, probability=one.probability * UNSPELT)
        return [weighed] if hinted(leaf, one.value, text.text) else []
    dotted = _DOTTED.fullmatch(one.value) if isinstance(one.value, str) and len(one.extents) == 1 else None
    if dotted is None:
        return [one]
    start = one.extents[0][0]
    parts = []
    for part in (1, 2):
        extent = start + dotted.start(part), start + dotted.end(part)
        meant = extent[0] < answer.end and answer.start < extent[1]
        share = one.probability * (PART if meant else OTHER_PART)
        parts.append(Stated(dotted[part], Ground(text.kind, dotted[part]), share, (extent,)))
    return [one, *parts]


_DOTTED = re.compile(
    r"([A-Za-z_][\w-]*)\.(?!(?:txt|md|csv|tsv|jsonl?|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|py|[jt]sx?|html?|xml|"
    r"ya?ml|log|zip|mp[34]|wav|toml|ini|sh|sql|com|org|net|io|de)$)([A-Za-z_][\w-]*)"
)


def _summed(found: Sequence[Stated]) -> list[Stated]:
    """Equal values from one place once, with their probabilities added; likeliest first."""
    merged: dict[tuple[str, tuple[tuple[int, int], ...]], Stated] = {}
    for one in found:
        key = (repr(one.value), one.extents)
        known = merged.get(key)
        share = one.probability + (known.probability if known else 0.0)
        spelt = one.spelt or (known is not None and known.spelt)
        merged[key] = replace(one, probability=min(share, 1.0), spelt=spelt)
    return sorted(merged.values(), key=lambda one: -one.probability)


def _marked(leaf: Leaf, text: StatedText) -> list[Stated]:
    """What the text marks as a name ("called Garden") or as a text ("saying plant tulips"), for such a leaf."""
    words = set(split_words(leaf.path[-1]))
    spans = [given_name(text.text) if words & NAMED else None, said_text(text.text) if words & SAID else None]
    return [
        Stated(span.text, Ground(text.kind, span.text), MARKED, ((span.start, span.end),))
        for span in spans
        if span is not None
    ]


def _any_number(schema: Mapping[str, Any], text: StatedText) -> list[Stated]:
    found = []
    for number in text.numbers[:_MOST_NUMBERS]:
        value = _fitting(schema, number, text)
        if value is not None:
            extent = (number.start, number.end)
            ground = Ground(text.kind, text.text[number.start : number.end])
            found.append(Stated(value, ground, ANY_NUMBER, (extent,)))
    return found


def _spelt_options(asked: Question, text: StatedText) -> list[Stated]:
    """The one listed value that the text spells out, the longest where it spells several within one another."""
    found = _spelt(asked, text)
    longest = max((len(one.ground.text) for one in found), default=0)
    best = [one for one in found if len(one.ground.text) == longest]
    return best if len(best) == 1 else []


def _spelt(asked: Question, text: StatedText) -> list[Stated]:
    """Listed values whose words stand in the text side by side, singular or plural, in the order of the list."""
    if not asked.values or isinstance(asked.values[0], bool):
        return []
    found = []
    for value, option in zip(asked.values, asked.options, strict=True):
        words = r"[\W_]*".join(
            f"{re.escape(word.removesuffix('s'))}s?" for word in re.findall(r"[^\W_]+", option)
        )
        if words and re.search(rf"(?<![^\W_]){words}(?![^\W_])", text.text, re.IGNORECASE):
            found.append(Stated(value, Ground(GroundKind.ENUM, option), SPELT_OUT, spelt=True))
    return found


def _lists(leaf: Leaf, asked: Question, reading: Reading, text: StatedText) -> list[Stated]:
    """As the items are marked, then around each answer."""
    items = leaf.schema.get("items")
    schema = items if isinstance(items, Mapping) else {}
    marked = [_one(schema, asked, item, text) for item in reading.items if item.probability >= LEAST_ITEM]
    said = 1 - reading.nothing
    kept = [part for part in marked if part is not None]
    known = {part.ground.text for part in kept}
    kept += [part for part in _spelt(asked, text) if part.ground.text not in known]
    found = [_list(schema, kept, said, text)]
    said *= ALONE
    for answer in reading.answers:
        one = _one(schema, asked, answer, text)
        found.append(_list(schema, [] if one is None else [one], said * answer.probability, text))
    return [one for one in found if one is not None]


def _list(schema: Mapping[str, Any], parts: Sequence[Stated], said: float, text: StatedText) -> Stated | None:
    if parts and main_type(schema) in ("integer", "number"):
        kept = _row(schema, parts, text)
    else:
        kept = [apart for part in parts for apart in _apart(schema, part, text)]
    if not kept:
        return None
    extents = tuple(extent for part in kept for extent in part.extents)
    ground = Ground(kept[0].ground.kind, ", ".join(part.ground.text for part in kept))
    share = said * sum(part.probability for part in kept) / len(kept)
    return Stated([part.value for part in _distinct(kept)], ground, share, extents)


def _apart(schema: Mapping[str, Any], part: Stated, text: StatedText) -> list[Stated]:
    """A text item that names several, "A, B and C", as so many."""
    if "enum" in schema or len(part.extents) != 1 or not isinstance(part.value, str):
        return [part]
    start, end = part.extents[0]
    found, at = [], start
    for piece in _SEPARATORS.split(text.text[start:end]):
        place = text.text.index(piece, at)
        bare = piece.strip(_AROUND)
        at = place + len(piece)
        if bare:
            first = place + piece.index(bare)
            found.append(
                Stated(bare, Ground(text.kind, bare), part.probability, ((first, first + len(bare)),))
            )
    return found


_SEPARATORS = re.compile(r"\s*,\s*(?:and\s+)?|\s+and\s+|\s*&\s*", re.IGNORECASE)


def _distinct(parts: Sequence[Stated]) -> list[Stated]:
    """Options that were found twice count once; numbers may well repeat."""
    once = {part.ground.text: part for part in reversed(parts) if not part.extents}
    return [part for part in parts if part.extents or once[part.ground.text] is part]


def _row(schema: Mapping[str, Any], parts: Sequence[Stated], text: StatedText) -> list[Stated]:
    """The whole row of numbers that the parts stand in: "1, 2 and 3" is stated as one."""
    places = [
        place for place, number in enumerate(text.numbers) if any(_meets(number, part) for part in parts)
    ]
    if not places:
        return list(parts)
    first, last = places[0], places[-1]
    while first > 0 and _BETWEEN.fullmatch(_gap(text, first - 1)):
        first -= 1
    while last + 1 < len(text.numbers) and _BETWEEN.fullmatch(_gap(text, last)):
        last += 1
    found = []
    for number in text.numbers[first : last + 1]:
        value = _fitting(schema, number, text)
        if value is not None:
            ground = Ground(text.kind, text.text[number.start : number.end])
            found.append(Stated(value, ground, parts[0].probability, ((number.start, number.end),)))
    return found


_BETWEEN = re.compile(r"\s*(?:,|;|and|,\s*and)?\s*", re.IGNORECASE)


def _gap(text: StatedText, place: int) -> str:
    return text.text[text.numbers[place].end : text.numbers[place + 1].start]


def _meets(number: Number, part: Stated) -> bool:
    return any(number.start < end and start < number.end for start, end in part.extents)


def _one(
    schema: Mapping[str, Any], asked: Question, answer: ReadingAnswer, text: StatedText
) -> Stated | None:
    if answer.option is not None:
        value = asked.values[answer.option]
        kind = GroundKind.INFERENCE if isinstance(value, bool) else GroundKind.ENUM
        return Stated(value, Ground(kind, asked.options[answer.option]), answer.probability)
    if main_type(schema) in ("integer", "number"):
        return _number(schema, answer, text)
    if main_type(schema) == "boolean":
        return None
    return _dated(schema, answer, text) or _words(schema, answer, text)


def _words(schema: Mapping[str, Any], answer: ReadingAnswer, text: StatedText) -> Stated | None:
    start, end = _whole(answer, text)
    words = text.text[start:end]
    value = _listed_value(schema, words) if words else None
    if value is None:
        return None
    return Stated(value, Ground(text.kind, words), answer.probability, ((start, end),))


def _number(schema: Mapping[str, Any], answer: ReadingAnswer, text: StatedText) -> Stated | None:
    for number in text.numbers:
        if number.start < answer.end and answer.start < number.end:
            value = _fitting(schema, number, text)
            ground = Ground(text.kind, text.text[number.start : number.end])
            extent = (number.start, number.end)
            return None if value is None else Stated(value, ground, answer.probability, (extent,))
    return None


def _fitting(schema: Mapping[str, Any], number: Number, text: StatedText) -> int | float | None:
    """The number as its argument counts: a share of 1 for a percentage, kelvins not thousands."""
    described = str(schema.get("description", ""))
    value = number.value
    if text.text[number.end - 1] == "K" and _KELVIN.search(described):
        value = numbers(text.text[number.start : number.end - 1])[0].value
    percent = text.text[number.end : number.end + 1] == "%" and main_type(schema) == "number"
    if percent and (not _PERCENT.search(described) or _SHARE.search(described)):
        value = round(value / 100, 12)
    if main_type(schema) == "integer" and isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value


_KELVIN = re.compile(r"kelvin|temperature", re.IGNORECASE)
_PERCENT = re.compile(r"percent|%", re.IGNORECASE)
_SHARE = re.compile(r"decimal|fraction|\b0\.\d|between 0 and 1|from 0 to 1", re.IGNORECASE)


def _whole(answer: ReadingAnswer, text: StatedText) -> tuple[int, int]:
    """The answer without quotes and punctuation around it, or the span that it is part of."""
    for span in text.typed:
        if span.kind in _WHOLE and span.start <= answer.start and answer.end <= span.end:
            return span.start, span.end
    start, end = answer.start, answer.end
    while 0 < end < len(text.text) and text.text[end].isalnum() and text.text[end - 1].isalnum():
        end += 1
    while start > 0 and text.text[start - 1].isalnum() and text.text[start].isalnum():
        start -= 1
    words = text.text[start:end]
    start += len(words) - len(words.lstrip(_AROUND))
    return _whole_name(start, start + len(words.strip(_AROUND)), text.text)


def _whole_name(start: int, end: int, text: str) -> tuple[int, int]:
    """The run of capitalised words that a capitalised answer is part of: "New York" of "New York City"."""
    if not all(word[:1].isupper() for word in text[start:end].split()):
        return start, end
    after = _NAME_AFTER.match(text, end)
    before = _NAME_BEFORE.search(text[:start])
    return (before.start() if before and before.start() else start), (after.end() if after else end)


_NAME_AFTER = re.compile(r"(?: [A-Z][\w'-]*)+")
_NAME_BEFORE = re.compile(r"(?:\b[A-Z][\w'-]* )+$")


def _dated(schema: Mapping[str, Any], answer: ReadingAnswer, text: StatedText) -> Stated | None:
    found = dated(schema, answer.start, answer.end, text.moments)
    if found is None:
        return None
    ground = Ground(text.kind, text.text[found.start : found.end], chosen=not found.sure)
    return Stated(found.value, ground, answer.probability, ((found.start, found.end),))


def _listed_value(schema: Mapping[str, Any], words: str) -> str | None:
    """The words; where the schema lists its values, the one that is spelt so but for case and punctuation."""
    listed = schema.get("enum")
    if not isinstance(listed, list):
        return words
    plain = re.sub(r"[\W_]", "", words.lower())
    return next(
        (
            value
            for value in listed
            if isinstance(value, str) and re.sub(r"[\W_]", "", value.lower()) == plain
        ),
        None,
    )
