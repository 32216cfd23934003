"""Options that several commands share, and settings from them."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from nexus_gateway.cli.exits import Exit
from nexus_gateway.settings import LoadedSettings, Settings, SettingsError, load_settings

ReadFiles: TypeAlias = Callable[[Path | None, Sequence[Path], Mapping[str, str]], LoadedSettings]
"""`load_settings`, or what reads further files."""
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="The gateway's own nexus.toml.", show_default="the user's, if any"
    ),
]
McpConfigOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--mcp-config",
        metavar="FILE",
        help="A host's mcpServers file (claude_desktop_config.json, .mcp.json), read as it is. May be repeated.",
    ),
]
ToolsOption = Annotated[
    Path,
    typer.Option(
        "--tools", metavar="FILE", help="Tools, JSON Lines: server, name, description, inputSchema."
    ),
]
SplitOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only the requests whose split is this.", show_default="all"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts.")]


def settings_from(
    config: Path | None,
    mcp_config: list[Path] | None,
    *,
    needs_servers: bool = False,
    read: ReadFiles = load_settings,
) -> LoadedSettings:
    """Settings for a command; what is wrong goes to stderr, and a file that can't be used at all ends it.

    With `needs_servers` a configuration without a single usable server ends it too.
    """
    try:
        loaded = read(config, mcp_config or (), os.environ)
    except SettingsError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.USAGE) from None
    for problem in loaded.problems:
        typer.echo(f"warning: {problem}", err=True)
    if needs_servers and not loaded.settings.servers:
        typer.echo("no server is configured: give --mcp-config FILE, or write nexus.toml", err=True)
        raise typer.Exit(Exit.USAGE)
    return loaded


def with_address(settings: Settings, address: str) -> Settings:
    """Settings that serve on HOST:PORT; ends the command where it is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:  # noqa: PLR2004 - TCP ports
        typer.echo(f"--http {address}: expected HOST:PORT, for example 127.0.0.1:8765", err=True)
        raise typer.Exit(Exit.USAGE)
    return replace(settings, http=replace(settings.http, host=host.strip("[]"), port=int(port)))
