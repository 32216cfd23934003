"""Which files are meant: all that hosts have on this machine, one host's, or one that is named.

Reads files, to know by its members what a file is that no host is known for. Changes none.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from adapters.hosts.document import HostDocument, HostFileError, read_document
from adapters.hosts.known import Dialect, Host, Machine, Place, all_places, host_named
from nexus_gateway.hosts.candidates import read_place
from nexus_gateway.hosts.file_access import read_file

FILE_ID = "file"


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there, and what it says."""

    place: Place
    document: HostDocument


@dataclass(frozen=True, slots=True)
class Search:
    """What was found.

    Attributes:
        problems: files that can't be read, and why.
        looked_at: every place that was looked at.
        elsewhere: servers of Claude Code in other projects, by project.
    """

    found: tuple[Found, ...]
    problems: tuple[str, ...]
    looked_at: tuple[Path, ...]
    elsewhere: tuple[tuple[str, int], ...] = ()


def search(machine: Machine, host: Host | None = None) -> Search:
    """All files of one host, or of every host, that exist and name servers or are that host's.

    At home a project's file can be the user's own: each is found once.
    """
    found: list[Found] = []
    problems: list[str] = []
    looked_at: list[Path] = []
    for place in all_places(machine):
        if host is not None and place.host.id != host.id:
            continue
        looked_at.append(place.file)
        try:
            raw, document = read_place(place)
        except HostFileError as error:
            problems.append(str(error))
            continue
        is_new = all((one.place.file, one.place.pointer) != (place.file, place.pointer) for one in found)
        if raw is not None and is_new and (document.servers or host is not None):
            found.append(Found(place, document))
    unique = tuple(dict.fromkeys(problems))
    return Search(tuple(found), unique, tuple(dict.fromkeys(looked_at)), _elsewhere(found, machine))


def read_named(file: Path, machine: Machine) -> Found:
    """A file that is named by hand. Raises HostFileError: it can't be read, or names no servers."""
    known = next((place for place in all_places(machine) if place.file == file), None)
    if known is not None:
        return Found(known, read_place(known)[1])
    raw = read_file(file)
    if raw is None:
        raise HostFileError(f"there is no file {file}, and no host of that name")
    place = _guessed(file, raw)
    return Found(place, read_place(place)[1])


def _guessed(file: Path, raw: bytes) -> Place:
    """The format of a file, by its suffix and its members."""
    dialect = Dialect.TOML if file.suffix == ".toml" else Dialect.JSONC
    like = {"mcpServers": "cursor", "servers": "vscode", "context_servers": "zed", "mcp_servers": "codex"}
    try:
        document = read_document(raw, dialect, ("no such member",)).document
    except HostFileError as error:
        raise HostFileError(f"{file}: {error}") from None
    member = next((name for name in like if name in document), None)
    host = host_named(like[member]) if member else None
    if member is None or host is None:
        raise HostFileError(f"{file}: expected a member of servers, one of {', '.join(like)}")
    named = replace(host, id=FILE_ID, title=file.name, dialect=dialect, pointer=(member,))
    return Place(named, file, (member,), file.name, standard=False)


def _elsewhere(found: list[Found], machine: Machine) -> tuple[tuple[str, int], ...]:
    code = next((one for one in found if one.place.host.id.startswith("claude-code")), None)
    projects = code.document.document.get("projects") if code else None
    if not isinstance(projects, dict):
        return ()
    return tuple(
        (path, len(project["mcpServers"]))
        for path, project in projects.items()
        if path != str(machine.cwd) and isinstance(project, dict) and project.get("mcpServers")
    )
