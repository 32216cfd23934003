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
CITY_AND_STATE = re.compile(r"\bcity,? (?:and|&) state\b|\bcity, state\b", re.IGNORECASE)


def misshapen(schema: Mapping[str, Any], value: object) -> bool:
    """Whether all examples share a shape that the value has not: a comma, a code's capitals, the places of digits."""
    described = schema.get("description")
    if not isinstance(value, str) or not isinstance(described, str) or "enum" in schema:
        return False
    if CITY_AND_STATE.search(described):
        return "," not in value
    shown = examples(described)
    if not shown or value in shown:
        return False
    if all(_CODE.fullmatch(example) for example in shown):
        return _CODE.fullmatch(value) is None
    if all(any(map(str.isdigit, example)) for example in shown):
        return _digits(value) not in {_digits(example) for example in shown}
    return all("," in example for example in shown) and "," not in value


def examples(described: str) -> list[str]:
    """What a description quotes, or names after "e.g." and the like."""
    return [*_QUOTED.findall(described), *(found.strip("'\"`“ ") for found in _NAMED.findall(described))]


def _digits(text: str) -> str:
    return re.sub(r"\d+", "9", re.sub(r"[A-Za-z]+", "a", text))
