"""Places as a tool wants them written: "Berkeley" becomes "Berkeley, CA" where a description asks for city and state.

The state or the country is looked up in `places.tsv`, never guessed: a place that isn't listed stays as the request
has it. Knows descriptions and values; knows no model.
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from nexus_gateway.turn.shapes import CITY_AND_STATE, examples

_EXAMPLE = re.compile(r"[A-Z][\w.' -]*, ([A-Z]{2}|[A-Z][A-Za-z ]+)")
_PLACEHOLDER = re.compile(r"\b(?:city|state|country|code|town)\b", re.IGNORECASE)
_OFTEN = "*"
_CODE_LETTERS = 2

_CALLED = {
    "la": "Los Angeles",
    "nyc": "New York",
    "sf": "San Francisco",
    "philly": "Philadelphia",
    "vegas": "Las Vegas",
    "san fran": "San Francisco",
    "washington dc": "Washington",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """A name and where its places are; either may be empty, `*` marks the one that is 20 times as large."""

    name: str
    state: str
    country: str


def written_place(schema: Mapping[str, Any], value: object) -> str | None:
    """A place with its state or country, in the form of the description's examples; None where nothing is to change."""
    described = schema.get("description")
    if not isinstance(value, str) or not isinstance(described, str) or "enum" in schema:
        return None
    ends = _ends(described)
    if ends is None:
        return None
    short = not ends or any(len(end) == _CODE_LETTERS for end in ends)
    if "," in value:
        return _with_state(value, short=short)
    place = _places().get(folded(_CALLED.get(folded(value), value)))
    if place is None:
        return None
    return f"{_name(place, value)}, {_where(place, short=short, abroad=_abroad(ends))}"


def _ends(described: str) -> list[str] | None:
    """What follows the comma in a description's examples of places; None where it asks for no such thing."""
    matches = [match for example in examples(described) if (match := _EXAMPLE.fullmatch(example))]
    if not matches and not CITY_AND_STATE.search(described):
        return None
    return [match[1] for match in matches if not _PLACEHOLDER.search(match[0])]


def _abroad(ends: list[str]) -> bool:
    """Whether the examples name countries."""
    known = {*_states(), *_states().values()}
    return bool(ends) and known.isdisjoint(ends)


def _where(place: _Place, *, short: bool, abroad: bool) -> str:
    state, country = place.state.rstrip(_OFTEN), place.country.rstrip(_OFTEN)
    if not state or (country and (abroad or place.country.endswith(_OFTEN))):
        return country
    if abroad:
        return "USA"
    return state if short else _states().get(state, state)


def _name(place: _Place, value: str) -> str:
    """The request's own spelling, unless it is a nickname or has no capital."""
    return place.name if folded(value) in _CALLED or value != value.title() else value


def _with_state(value: str, *, short: bool) -> str | None:
    """The state's other spelling, where the examples have that."""
    city, _, end = value.partition(", ")
    codes = {name: code for code, name in _states().items()}
    other = codes.get(end) if short else _states().get(end)
    return f"{city}, {other}" if other else None


@cache
def _states() -> Mapping[str, str]:
    """The states of the USA, names by code."""
    lines = (files("nexus_gateway.turn") / "states.tsv").read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


@cache
def _places() -> Mapping[str, _Place]:
    lines = (files("nexus_gateway.turn") / "places.tsv").read_text(encoding="utf-8").splitlines()
    every = [_Place(*line.split("\t")) for line in lines if not line.startswith("#")]
    return {folded(place.name): place for place in every}


def folded(name: str) -> str:
    """A name without case, accents, dots and the long form of Saint: what a place is looked up by."""
    plain = unicodedata.normalize("NFKD", name.casefold().replace(".", ""))
    letters = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.sub(r"^saint ", "st ", letters.strip())
