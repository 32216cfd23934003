"""What is remembered of a registration, so that it can be undone to the byte; one small file for each.

Holds places, names and hashes. No entry and no secret: those are in the backup and in the servers' file.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from adapters.hosts.document import HostFileError
from adapters.hosts.known import Place
from nexus_gateway.hosts.candidates import is_gateway
from nexus_gateway.settings import default_config_file

SERVERS_FOLDER, REGISTRATIONS_FOLDER = "servers", "registrations"


@dataclass(frozen=True, slots=True)
class Registration:
    """The gateway in one file of one host.

    Attributes:
        file: the host's file, links followed.
        pointer: member names that lead to its servers.
        name: that the gateway's entry got.
        moved: the servers behind the gateway.
        made_servers: the object of servers was not there before.
        before: SHA-256 of the file before; None where there was none.
        after: the same of what we made of it.
        backup: the file as it was; None where there was none.
        servers_file: where the moved entries are.
        servers: SHA-256 of that file.
        bridge: the entry's arguments where it reaches the service; empty where it starts a gateway of its own.
    """

    host: str
    file: Path
    pointer: tuple[str, ...]
    name: str
    moved: tuple[str, ...]
    made_servers: bool
    before: str | None
    after: str
    backup: Path | None
    servers_file: Path
    servers: str
    at: datetime
    bridge: tuple[str, ...] = ()

    def as_json(self) -> bytes:
        """What its file says."""
        return _REGISTRATION.dump_json(self, indent=1) + b"\n"

    def entry_among(self, servers: Mapping[str, Any]) -> str | None:
        """The name that its entry has now: a renamed one is known by its file of servers, or by its whole bridge."""
        if is_gateway(servers.get(self.name)):
            return self.name
        return next((name for name, entry in servers.items() if self._is_started_by(entry)), None)

    def _is_started_by(self, entry: object) -> bool:
        args = entry.get("args") if isinstance(entry, Mapping) else None
        if not isinstance(args, list):
            return False
        return tuple(args) == self.bridge if self.bridge else str(self.servers_file) in args


_REGISTRATION = TypeAdapter(Registration)


@dataclass(frozen=True, slots=True)
class Folder:
    """The gateway's configuration folder, where registrations are kept."""

    path: Path

    def servers_file(self, place: Place) -> Path:
        """Where a place's moved servers go."""
        return self.path / SERVERS_FOLDER / f"{registration_id(place)}.json"

    def state_file(self, place: Place) -> Path:
        """Where the registration of a place is remembered."""
        return self.path / REGISTRATIONS_FOLDER / f"{registration_id(place)}.json"

    def find(self, place: Place) -> Registration | None:
        """The registration of a place, if there is one. Raises HostFileError: its file can't be read."""
        return _read(self.state_file(place))

    def through_service(self) -> tuple[list[Registration], list[HostFileError]]:
        """The registrations of hosts that reach the service, the oldest first; and what can't be read."""
        found: list[Registration] = []
        faults: list[HostFileError] = []
        for file in sorted((self.path / REGISTRATIONS_FOLDER).glob("*.json")):
            try:
                one = _read(file)
            except HostFileError as error:
                faults.append(error)
                continue
            found += [one] if one is not None and one.bridge else []
        return sorted(found, key=lambda one: one.at), faults


def own_folder(config: Path | None) -> Folder:
    """The folder of the gateway's own file, `config` or the user's."""
    return Folder((config or default_config_file()).absolute().parent)


def _read(file: Path) -> Registration | None:
    try:
        return _REGISTRATION.validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostFileError(f"{file} can't be read: {error.strerror}") from None
    except ValidationError:
        raise HostFileError(
            f"{file} is no registration any more; restore the host's file from its backup beside it, "
            "then delete this file"
        ) from None


def registration_id(place: Place) -> str:
    """The host's id, with a mark of the file where a host can have several."""
    if place.standard and not place.host.in_project:
        return place.host.id
    return f"{place.host.id}-{digest(repr((str(place.file), place.pointer)).encode('utf-8', 'surrogateescape'))[:8]}"


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()
