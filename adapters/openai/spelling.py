"""Schemas for servers whose grammar compiler can't spell every literal. Pure functions on JSON.

llama-cpp-python writes a constant's JSON into its grammar without escaping backslashes. A constant with a quote,
a backslash or a line break then makes a grammar that does not parse, and the server's process dies of it. So such
a constant is sent as its type alone, and patterns are not sent at all; the answer is checked here anyway.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from adapters.llama_cpp.decoding_schema import map_schemas

_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (str, "string"),
    (int, "integer"),
    (float, "number"),
    (dict, "object"),
    (list, "array"),
    (type(None), "null"),
)
_UNSPELLABLE = re.compile(r"\\(?!u)|\\ud[89a-f]", re.IGNORECASE)
"""In JSON of ASCII characters: an escape, unless it is of one character outside ASCII that fits 16 bits."""


class UnspellableError(ValueError):
    """A property's name can't be spelled, and leaving it out would change what is asked for."""


def spellable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema, wider where it has to be. Raises UnspellableError."""
    wider: dict[str, Any] = map_schemas(schema, _spellable)
    return wider


def _spellable(node: dict[str, Any]) -> dict[str, Any]:
    node.pop("pattern", None)
    for name in node.get("properties", ()):
        if not _can_spell(name):
            raise UnspellableError(f"a grammar can't spell the property {name!r}")
    for key, values in (("const", [node.get("const")]), ("enum", node.get("enum"))):
        if key in node and isinstance(values, list) and not all(map(_can_spell, values)):
            del node[key]
            node["type"] = _type_of(values)
    return node


def _can_spell(value: Any) -> bool:
    return _UNSPELLABLE.search(json.dumps(value)) is None


def _type_of(values: list[Any]) -> str | list[str]:
    names = {next(name for kind, name in _TYPES if isinstance(value, kind)) for value in values}
    return sorted(names) if len(names) > 1 else names.pop()
