"""`nexus-gateway serve`: what a host starts."""

import functools
import os
from dataclasses import replace
from typing import Annotated

import anyio
import typer

from nexus_gateway.boot import Transport, serve
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.options import ConfigOption, McpConfigOption, settings_from
from nexus_gateway.server.stdio import serve_stdio
from nexus_gateway.settings import Settings, load_settings

app = typer.Typer(rich_markup_mode=None)


@app.command("serve")
def serve_command(
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve streamable HTTP here instead of stdio."),
    ] = None,
) -> None:
    """Serve hosts over stdio, or over HTTP with --http.

    A host's configuration names this command; its log goes to stderr. Over HTTP the address must be loopback
    unless a bearer token is set (NEXUS_GATEWAY_TOKEN).
    """
    settings = settings_from(config, mcp_config).settings
    if http is None:
        transport: Transport = serve_stdio
    else:
        settings = _with_address(settings, http)
        transport = _http(settings)
    read = functools.partial(load_settings, config, mcp_config or ())
    anyio.run(serve, settings, transport, read)


def _with_address(settings: Settings, address: str) -> Settings:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:  # noqa: PLR2004 - TCP ports
        typer.echo(f"--http {address}: expected HOST:PORT, for example 127.0.0.1:8765", err=True)
        raise typer.Exit(Exit.USAGE)
    return replace(settings, http=replace(settings.http, host=host.strip("[]"), port=int(port)))


def _http(settings: Settings) -> Transport:
    # uvicorn and the SDK's authentication are for HTTP alone, and stdio must answer in a second.
    from nexus_gateway.server.http import UnsafeAddressError, check_address, serve_http  # noqa: PLC0415
    from nexus_gateway.server.listening import AddressUnusableError, listen  # noqa: PLC0415

    token = os.environ.get(settings.http.token_env) or None
    try:
        check_address(settings.http, token)
        listening = listen(settings.http)
    except (UnsafeAddressError, AddressUnusableError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.USAGE) from None
    typer.echo(f"serving http://{settings.http.host}:{settings.http.port}/mcp", err=True)
    return functools.partial(serve_http, settings.http, token, listening)
