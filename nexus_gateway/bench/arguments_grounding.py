"""Whether a written value has a ground, judged from outside: by texts alone, whatever the writer says of itself.

A text is grounded where it stands in the request (compared as `arguments_scoring` does, beginning and ending with a
word), or equals a value of the schema (enum, const, default), a binding or an accepted value. A number is so by its
value, also where the request has it in English words, and a date by its day. Booleans, null and empty texts state nothing and don't count.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nexus_gateway.bench.arguments_dates import date_stands_in
from nexus_gateway.bench.arguments_scoring import DROPPED, is_number, leaves, normalised

_UNITS = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen"""
_ORDINALS = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL: dict[str, float] = {
    **{word: value for value, word in enumerate(_UNITS.split())},
    **{word: value for value, word in enumerate(_ORDINALS.split())},
    **{word: 10 * value for value, word in enumerate(_TENS.split(), start=2)},
    "once": 1,
    "twice": 2,
    "dozen": 12,
    "half": 0.5,
}
_SCALES: dict[str, float] = {
    "hundred": 100,
    "k": 1e3,
    "thousand": 1e3,
    "million": 1e6,
    "m": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}
_TOKEN = re.compile(r"[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|[-+\u2212]?\.\d+|[^\W\d_]+")
_BETWEEN = f"[{re.escape(DROPPED)}]*"
_MOST_CHARACTERS = 2_000


class Grounds:
    """All that a value may come from, for one request."""

    def __init__(self, request: str, schema: Mapping[str, Any], known: Iterable[Any]) -> None:
        """Take the request, the tool's plain schema, and accepted values and bindings."""
        values = [*schema_values(schema), *known]
        self._request = request
        self._texts = {normalised(value) for value in values if isinstance(value, str)}
        self._numbers = {value for value in values if is_number(value)}
        self._numbers |= {number for found in numbers_in(request) for number in (found, abs(found))}

    def holds(self, value: Any) -> bool:
        """Whether a text or a number has a ground."""
        if is_number(value):
            return value in self._numbers
        if normalised(value) in self._texts or stands_in(value, self._request):
            return True
        return date_stands_in(value, self._request)

    def without_ground(self, arguments: Mapping[str, Any]) -> tuple[list[str], int]:
        """Values that have none, as `name=value`, and how many values count."""
        counted = [
            (name, value) for name, part in arguments.items() for value in leaves(part) if counts(value)
        ]
        return [f"{name}={value}" for name, value in counted if not self.holds(value)], len(counted)


def counts(value: Any) -> bool:
    """Whether a scalar states something that can be made up."""
    return is_number(value) or (isinstance(value, str) and bool(value.strip()))


def stands_in(value: str, text: str) -> bool:
    """Whether a text has a value in it, not within a word."""
    if value.strip() and value.strip() in text and not normalised(value):
        return True  # signs alone
    characters = normalised(value)[:_MOST_CHARACTERS]
    if not characters:
        return False
    spelled = _BETWEEN.join(map(re.escape, characters))
    pattern = rf"(?<![^\W_]){spelled}(?![^\W_])"
    return re.search(pattern, text.lower()) is not None


def schema_values(schema: Any) -> Iterator[Any]:
    """The scalars of every enum, const and default in a plain schema."""
    if isinstance(schema, Mapping):
        yield from leaves([schema[key] for key in ("enum", "const", "default") if key in schema])
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from schema_values(part)


def numbers_in(text: str) -> Iterator[float]:
    """Every number of a text, in digits or English words; of `2 million` both 2 and 2,000,000."""
    run: float | None = None
    for match in _TOKEN.finditer(text.lower()):
        word = match.group()
        value = _SMALL.get(word) if word.isalpha() else _digits(word)
        if value is not None:
            yield value
            run = value + run if run is not None and word in _SMALL else value
        elif run is not None and word in _SCALES:
            run *= _SCALES[word]
        elif word != "and":
            run = None
        if run is not None:
            yield run


def _digits(token: str) -> float | None:
    try:
        return float(token.replace(",", "").replace("\u2212", "-"))
    except ValueError:
        return None
