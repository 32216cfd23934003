"""Streamable HTTP servers that hang, forget, drop and refuse: what each costs, and what it must not."""

import json
import os
import subprocess
from contextlib import contextmanager

import anyio
import httpx2
import pytest
from servers.handmade_http import SECONDS, handmade_server, never, reply, start_stream

from adapters import http_transport
from adapters.mcp_upstream import connect
from adapters.ports import Era, HostSide, HttpSpec, UpstreamSpec, UpstreamTimeout, UpstreamUnavailable

pytestmark = pytest.mark.anyio
SOON = 0.2
"""Deadline, in seconds, of calls that nobody answers."""


def spec_of(server):
    return UpstreamSpec("web", HttpSpec(f"http://127.0.0.1:{server.port}/mcp"), Era.LEGACY)


def call(upstream, seconds=SECONDS):
    return upstream.request("tools/call", {"name": "x"}, timeout_seconds=seconds)


def methods(server):
    return [message.get("method") for message in server.messages]


async def happens(event):
    assert await anyio.to_thread.run_sync(event.wait, SECONDS)


def stream_and_hang(handler, message):
    start_stream(handler)
    handler.wfile.write(b": busy\n\n")
    handler.wfile.flush()
    never(handler, message)


def resumable_and_hang(handler, message):
    start_stream(handler)
    handler.wfile.write(b"retry: 1\nid: 1\ndata:\n\n")


@pytest.mark.parametrize("hang", [never, stream_and_hang])
async def test_a_call_that_timed_out_leaves_no_request_open(hang):
    with handmade_server() as server:
        server.answers["tools/call"] = hang
        async with connect(spec_of(server), HostSide()) as upstream:
            with pytest.raises(UpstreamTimeout):
                await call(upstream, SOON)
            await happens(server.hung_up)
            assert await upstream.request("ping", {}, timeout_seconds=SECONDS) == {}


async def test_a_call_that_timed_out_takes_up_no_broken_stream_again():
    with handmade_server() as server:
        server.answers["tools/call"] = resumable_and_hang
        server.on_get = lambda handler: (
            stream_and_hang(handler, {})
            if handler.headers["last-event-id"]
            else reply(handler, {}, status=405)
        )
        async with connect(spec_of(server), HostSide()) as upstream:
            with pytest.raises(UpstreamTimeout):
                await call(upstream, 1)
            await happens(server.hung_up)
            assert await upstream.request("ping", {}, timeout_seconds=SECONDS) == {}


async def test_a_notification_that_is_never_accepted_holds_nothing_up(monkeypatch):
    monkeypatch.setattr(http_transport, "ASIDE_SECONDS", 10 * SECONDS)
    with handmade_server() as server:
        server.answers |= {"tools/call": never, "notifications/cancelled": never}
        async with connect(spec_of(server), HostSide()) as upstream:
            for _ in range(3):
                with pytest.raises(UpstreamTimeout):
                    await call(upstream, SOON)
                assert await upstream.request("ping", {}, timeout_seconds=SECONDS / 2) == {}
    assert methods(server).count("notifications/cancelled") == 3


STALE_BODY = {
    "jsonrpc": "2.0",
    "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"},
    "id": None,
}


def forget(status):
    return lambda handler, message: reply(handler, message, status=status, body=STALE_BODY)


@pytest.mark.parametrize("status", [404, 400])
async def test_stale_session_after_an_upstream_restart_ends_the_connection(status):
    with handmade_server() as server:
        server.answers["tools/call"] = forget(status)
        async with connect(spec_of(server), HostSide()) as upstream:
            with pytest.raises(UpstreamUnavailable, match="no longer knows this session"):
                await call(upstream)
            assert "reconnect" in await upstream.wait_closed()


