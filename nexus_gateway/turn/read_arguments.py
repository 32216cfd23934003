"""What request and context state for the arguments of one tool, as the reading model finds it.

Knows the tool's schema and the model's answers (`turn/reading.py` makes values of them); decides which argument gets
a part of the text that two claim, and puts nested objects together. Fills in nothing that no text states.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from adapters.reading_port import ArgumentReader, Reading, ReadingQuestion
from nexus_gateway.turn.assignment import LeafOptions, assign
from nexus_gateway.turn.places import written_place
from nexus_gateway.turn.reading import Stated, StatedText, candidates
from nexus_gateway.turn.result import Ground, GroundKind
from nexus_gateway.turn.shapes import misshapen
from nexus_gateway.turn.sources import Option
from nexus_gateway.turn.validation import accepts
from tool_registry.index import CompiledTool
from tool_registry.question import Leaf, Question, leaves, main_type, question
from tool_registry.schema import required

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadArguments:
    """Values by path.

    Attributes:
        asked: the leaves that were asked for.
        found: those that are stated.
        nothing: the model's probability that a leaf is not stated, by path.
    """

    asked: Mapping[Path, Leaf] = field(default_factory=dict)
    found: Mapping[Path, Stated] = field(default_factory=dict)
    nothing: Mapping[Path, float] = field(default_factory=dict)

    def covers(self, name: str, schema: Mapping[str, Any]) -> bool:
        """Whether the model can say all there is to say about an argument."""
        if "const" in schema:
            return False
        if main_type(schema) != "object":
            return (name,) in self.asked
        members = [path for path in self.asked if path[0] == name]
        return bool(members) and all(
            any(path[1] == member for path in members) for member in required(schema)
        )

    def option(self, name: str, schema: Mapping[str, Any]) -> Option | None:
        """The value of an argument, an object's with the members that are stated; None where nothing is."""
        parts = {path[1:]: value for path, value in self.found.items() if path[0] == name}
        if () in parts:
            return Option(parts[()].value, parts[()].ground)
        if not parts or main_type(schema) != "object":
            return None
        return Option(_nested(parts), Ground(next(iter(parts.values())).ground.kind, _texts(parts)))

    def evidence(self) -> dict[str, float]:
        """What is known of how sure the values are; natural logarithms of the model's probabilities."""
        taken = [(self.asked[path], value) for path, value in self.found.items()]
        left = [
            self.nothing[path]
            for path, leaf in self.asked.items()
            if path not in self.found and not leaf.needed
        ]
        logs = [_log(value.probability) for _, value in taken]
        silences = [_log(nothing) for nothing in left]
        return {
            "taken": sum(logs),
            "least_taken": min(logs, default=0.0),
            "left_out": sum(silences),
            "least_left_out": min(silences, default=0.0),
            "optional": float(sum(not leaf.needed for leaf, _ in taken)),
            "lists": float(sum(isinstance(value.value, list) for _, value in taken)),
            "converted": float(sum(_converted(value) for _, value in taken)),
            "misshapen": float(sum(misshapen(leaf.schema, value.value) for leaf, value in taken)),
        }


def _converted(value: Stated) -> bool:
    """Whether the value is written otherwise than the text has it."""
    return bool(value.extents) and not isinstance(value.value, list) and str(value.value) != value.ground.text


def _log(probability: float) -> float:
    return math.log(max(probability, 1e-6))


async def read_arguments(
    reader: ArgumentReader, compiled: CompiledTool, request: str, context: str, clock: date
) -> ReadArguments:
    """Ask the request for every leaf, and the context for the required ones it does not state.

    `clock` is today's date, for "tomorrow". Raises ModelError.
    """
    asked = {leaf.path: leaf for leaf in leaves(compiled.schema)}
    first = await _read(
        reader, compiled, list(asked.values()), StatedText.of(request, GroundKind.SPAN, clock)
    )
    left = [leaf for path, leaf in asked.items() if leaf.needed and path not in first.found]
    if not (context and left):
        return first
    second = await _read(reader, compiled, left, StatedText.of(context, GroundKind.CONTEXT, clock))
    return ReadArguments(asked, {**first.found, **second.found}, {**first.nothing, **second.nothing})


async def _read(
    reader: ArgumentReader, compiled: CompiledTool, wanted: Sequence[Leaf], text: StatedText
) -> ReadArguments:
    questions = [question(compiled.tool.id.name, leaf, text.text) for leaf in wanted]
    put = [ReadingQuestion(one.text, one.options) for one in questions]
    readings = await reader.read(text.text, put)
    triples = list(zip(wanted, questions, readings, strict=True))
    nothing = {leaf.path: reading.nothing for leaf, _, reading in triples}
    return ReadArguments({leaf.path: leaf for leaf in wanted}, _assigned(triples, text), nothing)


def _assigned(triples: Sequence[tuple[Leaf, Question, Reading]], text: StatedText) -> dict[Path, Stated]:
    """Each leaf's value, what several claim given to one of them."""
    options = [
        LeafOptions(leaf, reading.nothing, candidates(leaf, asked, reading, text))
        for leaf, asked, reading in triples
    ]
    return {
        one.leaf.path: _placed(one.leaf, value)
        for one, value in zip(options, assign(options), strict=True)
        if value is not None
    }


def _placed(leaf: Leaf, value: Stated) -> Stated:
    """The value, a place among others written as its tool wants places."""
    place = written_place(leaf.schema, value.value)
    return value if place is None or not accepts(leaf.schema, place) else replace(value, value=place)


def _nested(parts: Mapping[Path, Stated]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for path, value in parts.items():
        here = whole
        for name in path[:-1]:
            here = here.setdefault(name, {})
        here[path[-1]] = value.value
    return whole


def _texts(parts: Mapping[Path, Stated]) -> str:
    return ", ".join(value.ground.text for value in parts.values())[:200]
