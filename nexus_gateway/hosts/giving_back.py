"""Taking the gateway out of a host's file again.

To the byte where the file is as we left it. Where somebody has changed it since, the changes stay: our entry goes,
and the moved servers come back as they were written. No entry is dropped while it is in no other file.
"""

from dataclasses import dataclass, field
from pathlib import Path

from adapters.hosts.document import HostDocument, HostFileError, read_document
from adapters.hosts.known import Dialect, Place
from nexus_gateway.files import write_bytes_atomically
from nexus_gateway.hosts.file_access import mode_of, read_file, require_same, require_writable
from nexus_gateway.hosts.registration import Folder, Registration, digest


@dataclass(frozen=True, slots=True)
class Undo:
    """What unregistering would do.

    Attributes:
        file: the host's file, links followed as they are now.
        exact: the file becomes what it was before, to the byte.
        before: its bytes now; None where it is gone.
        after: what it becomes; None where it goes, as there was none.
        restored: the moved servers that come back; the host has others of the remaining names by now.
        superfluous: files that go: what they say is in the host's file again.
        kept: files that stay, and why.
        remark: what is not as it was; empty where all is.
    """

    place: Place
    registration: Registration
    file: Path
    exact: bool
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    restored: tuple[str, ...]
    superfluous: tuple[Path, ...] = ()
    kept: tuple[tuple[Path, str], ...] = ()
    remark: str = ""


def plan_undo(place: Place, registration: Registration) -> Undo:
    """Plan it; nothing is written. Raises HostFileError: a file that is needed is damaged or gone."""
    file = registration.file.resolve()  # it may have become a link since
    require_writable(file)
    present, original = read_file(file), _original(registration)
    found = None if present is None else digest(present)
    if found is not None and found == registration.before:
        return _exact(place, registration, file, present, present)
    if found in {None, registration.after} and (original is not None or registration.before is None):
        return _exact(place, registration, file, present, original)
    try:
        return _edited(place, registration, file, present, original)
    except HostFileError as error:
        raise HostFileError(f"{file}: {error}") from None


def carry_out(undo: Undo, folder: Folder) -> None:
    """Do it: the host's file first, so that whatever fails can be tried again. Raises HostFileError."""
    file = undo.file
    require_same(file, undo.before)
    try:
        if undo.after is None:
            file.unlink(missing_ok=True)
        elif undo.after != undo.before:
            backup = undo.registration.backup
            like = file if file.exists() or backup is None else backup
            write_bytes_atomically(file, undo.after, mode=mode_of(like), is_durable=True)
        for file in (*undo.superfluous, folder.state_file(undo.place)):
            file.unlink(missing_ok=True)
    except OSError as error:
        raise HostFileError(f"{file} can't be written: {error.strerror}") from None


def _original(registration: Registration) -> bytes | None:
    """The file as it was, if its backup is still that."""
    if registration.backup is None:
        return None
    raw = read_file(registration.backup)
    return raw if raw is not None and digest(raw) == registration.before else None


def _exact(
    place: Place, registration: Registration, file: Path, present: bytes | None, after: bytes | None
) -> Undo:
    superfluous, kept = _servers_file(registration)
    return Undo(
        place,
        registration,
        file,
        exact=True,
        before=present,
        after=after,
        restored=registration.moved,
        superfluous=(*superfluous, *_backup(registration)),
        kept=kept,
    )


def _edited(
    place: Place, registration: Registration, file: Path, present: bytes | None, original: bytes | None
) -> Undo:
    """The file as it is now, with servers in the place of our entry."""
    now = read_document(present or b"", place.host.dialect, registration.pointer)
    name = registration.entry_among(now.servers)
    source = _source(registration, place.host.dialect, original)
    missing = {
        one: source.written(one) for one in registration.moved if one == name or one not in now.servers
    }
    texts = {one: written for one, written in missing.items() if written is not None}
    if lost := [one for one in missing if one not in texts and name is not None]:
        raise HostFileError(
            f"the entries of {', '.join(lost)} are neither in its backup {registration.backup} nor in "
            f"{registration.servers_file}: put them in the place of {name} by hand, then run this again"
        )
    after = now.without_gateway(name, texts, made_servers=registration.made_servers)
    is_last_copy = original is None and len(texts) < len(registration.moved)
    superfluous, kept = _servers_file(registration, is_last_copy=is_last_copy)
    return Undo(
        place,
        registration,
        file,
        exact=False,
        before=present,
        after=after,
        restored=tuple(texts),
        superfluous=superfluous,
        kept=(*kept, *((one, "the file as it was before the gateway") for one in _backup(registration))),
        remark="its backup is gone or changed: they come back as the gateway had them"
        if texts and original is None
        else "",
    )


def _backup(registration: Registration) -> tuple[Path, ...]:
    """The backup, if it is there."""
    return (registration.backup,) if registration.backup and registration.backup.exists() else ()


def _source(registration: Registration, dialect: Dialect, original: bytes | None) -> HostDocument:
    """What the moved entries were: from the backup, or else from the gateway's own file of them, if in JSON."""
    if original is not None:
        return read_document(original, dialect, registration.pointer)
    raw = None if dialect is Dialect.TOML else read_file(registration.servers_file)
    try:
        return read_document(raw or b"", Dialect.JSONC, ("mcpServers",))
    except HostFileError as error:
        raise HostFileError(f"{registration.servers_file}: {error}") from None


def _servers_file(
    registration: Registration, *, is_last_copy: bool = False
) -> tuple[tuple[Path, ...], tuple[tuple[Path, str], ...]]:
    """Whether the file of moved servers is superfluous, or kept and why."""
    file = registration.servers_file
    content = read_file(file)
    if content is None:
        return (), ()
    if digest(content) != registration.servers:
        return (), ((file, "it has been changed since"),)
    if is_last_copy:
        return (), ((file, "it alone has the entries as they were moved"),)
    return (file,), ()
