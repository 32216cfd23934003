"""`connect`: a host over stdio on a gateway over HTTP, whatever happens to the gateway meanwhile."""

import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import anyio
import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError
from support.fleets import real_member
from support.http_gateway import gateway
from support.served import TOKEN, TOOL, free_port, serving
from typer.testing import CliRunner

from nexus_gateway.cli.connect import _check
from nexus_gateway.cli.main import app

MODERN = "2026-07-28"
PATIENCE = 60


def bridged(url, *options):
    arguments = ["-m", "nexus_gateway", "connect", url, *options]
    environ = {**os.environ, "NEXUS_GATEWAY_TOKEN": TOKEN}
    return StdioServerParameters(command=sys.executable, args=arguments, env=environ)


@asynccontextmanager
async def host(url, era, **options):
    with anyio.fail_after(PATIENCE):
        async with Client(
            stdio_client(bridged(url)), mode=era, read_timeout_seconds=PATIENCE, **options
        ) as client:
            yield client


async def text_of(client):
    return (await client.call_tool(TOOL, {})).content[0].text


@pytest.mark.anyio
async def test_sessions_outlive_their_gateway(tmp_path):
    heard, failed = [], []

    async def note(message):
        heard.append(getattr(message, "method", None))

    async def call_that_fails(client):
        with pytest.raises(MCPError) as caught:
            await client.call_tool(TOOL, {})
        failed.append(str(caught.value))

    with serving(tmp_path) as served:
        async with host(served.url, "legacy", message_handler=note) as old, host(served.url, MODERN) as new:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call_that_fails, old)
                tasks.start_soon(call_that_fails, new)
                await anyio.to_thread.run_sync(served.wait_for_calls, 2)
                served.kill()
            heard.clear()
            served.open_gate()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, served.start)
                for client in (old, new):
                    assert await text_of(client) == "through"
                    assert TOOL in [tool.name for tool in (await client.list_tools()).tools]
            # A legacy host hears notices over a stream of their own, which is opened again a moment later.
            while "notifications/message" not in heard:
                assert await text_of(old) == "through"
    assert len(failed) == 2
    assert all("went away" in text and "is not known" in text for text in failed)
    assert "notifications/tools/list_changed" in heard


@pytest.mark.anyio
async def test_a_question_of_a_server_reaches_the_host_and_its_answer_the_server():
    asked = []

    async def answer(_ctx, question):
        asked.append(question.message)
        return types.ElicitResult(action="accept", content={"n": 3})

    async with (
        gateway(real_member()) as (url, _fleet),
        host(url, "legacy", elicitation_callback=answer) as client,
    ):
        while "real__ask" not in [tool.name for tool in (await client.list_tools()).tools]:
            pass  # the server is connected anew, for a host that can be asked
        # The server answers the call once it has the answer to its question.
        result = await client.call_tool("real__ask", {"text": "how many?"})
    assert not result.is_error, result
    assert asked == ["how many?"]


# --- the command by itself


@contextmanager
def connected(*arguments, **environ):
    process = subprocess.Popen(
        [sys.executable, "-m", "nexus_gateway", "connect", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environ},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def answers(*lines, url=None, **environ):
    """What the bridge says to these lines, and on stderr, until it has ended by itself."""
    with connected(url or nobody(), "--patience", "0", **environ) as process:
        written = "".join(f"{line}\n" for line in lines).encode()
        out, err = process.communicate(written, timeout=PATIENCE)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()], err.decode()


def nobody():
    return f"http://127.0.0.1:{free_port()}/mcp"


def asking(number=1, method="tools/list"):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method})


def test_what_is_no_message_and_a_gateway_that_is_not_there_are_said_in_answers():
    said, _ = answers("not json", "[]", "", '{"jsonrpc":"2.0","method":"notifications/odd"}', asking("x"))
    assert [(one["id"], one["error"]["code"]) for one in said] == [
        (None, -32700),
        (None, -32600),
        ("x", -32000),
    ]
    assert "was not carried out" in said[2]["error"]["message"]
    assert "is the server running" in said[2]["error"]["message"]


def test_a_signal_ends_it():
    with connected(nobody()) as process:
        process.stdin.write(f"{asking()}\n".encode())
        process.stdin.flush()
        process.stdin.write(b"not json\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ftp://127.0.0.1/mcp"], "http://"),
        (["http://gateway.example/mcp"], "unencrypted"),
        (["http://127.0.0.1@gateway.example/mcp", "--token-env", "NO_SUCH"], "unencrypted"),
        (["http://me:secret@gateway.example/mcp", "--token-env", "NO_SUCH"], "unencrypted"),
        (["http://127.0.0.1/mcp", "--token-file", "/no/such/file"], "/no/such/file"),
        (["http://127.0.0.1/mcp", "--token-env", "ODD"], "ASCII"),
    ],
)
def test_wrong_options_are_said_at_once(arguments, said):
    ended = CliRunner().invoke(
        app, ["connect", *arguments], env={"NEXUS_GATEWAY_TOKEN": TOKEN, "ODD": "schlüssel"}
    )
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert TOKEN not in ended.output


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "[::1]", "localhost", "LOCALHOST"])
def test_the_token_goes_to_this_machine_unencrypted(address):
    _check(f"http://{address}:8765/mcp", TOKEN, plain_http=False)
