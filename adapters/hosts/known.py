"""Which hosts there are, and where each keeps its servers on macOS, Linux and Windows: one table.

Knows places and formats. Reads nothing but the names of profile folders, and where links lead.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

Pointer = tuple[str, ...]
"""Member names from the top of a document to the object of servers."""


class Dialect(StrEnum):
    """How a host reads its file."""

    JSON = "json"
    """Strict: a comment or a trailing comma is an error to the host too."""
    JSONC = "jsonc"
    """JSON with comments and trailing commas."""
    TOML = "toml"


@dataclass(frozen=True, slots=True)
class Machine:
    """Whose files are meant.

    Attributes:
        platform: as `sys.platform` says it: `darwin`, `win32`, anything else is treated as Linux.
        cwd: the project that project files are looked for in.
    """

    platform: str
    home: Path
    cwd: Path
    environ: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Host:
    """One host and one scope of it.

    Attributes:
        id: what people type.
        mac, linux, windows: where the file is; `_folders` says what the braces stand for.
        profiles: where further profiles have theirs, below the file's folder.
        restart: what makes the host read its file again.
        url_is_sse: a bare `url` means the older HTTP+SSE transport.
        source: what Zed wants in a hand-written entry.
        in_project: the file belongs to the project in the current folder.
    """

    id: str
    title: str
    dialect: Dialect
    pointer: Pointer
    mac: str
    linux: str
    windows: str
    profiles: str | None = None
    restart: str = "restart it"
    url_is_sse: bool = False
    source: str | None = None
    in_project: bool = False

    @property
    def comes_with_project(self) -> bool:
        """Whether its file comes with the project, from whoever wrote that: nothing in it is started unasked."""
        return self.linux.startswith("{project}")


@dataclass(frozen=True, slots=True)
class Place:
    """One object of servers in one file of one host.

    Attributes:
        label: the host's title, with the profile or project where that matters.
        standard: it is the host's own file, not one that was named by hand.
    """

    host: Host
    file: Path
    pointer: Pointer
    label: str
    standard: bool = True

    @property
    def arguments(self) -> tuple[str, ...]:
        """What names it on a command line."""
        return (self.host.id,) if self.standard else (self.host.id, "--file", str(self.file))


def _everywhere(place: str) -> tuple[str, str, str]:
    return place, place, place


_JSON, _JSONC, _TOML = Dialect.JSON, Dialect.JSONC, Dialect.TOML
_MCP: Pointer = ("mcpServers",)
_VS: Pointer = ("servers",)
_CODEX: Pointer = ("mcp_servers",)
_SESSION = "begin a new session"

HOSTS: tuple[Host, ...] = (
    Host(
        "claude-desktop",
        "Claude Desktop",
        _JSON,
        _MCP,
        *_everywhere("{config}/Claude/claude_desktop_config.json"),
        restart="quit and start it again",
    ),
    Host("claude-code", "Claude Code", _JSON, _MCP, *_everywhere("{claude}/.claude.json"), restart=_SESSION),
    Host(
        "claude-code-local",
        "Claude Code, this project for you",
        _JSON,
        ("projects", "{project}", "mcpServers"),
        *_everywhere("{claude}/.claude.json"),
        restart=_SESSION,
        in_project=True,
    ),
    Host(
        "claude-code-project",
        "Claude Code, this project",
        _JSON,
        _MCP,
        *_everywhere("{project}/.mcp.json"),
        restart=_SESSION,
        in_project=True,
    ),
    Host("cursor", "Cursor", _JSONC, _MCP, *_everywhere("{home}/.cursor/mcp.json")),
    Host(
        "cursor-project",
        "Cursor, this project",
        _JSONC,
        _MCP,
        *_everywhere("{project}/.cursor/mcp.json"),
        in_project=True,
    ),
    Host(
        "vscode", "VS Code", _JSONC, _VS, *_everywhere("{config}/Code/User/mcp.json"), "profiles/*/mcp.json"
    ),
    Host(
        "vscode-insiders",
        "VS Code Insiders",
        _JSONC,
        _VS,
        *_everywhere("{config}/Code - Insiders/User/mcp.json"),
        "profiles/*/mcp.json",
    ),
    Host(
        "vscode-workspace",
        "VS Code, this workspace",
        _JSONC,
        _VS,
        *_everywhere("{project}/.vscode/mcp.json"),
        in_project=True,
    ),
    Host("windsurf", "Windsurf", _JSONC, _MCP, *_everywhere("{home}/.codeium/windsurf/mcp_config.json")),
    Host(
        "zed",
        "Zed",
        _JSONC,
        ("context_servers",),
        "{home}/.config/zed/settings.json",
        "{config}/zed/settings.json",
        "{config}/Zed/settings.json",
        source="custom",
    ),
    Host("codex", "Codex", _TOML, _CODEX, *_everywhere("{codex}/config.toml"), restart=_SESSION),
    Host(
        "codex-project",
        "Codex, this project",
        _TOML,
        _CODEX,
        *_everywhere("{project}/.codex/config.toml"),
        restart=_SESSION,
        in_project=True,
    ),
    Host(
        "gemini",
        "Gemini CLI",
        _JSONC,
        _MCP,
        *_everywhere("{home}/.gemini/settings.json"),
        restart=_SESSION,
        url_is_sse=True,
    ),
    Host(
        "gemini-project",
        "Gemini CLI, this project",
        _JSONC,
        _MCP,
        *_everywhere("{project}/.gemini/settings.json"),
        restart=_SESSION,
        url_is_sse=True,
        in_project=True,
    ),
)

_BY_ID: Mapping[str, Host] = {host.id: host for host in HOSTS}


def host_named(name: str) -> Host | None:
    """The host of this id; None where there is none."""
    return _BY_ID.get(name)


def standard_place(host: Host, machine: Machine) -> Place:
    """The host's own file on this machine, whether it exists or not."""
    written = {"darwin": host.mac, "win32": host.windows}.get(machine.platform, host.linux)
    folders = _folders(machine)
    pointer = tuple(part.format(**folders) for part in host.pointer)
    return Place(host, Path(written.format(**folders)), pointer, host.title)


def place_in(host: Host, file: Path, machine: Machine) -> Place:
    """A file that was named by hand, in the host's format; its own file where it is that one."""
    standard = standard_place(host, machine)
    if file.resolve() == standard.file.resolve():
        return standard
    return Place(
        host,
        file.parent.resolve() / file.name,
        standard.pointer,
        f"{host.title} ({file.name})",
        standard=False,
    )


def all_places(machine: Machine) -> Iterator[Place]:
    """Every file of every host that may be on this machine, profiles included."""
    for host in HOSTS:
        place = standard_place(host, machine)
        yield place
        if host.profiles:
            for file in sorted(place.file.parent.glob(host.profiles)):
                label = f"{host.title}, profile {file.parent.name}"
                yield Place(host, file, place.pointer, label, standard=False)


def _folders(machine: Machine) -> Mapping[str, str]:
    """What the braces in the table stand for."""
    home, environ = machine.home, machine.environ
    if machine.platform == "darwin":
        config = str(home / "Library" / "Application Support")
    elif machine.platform == "win32":
        config = environ.get("APPDATA") or str(home / "AppData" / "Roaming")
    else:
        config = environ.get("XDG_CONFIG_HOME") or str(home / ".config")
    return {
        "home": str(home),
        "config": config,
        "claude": environ.get("CLAUDE_CONFIG_DIR") or str(home),
        "codex": environ.get("CODEX_HOME") or str(home / ".codex"),
        "project": str(machine.cwd),
    }
