"""Hosts and the service: what a host needs to reach it, and telling it that a host came or went.

The service knows nothing of hosts' files; it reads the registrations when it starts and at SIGHUP.
"""

import os
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from adapters.hosts.document import HostFileError
from adapters.hosts.mcp_servers import read_entry
from adapters.ports import UpstreamSpec
from adapters.services.manager import ServiceManager
from nexus_gateway.cli.bearer_token import planned_place
from nexus_gateway.cli.host_files import again, place_registered
from nexus_gateway.cli.service_plan import (
    HOSTS_OPTION,
    Installation,
    configured_token,
    files_of,
    installation,
    installation_of,
    seen_by_the_service,
)
from nexus_gateway.cli.service_steps import ServiceError, answer_of, find_manager
from nexus_gateway.hosts.candidates import Candidate
from nexus_gateway.hosts.registration import Registration, own_folder
from nexus_gateway.hosts.service_settings import load_service_settings
from nexus_gateway.settings import LoadedSettings, SettingsError

_HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)


@dataclass(frozen=True, slots=True)
class Service:
    """The service of this user, as hosts reach it.

    Attributes:
        planned: what is installed, or what `service install` with the same configuration would install.
        installed: it is there, running or not.
        config: the own file that it has, if one is named.
        servers: those that it has by now.
    """

    manager: ServiceManager
    planned: Installation
    installed: bool
    config: Path | None
    servers: Mapping[str, UpstreamSpec]

    @property
    def bridge(self) -> tuple[str, ...]:
        """What a host starts to reach it, by absolute path."""
        entry = self.planned.host_entry
        return (entry["command"], *entry["args"])

    def lacks(self, moved: Candidate) -> str:
        """What a server is not given by the service, and is by this shell; empty where that is nothing."""
        _, faults = read_entry(moved.name, moved.entry, seen_by_the_service(self.planned))
        return "; ".join(fault.message for fault in faults)

    def tell(self) -> str:
        """Have a running service read its files again; what a person should know or do then."""
        if not self.installed:
            options = ["--config", str(self.config.absolute())] if self.config else []
            return f"next: {shlex.join(['nexus-gateway', 'service', 'install', *options])}"
        try:
            pid = self.manager.state_from(answer_of(self.manager.asking()))[1]
            # What is faulty keeps a reload from changing anything; a start leaves it out.
            faulty = bool(_settings_seen_there(self).problems)
        except (ServiceError, SettingsError):
            pid, faulty = None, True
        if pid is not None and _HANGUP is not None and not faulty:
            with suppress(OSError):
                os.kill(pid, _HANGUP)
                return "the service reads its files again now"
        return "next: nexus-gateway service start"


def find_service(config: Path | None) -> Service:
    """The service that a host of this configuration would reach.

    Raises:
        HostFileError: there is none and can be none, or it is one that does not read this configuration's hosts.
    """
    manager = find_manager()
    if manager is None:
        raise HostFileError("there is no service manager that is known here; register without --service")
    program = _program(manager)
    try:
        if program is not None:
            return _installed(manager, program, config)
        loaded = load_service_settings(config)
    except SettingsError as error:
        raise HostFileError(str(error)) from None
    http = loaded.settings.http
    planned = installation(http, configured_token(http) or planned_place("auto"), config, [])
    return Service(manager, planned, installed=False, config=config, servers=_specs(loaded))


def installed_service(config: Path | None) -> Service | None:
    """The service that reads the hosts of a configuration, where one is installed and its files can be read."""
    manager = find_manager()
    with suppress(HostFileError, SettingsError):
        if manager is not None and (program := _program(manager)) is not None:
            return _installed(manager, program, config)
    return None


def _installed(manager: ServiceManager, program: tuple[str, ...], config: Path | None) -> Service:
    """Raises HostFileError, SettingsError."""
    _require_own(program, config)
    own, given = files_of(program)
    servers = _specs(load_service_settings(own, given))
    return Service(manager, installation_of(program), installed=True, config=own, servers=servers)


def _specs(loaded: LoadedSettings) -> dict[str, UpstreamSpec]:
    return {name: server.spec for name, server in loaded.settings.servers.items()}


def warn_of_other_addresses(planned: Installation, config: Path | None) -> None:
    """Say which hosts were registered for another address or token than the service will have."""
    arguments = tuple(planned.host_entry["args"])
    for one in own_folder(config).through_service()[0]:
        place = place_registered(one)
        if one.bridge != arguments and place is not None:
            anew = f"{again('unregister', place, config)}, then {again('register', place, config)} --service"
            typer.echo(f"warning: {place.label} looks for the service elsewhere: {anew}", err=True)


def warn_of_left_hosts(config: Path | None) -> None:
    """Say which hosts reach the service that has just gone."""
    for one in own_folder(config).through_service()[0]:
        place = place_registered(one)
        if place is not None:
            undo = again("unregister", place, config)
            typer.echo(f"warning: {place.label} has its servers behind the service: {undo}", err=True)


def require_same_way(found: Registration, service: Service | None, undo: str, anew: str) -> None:
    """Raises HostFileError: a host is registered in another way than is wanted, or for another address."""
    wanted = service.bridge[1:] if service else ()
    if found.bridge == wanted:
        return
    if not found.bridge:
        now, to = "starts a gateway of its own", "have it reach the service"
    elif service is None:
        now, to = "reaches the service", "have it start a gateway of its own"
    else:
        now, to = "looks for the service at another address, or with another token", "put that right"
    raise HostFileError(f"{found.file} {now}; to {to}: `{undo}`, then `{anew}`")


def _program(manager: ServiceManager) -> tuple[str, ...] | None:
    """The command of the installed service; None where none is. Raises HostFileError."""
    try:
        return manager.command_of(manager.file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HostFileError(f"{manager.file} is not usable: {error}; install the service again") from None


def _require_own(program: tuple[str, ...], config: Path | None) -> None:
    """Raises HostFileError: an installed service does not read the hosts of this configuration."""
    theirs = files_of(program)[0]
    if HOSTS_OPTION not in program:
        raise HostFileError(
            "the service was installed by an older version, which reads no hosts: run `nexus-gateway service install` "
            "again with the same options"
        )
    if own_folder(theirs).path.resolve() != own_folder(config).path.resolve():
        told = f"--config {shlex.quote(str(theirs))}" if theirs else "no --config"
        raise HostFileError(
            f"the service has another configuration; register with {told}, as it was installed"
        )


def _settings_seen_there(service: Service) -> LoadedSettings:
    config, given = files_of(service.planned.plan.program)
    return load_service_settings(config, given, seen_by_the_service(service.planned))