async def test_another_error_with_the_same_code_ends_nothing():
    body = {"jsonrpc": "2.0", "error": {"code": -32000, "message": "quota"}, "id": None}
    with handmade_server() as server:
        server.answers["tools/call"] = lambda handler, message: reply(
            handler, message, status=400, body=body | {"id": message["id"]}
        )
        async with connect(spec_of(server), HostSide()) as upstream:
            with pytest.raises(Exception, match="quota"):
                await call(upstream)
            assert await upstream.request("ping", {}, timeout_seconds=SECONDS) == {}


async def test_a_session_that_is_lost_between_calls_is_noticed_at_once():
    with handmade_server() as server:
        server.on_get = lambda handler: reply(handler, {}, status=404)
        async with connect(spec_of(server), HostSide()) as upstream:
            with anyio.fail_after(SECONDS):
                assert "no longer knows this session" in await upstream.wait_closed()


async def test_an_sse_drop_kills_no_proxy_the_stream_of_notices_is_opened_again_each_time():
    told, enough, opened = [], anyio.Event(), []

    def heard(method, params):
        told.append(params["uri"])
        if len(told) == 5:
            enough.set()

    def one_notice_and_gone(handler):
        opened.append(1)
        notice = {"method": "notifications/resources/updated", "params": {"uri": str(len(opened))}}
        data = json.dumps({"jsonrpc": "2.0", **notice})
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        event = f"retry: 1\ndata: {data}\n\n".encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        handler.close_connection = True  # without the last chunk: for the client the stream broke

    with handmade_server() as server:
        server.on_get = one_notice_and_gone
        async with connect(spec_of(server), HostSide(heard=heard)):
            with anyio.fail_after(SECONDS):
                await enough.wait()
    assert told[:5] == ["1", "2", "3", "4", "5"]


async def test_a_server_without_a_stream_of_notices_is_called_all_the_same():
    with handmade_server() as server:
        async with connect(spec_of(server), HostSide()) as upstream:
            assert await call(upstream) == {}
            assert methods(server)[:2] == ["initialize", "notifications/initialized"]


@contextmanager
def everything(npm_servers, transport, port):
    environment = {**os.environ, "PORT": str(port)}
    command = ["node", str(npm_servers["everything"]), transport]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.kill()


async def connected(port):
    async with httpx2.AsyncClient() as client:
        with anyio.fail_after(SECONDS):
            while True:
                try:
                    await client.get(f"http://127.0.0.1:{port}/none")
                except httpx2.ConnectError:
                    await anyio.sleep(0.05)  # another process opens the port
                else:
                    return


@pytest.mark.npm
async def test_the_npm_server_over_http_is_called_and_its_restart_ends_the_session(
    npm_servers, free_tcp_port
):
    spec = UpstreamSpec("everything", HttpSpec(f"http://127.0.0.1:{free_tcp_port}/mcp"))
    with everything(npm_servers, "streamableHttp", free_tcp_port):
        await connected(free_tcp_port)
        manager = connect(spec, HostSide())
        upstream = await manager.__aenter__()
        assert upstream.era is Era.LEGACY
        assert len(await upstream.list_tools()) > 5
    try:
        with everything(npm_servers, "streamableHttp", free_tcp_port):
            with pytest.raises(UpstreamUnavailable):
                await call(upstream)
            with anyio.fail_after(SECONDS):
                await upstream.wait_closed()
    finally:
        await manager.__aexit__(None, None, None)


@pytest.mark.npm
async def test_the_npm_server_over_sse_is_called(npm_servers, free_tcp_port):
    spec = UpstreamSpec("everything", HttpSpec(f"http://127.0.0.1:{free_tcp_port}/sse", sse=True))
    with everything(npm_servers, "sse", free_tcp_port):
        await connected(free_tcp_port)
        async with connect(spec, HostSide()) as upstream:
            assert len(await upstream.list_tools()) > 5
            answer = {"name": "echo", "arguments": {"message": "hi"}}
            result = await upstream.request("tools/call", answer, timeout_seconds=SECONDS)
            assert result["content"] == [{"type": "text", "text": "Echo: hi"}]
