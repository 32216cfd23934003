"""Requests with the tool that is right for each, as somebody wrote them down.

JSON Lines: {"query": "...", "tool": "server/name"}, or "gold": ["server/name", ...] where any of several is
right, with "gold_equivalents" (right too) and "gold_near" (nearly right); and "args": {...} where the right arguments
for the first tool are known. CSV (*.csv) with the columns query and tool, and args as JSON. Knows the file; knows no
fleet.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nexus_gateway.json_lines import LineError, json_objects


class RequestFileError(ValueError):
    """A file of requests can't be used; the message names file, line and what was expected."""


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """One row.

    Attributes:
        line: where it stands, from 1.
        request: in a user's words.
        tools: `server/name` of each tool that is right.
        equivalents: further ones that are right too.
        near: ones that are nearly right, and so no fair test of a fleet without the right one.
        arguments: what is right for the first of `tools`; None where it is not known.
    """

    line: int
    request: str
    tools: tuple[str, ...]
    equivalents: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    arguments: Mapping[str, Any] | None = None


def read_requests(path: Path) -> list[WrittenRequest]:
    """All rows of a file. Blocks.

    Raises:
        RequestFileError: the file can't be read, holds no request, or has a row that is none.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise RequestFileError(f"{path}: there is no such file") from None
    except UnicodeDecodeError:
        raise RequestFileError(f"{path}: the file is not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise RequestFileError(f"{path}: the file can't be read: {error.strerror}") from None
    rows = _csv_rows(path, text) if path.suffix.lower() == ".csv" else _json_rows(path, text)
    requests = [_request(path, line, row) for line, row in rows]
    if not requests:
        raise RequestFileError(f"{path}: the file holds no request")
    return requests


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    if missing := {"query", "tool"} - {*(reader.fieldnames or ())}:
        raise RequestFileError(
            f"{path}:1: the header has no column {' and no column '.join(sorted(missing))}"
        )
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise RequestFileError(f"{path}:{reader.line_num}: not valid CSV: {error}") from None


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        yield from json_objects(text)
    except LineError as error:
        hint = "; a CSV file has to be named *.csv" if error.number == 1 else ""
        raise RequestFileError(f"{path}:{error.number}: {error.reason}{hint}") from None


def _request(path: Path, line: int, row: Mapping[str, Any]) -> WrittenRequest:
    query = row.get("query")
    if not isinstance(query, str) or not query.strip():
        raise RequestFileError(f'{path}:{line}: "query" has no text')
    tools = _names(path, line, row, "tool" if "tool" in row else "gold")
    if not tools:
        raise RequestFileError(f'{path}:{line}: "tool" names no tool; write "server/name"')
    equivalents, near = (_names(path, line, row, key) for key in ("gold_equivalents", "gold_near"))
    return WrittenRequest(line, query, tools, equivalents, near, _arguments(path, line, row))


def _arguments(path: Path, line: int, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """None too where they are but a part of the right ones, as some public rows say in "args_kind"."""
    value = row.get("args")
    if value in (None, "") or row.get("args_kind", "exact") != "exact":
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if not isinstance(value, Mapping):
        raise RequestFileError(f'{path}:{line}: "args" is no JSON object; write {{"argument": value}}')
    return value


def _names(path: Path, line: int, row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key) or ()
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise RequestFileError(f'{path}:{line}: "{key}" is neither a name nor a list of names')
    return tuple(name.strip() for name in names if name.strip())
