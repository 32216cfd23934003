"""The answer so far, as a schema: what is written already is constant in it, and one place is open.

A chat server can't be made to go on in the middle of a text. Asked for the whole answer under a schema that
allows one beginning only, its grammar writes that beginning, and the model sees it before it chooses: the same
as going on. Pure functions on JSON.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_HOLE: Final = "\ue000hole\ue000"  # private use: no beginning of an answer has it
_DEFINED: Final = "value"
_PUNCTUATION: Final = 16
"""Bytes for brackets and blanks that a server's grammar may put in."""
_CLOSERS: Final = {"{": "}", "[": "]"}
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords that hold values, not schemas."""
WRAPPER: Final = "value"
"""The one property of an answer whose beginning is nothing to build on."""


class NoValueError(ValueError):
    """An answer has nothing at the open place."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """One answer to ask for.

    Attributes:
        schema: of the whole answer, an object.
        path: where in the answer the open place is.
        known_bytes: of the answer, known beforehand; no tokenizer makes more tokens of them.
        unused: a beginning that the schema can't say.
    """

    schema: Mapping[str, Any]
    path: Path
    known_bytes: int
    unused: str = ""

    @classmethod
    def of(cls, begun: str, schema: Mapping[str, Any]) -> "Skeleton":
        """The answer that begins with `begun` and goes on with a value under `schema`."""
        parsed = _with_hole(begun)
        fits = isinstance(parsed, dict)
        value, definitions = _movable(schema)
        whole, path = _open(parsed if fits else {WRAPPER: _HOLE}, value)
        known = len((begun if fits else WRAPPER).encode("utf-8", "replace")) + _PUNCTUATION
        return cls({**whole, **definitions}, path, known, "" if fits else begun)

    def value_in(self, answer: Any) -> Any:
        """What stands at the open place of an answer. Raises NoValueError."""
        for part in self.path:
            try:
                answer = answer[part]
            except (LookupError, TypeError) as error:
                raise NoValueError(f"it has nothing at {self.place!r}") from error
        return answer

    @property
    def place(self) -> str:
        """The open place, for a message."""
        return ".".join(str(part) for part in self.path)


def _with_hole(begun: str) -> Any:
    """The parsed beginning with a mark at its end; None where it does not end before a value."""
    try:
        return json.loads(begun + json.dumps(_HOLE) + _closers(begun))
    except (ValueError, RecursionError):
        return None


def _closers(begun: str) -> str:
    closers: list[str] = []
    inside = escaped = False
    for character in begun:
        if inside:
            inside = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            inside = True
        elif character in _CLOSERS:
            closers.append(_CLOSERS[character])
        elif character in "}]" and closers:
            closers.pop()
    return "".join(reversed(closers))


def _open(node: Any, value: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """The schema of a node, and the way from it to the hole; a node without one is constant."""
    if node == _HOLE:
        return dict(value), ()
    if isinstance(node, dict) and node:
        name, last = list(node.items())[-1]
        if _holds_hole(last):
            inner, path = _open(last, value)
            properties = {key: {"const": done} for key, done in node.items()} | {name: inner}
            return _object(properties), (name, *path)
    if isinstance(node, list) and node and _holds_hole(node[-1]):
        inner, path = _open(node[-1], value)
        return _tuple([*({"const": done} for done in node[:-1]), inner]), (len(node) - 1, *path)
    return {"const": node}, ()


def _holds_hole(node: Any) -> bool:
    if isinstance(node, dict):
        return bool(node) and _holds_hole(list(node.values())[-1])
    if isinstance(node, list):
        return bool(node) and _holds_hole(node[-1])
    return bool(node == _HOLE)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _tuple(items: Sequence[Any]) -> dict[str, Any]:
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _movable(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """A schema that may stand inside another one, and what that one has to define for it.

    References count from the root, so a schema that has some becomes a definition there.
    """
    moved = _moved(schema)
    if moved == schema:
        return schema, {}
    return {"$ref": f"#/$defs/{_DEFINED}"}, {"$defs": {_DEFINED: moved}}


def _moved(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {key: part if key in _DATA else _moved_part(key, part) for key, part in node.items()}
    return [_moved(part) for part in node] if isinstance(node, list) else node


def _moved_part(key: str, part: Any) -> Any:
    if key == "$ref" and isinstance(part, str) and part.startswith("#"):
        return f"#/$defs/{_DEFINED}{part[1:]}"
    return _moved(part)
