"""Streamable HTTP: who is let in, and what `serve --http` says when it can't listen."""

import os
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from support.fake_gateway import BOTH_ERAS, PATIENCE, fake_gateway, outcome, said, tool
from typer.testing import CliRunner

from adapters.upstream_double import FakeUpstream
from nexus_gateway.cli.main import app
from nexus_gateway.server.http import PATH, UnsafeAddressError, _checks, build_app, check_address, serve_http
from nexus_gateway.server.listening import AddressUnusableError, listen
from nexus_gateway.settings.snapshot import HttpSettings

in_both_eras = pytest.mark.parametrize("era", BOTH_ERAS)
TOKEN = "s3cret-é"
ACCEPT = {"accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


@pytest.fixture
def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@asynccontextmanager
async def served(cache, port, *, token=None, **http):
    """A gateway that listens; gives an HTTP client for it and the fake upstream behind it."""
    notes = FakeUpstream("notes", [tool("list_notes", readOnlyHint=True)])
    settings, stop = HttpSettings(port=port, **http), anyio.Event()
    with anyio.fail_after(100):
        async with fake_gateway(cache, notes) as gateway, anyio.create_task_group() as tasks:
            tasks.start_soon(serve_http, settings, token, listen(settings), gateway.server, stop)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=ACCEPT) as client:
                yield client, notes
            stop.set()


async def status(client, **headers):
    return (await client.post(PATH, json=INITIALIZE, headers=headers)).status_code


@pytest.mark.anyio
async def test_hosts_on_this_machine_are_let_in_by_any_of_its_names(tmp_path, free_port):
    async with served(tmp_path, free_port) as (client, _):
        assert await status(client) == 200
        for name in ("127.0.0.1", "localhost", "[::1]"):
            assert await status(client, host=f"{name}:{free_port}") == 200, name


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80", "localhost.evil.example", "127.0.0.2:1"],
)
async def test_another_host_name_is_misdirected(tmp_path, free_port, name):
    async with served(tmp_path, free_port) as (client, _):
        assert await status(client, host=name) == 421


@pytest.mark.anyio
@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://127.0.0.1.evil.example:80", "http://localhost.evil.example"],
)
async def test_a_page_from_elsewhere_is_forbidden(tmp_path, free_port, origin):
    async with served(tmp_path, free_port) as (client, _):
        assert await status(client, origin=origin) == 403
        assert await status(client, origin=f"http://localhost:{free_port}") == 200


@pytest.mark.anyio
async def test_names_and_origins_of_the_configuration_are_let_in_besides(tmp_path, free_port):
    allowed = {"allowed_hosts": ("box.example:8765",), "allowed_origins": ("https://app.example",)}
    async with served(tmp_path, free_port, **allowed) as (client, _):
        assert await status(client, host="box.example:8765", origin="https://app.example") == 200
        assert await status(client, host="box.example:1") == 421
        assert await status(client, host=f"127.0.0.1:{free_port}") == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", "Basic s3cret", "Bearer s3cret-", "s3cret-é"],
)
async def test_without_the_token_nobody_gets_in(tmp_path, free_port, authorization):
    headers = {} if authorization is None else {"authorization": authorization}
    async with served(tmp_path, free_port, token=TOKEN) as (client, _):
        headers = {name: value.encode("latin-1") for name, value in headers.items()}
        refused = await client.post(PATH, json=INITIALIZE, headers=headers)
        assert refused.status_code == 401
        assert "bearer" in refused.headers["www-authenticate"].lower()
        assert TOKEN not in refused.text


@pytest.mark.anyio
@in_both_eras
@pytest.mark.parametrize("token", [None, "s3cret"])
async def test_with_the_token_a_host_works(tmp_path, free_port, era, token):
    import httpx2  # noqa: PLC0415 - what the SDK's client takes
    from mcp import Client  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with (
        served(tmp_path, free_port, token=token) as (_, notes),
        httpx2.AsyncClient(headers=headers) as http,
    ):
        transport = streamable_http_client(f"http://127.0.0.1:{free_port}{PATH}", http_client=http)
        async with Client(transport, mode=era, read_timeout_seconds=PATIENCE) as client:
            result = await client.call_tool("nexus_turn", {"request": "list_notes"})
    assert outcome(result) == "called", said(result)
    assert len(notes.calls) == 1


