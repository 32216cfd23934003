"""Taking the gateway out of a host's file again.

To the byte where the file is as we left it. Where somebody has changed it since, the changes stay: our entry goes,
and the moved servers come back as they were written.
"""

from dataclasses import dataclass, field
from pathlib import Path

from adapters.hosts.document import HostDocument, HostFileError, read_document
from adapters.hosts.known import Dialect, Place
from nexus_gateway.files import write_bytes_atomically
from nexus_gateway.hosts.candidates import is_gateway, read_file
from nexus_gateway.hosts.registration import Folder, Registration, digest
from nexus_gateway.hosts.takeover import mode_of


@dataclass(frozen=True, slots=True)
class Undo:
    """What unregistering would do.

    Attributes:
        exact: the file becomes what it was before, to the byte.
        before: its bytes now; None where it is gone.
        after: what it becomes; None where it goes, as there was none.
        superfluous: files that go: what they say is in the host's file again.
        kept: files that stay, and why.
    """

    place: Place
    registration: Registration
    exact: bool
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    superfluous: tuple[Path, ...] = ()
    kept: tuple[tuple[Path, str], ...] = ()


def plan_undo(place: Place, registration: Registration) -> Undo:
    """Plan it; nothing is written. Raises HostFileError: a file that is needed is damaged or gone."""
    present, original = read_file(registration.file), _original(registration)
    untouched = present is None or digest(present) == registration.after
    if untouched and (original is not None or registration.before is None):
        after, exact = original, True
    else:
        after, exact = _without(place, registration, present, original), False
    superfluous, kept = _files(registration, exact=exact)
    return Undo(place, registration, exact, present, after, superfluous, kept)


def carry_out(undo: Undo, folder: Folder) -> None:
    """Do it: the host's file first, so that whatever fails can be tried again. Raises HostFileError."""
    file = undo.registration.file
    if read_file(file) != undo.before:
        raise HostFileError(f"{file} has been changed meanwhile; quit the host and try again")
    try:
        if undo.after is None:
            file.unlink(missing_ok=True)
        elif undo.after != undo.before:
            backup = undo.registration.backup
            like = file if file.exists() or backup is None else backup
            write_bytes_atomically(file, undo.after, mode=mode_of(like))
        for one in (*undo.superfluous, folder.state_file(undo.place)):
            one.unlink(missing_ok=True)
    except OSError as error:
        raise HostFileError(f"{error.filename or file} can't be written: {error.strerror}") from None


def _original(registration: Registration) -> bytes | None:
    """The file as it was, if its backup is still that."""
    if registration.backup is None:
        return None
    raw = read_file(registration.backup)
    return raw if raw is not None and digest(raw) == registration.before else None


def _without(
    place: Place, registration: Registration, present: bytes | None, original: bytes | None
) -> bytes:
    dialect = place.host.dialect
    try:
        now = read_document(present or b"", dialect, registration.pointer)
        source = _source(registration, dialect, original)
        texts = _texts(registration, source, now)
        name = registration.name if is_gateway(now.servers.get(registration.name)) else None
        return now.without_gateway(name, texts, made_servers=registration.made_servers)
    except HostFileError as error:
        raise HostFileError(f"{registration.file}: {error}") from None


def _texts(registration: Registration, source: HostDocument, now: HostDocument) -> dict[str, str]:
    """The moved entries as they were written, but for those that are there again and those nobody knows."""
    texts: dict[str, str] = {}
    for name in registration.moved:
        written = source.written(name)
        if written is not None:
            texts[name] = written
        elif name not in now.servers:
            raise HostFileError(
                f"the entry of {name} is in neither the backup nor {registration.servers_file}"
            )
    return texts


def _source(registration: Registration, dialect: Dialect, original: bytes | None) -> HostDocument:
    """What the moved entries were: from the backup, or else from the gateway's own file of them."""
    if original is not None:
        return read_document(original, dialect, registration.pointer)
    if dialect is Dialect.TOML and registration.moved:
        raise HostFileError(
            f"its backup {registration.backup} is gone or changed, and with it the entries' TOML"
        )
    raw = read_file(registration.servers_file)
    if raw is None and registration.moved:
        raise HostFileError(f"both its backup and {registration.servers_file} are gone")
    return read_document(raw or b"", Dialect.JSONC, ("mcpServers",))


def _files(
    registration: Registration, *, exact: bool
) -> tuple[tuple[Path, ...], tuple[tuple[Path, str], ...]]:
    superfluous: list[Path] = []
    kept: list[tuple[Path, str]] = []
    servers = read_file(registration.servers_file)
    if servers is not None and digest(servers) == registration.servers:
        superfluous.append(registration.servers_file)
    elif servers is not None:
        kept.append((registration.servers_file, "it has been changed since"))
    backup = registration.backup
    if backup is not None and exact:
        superfluous.append(backup)
    elif backup is not None and backup.exists():
        kept.append((backup, "the file as it was before the gateway"))
    return tuple(superfluous), tuple(kept)
