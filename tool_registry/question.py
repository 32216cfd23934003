"""What a request is asked for each argument of a tool, as a reading model sees it.

Knows plain schemas; knows no model, no tokenizer and no request but for the words it has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tool_registry.schema import Schema, properties, required
from tool_registry.text import identifier_words, split_words

MAX_DEPTH = 3
"""Levels of objects whose members are asked for one by one."""
MAX_LEAVES = 32
MAX_OPTIONS = 10
"""Values of an enum that are shown; of longer ones those that share most words with the request."""
OPTION_CHARACTERS = 40
DESCRIPTION_CHARACTERS = 110
YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class Leaf:
    """An argument that holds a scalar or a list of scalars.

    Attributes:
        path: names from the top to it.
        needed: whether each name on the path is required.
    """

    path: tuple[str, ...]
    schema: Schema
    needed: bool


@dataclass(frozen=True, slots=True)
class Question:
    """One argument, asked of a request.

    Attributes:
        text: what it is.
        values: its possible values, where a schema lists them; `True`, `False` for a boolean.
        options: how they are written, in the same order.
        many: whether it takes a list.
    """

    text: str
    values: tuple[Any, ...] = ()
    options: tuple[str, ...] = field(default=())
    many: bool = False


def main_type(schema: Mapping[str, Any]) -> str:
    """The schema's type other than null; the first branch's where it has several; "string" where it says none."""
    declared = schema.get("type")
    if isinstance(declared, list):
        declared = next((name for name in declared if name != "null"), None)
    if isinstance(declared, str):
        return declared
    for branch in [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        if isinstance(branch, Mapping) and branch.get("type") not in (None, "null"):
            return main_type(branch)
    return "object" if "properties" in schema else "string"


def leaves(schema: Mapping[str, Any]) -> list[Leaf]:
    """The arguments of a plain object schema that can be asked for; at most `MAX_LEAVES`, required ones first."""
    found = sorted(_leaves(schema, (), needed=True), key=lambda leaf: not leaf.needed)
    return found[:MAX_LEAVES]


def _leaves(schema: Mapping[str, Any], path: tuple[str, ...], *, needed: bool) -> Iterator[Leaf]:
    wanted = set(required(schema))
    for name, sub in properties(schema).items():
        here, has_to = (*path, name), needed and name in wanted
        if main_type(sub) == "object":
            if len(here) < MAX_DEPTH:
                yield from _leaves(sub, here, needed=has_to)
        elif not (main_type(sub) == "array" and main_type(_items(sub)) in ("object", "array")):
            yield Leaf(here, sub, has_to)


def question(tool_name: str, leaf: Leaf, request: str) -> Question:
    """What to ask for a leaf."""
    many = main_type(leaf.schema) == "array"
    one = _items(leaf.schema) if many else leaf.schema
    values = _values(one, request)
    options = tuple(_written(value) for value in values)
    kind = "one of" if values and main_type(one) != "boolean" else _KINDS.get(main_type(one), "text")
    words = " ".join(word for name in leaf.path for word in identifier_words(name)).lower()
    described = leaf.schema.get("description")
    parts = [
        f"{words}:",
        " ".join(described.split())[:DESCRIPTION_CHARACTERS] if isinstance(described, str) else "",
        f"({'list of ' if many else ''}{kind}; {'needed' if leaf.needed else 'optional'})",
        " ".join(identifier_words(tool_name)).lower(),
    ]
    return Question(" ".join(part for part in parts if part), values, options, many)


_KINDS = {"integer": "number", "number": "number", "boolean": "yes or no"}


def _items(schema: Schema) -> Schema:
    items = schema.get("items")
    return dict(items) if isinstance(items, Mapping) else {}


def _values(schema: Schema, request: str) -> tuple[Any, ...]:
    if main_type(schema) == "boolean" and "enum" not in schema:
        return (True, False)
    values = [value for value in schema.get("enum", ()) if isinstance(value, str | int | float)]
    if len(values) > MAX_OPTIONS:
        said = set(split_words(request))
        values.sort(key=lambda value: -len(said & set(split_words(str(value)))))
    return tuple(values[:MAX_OPTIONS])


def _written(value: object) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return str(value)[:OPTION_CHARACTERS]
