"""Whether arguments are right, by the rules of the Berkeley function calling leaderboard (BFCL).

    no unknown parameter; each required one present;
    a value equals one of its alternatives: texts after lower-casing and without spaces and `,./-_*^`, an integer
    for a float but not the reverse, lists element by element, objects key by key;
    a parameter may be absent only if "" is among its alternatives.

Knows values and plain schemas; knows no file, tool or model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tool_registry.schema import properties, required

DROPPED = " ,./-_*^"
_DROP = str.maketrans("", "", DROPPED)

ABSENT = ""
"""Among alternatives: the parameter may be left out."""


class Gold(Protocol):
    """What the arguments of a request should be."""

    @property
    def stated(self) -> Mapping[str, Sequence[Any]]:
        """The arguments that must be there, each with the values that are right."""
        ...

    def accepts(self, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        """Whether whole arguments are exactly right; `schema` is the tool's plain one."""
        ...

    def accepts_one(self, name: str, value: Any, schema: Mapping[str, Any]) -> bool:
        """Whether one argument is."""
        ...

    def values(self) -> Iterator[Any]:
        """Every text, number and boolean in it, however deep."""
        ...


@dataclass(frozen=True, slots=True)
class AcceptedArguments:
    """A `Gold` of alternatives, as BFCL's: parameter -> the values that are right."""

    alternatives: Mapping[str, Sequence[Any]]

    @property
    def stated(self) -> Mapping[str, Sequence[Any]]:
        """The parameters that may not be absent."""
        return {name: values for name, values in self.alternatives.items() if ABSENT not in values}

    def accepts(self, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        """Whether all of it is right."""
        known = properties(schema)
        return (
            all(name in known for name in arguments)
            and all(name in arguments for name in required(schema))
            and _object(arguments, self.alternatives, schema)
        )

    def accepts_one(self, name: str, value: Any, schema: Mapping[str, Any]) -> bool:
        """Whether the value is one of the alternatives."""
        return _one_of(value, self.alternatives.get(name, ()), properties(schema).get(name, {}))

    def values(self) -> Iterator[Any]:
        """Those of all alternatives."""
        return leaves(list(self.alternatives.values()))


def normalised(text: str) -> str:
    """A text as it is compared."""
    return text.lower().translate(_DROP)


def leaves(value: Any) -> Iterator[Any]:
    """The scalars in a JSON value, in order."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def is_number(value: object) -> bool:
    """Whether a JSON value is a number; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _one_of(value: Any, alternatives: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    return any(_equal(value, wanted, schema) for wanted in alternatives)


def _equal(value: Any, wanted: Any, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, str) and isinstance(wanted, str):
        return normalised(value) == normalised(wanted)
    if is_number(value) and is_number(wanted):
        return bool(value == wanted) and not (isinstance(value, float) and _is_integer(schema))
    if isinstance(value, list) and isinstance(wanted, list):
        items = schema.get("items")
        part = items if isinstance(items, dict) else {}
        return len(value) == len(wanted) and all(
            _equal(one, other, part) for one, other in zip(value, wanted, strict=True)
        )
    if isinstance(value, Mapping) and isinstance(wanted, Mapping):
        return _object(value, wanted, schema)
    return type(value) is type(wanted) and bool(value == wanted)


def _object(value: Mapping[str, Any], wanted: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Key by key; each key of `wanted` has a list of alternatives."""
    known = properties(schema)
    return all(
        name in wanted and _one_of(part, _alternatives(wanted[name]), known.get(name, {}))
        for name, part in value.items()
    ) and all(name in value or ABSENT in _alternatives(wanted[name]) for name in wanted)


def _alternatives(listed: Any) -> Sequence[Any]:
    return listed if isinstance(listed, list) else [listed]


def _is_integer(schema: Mapping[str, Any]) -> bool:
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types or []
    return "integer" in names and "number" not in names
