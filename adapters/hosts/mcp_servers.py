"""Claude's `mcpServers` JSON, as it is: `claude_desktop_config.json`, `.mcp.json`, VS Code's `servers`.

Knows the entries of such a file (`command/args/env/cwd`, `type/url/headers`) and `${VAR}` in their strings.
One bad entry is a problem with a line and a key; the others stay. Values never appear in messages, since
any of them may be a secret. Does not start or reach anything.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from adapters.hosts.json_text import JsonPath, JsonSyntaxError, decode_json, dotted, member_lines
from adapters.ports import HttpSpec, StdioSpec, TransportSpec, UpstreamSpec

MAX_SERVER_NAME_CHARACTERS = 100
ENTRY_KEYS = frozenset({"type", "command", "args", "env", "cwd", "url", "headers", "disabled"})

_STDIO, _HTTP, _SSE = "stdio", "http", "sse"
_KINDS = {
    "stdio": _STDIO,
    "http": _HTTP,
    "streamable-http": _HTTP,
    "streamable_http": _HTTP,
    "streamableHttp": _HTTP,
    "sse": _SSE,
}
_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)  # `env:` is VS Code's
_FILLED_IN = frozenset({"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"})
_JSON_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """What is wrong (or, among notes, worth knowing) in a configuration file, and where.

    Attributes:
        line: counted from 1; None where there is no place in the file.
        key: dotted path of the key; empty for the file as a whole.
        server: the server that is concerned, if one is.
    """

    file: Path
    line: int | None
    key: str
    message: str
    server: str | None = None

    def __str__(self) -> str:
        place = str(self.file) if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one part of an entry; `path` leads from the entry to the part."""

    path: JsonPath
    message: str


@dataclass(frozen=True, slots=True)
class McpServersFile:
    """What one file says.

    Attributes:
        servers: the usable, enabled entries by name.
        problems: why the others are not in use; for a file that is no JSON, the one reason.
        notes: keys without effect, disabled servers.
        names: every server the file names, usable or not.
    """

    servers: dict[str, UpstreamSpec] = field(default_factory=dict, repr=False)  # may hold secrets
    problems: tuple[ConfigProblem, ...] = ()
    notes: tuple[ConfigProblem, ...] = ()
    names: frozenset[str] = frozenset()


def read_mcp_servers(file: Path, environ: Mapping[str, str]) -> McpServersFile:
    """Read a file; whatever is wrong with it comes back as problems, nothing is raised."""
    try:
        return parse_mcp_servers(file, file.read_bytes(), environ)
    except OSError as error:
        problem = ConfigProblem(file, None, "", f"the file can't be read: {error.strerror}")
        return McpServersFile(problems=(problem,))


def parse_mcp_servers(file: Path, raw: bytes, environ: Mapping[str, str]) -> McpServersFile:
    """Read the content of a file; `file` only names it in problems and notes."""
    try:
        text, document = decode_json(raw)
    except JsonSyntaxError as error:
        return McpServersFile(problems=(ConfigProblem(file, error.line, "", str(error)),))
    return _FileReader(file, text, environ).read(document)


