"""Putting the gateway into a host's file: first as a plan that can be shown, then in fact.

The order of writing is such that whatever fails leaves the host's file as it was: backup, servers, memory of it, and
the host's file last.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from adapters.hosts.document import HostDocument, HostFileError
from adapters.hosts.entries import gateway_entry
from adapters.hosts.jsonc import value_at
from adapters.hosts.known import Place
from adapters.hosts.mcp_servers import read_entry
from adapters.ports import UpstreamSpec
from nexus_gateway.files import write_bytes_atomically, write_new
from nexus_gateway.hosts.candidates import Candidate, candidates, is_gateway, read_place
from nexus_gateway.hosts.file_access import PRIVATE, mode_of, require_same, require_writable
from nexus_gateway.hosts.programs import absolute
from nexus_gateway.hosts.registration import Folder, Registration, digest

ENTRY_NAMES = ("nexus", "nexus-gateway")
_SHARED = "the file comes with the project: whoever shares it gets this machine's paths"
_AT_HOME = "the service starts servers in your home folder: relative paths in their entries mean that one"


@dataclass(frozen=True, slots=True)
class Plan:
    """What registering would do.

    Attributes:
        file: the host's file, links followed.
        before: its bytes; None where there is none.
        after: what it becomes.
        document: what it says now.
        moved: the servers that go behind the gateway.
        staying: those that stay with the host, and why.
        servers_file: where the moved entries go, readable by its user alone.
        servers: the content of that file.
        remarks: commands that were made absolute, and what to know.
        bridge: arguments of the entry where it reaches the service; empty where it starts a gateway of its own.
    """

    place: Place
    file: Path
    before: bytes | None = field(repr=False)
    after: bytes = field(repr=False)
    document: HostDocument = field(repr=False)
    name: str
    moved: tuple[Candidate, ...]
    staying: tuple[tuple[str, str], ...]
    servers_file: Path
    servers: bytes = field(repr=False)
    remarks: tuple[str, ...] = ()
    bridge: tuple[str, ...] = ()


def standing(place: Place, folder: Folder) -> Registration | str | None:
    """The registration of a place; the name of a gateway's entry that was put there otherwise; None where neither is.

    Raises:
        HostFileError: the file can't be read, or its registration has no entry any more.
    """
    registration = folder.find(place)
    _, document = read_place(place)
    if registration is None:
        return next((name for name, entry in document.servers.items() if is_gateway(entry)), None)
    if registration.file.resolve() != place.file.resolve():
        gone = f"{registration.file} is registered as {place.host.id}, not {place.file}"
    elif registration.entry_among(document.servers):
        return registration
    else:
        gone = f"{place.file} was registered, but the entry {registration.name} is gone from it"
    undo = shlex.join(["nexus-gateway", "unregister", *place.arguments])
    raise HostFileError(f"{gone}; run `{undo}` first, which puts the moved servers back")


def plan(
    place: Place,
    folder: Folder,
    command: Sequence[str],
    environ: Mapping[str, str],
    *,
    only: Sequence[str] | None = None,
    service: Mapping[str, UpstreamSpec] | None = None,
) -> Plan:
    """Plan a registration; nothing is written.

    Args:
        place: the host's file.
        folder: the gateway's own.
        command: what the host is to start: the gateway, but for the file of the moved servers, or the bridge to a
            service that reads that file by itself.
        environ: the user's, for `${VAR}` and PATH.
        only: the servers to move; all that can be where None.
        service: the servers that the service has already; None where the command is no bridge.

    Raises:
        HostFileError: the file can't be read or changed, or `only` names a server that can't be moved.
    """
    before, document = read_place(place)
    file = place.file.resolve()
    _require_home(file)
    found = candidates(place, document, environ)
    stays = {one.name: _stays(one, document) or _clash(one, environ, service or {}) for one in found}
    moved, staying = _chosen(place, found, document, stays, only)
    entries, remarks = _entries(moved, environ)
    servers_file = _free(folder.servers_file(place))  # an edited one was kept by `unregister`
    name = _free_name(document)
    through = () if service is not None else ("--mcp-config", str(servers_file))
    entry = gateway_entry(place.host, command[0], [*command[1:], *through])
    try:
        after = document.with_gateway([one.name for one in moved], name, entry)
    except HostFileError as error:
        raise HostFileError(f"{place.file}: {error}") from None
    servers = (json.dumps({"mcpServers": entries}, indent=2, default=str) + "\n").encode()
    remarks = (*_project_remarks(place, bridged=service is not None), *remarks)
    bridge = () if service is None else tuple(entry["args"])
    chosen = (tuple(moved), tuple(staying))
    return Plan(place, file, before, after, document, name, *chosen, servers_file, servers, remarks, bridge)


def _project_remarks(place: Place, *, bridged: bool) -> tuple[str, ...]:
    shared = (_SHARED,) if place.host.comes_with_project else ()
    return (*shared, _AT_HOME) if bridged and place.host.in_project else shared


def carry_out(chosen: Plan, folder: Folder) -> Registration:
    """Do what a plan says.

    Raises:
        HostFileError: the host's file is not as it was planned on, or something can't be written; nothing is changed.
    """
    require_same(chosen.file, chosen.before)
    registration = _registration(chosen, _free_backup(chosen))
    written: list[Path] = []
    file = chosen.file
    try:
        for file, content, mode in _new_files(chosen, folder, registration):
            write_new(file, content, mode=mode)
            written.append(file)
        file = chosen.file
        require_same(file, chosen.before)  # some hosts write theirs every few seconds
        write_bytes_atomically(file, chosen.after, mode=mode_of(file), is_durable=True)
    except (OSError, HostFileError) as error:
        with suppress(OSError):
            for one in written:
                one.unlink(missing_ok=True)
        if isinstance(error, HostFileError):
            raise
        raise HostFileError(f"{file} can't be written: {error.strerror}; nothing is changed") from None
    return registration


def _new_files(chosen: Plan, folder: Folder, registration: Registration) -> Iterator[tuple[Path, bytes, int]]:
    """What is written before the host's file, with permissions.

    The servers come first: of two commands at the same time one fails there, and takes nothing of the other's back.
    """
    yield chosen.servers_file, chosen.servers, PRIVATE
    if registration.backup is not None and chosen.before is not None:
        yield registration.backup, chosen.before, mode_of(chosen.file)
    yield folder.state_file(chosen.place), registration.as_json(), PRIVATE


def _entries(
    moved: Sequence[Candidate], environ: Mapping[str, str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The moved entries with absolute commands, and what is to be said of them."""
    entries: dict[str, Any] = {}
    remarks: list[str] = []
    for one in moved:
        entries[one.name], remark = absolute(one.entry, environ)
        remarks += [f"{one.name}: {note}" for note in (remark, *one.notes) if note]
    return entries, tuple(remarks)


