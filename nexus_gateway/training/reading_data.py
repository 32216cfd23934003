"""Where requests state arguments: examples for the reading model, from written requests and Seal-Tools.

None is from BFCL: its `simple_python` and `multiple` rows are what the gate of arguments is fitted on.

A value is found in its request (text as it stands, numbers by value), among the options of its argument, or not at
all: then the request says nothing of it. What can't be found though it should be there is no example.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from nexus_gateway.training.data import MCP, SEAL, WRITTEN, TrainingData, written_arguments
from nexus_gateway.turn.dates import dates
from nexus_gateway.turn.numbers import numbers
from tool_registry.index import CompiledTool
from tool_registry.question import Leaf, Question, leaves, question
from tool_registry.schema import properties

Extent = tuple[int, int]
"""Start and end of a part of a passage, in characters."""

_PLAIN = re.compile(r"[ ,./\-_*^]")
_CUT_SHARE = 0.12
"""Of the stated values, how many are also shown with their words cut out of the request: then nothing is said."""
_LISTED = 10
"""Arguments of a tool that the writers of arguments were shown, in the schema's order."""
_SILENT_SHARE = 0.6
"""Of the optional arguments that a request does not state, how many are shown."""


@dataclass(frozen=True, slots=True)
class ReadingExample:
    """A question, the passage it is asked of, and where the answer stands; nowhere where `found` is empty."""

    question: str
    passage: str
    found: tuple[Extent, ...]
    many: bool
    source: str


@dataclass(frozen=True, slots=True)
class _Statement:
    """A request for a tool, and for each argument its accepted values."""

    compiled: CompiledTool
    request: str
    arguments: Mapping[str, Any]
    source: str


def passage(request: str, options: Sequence[str]) -> tuple[str, list[Extent]]:
    """The request with the options after it, and where each of these stands."""
    pieces = [request, *(f" ; {option}" for option in options)]
    ends = list(accumulate(len(piece) for piece in pieces))
    extents = [(end - len(option), end) for end, option in zip(ends[1:], options, strict=True)]
    return "".join(pieces), extents


def reading_examples(folder: Path, data: TrainingData, *, seed: int) -> list[ReadingExample]:
    """All examples, by the folder of the public data and the tools that may be learned from."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    found: list[ReadingExample] = []
    for statement in _stated(folder, data):
        known = list(properties(statement.compiled.schema))[:_LISTED]
        for leaf in leaves(statement.compiled.schema):
            if statement.source != WRITTEN or leaf.path[0] in known:
                found += _examples(statement, leaf, rng)
    return found


def _stated(folder: Path, data: TrainingData) -> Iterator[_Statement]:
    for key, request, arguments in written_arguments():
        if key in data.pools[MCP]:
            one = {name: [value] for name, value in arguments.items()}
            yield _Statement(data.pools[MCP][key], request, one, WRITTEN)
    for row in _rows(folder / "sealtools_queries.jsonl"):
        tool = data.pools[SEAL].get(row["gold"][0])
        if tool is not None and isinstance(row["args"], dict):
            one = {name: [value] for name, value in row["args"].items()}
            yield _Statement(tool, row["query"], one, SEAL)


def _examples(statement: _Statement, leaf: Leaf, rng: random.Random) -> Iterator[ReadingExample]:
    request, source = statement.request, statement.source
    asked = question(statement.compiled.tool.id.name, leaf, request)
    text, options = passage(request, asked.options)
    accepted = _accepted(statement.arguments, leaf.path)
    if accepted is None:
        if leaf.needed or rng.random() < _SILENT_SHARE:
            yield ReadingExample(asked.text, text, (), asked.many, source)
        return
    for value in accepted:
        extents = _find(value, request, asked, options)
        if extents:
            yield ReadingExample(asked.text, text, tuple(extents), asked.many, source)
            if rng.random() < _CUT_SHARE and all(end <= len(request) for _, end in extents):
                cut, _ = passage(_without(request, extents), asked.options)
                yield ReadingExample(asked.text, cut, (), asked.many, source)
            return


def _accepted(arguments: Mapping[str, Any], path: tuple[str, ...]) -> Sequence[Any] | None:
    """Accepted values of a leaf; None where nothing is stated."""
    values: Sequence[Any] = arguments.get(path[0], ())
    for name in path[1:]:
        values = [value[name] for value in values if isinstance(value, Mapping) and name in value]
    return values or None


def _find(value: Any, request: str, asked: Question, options: Sequence[Extent]) -> list[Extent]:
    if isinstance(value, list):
        each = [_find(item, request, asked, options) for item in value]
        return [extent[0] for extent in each] if each and all(each) else []
    for known, extent in zip(asked.values, options, strict=True):
        same = str(known).lower() == str(value).lower()
        if same and isinstance(known, bool) == isinstance(value, bool):
            return [extent]
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [(number.start, number.end) for number in numbers(request) if number.value == value][:3]
    return _find_text(str(value), request)


def _find_text(value: str, request: str) -> list[Extent]:
    if not value.strip():
        return []
    pattern = rf"(?<!\w){re.escape(value.strip())}(?!\w)"
    if found := [match.span() for match in re.finditer(pattern, request, re.IGNORECASE)]:
        return found[:3]
    wanted = _PLAIN.sub("", value.lower())
    words = [match.span() for match in re.finditer(r"[^\s\"'()\[\],;:?!]+", request)]
    for first in range(len(words)):
        for last in range(first, min(first + 12, len(words))):
            start, end = words[first][0], words[last][1]
            part = request[start:end].rstrip(".")
            if wanted and _PLAIN.sub("", part.lower()) == wanted:
                return [(start, start + len(part))]
    if same := [found for one in dates(value)[:1] for found in dates(request) if found.value == one.value]:
        return [(same[0].start, same[0].end)]
    head = value.partition(",")[0].strip()
    return _find_text(head, request) if head and head != value.strip() else []


def _without(request: str, extents: Sequence[Extent]) -> str:
    for start, end in sorted(extents, reverse=True):
        request = request[:start].rstrip(" \"'") + " " + request[end:].lstrip(" \"'")
    return request.strip()


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
