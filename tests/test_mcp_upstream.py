"""Real servers behind `adapters.mcp_upstream`: both eras, both transports, and all the ways they fail."""

import http.server
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import anyio
import psutil
import pytest
from servers.raw_server import ODD_RESULT, ODD_TOOL

from adapters.mcp_upstream import connect
from adapters.ports import (
    Era,
    HostSide,
    HttpSpec,
    StdioSpec,
    UpstreamRefused,
    UpstreamSpec,
    UpstreamTimeout,
    UpstreamUnavailable,
)

SERVERS = Path(__file__).parent / "servers"
BOTH_ERAS = pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    left = psutil.Process().children(recursive=True)
    assert not left, left


def raw(mode="plain", **options):
    return UpstreamSpec("raw", StdioSpec(sys.executable, (str(SERVERS / "raw_server.py"), mode)), **options)


def sdk(era=None, **env):
    return UpstreamSpec("sdk", StdioSpec(sys.executable, (str(SERVERS / "sdk_server.py"), "stdio"), env), era)


ignore = HostSide()


def call(upstream, tool, timeout_seconds=30, **rest):
    params = {"name": tool, "arguments": rest.pop("arguments", {})}
    if "meta" in rest:
        params["_meta"] = rest.pop("meta")
    return upstream.request("tools/call", params, timeout_seconds=timeout_seconds, **rest)


async def received(upstream, method):
    heard = (await call(upstream, "received"))["received"]
    return [message for message in heard if message.get("method") == method]


async def line_of(path, line):
    with anyio.fail_after(20):
        while not (path.exists() and line in path.read_text().splitlines()):  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.01)


