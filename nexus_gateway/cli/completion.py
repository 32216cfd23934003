"""What the shell offers for names: hosts, presets, servers, tools. Knows settings and the cache folder; starts nothing.

Nothing fails here: what can't be read is offered as nothing.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from adapters.hosts.known import HOSTS
from nexus_gateway.fleet.pin_file import FILE_NAME, PinFile
from nexus_gateway.settings import PRESETS, Settings, SettingsError, load_settings
from tool_registry.pins import PinsError


def complete_host(incomplete: str) -> list[tuple[str, str]]:
    """Hosts by id, each with its name in words."""
    return [(host.id, host.title) for host in HOSTS if host.id.startswith(incomplete)]


def complete_preset(incomplete: str) -> list[str]:
    """Presets of models."""
    return _beginning(PRESETS, incomplete)


def complete_server(ctx: typer.Context, incomplete: str) -> list[str]:
    """Configured servers by name."""
    settings = _settings(ctx.params)
    return _beginning(settings.servers, incomplete) if settings else []


def complete_tool(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tools of the configured servers as `server/name`, as far as a gateway of this cache folder has listed them."""
    settings = _settings(ctx.params)
    if settings is None:
        return []
    try:
        listed = PinFile(settings.cache_dir / FILE_NAME).read().approved
    except PinsError:
        return []
    return _beginning((str(tool) for tool in listed if tool.server in settings.servers), incomplete)


def _settings(given: Mapping[str, Any]) -> Settings | None:
    """The settings that the options typed so far mean."""
    config, servers = given.get("config"), given.get("mcp_config")
    try:
        return load_settings(
            Path(config) if config else None, [Path(one) for one in servers or ()], os.environ
        ).settings
    except SettingsError:
        return None


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))
