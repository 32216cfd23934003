"""The compressed signature of a tool: one line that a small model reads instead of a JSON schema.

After the signatures of Nexus (arXiv 2608.20397): `name(p: type, opt?: type)`, required parameters first, no
descriptions. Written from plain schemas (`tool_registry.schema`); knows nothing of models and tokenizers.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tool_registry.schema import Schema, properties, required

MAX_ENUM_VALUES = 8
MAX_OPTIONAL = 40
"""Optional parameters shown."""
MAX_OBJECT_DEPTH = 2
"""Levels of nested objects written out."""
MAX_TYPE_CHARACTERS = 240
"""A parameter's longer type is written without its values and members."""
MAX_CHARACTERS = 4_000
"""Parameters are shown until their text is this long; required ones come first."""
MAX_DEFAULT_CHARACTERS = 40

_SHORT = {"boolean": "bool", "integer": "int"}
_PLAIN_NAME = re.compile(r"[\w./:@-]+")


def signature(name: str, schema: Mapping[str, Any]) -> str:
    """Write a tool's signature.

    Args:
        name: the tool's own name; JSON-quoted where it has spaces or brackets.
        schema: a plain object schema.
    """
    shown = name if _PLAIN_NAME.fullmatch(name) else _json(name)
    return f"{shown}({_members(schema, MAX_OBJECT_DEPTH)})"


def _members(schema: Mapping[str, Any], depth: int) -> str:
    known, needed = properties(schema), set(required(schema))
    optional = [name for name in known if name not in needed]
    texts = [_member(name, known[name], depth, optional=False) for name in known if name in needed]
    texts += [_member(name, known[name], depth, optional=True) for name in optional[:MAX_OPTIONAL]]
    kept = _within(texts, MAX_CHARACTERS)
    return ", ".join([*kept, "…"] if len(kept) < len(known) else kept)


def _within(texts: list[str], limit: int) -> list[str]:
    kept: list[str] = []
    used = 0
    for text in texts:
        used += len(text) + 2
        if used > limit and kept:
            break
        kept.append(text)
    return kept


def _member(name: str, schema: Schema, depth: int, *, optional: bool) -> str:
    label = name if name.isidentifier() else _json(name)
    written = _type(schema, depth)
    if len(written) > MAX_TYPE_CHARACTERS:
        written = _coarse_type(schema)
    return f"{label}{'?' if optional else ''}: {written}{_default(schema) if optional else ''}"


def _default(schema: Schema) -> str:
    """A scalar default; null is left out, being what an optional parameter says already."""
    value = schema.get("default")
    if not isinstance(value, str | int | float):
        return ""
    written = _json(value)
    return f" = {written}" if len(written) <= MAX_DEFAULT_CHARACTERS else ""


def _type(schema: Schema, depth: int) -> str:
    if "const" in schema:
        return _json(schema["const"])
    if "enum" in schema:
        return _values(schema["enum"])
    if "anyOf" in schema and not properties(schema):
        members = [_type(member, depth) for member in schema["anyOf"]]
        if known := [member for member in members if member != "any"]:
            return _either(known)
    return _either(_one_type(name, schema, depth) for name in _names(schema)) or "any"


def _one_type(name: str, schema: Schema, depth: int) -> str:
    if name == "array":
        return _array(schema, depth)
    if name == "object" and depth and properties(schema):
        return f"{{{_members(schema, depth - 1)}}}"
    return _SHORT.get(name, name)


def _array(schema: Schema, depth: int) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_type(sub, depth) for sub in schema['prefixItems'] if isinstance(sub, dict))}]"
    items = schema.get("items")
    written = _type(items, depth) if isinstance(items, dict) else "any"
    return f"({written})[]" if "|" in written and not written.startswith("{") else f"{written}[]"


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


def _values(values: list[Any]) -> str:
    shown = [_json(value) for value in values[:MAX_ENUM_VALUES]]
    return "|".join([*shown, "…"] if len(values) > MAX_ENUM_VALUES else shown)


def _either(types: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(types))
    return "|".join([*distinct[:MAX_ENUM_VALUES], "…"] if len(distinct) > MAX_ENUM_VALUES else distinct)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
