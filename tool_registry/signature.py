"""The compressed signature of a tool: one line that a model reads instead of a JSON schema.

After the signatures of Nexus (arXiv 2608.20397): `name(p: type, opt?: type = default)`, required parameters first,
types as in TypeScript: `"a"|"b"`, `string[]`, `{id: int, note?: string}`, with bounds (`int 1..100`), formats
(`date`, `uri`) and units where the schema has them. No descriptions: a tool's purpose stands beside its signature.
Written from plain schemas (`tool_registry.schema`); knows nothing of models and tokenizers.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tool_registry.schema import Schema, alternatives, properties, required
from tool_registry.signature_bounds import constraint

MAX_ENUM_VALUES = 12
MAX_ALTERNATIVES = 8
MAX_OPTIONAL = 40
"""Optional parameters shown."""
MAX_TYPE_CHARACTERS = 300
"""A parameter's type that is longer is written with less detail."""
MAX_CHARACTERS = 4_000
"""Parameters are shown until their text is this long; required ones come first."""
MAX_DEFAULT_CHARACTERS = 40

_SHORT = {"boolean": "bool", "integer": "int"}
_PLAIN_NAME = re.compile(r"[\w./:@-]+")


@dataclass(frozen=True, slots=True)
class _Detail:
    """How much of a type is written out.

    Attributes:
        depth: levels of nested objects.
        values: of an enum.
    """

    depth: int
    values: int

    @property
    def inner(self) -> "_Detail":
        return _Detail(self.depth - 1, self.values)


_DETAILS = (
    _Detail(4, MAX_ENUM_VALUES),
    _Detail(3, MAX_ENUM_VALUES),
    _Detail(2, MAX_ENUM_VALUES),
    _Detail(2, 4),
    _Detail(1, 4),
    _Detail(1, 0),
)
"""Tried in turn until a type is short enough; else it is `object`, `string` or the like."""


def signature(name: str, schema: Mapping[str, Any]) -> str:
    """Write a tool's signature.

    Args:
        name: the tool's own name; JSON-quoted where it has spaces or brackets.
        schema: a plain object schema.
    """
    shown = name if _PLAIN_NAME.fullmatch(name) else _json(name)
    known, needed = properties(schema), set(required(schema))
    optional = [name for name in known if name not in needed]
    texts = [_member(name, known[name], optional=False) for name in known if name in needed]
    texts += [_member(name, known[name], optional=True) for name in optional[:MAX_OPTIONAL]]
    kept = _within(texts, MAX_CHARACTERS)
    left = len(known) - len(kept)
    return f"{shown}({', '.join([*kept, f'… {left} more'] if left else kept)})"


def _within(texts: list[str], limit: int) -> list[str]:
    kept: list[str] = []
    used = 0
    for text in texts:
        used += len(text) + 2
        if used > limit and kept:
            break
        kept.append(text)
    return kept


def _member(name: str, schema: Schema, *, optional: bool) -> str:
    """A parameter, in the most detail that is short enough."""
    written = (_type(schema, detail) for detail in _DETAILS)
    text = next((text for text in written if len(text) <= MAX_TYPE_CHARACTERS), None)
    return _labelled(name, schema, text or _coarse_type(schema), optional=optional)


def _labelled(name: str, schema: Schema, written: str, *, optional: bool) -> str:
    label = name if name.isidentifier() else _json(name)
    return f"{label}{'?' if optional else ''}: {written}{_default(schema) if optional else ''}"


def _default(schema: Schema) -> str:
    """A default, short ones only. Null is left out, being what an optional parameter says already; so are `{}`, `[]`."""
    value = schema.get("default")
    if value is None or value in ([], {}):
        return ""
    written = _json(value)
    return f" = {written}" if len(written) <= MAX_DEFAULT_CHARACTERS else ""


def _object(schema: Mapping[str, Any], detail: _Detail) -> str:
    """The members of an object within one of the parameters."""
    known, needed = properties(schema), set(required(schema))
    order = sorted(known, key=lambda name: name not in needed)
    texts = [
        _labelled(name, known[name], _type(known[name], detail.inner), optional=name not in needed)
        for name in order[:MAX_OPTIONAL]
    ]
    left = len(order) - len(texts)
    return f"{{{', '.join([*texts, f'… {left} more'] if left else texts)}}}"


