"""JSON for people: syntax errors that say what to change, and the line each member stands on.

Knows text and positions. Does not know what the document is for.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

JsonPath: TypeAlias = tuple[str | int, ...]
"""Member names and array positions that lead from the top of a document to a value."""

_LEXEME = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SHOWN_CHARACTERS = 100


class JsonSyntaxError(ValueError):
    """A text that is no JSON; `str(error)` says what was expected, without quoting the document.

    Attributes:
        line: counted from 1; None where the fault has no place.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


def decode_json(raw: bytes) -> tuple[str, Any]:
    """The text, without its byte order mark, and its value.

    Raises:
        JsonSyntaxError: not text, or not JSON.
    """
    try:
        text = raw.decode(json.detect_encoding(raw)).removeprefix("\ufeff")
        return text, json.loads(text)
    except UnicodeDecodeError:
        raise JsonSyntaxError("the file is not UTF-8 text; save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise JsonSyntaxError(_explain(error), error.lineno) from None
    except RecursionError:
        raise JsonSyntaxError("the document is nested too deeply to be read") from None
    except ValueError:  # the interpreter's limit on the digits of an integer
        raise JsonSyntaxError("a number in the document has too many digits") from None


def dotted(path: JsonPath) -> str:
    """A path as people write it; odd names are quoted, array positions are in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + _shown_key(part)
    return text


def member_lines(text: str) -> Mapping[JsonPath, int]:
    """The line, from 1, of each member's name and each array element of a *valid* document.

    Of a name that is repeated in one object, the last counts, as it does for `json.loads`.
    """
    lines: dict[JsonPath, int] = {}
    path: list[
        str | int | None
    ] = []  # per open container: array position, member name, or None before a name
    line, counted = 1, 0
    for match in _LEXEME.finditer(text):
        lexeme, start = match[0], match.start()
        here = path[-1] if path else ""
        if (isinstance(here, int) and lexeme not in ",]") or (here is None and lexeme[0] == '"'):
            line, counted = line + text.count("\n", counted, start), start
            path[-1] = json.loads(lexeme) if here is None else here
            lines[tuple(part for part in path if part is not None)] = line
        _step(path, lexeme)
    return lines


def _step(path: list[str | int | None], lexeme: str) -> None:
    if lexeme in "{[":
        path.append(None if lexeme == "{" else 0)
    elif lexeme in "}]":
        path.pop()
    elif lexeme == ",":
        path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None


def _explain(error: json.JSONDecodeError) -> str:
    before, after = error.doc[: error.pos].rstrip(), error.doc[error.pos : error.pos + 200].lstrip()
    expected = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
    expected = expected.replace("expecting", "expected", 1)
    return f"column {error.colno}: {expected}{_hint(error.msg, before, after)}"


def _hint(message: str, before: str, after: str) -> str:
    if not before and not after:
        return "; the file is empty"
    if after.startswith(("//", "/*", "#")):
        return "; JSON has no comments, remove it"
    if after.startswith("'"):
        return "; use double quotes in place of single ones"
    if "trailing comma" in message or (before.endswith(",") and after[:1] in {"}", "]"}):
        return "; remove the trailing comma before the closing bracket"
    if message.startswith("Invalid \\"):
        return r"; write a backslash in a string twice: C:\\Users"
    return ""


def _shown_key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key[:_SHOWN_CHARACTERS])
