"""The schema that the mask is built from: the tool's own, restated and made a little stricter. Pure functions on JSON.

A value under the decoding schema is one under the original. Objects that list their properties and are silent
on further ones take no further ones: JSON Schema allows them, but a model would invent them. Lengths are not
bounded here: the writer leaves any value in time (closing.py), and a bound would cut long arguments short.
What says nothing is left out, since the mask compiler refuses what it does not know.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose value holds schemas by name."""
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
"""Keywords whose value may list schemas; `items` did in older drafts."""
SINGLES = ("items", "additionalItems", "additionalProperties")
"""Keywords whose value may be one schema."""

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
    "dependencies",
)
"""Keywords that may list an object's properties in another place than `properties`."""

_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "idn-email", "hostname", "idn-hostname"),
        *("ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template"),
        *("json-pointer", "relative-json-pointer", "regex"),
    }
)
"""Those that JSON Schema 2020-12 defines; any other is an annotation."""
_ANNOTATIONS = frozenset({"title", "description", "$comment", "examples", "default"})


def decoding_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Restate a schema, close its objects, and drop instructions to the mask compiler that it may carry."""
    own = restated(schema)
    if any("allOf" in node or _adds_to_reference(node) for node in objects_in(own)):
        return own  # parts of a conjunction close each other out
    tight: dict[str, Any] = _tighten(own)
    return tight


def restated(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema without what constrains nothing: unknown formats, impossible alternatives and the like."""
    plain: dict[str, Any] = map_schemas(schema, _without_idle_keywords)
    return plain


def objects_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every JSON object inside a value, itself included, outer ones first."""
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from objects_in(item)


def map_schemas(node: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Change every subschema of a schema, inner ones first. Only where schemas stand: not in values or under `not`.

    Args:
        node: a schema; anything but an object is returned as it is.
        change: is given a shallow copy, which it may change.
    """
    if not isinstance(node, Mapping):
        return node
    made = dict(node)
    for key in MAPS:
        if isinstance(node.get(key), Mapping):
            made[key] = {name: map_schemas(part, change) for name, part in node[key].items()}
    for key in LISTS:
        if isinstance(node.get(key), list):
            made[key] = [map_schemas(part, change) for part in node[key]]
    for key in SINGLES:
        if isinstance(node.get(key), Mapping):
            made[key] = map_schemas(node[key], change)
    return change(made)


def _without_idle_keywords(node: dict[str, Any]) -> dict[str, Any]:
    node.pop("x-guidance", None)
    name = node.get("format")
    if isinstance(name, str) and name not in _FORMATS:
        del node["format"]
    if node.get("uniqueItems") is False:
        del node["uniqueItems"]
    if "propertyNames" in node and _accepts_every_name(node["propertyNames"]):
        del node["propertyNames"]
    for key in _BRANCHES:
        if isinstance(node.get(key), list):
            possible = [part for part in node[key] if not _is_impossible(part)]
            node[key] = possible or node[key]
    return node


def _accepts_every_name(schema: Any) -> bool:
    """Whether this says no more of a property's name than that it is a text, as all are."""
    if not isinstance(schema, Mapping):
        return schema is True
    return schema.get("type", "string") == "string" and not schema.keys() - _ANNOTATIONS - {"type"}


def _is_impossible(schema: Any) -> bool:
    """Whether nothing can match: `false`, or how some generators write an absent value: `{"not": {}}`."""
    if isinstance(schema, Mapping):
        return "not" in schema and (schema["not"] is True or schema["not"] == {})
    return schema is False


def _adds_to_reference(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("$ref"), str) and ("properties" in node or "required" in node)


def _tighten(node: Any) -> Any:
    if not isinstance(node, Mapping):
        return node
    tight = dict(node)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(node.get(key), Mapping):
            tight[key] = {name: _tighten(part) for name, part in node[key].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            tight[key] = _tighten(node[key])
    branches = () if "properties" in node else _BRANCHES
    for key in ("prefixItems", *branches):
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