def _free_name(document: HostDocument) -> str:
    """A name that no server has, not even a moved one: it comes back."""
    numbered = (f"{ENTRY_NAMES[-1]}-{number}" for number in count(2))
    return next(name for name in chain(ENTRY_NAMES, numbered) if name not in document.servers)


def _chosen(
    place: Place,
    found: Sequence[Candidate],
    document: HostDocument,
    stays: Mapping[str, str],
    only: Sequence[str] | None,
) -> tuple[list[Candidate], list[tuple[str, str]]]:
    if only is not None and (unknown := [name for name in only if name not in document.servers]):
        there = ", ".join(document.servers) or "none"
        raise HostFileError(f"{place.file} has no server named {', '.join(unknown)}; it has {there}")
    moved: list[Candidate] = []
    staying: list[tuple[str, str]] = []
    for one in found:
        wanted = only is None or one.name in only
        reason = stays[one.name] if wanted else "not chosen"
        if not reason:
            moved.append(one)
        elif wanted and only is not None:
            raise HostFileError(f"{one.name} can't be moved: {reason}")
        else:
            staying.append((one.name, reason))
    return moved, staying


def _stays(one: Candidate, document: HostDocument) -> str:
    if one.is_gateway:
        return "it is a gateway already"
    if one.disabled:
        return "it is disabled"
    if one.refusal:
        return one.refusal
    return "" if document.written(one.name) is not None else "it is not a table of its own; move it by hand"


def _clash(one: Candidate, environ: Mapping[str, str], service: Mapping[str, UpstreamSpec]) -> str:
    """Why a server can't join those of the service: of two servers of a name it has the first."""
    there = service.get(one.name)
    if there is None or one.spec is None:
        return ""
    moved, _ = read_entry(one.name, absolute(one.entry, environ)[0], environ)
    if any(spec is not None and spec.transport == there.transport for spec in (one.spec, moved)):
        return ""
    return "the service has another server of that name; rename one of the two"


def _require_home(file: Path) -> None:
    """Whether the file may be replaced, or made where its host is installed."""
    require_writable(file)
    if not file.exists() and not file.parent.is_dir():
        raise HostFileError(
            f"there is no folder {file.parent}: is the host installed? --file names another file"
        )


def _free_backup(chosen: Plan) -> Path | None:
    if chosen.before is None:
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return _free(chosen.file.with_name(f"{chosen.file.name}.before-nexus-{stamp}"))


def _free(file: Path) -> Path:
    """The file, or one with a number behind its name: nothing that is there is written over."""
    number = 1
    free = file
    while free.exists():
        number += 1
        free = file.with_name(f"{file.stem}-{number}{file.suffix}")
    return free


def _registration(chosen: Plan, backup: Path | None) -> Registration:
    return Registration(
        host=chosen.place.host.id,
        file=chosen.file,
        pointer=chosen.place.pointer,
        name=chosen.name,
        moved=tuple(one.name for one in chosen.moved),
        made_servers=value_at(chosen.document.document, chosen.place.pointer) is None,
        before=None if chosen.before is None else digest(chosen.before),
        after=digest(chosen.after),
        backup=backup,
        servers_file=chosen.servers_file,
        servers=digest(chosen.servers),
        at=datetime.now(UTC),
        bridge=chosen.bridge,
    )
