"""The service that the templates in deploy/ show."""

from pathlib import Path

from adapters.services.launchd import Launchd
from adapters.services.manager import ServicePlan
from adapters.services.systemd import Systemd

HOME = Path("/home/me")
MAC_HOME = Path("/Users/me")


def plan(home, config):
    program = (
        str(home / ".local/bin/nexus-gateway"),
        *("serve", "--http", "127.0.0.1:8765"),
        *("--mcp-config", str(home / "servers.json"), "--hosts"),
        *("--token-file", str(config / "nexus-gateway" / "http-token")),
    )
    return ServicePlan(program, {"PATH": f"{home / '.local/bin'}:/usr/local/bin:/usr/bin:/bin"}, 40)


def unit():
    config = HOME / ".config"
    return Systemd(config).render(plan(HOME, config))


def agent():
    return Launchd(MAC_HOME, 501).render(plan(MAC_HOME, MAC_HOME / "Library" / "Application Support"))
