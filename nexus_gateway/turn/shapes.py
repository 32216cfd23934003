"""Whether a text value looks like the examples that its argument's description gives.

"The city and state, e.g. San Francisco, CA" is not answered by "Berlin", nor a code like `USD` by "US dollars". Knows
descriptions and values; changes neither.
"""

import re
from collections.abc import Mapping
from typing import Any

_QUOTED = re.compile(r"['\"“`]([^'\"”`\n]{2,40})['\"”`]")
_NAMED = re.compile(
    r"(?:\be\.g\.,?|\bfor example,?|\bsuch as|\bexamples?:|\bformat(?: of)?:?|\blike)\s+([^\s(].{1,30}?)(?=[;.)\n]|$| or )",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Z]{2,5}")
_CITY_AND_STATE = re.compile(r"\bcity,? (?:and|&) state\b|\bcity, state\b", re.IGNORECASE)


def misshapen(schema: Mapping[str, Any], value: object) -> bool:
    """Whether all examples share a shape that the value has not: a comma, a code's capitals, the places of digits."""
    described = schema.get("description")
    if not isinstance(value, str) or not isinstance(described, str) or "enum" in schema:
        return False
    if _CITY_AND_STATE.search(described):
        return "," not in value
    examples = _examples(described)
    if not examples or value in examples:
        return False
    if all(_CODE.fullmatch(example) for example in examples):
        return _CODE.fullmatch(value) is None
    if all(any(map(str.isdigit, example)) for example in examples):
        return _digits(value) not in {_digits(example) for example in examples}
    return all("," in example for example in examples) and "," not in value


def completion(schema: Mapping[str, Any], value: str) -> str | None:
    """A pattern of what a place is written like here, "Berkeley, CA", that begins with the value; None for others."""
    described = schema.get("description")
    if not isinstance(described, str) or not misshapen(schema, value) or not _PLACE.fullmatch(value):
        return None
    matches = [match for example in _examples(described) if (match := _PLACE_EXAMPLE.fullmatch(example))]
    if not matches and not _CITY_AND_STATE.search(described):
        return None
    ends = [match[1] for match in matches if not _PLACEHOLDER.search(match[0])]
    beginning = re.escape(value).replace("\\ ", " ")
    if not ends or any(len(end) == 2 for end in ends):  # noqa: PLR2004 - as states are abbreviated
        return rf"^{beginning}, ({_ABBREVIATED})$"
    return rf"^{beginning}, [A-Z][a-z]+( [A-Z][a-z]+)?$"


_PLACE = re.compile(r"(?![A-Z]{2,3}$)[A-Z][\w.'-]*(?: [\w.'-]+){0,4}")
_ABBREVIATED = (
    "AL|AK|AZ|AR|CA|CO|CT|DE|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY|NC|ND|OH|OK|OR|PA|RI|"
    "SC|SD|TN|TX|UT|VT|VA|WA|WV|WI|WY|DC|UK"
)
"""What two letters after a place mean: a state of the USA, mostly."""
_PLACEHOLDER = re.compile(r"\b(?:city|state|country|code|town)\b", re.IGNORECASE)
_PLACE_EXAMPLE = re.compile(r"[A-Z][\w.' -]*, ([A-Z]{2}|[A-Z][A-Za-z ]+)")


def _examples(described: str) -> list[str]:
    return [*_QUOTED.findall(described), *(found.strip("'\"`“ ") for found in _NAMED.findall(described))]


def _digits(text: str) -> str:
    return re.sub(r"\d+", "9", re.sub(r"[A-Za-z]+", "a", text))
