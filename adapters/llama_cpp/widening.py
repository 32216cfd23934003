"""What a mask can't say of a schema is left out, step by step, each step with its name. Pure functions on JSON.

A widened schema accepts all that the listed one does, so that a value under it has still to be checked against
the listed one. Knows which keywords masks are known to lack, not how a mask is made: it is told by `fault`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from adapters.llama_cpp.decoding_schema import map_schemas, restated
from tool_registry.schema import normalise

Fault: TypeAlias = Callable[[Mapping[str, Any]], str]
"""Why a schema has no mask; empty where it has one."""

NO_SCHEMA = "no schema"
MALFORMED = "malformed"
CONTRADICTION = "contradiction"
REFERENCE = "reference"
SHAPE = "shape"
"""The last resort: the type alone is left."""

UNSPOKEN = (
    *("not", "propertyNames", "uniqueItems", "contains", "dependencies", "dependentRequired"),
    *("dependentSchemas", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "if"),
)
"""Keywords that no mask expresses; each is a reason of its own."""
_WITH = {"if": ("then", "else"), "contains": ("minContains", "maxContains")}

_BOUNDS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    }
)
_NAMED_FAULTS = (
    ("Unsatisfiable", CONTRADICTION),
    ("Resource", REFERENCE),
    ("Pointer", REFERENCE),
    ("Anchor", REFERENCE),
)


@dataclass(frozen=True, slots=True)
class Widened:
    """A schema that has a mask.

    Attributes:
        reasons: what was left out of the listed one, in order; empty where nothing was.
    """

    schema: Mapping[str, Any]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    reason: str
    change: Callable[[Any], Any]


def widened(schema: object, fault: Fault) -> Widened:
    """Widen a schema by as little as gives it a mask: one step alone, then the first few together, then all but the type.

    Args:
        schema: an input schema as it was listed, or any value in its place.
        fault: tells whether a schema has a mask. Never raises for one of plain JSON.
    """
    if not isinstance(schema, Mapping):
        return Widened({"type": "object"}, (NO_SCHEMA if schema is None else MALFORMED,))
    try:
        found = _stepwise(restated(schema), fault)
    except RecursionError:
        found = None
    return found or Widened(_shape(schema), (SHAPE,))


def _stepwise(own: Mapping[str, Any], fault: Fault) -> Widened | None:
    first = fault(own)
    if not first:
        return Widened(own, ())
    steps = _steps(own, fault, first)
    for chain in _chains(steps):
        candidate, reasons = _taken(own, chain)
        if reasons and not fault(candidate):
            return Widened(candidate, reasons)
    return None


def _chains(steps: Sequence[_Step]) -> Iterator[Sequence[_Step]]:
    yield from ([step] for step in steps)
    yield from (steps[:count] for count in range(2, len(steps) + 1))


def _taken(schema: Mapping[str, Any], steps: Sequence[_Step]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    reasons: list[str] = []
    for step in steps:
        changed = step.change(schema)
        if changed != schema:
            schema = changed
            reasons.append(step.reason)
    return schema, tuple(dict.fromkeys(reasons))


def _steps(own: Mapping[str, Any], fault: Fault, first: str) -> list[_Step]:
    """From what says least about a value to what says most."""

    def refused(node: Mapping[str, Any], key: str) -> bool:
        return key in node and bool(fault({"type": "string", key: node[key]}))

    used = _keywords(own)
    return [
        _dropping("pattern", lambda node: ["pattern"] if refused(node, "pattern") else []),
        _dropping("format", lambda node: ["format"] if refused(node, "format") else []),
        *(
            _dropping(key, lambda _node, key=key: (key, *_WITH.get(key, ())))  # type: ignore[misc]
            for key in UNSPOKEN
            if key in used
        ),
        _dropping("bounds", lambda _node: _BOUNDS),
        _Step("oneOf", lambda schema: map_schemas(schema, _any_of_one_of)),
        _Step("patternProperties", lambda schema: map_schemas(schema, _any_properties)),
        _Step(_named(first), _plain),
    ]


def _keywords(schema: Mapping[str, Any]) -> set[str]:
    """Those of all its subschemas."""
    used: set[str] = set()

    def note(node: dict[str, Any]) -> dict[str, Any]:
        used.update(node)
        return node

    map_schemas(schema, note)
    return used


def _dropping(reason: str, keys: Callable[[Mapping[str, Any]], Any]) -> _Step:
    def without(node: dict[str, Any]) -> dict[str, Any]:
        dropped = set(keys(node))
        return {key: value for key, value in node.items() if key not in dropped}

    return _Step(reason, lambda schema: map_schemas(schema, without))


def _any_of_one_of(node: dict[str, Any]) -> dict[str, Any]:
    """Exactly one becomes any; where there is an `anyOf` too, that one is kept."""
    one = node.pop("oneOf", None)
    return {"anyOf": one, **node} if isinstance(one, list) else node


def _any_properties(node: dict[str, Any]) -> dict[str, Any]:
    if "patternProperties" in node:
        del node["patternProperties"]
        node.pop("additionalProperties", None)
    return node


def _named(fault: str) -> str:
    return next((reason for start, reason in _NAMED_FAULTS if fault.startswith(start)), MALFORMED)


def _plain(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """References inlined, what is malformed left out. It makes an object schema of any, so others are left alone."""
    return normalise(schema) if _shape(schema) == {"type": "object"} else schema


def _shape(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The type alone: an object, where the schema doesn't say otherwise."""
    declared = schema.get("type", "object")
    known = ("null", "boolean", "integer", "number", "string", "array", "object")
    if declared in known if isinstance(declared, str) else False:
        return {"type": declared}
    return (
        {} if "type" in schema or schema.keys() & {"enum", "const", "anyOf", "oneOf"} else {"type": "object"}
    )
