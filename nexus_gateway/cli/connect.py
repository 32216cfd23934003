"""`nexus-gateway connect`: a gateway that runs elsewhere, for hosts that speak stdio alone."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, NoReturn

import anyio
import anyio.to_thread
import httpx2
import typer

from adapters.loopback import is_loopback
from adapters.raw_endpoint import open_endpoint
from nexus_gateway.bridge.bridge import Bridge, ReadLine, WriteLine
from nexus_gateway.cli.bearer_token import TokenFileOption, TokenKeyringOption, TokenPlace, token_or_exit
from nexus_gateway.cli.exits import Exit
from nexus_gateway.server.stdio_wire import LineReader, LineWriter, claimed_stdout, on_pipes
from nexus_gateway.telemetry.logs import set_up_logs

PATIENCE_SECONDS = 20.0

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command("connect")
def connect_command(
    url: Annotated[str, typer.Argument(metavar="URL", help="For example http://127.0.0.1:8765/mcp")],
    *,
    token_env: Annotated[
        str,
        typer.Option(
            "--token-env",
            metavar="NAME",
            help="The variable that holds the bearer token, where none of the next two is given.",
        ),
    ] = "NEXUS_GATEWAY_TOKEN",  # noqa: S107 - the name of a variable
    token_file: TokenFileOption = None,
    token_keyring: TokenKeyringOption = None,
    patience: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, max=300, help="How long a request waits while the gateway restarts."
        ),
    ] = PATIENCE_SECONDS,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Send the token unencrypted to another machine.")
    ] = False,
) -> None:
    """Bridge stdio to a gateway that serves HTTP, such as the one that `service install` runs.

    A host starts this command like any stdio server. It survives restarts of the gateway: a request that was running
    fails with a message that says so, one that comes meanwhile waits, and the host's session goes on.
    It ends when the host closes stdin.
    """
    named = bool(token_file or token_keyring)
    token = token_or_exit(TokenPlace(None if named else token_env, token_file, token_keyring))
    _check(url, token, plain_http=plain_http)
    set_up_logs("warning")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    anyio.run(_bridge, url, headers, patience)


def _check(url: str, token: str | None, *, plain_http: bool) -> None:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        _refuse(f"the URL is none: {error}")
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        _refuse(
            "the URL must begin with http:// or https:// and a host, for example http://127.0.0.1:8765/mcp"
        )
    secret = token or parsed.userinfo
    if secret and parsed.scheme == "http" and not is_loopback(parsed.host) and not plain_http:
        _refuse(f"the token would travel to {parsed.host} unencrypted: use https, or --plain-http")


def _refuse(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(Exit.USAGE)


async def _bridge(url: str, headers: dict[str, str], patience: float) -> None:
    async with (
        open_endpoint(url, headers) as endpoint,
        _host_lines() as (read, write),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_stop_on_signal, tasks.cancel_scope)
        await Bridge(endpoint, read, write, patience_seconds=patience).run()
        tasks.cancel_scope.cancel()


async def _stop_on_signal(everything: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            everything.cancel()


@asynccontextmanager
async def _host_lines() -> AsyncIterator[tuple[ReadLine, WriteLine]]:
    """This process's stdin and stdout; until the end of the block fd 1 is stderr: no print gets on the wire."""
    if on_pipes():
        with claimed_stdout() as wire:
            yield LineReader(0).receive_line, LineWriter(wire).send_line
        return
    from nexus_gateway.server.stdio import StdinLines  # noqa: PLC0415 - a second of imports, for people alone

    lines, turn = aiter(StdinLines()), anyio.Lock()

    async def read() -> bytes:
        line = await anext(lines, None)
        if line is None:
            raise anyio.EndOfStream
        return line.encode()

    async def write(line: bytes) -> None:
        async with turn:
            await anyio.to_thread.run_sync(_write, line)

    yield read, write


def _write(line: bytes) -> None:
    """To a terminal or a file, which take all of it."""
    os.write(1, line)
