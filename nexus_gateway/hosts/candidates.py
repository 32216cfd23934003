"""The servers that a host's file names, and whether each can stand behind the gateway.

Knows entries. Does not start a server, and changes no file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from adapters.hosts.document import HostDocument, HostFileError, read_document
from adapters.hosts.entries import translate
from adapters.hosts.json_text import dotted
from adapters.hosts.known import Place
from adapters.hosts.mcp_servers import read_entry, server_name_fault
from adapters.ports import UpstreamSpec
from nexus_gateway.hosts.file_access import read_file
from nexus_gateway.hosts.masking import has_secrets

_PROGRAM, _MODULE = "nexus-gateway", "nexus_gateway"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One server of a host.

    Attributes:
        entry: in the gateway's keys.
        spec: how it is reached; None where it can't be behind the gateway.
        refusal: why it can't; empty where it can.
        disabled: the host does not start it, and neither do we.
        is_gateway: it is this gateway.
        notes: what the host did with it and the gateway will not.
        unasked: why it is not started without being named, although it could be.
    """

    name: str
    entry: Mapping[str, Any] = field(repr=False)  # may hold secrets
    spec: UpstreamSpec | None = field(repr=False)
    refusal: str = ""
    disabled: bool = False
    is_gateway: bool = False
    notes: tuple[str, ...] = ()
    unasked: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether it can be started behind the gateway."""
        return self.spec is not None and not self.disabled and not self.is_gateway

    @property
    def secret_names(self) -> tuple[str, ...]:
        """Names of its variables and headers, whose values are never shown; with what looks secret elsewhere."""
        kept = [f"{part}.{name}" for part in ("env", "headers") for name in self.entry.get(part) or ()]
        return (*kept, *(part for part in ("args", "url") if has_secrets({part: self.entry.get(part)})))


def read_place(place: Place) -> tuple[bytes | None, HostDocument]:
    """A host's file and what it says; None and an empty document where there is no file.

    Raises:
        HostFileError: it can't be read; the message names it and says what to do.
    """
    raw = read_file(place.file)
    try:
        return raw, read_document(raw or b"", place.host.dialect, place.pointer)
    except HostFileError as error:
        raise HostFileError(f"{place.file}: {error}") from None


def candidates(place: Place, document: HostDocument, environ: Mapping[str, str]) -> list[Candidate]:
    """Every server of a file, in its order."""
    return [_candidate(place, name, written, environ) for name, written in document.servers.items()]


def _candidate(place: Place, name: str, written: object, environ: Mapping[str, str]) -> Candidate:
    found = translate(place.host, written)
    entry = found.entry
    if is_gateway(entry):
        return Candidate(name, entry, None, is_gateway=True)
    refusal = found.refusal or server_name_fault(name) or ""
    spec = None
    if not refusal:
        spec, faults = read_entry(name, entry, environ)
        refusal = "; ".join(": ".join(filter(None, (dotted(f.path), f.message))) for f in faults)
    return Candidate(name, entry, spec, refusal, found.disabled, notes=found.notes)


def is_gateway(entry: object) -> bool:
    """Whether an entry starts this program, also through a runner such as `uvx`."""
    if not isinstance(entry, Mapping):
        return False
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str):
        return False
    stem = PurePath(command.replace("\\", "/")).name.removesuffix(".exe")
    return stem == _PROGRAM or (isinstance(args, list) and (_MODULE in args or _PROGRAM in args))