def read_entry(
    server: str, entry: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[UpstreamSpec | None, tuple[Fault, ...]]:
    """The spec of one entry, or None and all that is wrong with it."""
    reader = _EntryReader(entry, environ)
    transport = reader.transport()
    if transport is None or reader.faults:
        return None, tuple(reader.faults)
    return UpstreamSpec(server, transport), ()


def server_name_fault(name: str) -> str | None:
    """Why a string can't be the name of a server; None where it can."""
    if not name.strip():
        return "expected a name, got an empty one"
    if len(name) > MAX_SERVER_NAME_CHARACTERS:
        return f"expected a name of at most {MAX_SERVER_NAME_CHARACTERS} characters, got {len(name):,}"
    return _character_fault(name)


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """`text` with `${VAR}` and `${VAR:-default}` replaced, and what is wrong with it.

    The default is for a variable that is not set, as in Claude Code. A placeholder of any other form stays.
    """
    faults: list[str] = []

    def value(match: re.Match[str]) -> str:
        variable = _VARIABLE.fullmatch(match[1])
        if variable is None:
            if match[1].startswith("input:"):
                faults.append(
                    "${input:...} is asked for by VS Code alone; use an environment variable, ${VAR}"
                )
            return match[0]
        name, default = variable[1], variable[2]
        if name in _FILLED_IN and name not in environ:
            faults.append(f"${{{name}}} is filled in by the host alone; write out what it stands for")
        elif name not in environ and default is None:
            faults.append(
                f"the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return environ.get(name, default or "")

    return _PLACEHOLDER.sub(value, text), tuple(faults)


class _FileReader:
    """Gathers the servers, problems and notes of one document."""

    def __init__(self, file: Path, text: str, environ: Mapping[str, str]) -> None:
        self._file = file
        self._text = text
        self._environ = environ
        self._servers: dict[str, UpstreamSpec] = {}
        self._problems: list[ConfigProblem] = []
        self._notes: list[ConfigProblem] = []

    @cached_property
    def _lines(self) -> Mapping[JsonPath, int]:
        return member_lines(self._text)

    def read(self, document: object) -> McpServersFile:
        names: frozenset[str] = frozenset()
        path, entries = _find_entries(document)
        if isinstance(entries, dict):
            names = frozenset(entries)
            for name, entry in entries.items():
                self._read_server((*path, name), name, entry)
        elif path:
            self._problems.append(self._at(path, f"expected an object of servers, got {_kind(entries)}"))
        else:
            self._problems.append(self._at((), 'expected an object with the member "mcpServers"'))
        return McpServersFile(self._servers, tuple(self._problems), tuple(self._notes), names)

    def _read_server(self, path: JsonPath, name: str, entry: object) -> None:
        if reason := server_name_fault(name):
            self._problems.append(self._at(path, reason, name))
        elif not isinstance(entry, dict):
            self._problems.append(self._at(path, f"expected an object, got {_kind(entry)}", name))
        elif entry.get("disabled") is True:
            self._notes.append(self._at(path, "the server is disabled", name))
        else:
            self._read_entry(path, name, entry)

    def _read_entry(self, path: JsonPath, name: str, entry: dict[str, Any]) -> None:
        spec, faults = read_entry(name, entry, self._environ)
        self._problems += [self._at((*path, *fault.path), fault.message, name) for fault in faults]
        self._notes += [
            self._at((*path, key), "the gateway does not use this key", name)
            for key in entry
            if key not in ENTRY_KEYS
        ]
        if spec is not None:
            self._servers[name] = spec

    def _at(self, path: JsonPath, message: str, server: str | None = None) -> ConfigProblem:
        known = next((path[:n] for n in range(len(path), 0, -1) if path[:n] in self._lines), None)
        line = self._lines[known] if known else None
        return ConfigProblem(self._file, line, dotted(path), message, server)


def _find_entries(document: object) -> tuple[JsonPath, Any]:
    if isinstance(document, dict):
        for key in ("mcpServers", "servers"):
            if key in document:
                return (key,), document[key]
    return (), None


class _EntryReader:
    """Reads one entry of either file format; what is wrong is gathered in `faults`. Null means absent."""

    def __init__(self, entry: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._entry = {key: value for key, value in entry.items() if value is not None}
        self._environ = environ
        self.faults: list[Fault] = []

    def transport(self) -> TransportSpec | None:
        match self._transport_kind():
            case "stdio":
                return self._stdio()
            case "http":
                return self._http(sse=False)
            case "sse":
                return self._http(sse=True)
        return None

    def _transport_kind(self) -> str | None:
        kind = self._entry.get("type")
        if kind is None:
            return self._implied_kind()
        if not isinstance(kind, str) or kind not in _KINDS:
            self._fault(("type",), 'expected "stdio", "http" or "sse"')
        else:
            return _KINDS[kind]
        return None

    def _implied_kind(self) -> str | None:
        has_command, has_url = "command" in self._entry, "url" in self._entry
        if has_command == has_url:
            found = "both" if has_url else "neither"
            self._fault((), f"expected a `command` to start or a `url` to connect to, got {found}")
            return None
        if has_command:
            return _STDIO
        # Some hosts try both transports, so their files don't say which; the address does.
        url = self._entry["url"]
        return _SSE if isinstance(url, str) and _path(url).endswith("/sse") else _HTTP

    def _stdio(self) -> StdioSpec | None:
        command = self._string("command")
        if command is None:
            return None
        if not command.strip():
            self._fault(("command",), "expected the program to start, got an empty string")
        return StdioSpec(command, self._strings("args"), self._string_map("env"), self._optional("cwd"))

    def _http(self, *, sse: bool) -> HttpSpec | None:
        url = self._string("url")
        if url is None:
            return None
        if not _is_http_url(url):
            self._fault(("url",), "expected an address such as https://host/mcp")
        headers = self._string_map("headers")
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name) or any(character in value for character in "\r\n"):
                self._fault(
                    ("headers", name), "expected an HTTP header: a name without spaces, one line of text"
                )
        return HttpSpec(url, headers, sse)

    def _string(self, key: str) -> str | None:
        if key not in self._entry:
            self._fault((), f"expected `{key}`, it is missing")
            return None
        return self._text((key,), self._entry[key])

    def _optional(self, key: str) -> str | None:
        return self._text((key,), self._entry[key]) if key in self._entry else None

    def _strings(self, key: str) -> tuple[str, ...]:
        items = self._entry.get(key, ())
        if not isinstance(items, list | tuple):
            self._fault((key,), f"expected a list of strings, got {_kind(items)}")
            return ()
        return tuple(self._text((key, position), item) or "" for position, item in enumerate(items))

    def _string_map(self, key: str) -> Mapping[str, str]:
        members = self._entry.get(key, {})
        if not isinstance(members, Mapping):
            self._fault((key,), f"expected names with strings, got {_kind(members)}")
            members = {}
        for name in members:
            if reason := _variable_name_fault(name):
                self._fault((key, name), reason)
        return MappingProxyType(
            {name: self._text((key, name), value) or "" for name, value in members.items()}
        )

    def _text(self, path: JsonPath, value: object) -> str | None:
        """The expanded string; None where something is wrong with it, which is then a fault."""
        if not isinstance(value, str):
            hint = "; put it in quotes" if isinstance(value, int | float) else ""
            self._fault(path, f"expected a string, got {_kind(value)}{hint}")
            return None
        text, faults = expand(value, self._environ)
        reasons = [reason for reason in (*faults, _character_fault(text)) if reason]
        for reason in reasons:
            self._fault(path, reason)
        return None if reasons else text

    def _fault(self, path: JsonPath, message: str) -> None:
        self.faults.append(Fault(path, message))


def _variable_name_fault(name: str) -> str | None:
    if not name or "=" in name:
        return "expected a name that is not empty and has no `=`"
    return _character_fault(name)


def _character_fault(text: str) -> str | None:
    """NUL and lone surrogates pass through JSON, but not to a process or a socket."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        return "the text has a character (NUL or half of a surrogate pair) that can't be passed on"
    return None


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _path(url: str) -> str:
    try:
        return urlsplit(url).path.rstrip("/")
    except ValueError:
        return ""


def _kind(value: object) -> str:
    return _JSON_KINDS.get(type(value), "a number")