def _type(schema: Schema, detail: _Detail) -> str:
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return _values(schema["enum"], detail.values) or _coarse_type(schema)
    ways = alternatives(schema)
    if len(ways) > 1 and detail.depth and any(properties(way) for way in ways):
        null = ["null"] if _nullable(schema) else []
        return _either([*(_object(way, detail) for way in ways), *null])
    if "anyOf" in schema and not ways:
        members = [_type(member, detail) for member in schema["anyOf"]]
        if known := [member for member in members if member != "any"]:
            return _either(known)
    return _either(_one_type(name, schema, detail) for name in _names(schema)) or (
        _one_type("object", schema, detail) if ways else "any"
    )


def _nullable(schema: Schema) -> bool:
    return "null" in _names(schema) or any(_names(member) == ["null"] for member in schema.get("anyOf", ()))


def _one_type(name: str, schema: Schema, detail: _Detail) -> str:
    if name == "array":
        return _array(schema, detail)
    if name == "object":
        return _record(schema, detail)
    return constraint(name, schema) or _SHORT.get(name, name)


def _record(schema: Schema, detail: _Detail) -> str:
    """An object with its members; with the type of any member where they have no fixed names."""
    if not detail.depth:
        return "object"
    if properties(schema):
        return _object(schema, detail)
    named = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    types = [_type(sub, detail.inner) for sub in named if isinstance(sub, dict)]
    return f"{{[key]: {_either(types)}}}" if set(types) - {"any"} else "object"


def _array(schema: Schema, detail: _Detail) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_type(sub, detail) for sub in schema['prefixItems'] if isinstance(sub, dict))}]"
    items = schema.get("items")
    written = _type(items, detail) if isinstance(items, dict) else "any"
    apart = "|" in written or " " in written
    return (
        f"({written})[{_count(schema)}]"
        if apart and not _is_one_object(items)
        else f"{written}[{_count(schema)}]"
    )


def _is_one_object(schema: object) -> bool:
    return isinstance(schema, dict) and _names(schema) == ["object"] and len(alternatives(schema)) < 2  # noqa: PLR2004


def _count(schema: Schema) -> str:
    """How many items, where that is more than "some"."""
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if most is None:
        return f"{least}.." if least > 1 else ""
    return str(most) if least == most else f"{least}..{most}"


def _coarse_type(schema: Schema) -> str:
    """The type alone: `string` for a long enum, `object[]` for an array of large objects."""
    if "anyOf" in schema and not properties(schema):
        return _either(_coarse_type(member) for member in schema["anyOf"])
    if not _names(schema):
        return _either(_kind(value) for value in schema.get("enum", [schema.get("const", ...)]))
    return _either(_coarse_name(name, schema) for name in _names(schema))


def _coarse_name(name: str, schema: Schema) -> str:
    if name != "array":
        return _SHORT.get(name, name)
    inner = "|".join(_SHORT.get(item, item) for item in _names(schema.get("items"))) or "any"
    return f"({inner})[]" if "|" in inner else f"{inner}[]"


def _kind(value: object) -> str:
    kinds = {bool: "bool", int: "int", float: "number", str: "string", list: "any[]", dict: "object"}
    return "null" if value is None else kinds.get(type(value), "any")


def _names(schema: object) -> list[str]:
    types = schema.get("type", []) if isinstance(schema, Mapping) else []
    return [types] if isinstance(types, str) else list(types)


def _values(values: list[Any], most: int) -> str:
    """The values of an enum; of a long one the first, and how many more there are. Empty where none may be shown."""
    if len(values) == 2 and all(isinstance(value, bool) for value in values):  # noqa: PLR2004
        return "bool"
    shown = [_json(value) for value in values[:most]]
    left = len(values) - len(shown)
    return "|".join([*shown, f"… {left} more"] if left and shown else shown)


def _either(types: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(types))
    left = len(distinct) - MAX_ALTERNATIVES
    return "|".join([*distinct[:MAX_ALTERNATIVES], f"… {left} more"] if left > 0 else distinct)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
