"""Two plain schemas put into one, types, and the values of an enum.

Knows the plain language of `tool_registry.schema`; knows nothing of how a listed schema is read.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_ALIASES = {
    "int": "integer",
    "float": "number",
    "double": "number",
    "str": "string",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
}
_ANY = "any"
_SPELLED_FLAGS = {"true": True, "false": False}
_MOST_DIGITS = 15
"""Of a spelled number: a double holds as many."""


def known_types(value: object) -> list[str]:
    """The JSON types that a `type` names, misspelled ones mended; none where it allows any."""
    names = value if isinstance(value, list) else [value]
    lowered = [name.lower() for name in names if isinstance(name, str)]
    if _ANY in lowered:
        return []
    known = [_ALIASES.get(name, name) for name in lowered]
    return list(dict.fromkeys(name for name in known if name in TYPES))


def as_type(names: list[str]) -> str | list[str]:
    """How types are written: one alone, or a list."""
    return names[0] if len(names) == 1 else names


def type_list(plain: Mapping[str, Any]) -> list[str]:
    """The types a plain schema states."""
    return known_types(plain.get("type"))


def merge(first: Schema, second: Schema) -> Schema:
    """Both at once. Where two keywords can't be put into one, the first wins."""
    merged = dict(first)
    for key, theirs in second.items():
        if key in merged:
            merged[key] = _COMBINED[key](merged[key], theirs) if key in _COMBINED else merged[key]
        else:
            merged[key] = theirs
    return merged


def _both_types(ours: str | list[str], theirs: str | list[str]) -> str | list[str]:
    first, second = known_types(ours), known_types(theirs)
    common = [name for name in first if name in second or (name == "integer" and "number" in second)]
    if "number" in first and "integer" in second and "integer" not in common:
        common.append("integer")
    return as_type(common) if common else ours


def _both_required(ours: list[str], theirs: list[str]) -> list[str]:
    return list(dict.fromkeys([*ours, *theirs]))


def _both_enums(ours: list[Any], theirs: list[Any]) -> list[Any]:
    keys = {value_key(value) for value in theirs}
    return [value for value in ours if value_key(value) in keys] or ours


def _both_properties(ours: Schema, theirs: Schema) -> Schema:
    shared = {name: _both_schemas(ours[name], theirs[name]) for name in ours if name in theirs}
    return {**ours, **theirs, **shared}


def _both_schemas(ours: Schema | bool, theirs: Schema | bool) -> Schema | bool:
    return merge(ours, theirs) if isinstance(ours, dict) and isinstance(theirs, dict) else False


_COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
    **dict.fromkeys(("properties", "patternProperties"), _both_properties),
    **dict.fromkeys(("items", "additionalProperties"), _both_schemas),
    "type": _both_types,
    "required": _both_required,
    "enum": _both_enums,
}


def value_key(value: object) -> object:
    """Equal for equal scalars, apart for others; in JSON, unlike in Python, `true` is not 1."""
    if isinstance(value, Mapping | list):
        return (Mapping, id(value))
    return (isinstance(value, bool), value)


def with_fitting_enum(plain: Schema) -> Schema:
    """An enum without values that the type rules out.

    Where it rules out all, the server means something else than it says: values spelled as texts are read ("2",
    "True"), values beside `type: array` are those of its items, and otherwise the enum is dropped.
    """
    stated = type_list(plain)
    if "enum" not in plain or not stated:
        return plain
    values = plain["enum"]
    fitting = [value for value in values if _fits(value, stated)]
    if len(fitting) == len(values):
        return plain
    others = {key: value for key, value in plain.items() if key != "enum"}
    if not fitting and stated == ["array"]:
        items = plain.get("items", {})
        inner = with_fitting_enum(merge(items if isinstance(items, dict) else {}, {"enum": values}))
        return {**others, "items": inner}
    fitting = fitting or [read for value in values for read in _read(value) if _fits(read, stated)]
    return {**others, "enum": fitting} if fitting else others


def _fits(value: object, stated: Iterable[str]) -> bool:
    kind = _kind(value)
    if kind == "number" and isinstance(value, float) and value.is_integer() and "integer" in stated:
        return True
    return kind in stated or (kind == "integer" and "number" in stated)


def _kind(value: object) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return "null" if value is None else kinds.get(type(value), "object")


def _read(value: object) -> Iterable[object]:
    """What a text spells: a flag or a number."""
    if not isinstance(value, str) or len(value) > _MOST_DIGITS:
        return
    if value.lower() in _SPELLED_FLAGS:
        yield _SPELLED_FLAGS[value.lower()]
        return
    try:
        number = float(value)
    except ValueError:
        return
    if math.isfinite(number):
        yield int(number) if number.is_integer() else number
