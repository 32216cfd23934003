"""The gateway's own file: TOML to validated tables, with a line and a key for whatever is wrong.

Knows the form of `nexus.toml`. Does not expand variables, join other files, or decide what to use.
"""

import difflib
import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError, with_config
from pydantic_core import ErrorDetails

from adapters.hosts.json_text import JsonPath, dotted
from adapters.hosts.mcp_servers import ConfigProblem
from adapters.ports import Era
from nexus_gateway.settings.fields import (
    EXPECTED,
    TABLE,
    AnyText,
    AnyTexts,
    Flag,
    Table,
    Text,
    Texts,
    TextTable,
)
from nexus_gateway.settings.snapshot import Sections, ServerOptions, ToolSettings

_TRANSPORT_KEYS = ("type", "command", "args", "env", "cwd", "url", "headers")
_OTHER_WORDS = {"disabled": "enabled"}  # hosts' files have the one, ours the other
_TOKEN_KEYS = ("api_key_env", "api_key_keyring", "token_env", "token_file", "token_keyring")
_NEVER_SHOWN = {*_TRANSPORT_KEYS, *_TOKEN_KEYS, "bindings", "extra_body"}
_KINDS = {int: "a number", float: "a number", bool: "a boolean", str: "another string"}
_SHOWN_CHARACTERS = 40
_MAX_PROBLEMS = 50  # of one file; finding a line takes a few parses of it
_SERVER_DEPTH, _TOOL_DEPTH = 2, 4  # servers.NAME, servers.NAME.tools.TOOL


class SettingsError(Exception):
    """The configuration can't be used. `problems` says where and why, one each; so does `str(error)`."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTable(ServerOptions):
    """`[servers.NAME]`, as written."""

    type: Text | None = field(default=None, repr=False)
    command: AnyText | None = field(default=None, repr=False)
    args: AnyTexts | None = field(default=None, repr=False)
    env: TextTable | None = field(default=None, repr=False)
    cwd: AnyText | None = field(default=None, repr=False)
    url: AnyText | None = field(default=None, repr=False)
    headers: TextTable | None = field(default=None, repr=False)
    era: Era | None = None
    enabled: Flag = True

    @property
    def transport(self) -> dict[str, Any]:
        """The members that a host's file has too; empty where the table only refines a host's server."""
        values = {key: getattr(self, key) for key in _TRANSPORT_KEYS}
        return {key: value for key, value in values.items() if value is not None}


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTables(Sections):
    """The whole file, as written."""

    servers: Table[ServerTable] = field(default_factory=lambda: MappingProxyType({}))
    mcp_config: Texts = ()
    cache_dir: Text | None = None


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A well-formed `nexus.toml`."""

    path: Path
    text: str = field(default="", repr=False)
    tables: OwnTables = field(default_factory=OwnTables)

    def problem(self, path: JsonPath, message: str, server: str | None = None) -> ConfigProblem:
        """Something about one key, with its line."""
        return ConfigProblem(self.path, toml_line(self.text, path), dotted(path), message, server)


def read_own_file(path: Path) -> OwnFile:
    """Read and validate a `nexus.toml`.

    Raises:
        SettingsError: the file can't be read or is malformed; what is wrong with its keys, up to 50 at once.
    """
    text = _read_text(path)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        _fail(path, None, "the document is nested too deeply to be read")
    except ValueError as error:  # a syntax error, or the interpreter's limit on the digits of an integer
        _fail(path, _syntax_line(text, str(error)), f"not valid TOML: {error}")
    try:
        return OwnFile(path, text, TypeAdapter(OwnTables).validate_python(document))
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
    # Out of the handler, so that the traceback does not show values through the chained exception.
    problems = [_problem(OwnFile(path, text), detail) for detail in details[:_MAX_PROBLEMS]]
    raise SettingsError(sorted(problems, key=lambda problem: problem.line or 0))


def toml_line(text: str, path: JsonPath) -> int | None:
    """The line, from 1, of the statement that makes `path` exist in a *valid* document; None if nothing does.

    Every prefix of lines that ends between two statements is a valid document itself, and one that ends
    within a statement is not. So the line is found by parsing prefixes, not by a second TOML parser.
    """
    lines = text.split("\n")

    def document_before(end: int) -> tuple[int, Mapping[str, Any]]:
        while True:
            try:
                return end, tomllib.loads("\n".join(lines[:end]))
            except tomllib.TOMLDecodeError:
                end -= 1

    last = bisect_left(range(len(lines) + 1), True, key=lambda end: _has(document_before(end)[1], path))
    return document_before(last - 1)[0] + 1 if path and 0 < last <= len(lines) else None


def _has(value: Any, path: JsonPath) -> bool:
    for part in path:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return False
    return True


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        _fail(path, None, "there is no such file")
    except UnicodeDecodeError:
        _fail(path, None, "the file is not UTF-8 text; save it as UTF-8")
    except OSError as error:
        _fail(path, None, f"the file can't be read: {error.strerror}")


def _fail(path: Path, line: int | None, message: str) -> NoReturn:
    raise SettingsError([ConfigProblem(path, line, "", message)]) from None


def _syntax_line(text: str, message: str) -> int | None:
    if at := re.search(r"at line (\d+)", message):
        return int(at[1])
    return text.count("\n") + 1 if "end of document" in message else None


def _problem(file: OwnFile, detail: ErrorDetails) -> ConfigProblem:
    path = tuple(detail["loc"])
    server = path[1] if len(path) >= _SERVER_DEPTH and path[0] == "servers" else None
    return file.problem(path, _message(path, detail), str(server) if server is not None else None)


def _message(path: JsonPath, detail: ErrorDetails) -> str:
    match detail["type"]:
        case "unexpected_keyword_argument":
            return _unknown_key(path)
        case "literal_error" | "enum":
            expected = detail["ctx"]["expected"].replace("'", '"')
        case kind if kind == EXPECTED:
            expected = detail["msg"]
        case _:
            expected = "a table"
    return f"expected {expected}, got {_shown(path, detail['input'])}"


def _unknown_key(path: JsonPath) -> str:
    known = [item.name for item in fields(_table_at(path[:-1]))]
    key = _OTHER_WORDS.get(str(path[-1]), str(path[-1]))
    near = difflib.get_close_matches(key, known, n=1)
    return (
        f"unknown key; did you mean `{near[0]}`?" if near else f"unknown key; known here: {', '.join(known)}"
    )


def _table_at(path: JsonPath) -> type[Any]:
    if path[:1] == ("servers",):
        return {_SERVER_DEPTH: ServerTable, _TOOL_DEPTH: ToolSettings}[len(path)]
    return type(getattr(OwnTables(), str(path[0]))) if path else OwnTables


def _shown(path: JsonPath, value: object) -> str:
    match value:
        case dict():
            return "a table"
        case list():
            return "a list"
        case _ if not _NEVER_SHOWN.isdisjoint(path):
            return _KINDS.get(type(value), "something else")
        case bool():
            return str(value).lower()
        case str():
            return f'"{value[:_SHOWN_CHARACTERS]}{"..." if len(value) > _SHOWN_CHARACTERS else ""}"'
    return str(value)
