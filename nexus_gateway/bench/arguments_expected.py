"""Whether arguments are right for a request to an MCP server whose own tests say what they should be.

    exact     equal, nothing more
    subset    what is expected is there, further arguments are allowed
    matcher   equal, but for the parts that a matcher stands for: {"__matcher": "anyOf", "value": [...]}

Texts are compared as they are: identifiers and names of collections have a case. Arguments that no request states
are left out on both sides, by their path: `projectId`, `filter.id`, `services[].id`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nexus_gateway.bench.arguments_scoring import is_number, leaves

Kind = Literal["exact", "subset", "matcher"]
MATCHER = "__matcher"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class ExpectedArguments:
    """A `Gold` of one object.

    Attributes:
        arguments: those that are expected; for a matcher, the literal part.
        left_out: paths that don't count.
        pattern: for a matcher the arguments with matchers in them, where they are known.
    """

    arguments: Mapping[str, Any]
    kind: Kind
    left_out: Sequence[str] = ()
    pattern: Mapping[str, Any] | None = field(default=None)

    @property
    def stated(self) -> Mapping[str, Sequence[Any]]:
        """The arguments that count."""
        return {name: [value] for name, value in without(self.arguments, self.left_out).items()}

    def accepts(self, arguments: Mapping[str, Any], _schema: Mapping[str, Any]) -> bool:
        """Whether all of it is right."""
        given = without(arguments, self.left_out)
        if self.kind == "matcher" and self.pattern is not None:
            return _fits(given, without(self.pattern, self.left_out))
        expected = without(self.arguments, self.left_out)
        return _fits(given, expected) if self.kind == "exact" else _holds(given, expected)

    def accepts_one(self, name: str, value: Any, _schema: Mapping[str, Any]) -> bool:
        """Whether one argument is; for a matcher, in its literal part."""
        given, expected = (
            without({name: each}, self.left_out) for each in (value, self.arguments.get(name, _ABSENT))
        )
        return _fits(given, expected) if self.kind == "exact" else _holds(given, expected)

    def values(self) -> Iterator[Any]:
        """Those of the expected arguments and of the matchers."""
        return leaves([self.arguments, self.pattern or {}])


def without(arguments: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    """The arguments less the parts at these paths; `[]` stands for each item of a list."""
    left = dict(arguments)
    for path in paths:
        left = _dropped(left, path.replace("[]", ".[]").split("."))
    return left


def _dropped(value: Any, path: Sequence[str]) -> Any:
    first, rest = path[0], path[1:]
    if first == "[]" and isinstance(value, list):
        return [_dropped(item, rest) for item in value] if rest else []
    if not isinstance(value, Mapping) or first not in value:
        return value
    if not rest:
        return {name: part for name, part in value.items() if name != first}
    return {name: _dropped(part, rest) if name == first else part for name, part in value.items()}


def _holds(value: Any, expected: Any) -> bool:
    """Whether `value` has all that is expected; objects may have more."""
    if isinstance(value, Mapping) and isinstance(expected, Mapping):
        return all(name in value and _holds(value[name], part) for name, part in expected.items())
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_holds, value, expected))
    return _same(value, expected)


def _fits(value: Any, pattern: Any) -> bool:
    """Whether `value`, or its absence, is what a pattern describes; a pattern without matchers is a value."""
    if isinstance(pattern, Mapping) and MATCHER in pattern:
        return _matches(value, pattern[MATCHER], pattern.get("value"))
    if isinstance(value, Mapping) and isinstance(pattern, Mapping):
        return all(_fits(value.get(name, _ABSENT), pattern.get(name, _ABSENT)) for name in {*value, *pattern})
    if isinstance(value, list) and isinstance(pattern, list):
        return len(value) == len(pattern) and all(map(_fits, value, pattern))
    return _same(value, pattern)


def _same(value: Any, expected: Any) -> bool:
    if is_number(value) and is_number(expected):
        return bool(value == expected)
    return type(value) is type(expected) and bool(value == expected)


def _matches(value: Any, matcher: object, operand: Any) -> bool:
    """One matcher; one that isn't known here accepts nothing."""
    known = _MATCHERS.get(str(matcher))
    return known is not None and known(value, operand)


def _one_of(value: Any, patterns: Any) -> bool:
    return any(_fits(value, pattern) for pattern in patterns)


def _alone_or_listed(value: Any, pattern: Any) -> bool:
    return _fits(value, pattern) or (isinstance(value, list) and len(value) == 1 and _fits(value[0], pattern))


_MATCHERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "anyValue": lambda value, _: value is not _ABSENT,
    "undefined": lambda value, _: value is _ABSENT,
    "emptyObjectOrUndefined": lambda value, _: value is _ABSENT or value == {},
    "string": lambda value, _: isinstance(value, str),
    "number": lambda value, _: is_number(value),
    "boolean": lambda value, wanted: isinstance(value, bool) and wanted in (None, value),
    "caseInsensitiveString": lambda value, text: (
        isinstance(value, str) and value.lower() == str(text).lower()
    ),
    "value": _fits,
    "not": lambda value, pattern: not _fits(value, pattern),
    "anyOf": _one_of,
    "arrayOrSingle": _alone_or_listed,
}
