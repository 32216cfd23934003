"""Takes what a required argument rests on out of a request: a writer that is honest then asks for it.

Only where the right value stands verbatim in the request, once, and where nothing else may fill the argument: no
default, enum, const or boolean.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nexus_gateway.bench.arguments_data import ArgumentQuery
from nexus_gateway.bench.arguments_grounding import stands_in
from nexus_gateway.bench.arguments_scoring import is_number
from tool_registry.schema import properties, required

_QUOTES = {*"'\"`\u201c\u201d\u2018\u2019"}
_FILLED_OTHERWISE = {"default", "enum", "const"}


@dataclass(frozen=True, slots=True)
class Cut:
    """A request without the value of an argument."""

    name: str
    value: str
    request: str


def cut(query: ArgumentQuery, schema: Mapping[str, Any], seed: int) -> Cut | None:
    """One of the cuts that are possible, drawn by seed and request; None where there is none.

    Args:
        query: the request and what is right.
        schema: the tool's plain schema.
        seed: of the run.
    """
    known = properties(schema)
    possible = [
        found
        for name in required(schema)
        if not _FILLED_OTHERWISE & known.get(name, {}).keys()
        and (found := _cut(query.text, name, query.gold.stated.get(name, ())))
    ]
    return random.Random(f"{seed}:{query.id}").choice(possible) if possible else None  # noqa: S311 - no secret


def _cut(request: str, name: str, accepted: Sequence[Any]) -> Cut | None:
    texts = sorted({spelled for value in accepted for spelled in _spellings(value)}, key=len, reverse=True)
    for text in texts:
        found = list(_standing(text).finditer(request))
        if len(found) != 1:
            continue
        left = _less(request, *found[0].span())
        if left and not any(stands_in(other, left) for other in texts):
            return Cut(name, text, left)
    return None


def _less(request: str, start: int, end: int) -> str:
    """The request without a part, and without the quotes around it."""
    if request[start - 1 : start] in _QUOTES and request[end : end + 1] in _QUOTES:
        start, end = start - 1, end + 1
    return re.sub(r" {2,}", " ", request[:start] + request[end:]).strip()


def _standing(text: str) -> re.Pattern[str]:
    """The text, neither within a word nor within a number."""
    return re.compile(rf"(?<![\w.-])(?<!\d,){re.escape(text)}(?![\w-]|[.,]\d)")


def _spellings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value.strip() else []
    if not is_number(value):
        return []
    whole = isinstance(value, float) and value.is_integer()
    return (
        [str(int(value)), f"{int(value):,}", str(value)] if whole or isinstance(value, int) else [str(value)]
    )
