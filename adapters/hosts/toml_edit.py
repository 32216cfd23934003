"""Changes to the tables `[mcp_servers.NAME]` of a TOML text that leave every other character where it is.

Knows headers, strings and line breaks. By spans rather than through a library that writes documents back: those drop
the comments behind a table with the table. Servers written in another way (inline, or as dotted keys) have no span.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LEXEME = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|\n|[\[\]{}]|[^"\'#\n\[\]{}]+|.',
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class _Header:
    """A table's header: its keys, and where its line begins."""

    keys: tuple[str, ...]
    start: int


def table_text(text: str, path: tuple[str, ...]) -> str | None:
    """Everything written of a table and its subtables; None where it is not written as tables."""
    spans = _spans(text, path)
    return "".join(text[start:end] for start, end in spans) if spans else None


def remove_table(text: str, path: tuple[str, ...], instead: str = "") -> str:
    """Take a table and its subtables out; comments behind them stay. `instead` takes the place of the first."""
    spans = _spans(text, path)
    if not spans:
        raise KeyError(".".join(path))
    for start, end in reversed(spans[1:]):
        text = text[:start] + text[_behind_blank_lines(text, start, end) :]
    start, end = spans[0]
    rest = end if instead else _behind_blank_lines(text, start, end)
    return text[:start] + instead + text[rest:]


def append_table(text: str, table: str) -> str:
    """Put a table at the end, a blank line before it."""
    newline = newline_of(text)
    if text and not text.endswith("\n"):
        text += newline
    return text + (newline if text.strip() else "") + table


def render_table(path: Sequence[str], value: Mapping[str, Any], newline: str) -> str:
    """A table of strings, numbers, booleans, lists and tables of those. Raises TypeError for anything else."""
    plain = {key: one for key, one in value.items() if not isinstance(one, Mapping) and one is not None}
    tables = {key: one for key, one in value.items() if isinstance(one, Mapping)}
    lines = [
        f"[{'.'.join(map(_key, path))}]",
        *(f"{_key(key)} = {_value(one)}" for key, one in plain.items()),
    ]
    written = newline.join(lines) + newline
    return written + "".join(
        newline + render_table([*path, key], one, newline) for key, one in tables.items()
    )


def newline_of(text: str) -> str:
    """What ends a line."""
    return "\r\n" if "\r\n" in text else "\n"


def _spans(text: str, path: tuple[str, ...]) -> list[tuple[int, int]]:
    headers = _headers(text)
    ends = [header.start for header in headers[1:]] + [len(text)]
    spans: list[tuple[int, int]] = []
    for header, end in zip(headers, ends, strict=True):
        if header.keys[: len(path)] != path:
            continue
        written = _end_of_written(text, header.start, end)
        if spans and not text[spans[-1][1] : header.start].strip():
            spans[-1] = spans[-1][0], written
        else:
            spans.append((header.start, written))
    return spans


def _headers(text: str) -> list[_Header]:
    headers: list[_Header] = []
    depth, line, begins = 0, 0, True
    for match in _LEXEME.finditer(text):
        lexeme = match[0]
        if lexeme == "\n":
            line, begins = match.end(), True
        elif lexeme in "[{":
            if begins and depth == 0:
                headers.append(_Header(_keys(text, line), line))
            depth += 1
        elif lexeme in "]}":
            depth -= 1
        if lexeme.strip() or lexeme.startswith("#"):
            begins = False
    return headers


def _keys(text: str, line: int) -> tuple[str, ...]:
    end = text.find("\n", line)
    table: Any = tomllib.loads(text[line : len(text) if end < 0 else end].rstrip("\r"))
    keys: list[str] = []
    while isinstance(table, Mapping | list) and table:
        if isinstance(table, list):
            table = table[0]
            continue
        key = next(iter(table))
        keys.append(key)
        table = table[key]
    return tuple(keys)


def _end_of_written(text: str, start: int, end: int) -> int:
    """Behind the last line of a table that says anything: comments and blank lines behind it are not its own."""
    last = start
    for match in _LEXEME.finditer(text, start, end):
        if match[0].strip() and not match[0].startswith("#"):
            last = match.end()
    rest = text.find(
        "\n", last - 1, end
    )  # a comment on the last line goes with it; a lexeme may end in its break
    return end if rest < 0 else rest + 1


def _behind_blank_lines(text: str, start: int, end: int) -> int:
    """Where the rest begins if the lines from `start` to `end` go: one of the blank lines around them is enough."""
    before = text[:start].rstrip("\r\n \t")
    if before and text[len(before) : start].count("\n") < 2:  # noqa: PLR2004 - the end of the line and a blank one
        return end
    rest = text[end:]
    return end + len(rest) - len(rest.lstrip("\r\n"))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"TOML has no {type(value).__name__} here")
