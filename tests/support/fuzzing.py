"""Seeded malformed JSON-RPC. Uses the standard library alone, since servers under `tests/servers` use it too."""

import copy
import json
import random

DEPTHS = (30, 150, 198, 260, 900, 3_000)
LONG = 50_000
NUMBERS = (
    "1e400",
    "-1E999",
    "NaN",
    "-Infinity",
    "9" * 400,
    "-" + "9" * 5_000,
    "1e-999",
    "-0.0",
    "0" * 20,
    "1.5e3",
)
STRINGS = (
    "",
    "\x00",
    "\u2028",
    "\U0001f680" * 50,
    "../../etc/passwd",
    "__proto__",
    "0",
    "-1",
    "٣",
    "9" * 5_000,
    "%s{}",
)
ESCAPES = (b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\u0000"', b'"\\x"', b'"\\u12"')
BYTES = (b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x00", b"\x1b[2J", b"\xef\xbb\xbf", b"\r")
KEYS = (
    "id",
    "method",
    "params",
    "jsonrpc",
    "result",
    "error",
    "_meta",
    "name",
    "arguments",
    "uri",
    "cursor",
    "code",
)
HOLE = "@@hole@@"
"""A string that stands, until a message is written, for text no JSON writer would give."""


class Fuzzer:
    """Spoils valid messages; equal seeds give equal lines."""

    def __init__(self, seed, messages):
        self._chance = random.Random(seed)
        self._messages = messages
        self._spoils = (
            *(self._changed,) * 6,
            *(self._with_odd_text,) * 3,
            self._noise,
            self._nested,
            self._with_bytes,
            self._cut,
            self._batch,
            self._twice_a_key,
            self._long,
            self._intact,
        )

    def line(self):
        """One message, without the end of its line."""
        return self._chance.choice(self._spoils)().replace(b"\n", b" ")

    def value(self, depth=0):
        """Any JSON value."""
        kinds = ("null", "flag", "number", "text", "list", "object")[: 4 if depth > 3 else 6]
        match self._chance.choice(kinds):
            case "null":
                return None
            case "flag":
                return self._chance.random() < 0.5
            case "number":
                return self._chance.choice((0, -1, 1, 0.5, 2**31, 2**53 + 1, -(2**63) - 1, 10**30, 1e308))
            case "text":
                return self._chance.choice(STRINGS)
            case "list":
                return [self.value(depth + 1) for _ in range(self._chance.randrange(4))]
            case _:
                return {self._chance.choice((*KEYS, *STRINGS)): self.value(depth + 1) for _ in range(3)}

    def _message(self):
        return copy.deepcopy(self._chance.choice(self._messages))

    def _intact(self):
        return written(self._message())

    def _changed(self):
        message = self._message()
        for _ in range(self._chance.randint(1, 3)):
            self._change(message)
        return written(message)

    def _change(self, message):
        within, key = self._chance.choice(list(places(message)) or [(message, "id")])
        match self._chance.randrange(4):
            case 0:
                within[key] = self.value()
            case 1 if isinstance(within, dict):
                within.pop(key, None)
            case 2 if isinstance(within, dict):
                within[self._chance.choice(KEYS)] = within.get(key)
            case _:
                within[key] = [within[key]] if isinstance(within, list) or key in within else {}

    def _with_odd_text(self):
        message = self._message()
        within, key = self._chance.choice(list(places(message)))
        within[key] = HOLE
        odd = self._chance.choice((*ESCAPES, *(number.encode() for number in NUMBERS)))
        return written(message).replace(f'"{HOLE}"'.encode(), odd)

    def _nested(self):
        message, depth = self._message(), self._chance.choice(DEPTHS)
        within, key = self._chance.choice(list(places(message)))
        within[key] = HOLE
        opened, closed = self._chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
        deep = opened * depth + b"1" + closed * depth
        return written(message).replace(f'"{HOLE}"'.encode(), deep)

    def _noise(self):
        if self._chance.random() < 0.5:
            return written(self.value())
        return self._chance.randbytes(self._chance.randrange(200))

    def _with_bytes(self):
        line = written(self._message())
        at = self._chance.randrange(len(line))
        return line[:at] + self._chance.choice(BYTES) + line[at:]

    def _cut(self):
        line = written(self._message())
        return line[: self._chance.randrange(len(line))]

    def _batch(self):
        return written([self._message() for _ in range(self._chance.randrange(4))])

    def _twice_a_key(self):
        key = self._chance.choice(KEYS).encode()
        return written(self._message())[:-1] + b',"' + key + b'":' + written(self.value()) + b"}"

    def _long(self):
        message = self._message()
        within, key = self._chance.choice(list(places(message)))
        within[key] = self._chance.choice(("é", "\\", '"', "\x01")) * LONG
        return written(message)


def places(value):
    """Every (container, key) within a value."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in list(entries):
        yield value, key
        yield from places(inner)


def written(value):
    return json.dumps(value, ensure_ascii=False).encode("utf-8", errors="surrogatepass")
