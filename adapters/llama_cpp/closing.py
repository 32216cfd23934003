"""The way out of a half-written JSON value: which tokens close it, without asking the model.

At each step the mask says what is allowed, and a rank says which of these ends the value soonest: closers,
then separators that a required part needs, then the smallest literals. Where a name or an enumerated string
is due, the schema's own texts go first. This is a greedy walk, not a search: it may miss a way out, it never
claims one that the mask does not allow.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.llama_cpp.decoding_schema import objects_in

NEVER = 1 << 20
_ANY = 1 << 16

_VALUES = (
    b'""}',
    b"{}",
    b'""',
    b"[]",
    b"0",
    b"null",
    b"false",
    b"true",
    *(b"%d" % digit for digit in range(1, 10)),
)
_COLONS = (b':""', b":[]", b":{}", b":")
_SHORT_FILLERS = b"@:/.-_TZ 0123456789aAbcdefghijklmnopqrstuvwxyz"
_ESCAPES = (b"n", b"\\", b'"')
_MAX_ENUMERATED = 32
_IN_NUMBERS = tuple(b"%c" % code for code in b"0123456789.")


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where in JSON the text ends.

    Attributes:
        string: what the open string holds so far; None outside strings.
        escaped: the last character was a backslash that escapes the next one.
        number: a number is open.
    """

    string: bytes | None = None
    escaped: bool = False
    number: bool = False

    def after(self, written: bytes) -> "Cursor":
        """The cursor once `written` is appended."""
        string, escaped = self.string, self.escaped
        for code in written:
            character = bytes((code,))
            if string is None:
                string = b"" if character == b'"' else None
            elif character == b'"' and not escaped:
                string = None
            else:
                escaped = character == b"\\" and not escaped
                string += character
        return Cursor(string, escaped, number=string is None and written[-1:] in _IN_NUMBERS)


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """For each token how well it closes, by where the cursor is; lower is better. Each of shape (vocabulary,).

    Attributes:
        outside: outside strings.
        short: inside, where a string that can't end yet is filled by single characters, separators first.
        long: inside, filled by the longest words.
        escaped: after a backslash.
        exponents: outside, whether a token starts an exponent in an open number. One such as 1E999 is JSON
            that no double holds, so these are avoided where there is another choice.
    """

    outside: NDArray[np.int32]
    short: NDArray[np.int32]
    long: NDArray[np.int32]
    escaped: NDArray[np.int32]
    exponents: NDArray[np.bool_]

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> "Ranks":
        """Rank a vocabulary, given as the bytes of each token; empty ones are control tokens."""
        exponents = np.array([piece[:1] in {b"e", b"E"} for piece in pieces])
        outside, short, long, escaped = (
            np.array([rank(piece) if piece else NEVER for piece in pieces], dtype=np.int32)
            for rank in (_outside, _short, _long, _escaped)
        )
        return cls(outside, short, long, escaped, exponents)


def _outside(piece: bytes) -> int:
    length = min(len(piece), 99)
    if piece[:1] in b"}]":
        return (0 if not piece.strip(b"}]") else 100) - length + 100
    if piece[:1] == b",":
        return 300 + _position(piece, (b',"', b","), length + 2)
    if piece in _COLONS:
        return 400 + _COLONS.index(piece)
    if piece in _VALUES:
        return 500 + _VALUES.index(piece)
    if piece[:1] == b'"':
        return 600 + length
    return 800 + length if piece[:1] in b"{[" else _ANY - length


def _short(piece: bytes) -> int:
    if piece[:1] == b'"':
        return _quote(piece)
    return (
        300 + _SHORT_FILLERS.index(piece) if len(piece) == 1 and piece in _SHORT_FILLERS else _inside(piece)
    )


def _long(piece: bytes) -> int:
    if piece[:1] == b'"':
        return _quote(piece)
    return 500 - min(len(piece), 99) if piece.isalnum() else _inside(piece)


def _quote(piece: bytes) -> int:
    length = min(len(piece), 99)
    return (0 if not piece[1:].strip(b"}]") else 200) + (100 - length if length > 1 else 99)


def _inside(piece: bytes) -> int:
    return _ANY + len(piece) + (1000 if b"\\" in piece else 0)


def _escaped(piece: bytes) -> int:
    return _position(piece, _ESCAPES, _ANY + len(piece))


def _position(piece: bytes, order: tuple[bytes, ...], otherwise: int) -> int:
    return order.index(piece) if piece in order else otherwise


@dataclass(frozen=True, slots=True)
class Literals:
    """Texts of a schema that a string may have to spell, as they stand between quotes.

    Attributes:
        names: required property names.
        enumerated: the shortest strings of enums and constants.
    """

    names: tuple[str, ...]
    enumerated: tuple[str, ...]

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> "Literals":
        """Collect them from all over a schema."""
        names: dict[str, None] = {}
        values: set[str] = set()
        for node in objects_in(schema):
            names.update(dict.fromkeys(_spellings(node.get("required"))))
            values.update(_spellings(node.get("enum")), _spellings([node.get("const")]))
        return cls(tuple(names), tuple(sorted(values, key=lambda text: (len(text), text))[:_MAX_ENUMERATED]))

    def endings(self, string: bytes) -> Iterator[str]:
        """What could follow an open string that holds `string`: the rest of a literal, and its quote."""
        for literals, end in ((self.names, '":'), (self.enumerated, '"')):
            for literal in literals:
                if literal.encode().startswith(string):
                    yield literal.encode()[len(string) :].decode("utf-8", "ignore") + end


def _spellings(texts: Any) -> Iterable[str]:
    if not isinstance(texts, list):
        return []
    return [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts if isinstance(text, str)]