def test_an_address_of_ipv6_is_let_in_as_a_host_writes_it():
    assert "[fd00::7]:*" in _checks(HttpSettings(host="fd00::7")).allowed_hosts


@pytest.mark.anyio
async def test_a_body_over_the_limit_is_refused(tmp_path, free_port):
    async with served(tmp_path, free_port, max_body_bytes=1000) as (client, _):
        padded = INITIALIZE | {"padding": "x" * 2000}
        assert (await client.post(PATH, json=padded)).status_code == 413
        assert await status(client) == 200


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.5", "box.example", "localhost.evil.example"])
def test_an_address_that_others_reach_wants_a_token(address):
    settings = HttpSettings(host=address, token_env="MY_TOKEN")
    with pytest.raises(UnsafeAddressError, match="MY_TOKEN"):
        check_address(settings, None)
    with pytest.raises(UnsafeAddressError):
        build_app(None, settings, token=None)
    check_address(settings, TOKEN)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST"])
def test_an_address_that_only_this_machine_reaches_wants_none(address):
    check_address(HttpSettings(host=address), None)


def test_listening_says_what_is_wrong_with_an_address(free_port):
    with socket.create_server(("127.0.0.1", free_port)):
        with pytest.raises(AddressUnusableError, match=rf"127\.0\.0\.1:{free_port}: Address already in use"):
            listen(HttpSettings(port=free_port))
        with pytest.raises(AddressUnusableError, match="already in use"):
            listen(HttpSettings(host="localhost", port=free_port))
    with pytest.raises(AddressUnusableError, match=r"\[2001:db8::1\]:"):
        listen(HttpSettings(host="2001:db8::1", port=free_port))
    with pytest.raises(AddressUnusableError, match=r"192\.0\.2\.1"):
        listen(HttpSettings(host="192.0.2.1", port=free_port))
    for listener in listen(HttpSettings(host="localhost", port=free_port)):
        listener.close()


def serve(*options, **env):
    """`nexus-gateway serve` to its end: exit code and stderr."""
    command = [sys.executable, "-m", "nexus_gateway", "serve", *options]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "nexus.toml"
    file.write_text(f'cache_dir = "{tmp_path.as_posix()}/cache"\n[http]\ntoken_env = "MY_TOKEN"\n')
    return str(file)


def served_here(*options, **env):
    """As `serve`, in this process, of what ends before anything is served."""
    ended = CliRunner().invoke(app, ["serve", *options], env=env)
    assert isinstance(ended.exception, SystemExit)
    assert ended.stdout == ""
    return ended.exit_code, ended.stderr


@pytest.mark.parametrize("token", [{}, {"MY_TOKEN": ""}])
def test_serve_refuses_an_open_address_without_a_token(config, free_port, token):
    code, message = served_here("--config", config, "--http", f"0.0.0.0:{free_port}", **token)
    assert code == 2
    assert "0.0.0.0" in message
    assert "MY_TOKEN" in message


def test_serve_says_that_the_port_is_in_use(config, free_port):
    with socket.create_server(("127.0.0.1", free_port)):
        code, message = serve("--config", config, "--http", f"127.0.0.1:{free_port}")
    assert code == 2
    assert f"127.0.0.1:{free_port}: Address already in use" in message
    assert "serving" not in message


@pytest.mark.parametrize(
    "address", ["8765", "127.0.0.1:", ":8765", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:x"]
)
def test_serve_says_what_an_address_looks_like(config, address):
    code, message = served_here("--config", config, "--http", address)
    assert code == 2
    assert "HOST:PORT" in message
