"""From files to a snapshot: the own file first, then hosts' files; of two servers of a name the earlier wins.

Raises for an own file that is malformed. A server or a host's file that can't be used is a problem by name,
and the rest is in use.
"""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from adapters.hosts.json_text import dotted
from adapters.hosts.mcp_servers import (
    ConfigProblem,
    McpServersFile,
    expand,
    read_entry,
    read_mcp_servers,
    server_name_fault,
)
from adapters.ports import UpstreamSpec
from nexus_gateway.access.secret_values import name_looks_secret
from nexus_gateway.settings.fields import Scalar
from nexus_gateway.settings.model_sections import EngineSettings
from nexus_gateway.settings.snapshot import (
    APPLICATION,
    HttpSettings,
    RoutingSettings,
    Sections,
    ServerOptions,
    ServerSettings,
    Settings,
    default_cache_dir,
)
from nexus_gateway.settings.toml_file import OwnFile, ServerTable, SettingsError, read_own_file

_CREDENTIAL = "a credential can't be bound, since hosts are shown what is; give it to the server itself, by `env` or `headers`"


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """A snapshot and where it is from.

    Attributes:
        problems: what could not be used, and why.
        sources: the files that were read, in order.
        notes: what has no effect or was overruled.
    """

    settings: Settings
    problems: tuple[ConfigProblem, ...] = ()
    sources: tuple[Path, ...] = ()
    notes: tuple[ConfigProblem, ...] = ()


def default_config_file() -> Path:
    """Where the own file is looked for unless `--config` names one."""
    return platformdirs.user_config_path(APPLICATION, appauthor=False) / "nexus.toml"


def load_settings(
    config: Path | None = None,
    mcp_configs: Sequence[Path] = (),
    environ: Mapping[str, str] = os.environ,
) -> LoadedSettings:
    """Read the own file and all hosts' files.

    Args:
        config: the own file; None takes the default one, which need not exist.
        mcp_configs: hosts' files besides those that the own file lists; these come first.
        environ: for `${VAR}`.

    Raises:
        SettingsError: a file named here does not exist, or the own file is malformed.
    """
    _require_files(mcp_configs)
    own = _own_file(config)
    loader = _Loader(own, environ)
    for path in mcp_configs:
        loader.add_host_file(path)
    loader.add_listed_host_files()
    loader.add_own_servers()
    return loader.loaded()


def _require_files(paths: Sequence[Path]) -> None:
    missing = [ConfigProblem(path, None, "", "there is no such file") for path in paths if not path.exists()]
    if missing:
        raise SettingsError(missing)


def _own_file(config: Path | None) -> OwnFile:
    path = config or default_config_file()
    return read_own_file(path) if config or path.exists() else OwnFile(path)


