"""An MCP endpoint that misbehaves: what is too long, never ends, is no MCP at all, or comes through a proxy."""

import json
from functools import partial

import anyio
import httpx2
import pytest

from adapters import raw_endpoint
from adapters.raw_endpoint import (
    BrokenOffError,
    NotTakenError,
    RawEndpoint,
    RefusedError,
    encoded,
    open_endpoint,
)

ASKED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
URL = "http://gateway/mcp"
JSON, SSE, HTML = "application/json", "text/event-stream", "text/html; charset=utf-8"
NOT_ALLOWED = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "not allowed"}}


class Endless(httpx2.AsyncByteStream):
    """A body that goes on for ever, or says nothing for ever."""

    def __init__(self, part):
        self._part = part
        self.closed = False

    async def __aiter__(self):
        while self._part:
            yield self._part
            await anyio.lowlevel.checkpoint()
        await anyio.sleep_forever()

    async def aclose(self):
        self.closed = True


def endpoint(*, status=200, kind="", **body):
    headers = {"content-type": kind} if kind else {}
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(status, headers=headers, **body))
    return RawEndpoint(httpx2.AsyncClient(transport=transport), URL, URL)


async def posted(to, message=ASKED):
    with anyio.fail_after(30):
        async with to.post(message, {}) as reply:
            return [one async for one in reply.messages()]


@pytest.mark.anyio
@pytest.mark.parametrize("part", [b"x" * 100, b"data: 1\n"], ids=["a line", "an event"])
@pytest.mark.parametrize("kind", [JSON, SSE])
async def test_an_answer_without_end_is_given_up(monkeypatch, kind, part):
    monkeypatch.setattr(raw_endpoint, "MAX_MESSAGE_BYTES", 1000)
    stream = Endless(part)
    with pytest.raises(BrokenOffError, match="1000"):
        await posted(endpoint(kind=kind, stream=stream))
    assert stream.closed


@pytest.mark.anyio
@pytest.mark.parametrize("part", [b"x" * 100, b""], ids=["never ends", "never begins"])
async def test_the_body_of_a_failure_is_not_waited_for(monkeypatch, part):
    monkeypatch.setattr(raw_endpoint, "MAX_ERROR_BYTES", 1000)
    monkeypatch.setattr(raw_endpoint, "ERROR_SECONDS", 0.05)
    stream = Endless(part)
    with pytest.raises(RefusedError, match="answered 404"):
        await posted(endpoint(status=404, kind=JSON, stream=stream))
    assert stream.closed


@pytest.mark.anyio
async def test_a_page_is_no_answer_and_a_receipt_none_either():
    with pytest.raises(RefusedError, match="text/html, which no MCP server does"):
        await posted(endpoint(kind=HTML, content=b"<p>hello"))
    assert await posted(endpoint(status=202, kind="text/plain", content=b"Accepted")) == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "expected"), [(405, RefusedError), (409, NotTakenError), (502, NotTakenError)]
)
async def test_an_error_is_no_stream_of_notices(status, expected):
    with pytest.raises(expected):
        async with endpoint(status=status, json=NOT_ALLOWED).listen({}):
            pass
    if status != 502:
        assert await posted(endpoint(status=status, json=NOT_ALLOWED)) == [NOT_ALLOWED]


@pytest.mark.anyio
async def test_what_no_header_can_carry_is_refused_and_an_end_says_nothing():
    to = endpoint()
    with pytest.raises(RefusedError, match="header"):
        async with to.post(ASKED, {"mcp-session-id": "é"}):
            pass
    await to.end_session({"mcp-session-id": "é"})


def test_half_a_character_is_sent_as_it_came():
    cut = json.loads('{"text": "\\ud83d"}')
    assert json.loads(encoded(cut)) == cut
    assert encoded({"text": "é"}) == '{"text":"é"}'.encode()


def test_what_is_nested_too_deeply_to_be_written_is_refused():
    nested = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(RefusedError, match="too deeply"):
        encoded({"nested": nested})


async def serve_once(listener, seen):
    async def answer(stream):
        async with stream:
            seen.append(await stream.receive())
            await stream.send(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    async with listener:
        await listener.serve(answer)


@pytest.mark.anyio
async def test_a_proxy_of_the_environment_is_not_told_the_token_of_this_machine(monkeypatch):
    listeners = [await anyio.create_tcp_listener(local_host="127.0.0.1") for _ in range(2)]
    gateway, proxy = [listener.extra(anyio.abc.SocketAttribute.local_port) for listener in listeners]
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    seen = [[], []]
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for listener, requests in zip(listeners, seen, strict=True):
                tasks.start_soon(partial(serve_once, listener, requests))
            async with open_endpoint(f"http://127.0.0.1:{gateway}/mcp", {"authorization": "Bearer x"}) as to:
                assert await posted(to) == []
            tasks.cancel_scope.cancel()
    assert [len(requests) for requests in seen] == [1, 0]