@contextmanager
def http_server(port=0):
    command = [sys.executable, str(SERVERS / "sdk_server.py"), "http", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def over_http(port, era=None, **headers):
    return UpstreamSpec("web", HttpSpec(f"http://user:pw@127.0.0.1:{port}/mcp?key=pw", headers), era)


@contextmanager
def answering(status, body=b"", kind="text/html"):
    """An HTTP server that gives every POST the same answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


async def failure(spec):
    with pytest.raises(UpstreamUnavailable) as caught:
        async with connect(spec, ignore):
            pass
    return str(caught.value)


@BOTH_ERAS
async def test_a_stdio_server_is_called_in_either_era(era):
    async with connect(sdk(era), ignore) as upstream:
        assert upstream.era is era
        assert upstream.server == "sdk"
        assert upstream.instructions == "be kind"
        assert [tool["name"] for tool in await upstream.list_tools()] == ["echo", "wait", "count"]
        result = await call(upstream, "echo", arguments={"text": "hi"})
        assert result["content"] == [{"type": "text", "text": "hi"}]


@BOTH_ERAS
async def test_an_http_server_is_called_in_either_era(era):
    with http_server() as port:
        async with connect(over_http(port, era), ignore) as upstream:
            assert upstream.era is era
            assert len(await upstream.list_tools()) == 3
            # The server checks the mirrored `Mcp-Param-Text` header against the argument.
            result = await call(upstream, "echo", arguments={"text": "grüße"})
            assert result["content"] == [{"type": "text", "text": "grüße"}]


async def test_negotiation_prefers_the_modern_era():
    async with connect(sdk(), ignore) as upstream:
        assert upstream.era is Era.MODERN
    with http_server() as port:
        async with connect(over_http(port), ignore) as upstream:
            assert upstream.era is Era.MODERN


@pytest.mark.parametrize("mode", ["plain", "silent-probe", "exit-on-probe"])
async def test_a_legacy_server_is_found_whatever_it_does_with_the_probe(mode):
    async with connect(raw(mode), ignore) as upstream:
        assert upstream.era is Era.LEGACY
        assert upstream.instructions == "speak plainly"


async def test_a_remembered_legacy_era_sends_no_probe():
    async with connect(raw(era=Era.LEGACY), ignore) as upstream:
        assert await received(upstream, "server/discover") == []
        assert len(await received(upstream, "initialize")) == 1


async def test_unknown_fields_future_content_and_meta_are_relayed_untouched():
    async with connect(raw(), ignore) as upstream:
        assert await call(upstream, "odd") == ODD_RESULT


async def test_every_page_is_listed_with_its_odd_entries():
    async with connect(raw(), ignore) as upstream:
        listed = await upstream.list_tools()
    assert listed == [ODD_TOOL, {"name": "big"}, "not an object", {"name": "die"}, {"name": "never"}]


async def test_a_repeated_cursor_ends_the_listing():
    async with connect(raw("repeating"), ignore) as upstream:
        listed = await upstream.list_tools()
    assert listed == [ODD_TOOL, {"name": "big"}, {"name": "again 2"}]


async def test_a_server_without_tools_lists_none_and_is_not_asked():
    async with connect(raw("no-tools"), ignore) as upstream:
        assert await upstream.list_tools() == []
        assert await received(upstream, "tools/list") == []


async def test_a_listing_that_is_no_list_is_named():
    async with connect(raw("bad-listing"), ignore) as upstream:
        with pytest.raises(UpstreamUnavailable, match="raw: its answer to tools/list has no list `tools`"):
            await upstream.list_tools()


async def test_a_callers_meta_is_kept_and_connection_owned_keys_are_not():
    meta = {
        "vendor.example/k": {"a": 1},
        "progressToken": 1,
        "io.modelcontextprotocol/protocolVersion": "1999-01-01",
    }
    async with connect(raw(), ignore) as upstream:
        await call(upstream, "odd", meta=meta)
        sent = next(m for m in await received(upstream, "tools/call") if m["params"]["name"] == "odd")
    assert sent["params"]["_meta"] == {"vendor.example/k": {"a": 1}}
    assert meta["progressToken"] == 1


async def test_a_modern_request_claims_the_connections_own_version():
    meta = {"io.modelcontextprotocol/protocolVersion": "1999-01-01"}
    async with connect(sdk(Era.MODERN), ignore) as upstream:
        result = await call(upstream, "echo", arguments={"text": "hi"}, meta=meta)
    assert result["content"] == [{"type": "text", "text": "hi"}]


async def test_ten_megabytes_arrive_whole():
    async with connect(raw(), ignore) as upstream:
        result = await call(upstream, "big")
    assert len(result["content"][0]["text"]) == 10_000_000


async def test_rubbish_on_stdout_is_skipped():
    async with connect(raw("rubbish"), ignore) as upstream:
        assert await call(upstream, "odd") == ODD_RESULT


async def test_invalid_utf8_is_replaced():
    async with connect(raw(), ignore) as upstream:
        assert await call(upstream, "latin1") == {"text": "caf\N{REPLACEMENT CHARACTER}"}


async def test_an_answer_that_is_not_valid_fails_its_own_call():
    async with connect(raw(), ignore) as upstream:
        with pytest.raises(UpstreamRefused, match="not a valid JSON-RPC response"):
            await call(upstream, "surrogate")
        assert await call(upstream, "odd") == ODD_RESULT


async def test_arguments_that_are_not_valid_unicode_fail_their_own_call():
    async with connect(raw(), ignore) as upstream:
        with pytest.raises(UpstreamRefused, match="can't be written as JSON"):
            await call(upstream, "odd", arguments={"text": "\ud800"})
        assert await call(upstream, "odd") == ODD_RESULT


async def test_a_refusal_keeps_code_message_and_data():
    async with connect(raw(), ignore) as upstream:
        with pytest.raises(UpstreamRefused) as caught:
            await call(upstream, "refuse")
    assert (caught.value.code, caught.value.message) == (-32000, "Connection closed")
    assert caught.value.data == {"mine": True}


async def test_a_changed_tool_list_is_told():
    changed = anyio.Event()
    async with connect(raw(), HostSide(heard=lambda *_: changed.set())) as upstream:
        await call(upstream, "change")
        with anyio.fail_after(10):
            await changed.wait()


@BOTH_ERAS
async def test_progress_is_told(era):
    told, heard = [], anyio.Event()

    async def on_progress(progress, total, message):
        told.append((progress, total, message))
        heard.set()

    async with connect(sdk(era), ignore) as upstream:
        await call(upstream, "count", on_progress=on_progress)
        with anyio.fail_after(10):
            await heard.wait()
    assert told == [(1.0, 3.0, "one of three")]


async def test_no_answer_ends_at_the_deadline_with_the_place_to_change_it():
    async with connect(raw(), ignore) as upstream:
        with pytest.raises(
            UpstreamTimeout, match=r"raw: no answer to tools/call within 0.2 s.*timeout_seconds"
        ):
            await call(upstream, "never", timeout_seconds=0.2)
        assert len(await received(upstream, "notifications/cancelled")) == 1
        assert await call(upstream, "odd") == ODD_RESULT


async def test_a_server_that_stops_reading_holds_no_call_past_its_deadline():
    async with connect(raw("deaf"), ignore) as upstream:
        with pytest.raises(UpstreamTimeout):
            await call(upstream, "odd", timeout_seconds=0.2, arguments={"text": "x" * 1_000_000})


@BOTH_ERAS
async def test_cancelling_a_call_reaches_a_stdio_server(era, tmp_path):
    log = tmp_path / "log"
    async with connect(sdk(era, CANCEL_LOG=str(log)), ignore) as upstream:
        await cancel_a_call(upstream, log)


@BOTH_ERAS
async def test_cancelling_a_call_reaches_an_http_server(era, tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("CANCEL_LOG", str(log))
    with http_server() as port:
        async with connect(over_http(port, era), ignore) as upstream:
            await cancel_a_call(upstream, log)


async def cancel_a_call(upstream, log):
    await upstream.list_tools()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, upstream, "wait")
        await line_of(log, "started")
        tasks.cancel_scope.cancel()
    await line_of(log, "cancelled")
    assert (await call(upstream, "echo", arguments={"text": "on"}))["content"][0]["text"] == "on"


async def test_a_crash_at_start_is_told_with_its_last_words():
    assert await failure(raw("crash")) == "raw: exited with code 1: Traceback: no module named cheese"


async def test_a_crash_in_a_call_fails_that_call_with_its_last_words():
    async with connect(raw(), ignore) as upstream:
        with pytest.raises(UpstreamUnavailable, match="raw: exited with code 3: out of cheese"):
            await call(upstream, "die")
        assert await upstream.wait_closed() == "exited with code 3: out of cheese"
        with pytest.raises(UpstreamUnavailable, match="out of cheese"):
            await call(upstream, "odd")


async def test_a_killed_server_is_told_by_signal():
    async with connect(raw(), ignore) as upstream:
        with pytest.raises(UpstreamUnavailable, match="raw: was killed by SIGKILL"):
            await call(upstream, "killed")


async def test_all_running_calls_learn_of_the_end():
    failed = []

    async def fails(upstream, tool):
        with pytest.raises(UpstreamUnavailable):
            await call(upstream, tool)
        failed.append(tool)

    async with connect(raw(), ignore) as upstream, anyio.create_task_group() as tasks:
        for tool in ("never", "never", "die"):
            tasks.start_soon(fails, upstream, tool)
    assert sorted(failed) == ["die", "never", "never"]


def started_by_servers():
    return [child for child in psutil.Process().children(recursive=True) if child.name() == "sleep"]


def is_gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE  # its new parent is not ours to hurry
    except psutil.NoSuchProcess:
        return True


async def test_a_grandchild_ends_with_the_connection():
    async with connect(raw("grandchild"), ignore):
        (grandchild,) = started_by_servers()
    assert is_gone(grandchild)


async def test_a_grandchild_ends_when_the_server_exits_by_itself():
    async with connect(raw("grandchild"), ignore) as upstream:
        (grandchild,) = started_by_servers()
        # It holds the server's stdout open, so no end of file tells of the exit.
        with pytest.raises(UpstreamUnavailable, match=r"exited with code 3: grandchild \d+\nout of cheese"):
            await call(upstream, "die")
    assert is_gone(grandchild)


async def test_a_cancelled_connect_leaves_no_process():
    with anyio.move_on_after(0.5) as scope:
        async with connect(raw("silent-probe"), ignore):
            pytest.fail("connected")
    assert scope.cancelled_caught


async def test_an_error_in_the_block_passes_unwrapped_and_still_closes():
    with pytest.raises(KeyError, match="mine"):
        async with connect(raw(), ignore) as upstream:
            raise KeyError("mine")
    assert await upstream.wait_closed() == "closed by the gateway"
    with pytest.raises(UpstreamUnavailable, match="closed by the gateway"):
        await call(upstream, "odd")


async def test_a_command_not_found_names_itself_the_path_and_the_fix():
    spec = UpstreamSpec("raw", StdioSpec("no-such-command", env={"PATH": "/usr/nowhere"}))
    message = await failure(spec)
    assert "raw: the command 'no-such-command' was not found; PATH searched: /usr/nowhere" in message
    assert "absolute path" in message


async def test_what_else_can_not_be_started_is_told(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("#!/no/such/interpreter\n")
    missing = UpstreamSpec("raw", StdioSpec(str(tmp_path / "absent")))
    assert "there is no file" in await failure(missing)
    assert "is not executable" in await failure(UpstreamSpec("raw", StdioSpec(str(plain))))
    plain.chmod(0o755)
    assert "interpreter" in await failure(UpstreamSpec("raw", StdioSpec(str(plain))))
    astray = UpstreamSpec("raw", StdioSpec(sys.executable, cwd=str(tmp_path / "absent")))
    assert "correct `cwd`" in await failure(astray)


async def test_the_environment_is_what_was_configured(monkeypatch):
    monkeypatch.setenv("GATEWAY_SECRET", "s")
    code = 'import os, sys; sys.exit(f\'{os.environ.get("GATEWAY_SECRET")} {os.environ["GIVEN"]} {os.getcwd()}\')'
    spec = UpstreamSpec("raw", StdioSpec(sys.executable, ("-c", code), {"GIVEN": "g"}, "/"))
    assert await failure(spec) == "raw: exited with code 1: None g /"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "answered 401 Unauthorized; set an `Authorization` header"),
        (403, "answered 403 Forbidden; check the rights"),
        (404, "answered 404 Not Found; check the path"),
        (503, "answered 503 Service Unavailable; see the server's own log"),
    ],
)
async def test_an_http_status_at_connect_is_told_without_secrets(status, words):
    with answering(status) as port:
        message = await failure(over_http(port))
    assert message == f"web: http://127.0.0.1:{port}/mcp {message.partition('/mcp ')[2]}"
    assert words in message


async def test_an_answer_that_is_no_protocol_is_told():
    with answering(200, b"<html>") as port:
        assert "refused the handshake: Unexpected content type: text/html" in await failure(over_http(port))


async def test_a_refused_connection_and_an_unknown_host_are_told():
    with answering(200) as port:
        pass
    assert "is the server running" in await failure(over_http(port))
    unknown = UpstreamSpec("web", HttpSpec("http://no-such-host.invalid/mcp"))
    assert "host name can't be resolved" in await failure(unknown)
    assert "must begin with http" in await failure(UpstreamSpec("web", HttpSpec("ftp://host/mcp")))


async def test_a_restarted_http_server_ends_the_legacy_session():
    with http_server() as port:
        spec = over_http(port, Era.LEGACY)
        manager = connect(spec, ignore)
        upstream = await manager.__aenter__()
    with http_server(port):
        try:
            with pytest.raises(UpstreamUnavailable, match="no longer knows this session"):
                await call(upstream, "echo", arguments={"text": "hi"})
            assert "no longer knows this session" in await upstream.wait_closed()
        finally:
            await manager.__aexit__(None, None, None)


@BOTH_ERAS
async def test_an_http_server_that_dies_in_a_call_fails_that_call(era, tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("CANCEL_LOG", str(log))
    failed = anyio.Event()

    async def waits(upstream):
        with pytest.raises(UpstreamUnavailable, match="the connection broke"):
            await call(upstream, "wait")
        failed.set()

    with http_server() as port:
        manager = connect(over_http(port, era), ignore)
        upstream = await manager.__aenter__()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(waits, upstream)
                await line_of(log, "started")
                psutil.Process().children()[0].kill()
                with anyio.fail_after(20):
                    await failed.wait()
            for _ in range(2):  # the first may meet a pooled connection that is just breaking
                with pytest.raises(UpstreamUnavailable):
                    await call(upstream, "echo")
            with anyio.fail_after(20):
                assert "is the server running" in await upstream.wait_closed()
        finally:
            await manager.__aexit__(None, None, None)


def test_importing_the_adapter_starts_nothing_heavy():
    code = (
        "import sys, mcp, mcp.server.stdio; before = set(sys.modules); import adapters.mcp_upstream; "
        "print({m.partition('.')[0] for m in set(sys.modules) - before} & {'torch', 'llama_cpp', 'uvicorn', "
        "'jsonschema', 'sentence_transformers', 'pandas', 'scipy'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.npm
@pytest.mark.parametrize("package", ["filesystem", "memory", "everything"])
async def test_the_public_node_servers_connect_and_list(package, npm_servers, tmp_path):
    arguments = (str(npm_servers[package]), "stdio" if package == "everything" else str(tmp_path))
    spec = UpstreamSpec(package, StdioSpec("node", arguments, cwd=str(tmp_path)))
    async with connect(spec, ignore) as upstream:
        assert upstream.era is Era.LEGACY
        assert len(await upstream.list_tools()) > 5
