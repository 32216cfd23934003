"""The official conformance suite: against our everything-server alone, and against the gateway before it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time

import httpx
import pytest
from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY
from support.conformance import RUN_SECONDS, install
from support.gateways import SERVERS, gateway_command
from support.processes import assert_none_is_left, new_mark

SCRIPT = str(SERVERS / "conformance_server.py")
LEGACY, MODERN = "2025-11-25", "2026-07-28"
START_SECONDS = 60
READY_TOOL = "test_simple_text"

pytestmark = [pytest.mark.npm, pytest.mark.slow, pytest.mark.timeout(2 * RUN_SECONDS)]

PASS_THROUGH = """
[expose]
meta_tools = false
tools = "all"
prefix = "never"
pass_through = true
"""


@pytest.fixture(scope="session")
def suite(tmp_path_factory, request):
    try:
        return install(lambda: tmp_path_factory.mktemp("conformance"))
    except pytest.skip.Exception as reason:
        request.config.get_terminal_writer().line(f"\n*** CONFORMANCE SUITE SKIPPED: {reason} ***")
        raise


@pytest.fixture
def mark():
    """Nothing that a test starts may outlive it."""
    mark = new_mark()
    yield mark
    assert_none_is_left(mark)


@contextlib.contextmanager
def running(command, mark, **pipes):
    with subprocess.Popen(command, env={**os.environ, **mark}, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(START_SECONDS)


@contextlib.contextmanager
def everything_over_http(mark):
    with running([sys.executable, SCRIPT, "http"], mark, stdout=subprocess.PIPE) as process:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"


@contextlib.contextmanager
def gateway(folder, upstream, mark):
    """A gateway over HTTP in pass-through before one upstream, once it lists the upstream's tools."""
    config = folder / "nexus.toml"
    table = "\n".join(f"{key} = {json.dumps(value)}" for key, value in upstream.items())
    cache = json.dumps(str(folder / "cache"))
    config.write_text(f"cache_dir = {cache}\n{PASS_THROUGH}\n[servers.everything]\n{table}\n")
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    command = gateway_command("serve", "--http", f"127.0.0.1:{port}", "--config", str(config))
    with (folder / "log").open("w") as log, running(command, mark, stderr=log):
        wait_until_listed(url)
        yield url


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def wait_until_listed(url):
    """The upstream starts in the background: `tools/list` is answered before it is there."""
    deadline = time.monotonic() + START_SECONDS
    while READY_TOOL not in (listed := names_of_tools(url)):
        assert time.monotonic() < deadline, f"the gateway does not list the upstream's tools: {listed}"
        time.sleep(0.1)


def names_of_tools(url):
    meta = {PROTOCOL_VERSION_META_KEY: MODERN, CLIENT_CAPABILITIES_META_KEY: {}}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/list",
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    try:
        answer = httpx.post(url, json=body, headers=headers).json()
    except httpx.ConnectError:
        return []
    return [tool["name"] for tool in answer["result"]["tools"]]


def assert_conforms(suite, url, revision, folder):
    verdict = suite.run(url, revision, folder / "results")
    assert verdict.passed, verdict.summary


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
def test_the_everything_server_itself_conforms(suite, revision, tmp_path, mark):
    with everything_over_http(mark) as url:
        assert_conforms(suite, url, revision, tmp_path)


@pytest.mark.parametrize(
    ("revision", "era"),
    [(MODERN, "modern"), (LEGACY, "legacy"), (LEGACY, "modern")],
)
def test_the_gateway_conforms_before_a_stdio_server(suite, revision, era, tmp_path, mark):
    upstream = {"command": sys.executable, "args": [SCRIPT, "stdio"], "era": era}
    with gateway(tmp_path, upstream, mark) as url:
        assert_conforms(suite, url, revision, tmp_path)


@pytest.mark.parametrize(("revision", "era"), [(MODERN, "modern"), (LEGACY, "legacy")])
def test_the_gateway_conforms_before_an_http_server(suite, revision, era, tmp_path, mark):
    with everything_over_http(mark) as behind, gateway(tmp_path, {"url": behind, "era": era}, mark) as url:
        assert_conforms(suite, url, revision, tmp_path)
