"""The schema that the mask is built from: the tool's own, made a little stricter. Pure functions on JSON.

A value under the decoding schema is one under the original. Objects that list their properties and are silent
on further ones take no further ones: JSON Schema allows them, but a model would invent them. Lengths are not
bounded here: the writer leaves any value in time (closing.py), and a bound would cut long arguments short.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_MAPS = ("properties", "$defs", "definitions")
_BRANCHES = ("anyOf", "oneOf")
_ELSEWHERE = (
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
    "if",
    "patternProperties",
    "unevaluatedProperties",
    "dependentSchemas",
)
"""Keywords that may list an object's properties in another place than `properties`."""


def decoding_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Close the objects of a schema, and drop instructions to the mask compiler that it may carry."""
    own = {key: value for key, value in schema.items() if key != "x-guidance"}
    if any("allOf" in node for node in objects_in(own)):
        return own  # parts of an allOf close each other out
    tight: dict[str, Any] = _tighten(own)
    return tight


def objects_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every JSON object inside a value, itself included, outer ones first."""
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from objects_in(item)


def _tighten(node: Any) -> Any:
    if not isinstance(node, Mapping):
        return node
    tight = dict(node)
    for key in _MAPS:
        if isinstance(node.get(key), Mapping):
            tight[key] = {name: _tighten(part) for name, part in node[key].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            tight[key] = _tighten(node[key])
    if "properties" not in node:
        for key in _BRANCHES:
            if isinstance(node.get(key), list):
                tight[key] = [_tighten(part) for part in node[key]]
    if _lists_all_properties(node):
        tight["additionalProperties"] = False
    return tight


def _lists_all_properties(node: Mapping[str, Any]) -> bool:
    properties, required = node.get("properties"), node.get("required", [])
    if not isinstance(properties, Mapping) or "additionalProperties" in node:
        return False
    if any(key in node for key in _ELSEWHERE):
        return False
    return isinstance(required, list) and all(name in properties for name in required)