class _Loader:
    """Gathers servers, problems and notes file by file."""

    def __init__(self, own: OwnFile, environ: Mapping[str, str]) -> None:
        self._own = own
        self._environ = environ
        self._sources = [own.path] if own.path.exists() else []
        self._problems: list[ConfigProblem] = []
        self._notes: list[ConfigProblem] = []
        self._hosts: dict[str, tuple[Path, UpstreamSpec]] = {}
        self._host_names: set[str] = set()
        self._servers: dict[str, ServerSettings] = {}

    def add_host_file(self, path: Path) -> None:
        found = read_mcp_servers(path, self._environ)
        self._sources.append(path)
        self._problems += found.problems
        self._notes += found.notes
        self._host_names |= found.names
        self._join(path, found)

    def add_listed_host_files(self) -> None:
        for position, written in enumerate(self._own.tables.mcp_config):
            text, faults = expand(written, self._environ)
            path = self._resolve(text)
            reasons = faults or (() if path.exists() else (f"there is no file {path}",))
            self._problems += [self._own.problem(("mcp_config", position), reason) for reason in reasons]
            if not reasons and path not in self._sources:
                self.add_host_file(path)

    def add_own_servers(self) -> None:
        for name, table in self._own.tables.servers.items():
            host = self._hosts.pop(name, None)
            if not table.enabled:
                self._notes.append(self._about(name, "the server is disabled"))
            elif spec := self._own_spec(name, table, host):
                spec = replace(spec, era=table.era)
                options = _options(table) | {"bindings": self._bindings(name, table)}
                self._servers[name] = ServerSettings(spec=spec, **options)

    def loaded(self) -> LoadedSettings:
        hosts = {name: ServerSettings(spec=spec) for name, (_, spec) in self._hosts.items()}
        tables = self._own.tables
        self._note_unknown_preferred(self._servers | hosts)
        sections = {section.name: getattr(tables, section.name) for section in fields(Sections)}
        sections["engine"] = self._engine(tables.engine)
        sections["routing"] = self._routing(tables.routing)
        sections["http"] = self._http(tables.http)
        settings = Settings(
            **sections,
            servers=MappingProxyType(self._servers | hosts),
            cache_dir=self._resolve(tables.cache_dir) if tables.cache_dir else default_cache_dir(),
        )
        return LoadedSettings(settings, tuple(self._problems), tuple(self._sources), tuple(self._notes))

    def _routing(self, written: RoutingSettings) -> RoutingSettings:
        place = written.calibration
        return written if place is None else replace(written, calibration=str(self._resolve(place)))

    def _http(self, written: HttpSettings) -> HttpSettings:
        place = written.token_file
        return written if place is None else replace(written, token_file=str(self._resolve(place)))

    def _engine(self, written: EngineSettings) -> EngineSettings:
        """With variables in place; what has an unset one stays as written, so that the engine refuses it."""
        return replace(
            written,
            url=self._expanded(("engine", "url"), written.url),
            model=self._expanded(("engine", "model"), written.model),
        )

    def _expanded(self, path: tuple[str, ...], written: str | None) -> str | None:
        if written is None:
            return None
        text, faults = expand(written, self._environ)
        self._problems += [self._own.problem(path, fault) for fault in faults]
        return written if faults else text

    def _note_unknown_preferred(self, servers: Mapping[str, ServerSettings]) -> None:
        for position, name in enumerate(self._own.tables.routing.prefer):
            if name not in servers:
                near = difflib.get_close_matches(name, servers, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                message = f"no server in use is named {name!r}{hint}"
                self._notes.append(self._own.problem(("routing", "prefer", position), message))

    def _join(self, path: Path, found: McpServersFile) -> None:
        for name, spec in found.servers.items():
            winner, _ = self._hosts.setdefault(name, (path, spec))
            if winner is not path:
                message = f"the server of this name in {winner} is in use instead"
                self._notes.append(ConfigProblem(path, None, dotted((name,)), message, name))

    def _own_spec(
        self, name: str, table: ServerTable, host: tuple[Path, UpstreamSpec] | None
    ) -> UpstreamSpec | None:
        if table.transport:
            return self._written_spec(name, table, host)
        if host:
            return host[1]
        if name not in self._host_names:  # else its own file has said what is wrong, or that it is disabled
            message = "expected `command` or `url`, or a server of this name in an mcpServers file"
            self._problems.append(self._about(name, message))
        return None

    def _written_spec(
        self, name: str, table: ServerTable, host: tuple[Path, UpstreamSpec] | None
    ) -> UpstreamSpec | None:
        if host:
            self._notes.append(self._about(name, f"in use in place of the server of this name in {host[0]}"))
        spec, faults = read_entry(name, table.transport, self._environ)
        self._problems += [
            self._own.problem(("servers", name, *fault.path), fault.message, name) for fault in faults
        ]
        if reason := server_name_fault(name):
            self._problems.append(self._about(name, reason))
            return None
        return spec

    def _bindings(self, server: str, table: ServerTable) -> Mapping[str, Scalar]:
        """The usable ones; what is wrong with another leaves the server in use without it."""
        usable: dict[str, Scalar] = {}
        for name, written in table.bindings.items():
            value, faults = expand(written, self._environ) if isinstance(written, str) else (written, ())
            if name_looks_secret(name):
                faults = (_CREDENTIAL,)
            elif value == "":
                faults = faults or ("expected a value, got an empty one",)
            self._problems += [
                self._own.problem(("servers", server, "bindings", name), fault, server) for fault in faults
            ]
            if not faults:
                usable[name] = value
        return MappingProxyType(usable)

    def _about(self, name: str, message: str) -> ConfigProblem:
        return self._own.problem(("servers", name), message, name)

    def _resolve(self, written: str) -> Path:
        """A path of the own file: `~` is the home folder, a relative one starts at the file's folder."""
        home = os.path.expanduser(written)  # noqa: PTH111 - the one of pathlib raises for an unknown user
        return self._own.path.parent / home


def _options(table: ServerTable) -> dict[str, Any]:
    return {option.name: getattr(table, option.name) for option in fields(ServerOptions)}
