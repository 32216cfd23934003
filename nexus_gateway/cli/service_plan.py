"""What `service install` is about to do: the command that will run, its environment, and what hosts are told.

Writes nothing.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx

from adapters.loopback import is_loopback
from adapters.services.manager import STOP_SECONDS, ServicePlan
from nexus_gateway.cli.bearer_token import TokenPlace, configured_place, token_or_exit
from nexus_gateway.hosts.programs import gateway_command
from nexus_gateway.server.listening import bracketed
from nexus_gateway.settings import HttpSettings

HOSTS_OPTION: Final = "--hosts"
"""Of `serve`: the servers of the hosts that reach the service are read at its start, and need no command of their own."""
_KEPT_VARIABLES: Final = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME")
"""They say where configuration and caches are; managers don't pass them on."""
_OF_THE_MANAGER: Final = ("HOME", "LOGNAME", "SHELL", "TMPDIR", "USER")
"""Variables that managers set by themselves."""
_HERE: Final = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - every address, this machine's loopback too
_SYSTEM_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")


@dataclass(frozen=True, slots=True)
class Installation:
    """A service as it is to be installed.

    Attributes:
        url: of the MCP endpoint.
    """

    plan: ServicePlan
    url: str
    token: TokenPlace

    @property
    def host_entry(self) -> dict[str, Any]:
        """What a host that speaks stdio alone is given."""
        command, *arguments = gateway_command()
        options = self.token.options()
        if not is_loopback(httpx.URL(self.url).host):
            options.append(
                "--plain-http"
            )  # an address of this machine that others reach too: so it was asked for
        return {"command": command, "args": [*arguments, "connect", self.url, *options]}


def installation(
    http: HttpSettings,
    token: TokenPlace,
    config: Path | None,
    mcp_configs: list[Path],
    environ: Mapping[str, str] = os.environ,
) -> Installation:
    """Plan a service; every path in it is absolute."""
    files = ["--config", _absolute(config)] if config else []
    for path in mcp_configs:
        files += ["--mcp-config", _absolute(path)]
    address = f"{bracketed(http.host)}:{http.port}"
    program = (*gateway_command(), "serve", "--http", address, *files, HOSTS_OPTION, *token.options())
    stop_seconds = math.ceil(http.drain_seconds) + STOP_SECONDS
    plan = ServicePlan(program, service_environment(environ), stop_seconds)
    return Installation(plan, url_of(program) or "", token)


def installation_of(program: tuple[str, ...], environ: Mapping[str, str] = os.environ) -> Installation:
    """What is installed, from the service's command."""
    plan = ServicePlan(program, service_environment(environ), STOP_SECONDS)
    return Installation(plan, url_of(program) or "", token_of(program))


def token_of(program: tuple[str, ...]) -> TokenPlace:
    """The token's place as a service's command names it."""
    named = dict(pairwise(program))
    file = named.get("--token-file")
    return TokenPlace(file=Path(file) if file else None, keyring=named.get("--token-keyring"))


def files_of(program: tuple[str, ...]) -> tuple[Path | None, list[Path]]:
    """The own file, if it is named, and the hosts' files of a service's command."""
    config = dict(pairwise(program)).get("--config")
    given = [Path(value) for option, value in pairwise(program) if option == "--mcp-config"]
    return Path(config) if config else None, given


def configured_token(http: HttpSettings) -> TokenPlace | None:
    """The place that the settings name; a variable is the shell's, and not the service's.

    One that holds no token ends the command, or the service would be started again and again to say so.
    """
    place = replace(configured_place(http), variable=None)
    if place == TokenPlace():
        return None
    token_or_exit(place)
    return place


def service_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the service has of the shell's variables: where programs and files are, and nothing that may be secret."""
    kept = {name: environ[name] for name in _KEPT_VARIABLES if environ.get(name)}
    folders = [*environ.get("PATH", "").split(os.pathsep), *_SYSTEM_PATH]
    usable = [one for one in dict.fromkeys(folders) if os.path.isabs(one) and Path(one).is_dir()]  # noqa: PTH117
    return {"PATH": os.pathsep.join(usable), **kept}


def seen_by_the_service(planned: Installation, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """All variables that the service will have, as far as they are known here."""
    given = {name: environ[name] for name in _OF_THE_MANAGER if name in environ}
    return given | dict(planned.plan.environment)


def url_of(program: tuple[str, ...]) -> str | None:
    """Where this machine reaches what a planned command serves; None for another command."""
    if "--http" not in program[:-1]:
        return None
    host, _, port = program[program.index("--http") + 1].rpartition(":")
    return f"http://{_HERE.get(host, host)}:{port}/mcp"


def entry_text(entry: Mapping[str, Any]) -> str:
    """The entry as it stands in a host's file."""
    return json.dumps({"mcpServers": {"nexus": entry}}, indent=2, ensure_ascii=False)


def _absolute(path: Path) -> str:
    return str(path.expanduser().absolute())
