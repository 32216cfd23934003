"""`nexus-gateway serve`: what a host starts."""

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from nexus_gateway.boot import Transport, serve
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.options import ConfigOption, McpConfigOption, ReadFiles, settings_from, with_address
from nexus_gateway.server.stdio import serve_stdio
from nexus_gateway.settings import Settings, load_settings

if TYPE_CHECKING:
    from nexus_gateway.server.health import Health

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("serve")
def serve_command(
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve streamable HTTP here instead of stdio."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="With --http: the bearer token is in this file."),
    ] = None,
    token_keyring: Annotated[
        str | None,
        typer.Option(
            "--token-keyring",
            metavar="SERVICE/USER",
            help="With --http: the bearer token is in the system's keyring.",
        ),
    ] = None,
    *,
    hosts: Annotated[
        bool,
        typer.Option("--hosts", help="Serve what `register HOST --service` moved, too; the service does."),
    ] = False,
) -> None:
    """Serve hosts over stdio, or over HTTP with --http.

    A host's configuration names this command; its log goes to stderr. Over HTTP the address must be loopback unless
    there is a bearer token: where --token-file or --token-keyring says, else in the variable NEXUS_GATEWAY_TOKEN.
    Beside /mcp it answers /healthz (the process is up) and /readyz (models and servers are there) without a token.
    SIGTERM lets running requests end, SIGHUP reads the configuration again.
    """
    read_files = _reading(hosts=hosts)
    settings = settings_from(config, mcp_config, read=read_files).settings
    health: Health | None = None
    if http is None:
        transport: Transport = serve_stdio
    else:
        settings = with_address(settings, http)
        transport, health = _http(settings, token_file, token_keyring)
    read = functools.partial(read_files, config, mcp_config or (), os.environ)
    anyio.run(serve, settings, transport, read, health)


def _reading(*, hosts: bool) -> ReadFiles:
    if not hosts:
        return load_settings
    # Registrations are for the service alone, and stdio must answer in a second.
    from nexus_gateway.hosts.service_settings import load_service_settings  # noqa: PLC0415

    return load_service_settings


def _http(
    settings: Settings, token_file: Path | None, token_keyring: str | None
) -> tuple[Transport, "Health"]:
    # uvicorn and the SDK's authentication are for HTTP alone, and stdio must answer in a second.
    from nexus_gateway.cli.bearer_token import configured_place, token_or_exit  # noqa: PLC0415
    from nexus_gateway.server.health import Health  # noqa: PLC0415
    from nexus_gateway.server.http import UnsafeAddressError, check_address, serve_http  # noqa: PLC0415
    from nexus_gateway.server.listening import AddressUnusableError, bracketed, listen  # noqa: PLC0415

    token = token_or_exit(configured_place(settings.http, token_file, token_keyring))
    try:
        check_address(settings.http, token)
        listening = listen(settings.http)
    except (UnsafeAddressError, AddressUnusableError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.USAGE) from None
    typer.echo(f"serving http://{bracketed(settings.http.host)}:{settings.http.port}/mcp", err=True)
    health = Health()
    return functools.partial(serve_http, settings.http, token, listening, health=health), health
