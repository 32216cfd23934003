"""A bridge message by message: what is sent again and what is not, and a session that is made anew."""

import json
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest

from adapters.raw_endpoint import BrokenOffError, NotTakenError, RawEndpoint, RefusedError, SessionLostError
from nexus_gateway.bridge import remote_session
from nexus_gateway.bridge.bridge import Bridge
from nexus_gateway.bridge.remote_session import RemoteSession

MODERN = "2026-07-28"
PATIENCE = 60


def result(message, **members):
    return {"jsonrpc": "2.0", "id": message["id"], "result": members}


class Remote:
    """An endpoint that answers from a script and forgets sessions when told to."""

    def __init__(self):
        self.seen = []
        self.session = 1
        self.before = []
        self.forgetful = False

    def __call__(self, request):
        message = json.loads(request.content) if request.content else {}
        session = request.headers.get("mcp-session-id")
        self.seen.append((session, message.get("method")))
        if self.before:
            early = self.before.pop(0)
            if isinstance(early, Exception):
                raise early
            if early is not None:
                return early
        if message.get("method") == "initialize":
            capabilities = {"tools": {"listChanged": True}, "prompts": {}}
            body = result(message, protocolVersion="2025-06-18", capabilities=capabilities)
            return httpx2.Response(200, json=body, headers={"mcp-session-id": f"s{self.session}"})
        if session != f"s{self.session}" or self.forgetful:
            return httpx2.Response(404)
        return httpx2.Response(200, json=result(message)) if "id" in message else httpx2.Response(202)

    def methods(self, session):
        return [method for used, method in self.seen if used == session]


@asynccontextmanager
async def session_on(remote, *, patience_seconds=30):
    """A session over the scripted endpoint, and what its host is told."""
    told = []

    async def tell(message):
        told.append(message)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(remote)) as client:
        endpoint = RawEndpoint(client, "http://gateway/mcp", "http://gateway/mcp")
        session = RemoteSession(endpoint, tell, patience_seconds=patience_seconds)
        with anyio.fail_after(PATIENCE):
            yield session, told, tell


def message(method, number=None, **params):
    one = {"jsonrpc": "2.0", "method": method, "params": params}
    return one if number is None else one | {"id": number}


@pytest.mark.anyio
async def test_a_forgotten_session_is_made_again_with_all_that_belongs_to_it():
    remote = Remote()
    async with session_on(remote) as (session, told, tell):
        for one in (
            message("initialize", 1, protocolVersion="2025-06-18", capabilities={}),
            message("notifications/initialized"),
            message("logging/setLevel", 2, level="error"),
            message("resources/subscribe", 3, uri="a:1"),
            message("resources/subscribe", 4, uri="a:2"),
            message("resources/unsubscribe", 5, uri="a:1"),
        ):
            await session.exchange(one, tell)
        told.clear()
        remote.session = 2
        await session.exchange(message("tools/call", 6, name="x"), tell)
    assert remote.methods("s2") == [
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "tools/call",
    ]
    assert [one.get("method") or one["id"] for one in told] == ["notifications/tools/list_changed", 6]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "early",
    [httpx2.ConnectError("refused"), httpx2.Response(503, headers={"retry-after": "1"})],
    ids=["refused", "draining"],
)
async def test_what_was_not_taken_is_sent_again(early):
    remote = Remote()
    remote.before = [early, early]
    async with session_on(remote) as (session, told, tell):
        await session.exchange(message("initialize", 1), tell)
    assert len(remote.seen) == 3
    assert told[0]["id"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    "early",
    [httpx2.ReadError("reset"), httpx2.RemoteProtocolError("disconnected"), httpx2.Response(202)],
    ids=["reset", "disconnected", "no answer"],
)
async def test_what_may_have_been_carried_out_is_not_sent_again(early):
    remote = Remote()
    remote.before = [early]
    async with session_on(remote) as (session, _told, tell):
        with pytest.raises(BrokenOffError):
            await session.exchange(message("tools/call", 1), tell)
    assert len(remote.seen) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(("status", "fix"), [(401, "--token-file"), (403, "--token-file"), (307, "redirect")])
async def test_what_the_gateway_will_not_have_is_said_with_the_fix_and_not_sent_again(status, fix):
    remote = Remote()
    remote.before = [httpx2.Response(status, headers={"location": "http://elsewhere/"})]
    async with session_on(remote) as (session, _told, tell):
        with pytest.raises(RefusedError, match=fix):
            await session.exchange(message("tools/list", 1), tell)
    assert len(remote.seen) == 1


@pytest.mark.anyio
async def test_patience_ends_and_a_gateway_without_memory_is_given_up():
    remote = Remote()
    remote.before = [httpx2.ConnectError("refused")]
    async with session_on(remote, patience_seconds=0) as (session, _told, tell):
        with pytest.raises(NotTakenError):
            await session.exchange(message("tools/list", 1), tell)
        await session.exchange(message("initialize", 2), tell)
        remote.forgetful = True
        with pytest.raises(SessionLostError):
            await session.exchange(message("tools/list", 3), tell)


@pytest.mark.anyio
async def test_a_session_that_was_half_made_again_is_made_again_as_a_whole():
    remote = Remote()
    async with session_on(remote) as (session, told, tell):
        await session.exchange(message("initialize", 1), tell)
        remote.session = 2
        remote.before = [
            None,
            None,
            httpx2.ConnectError("refused"),
        ]  # the call, the greeting, what follows it
        await session.exchange(message("tools/call", 2, name="x"), tell)
    greeting = ["initialize", "notifications/initialized"]
    assert [method for _, method in remote.seen[1:]] == ["tools/call", *greeting, *greeting, "tools/call"]
    assert told[-1]["id"] == 2


@pytest.mark.anyio
async def test_a_gateway_that_does_not_answer_holds_up_its_new_session_no_longer_than_the_patience(
    monkeypatch,
):
    monkeypatch.setattr(remote_session, "REPEAT_SECONDS", 0.05)
    remote = Remote()
    async with session_on(remote, patience_seconds=0) as (session, _told, tell):
        await session.exchange(message("initialize", 1), tell)
        remote.session = 2
        remote.before = [None, anyio.sleep_forever()]
        with pytest.raises(NotTakenError, match="does not answer"):
            await session.exchange(message("tools/list", 2), tell)
        await session.exchange(message("tools/list", 3), tell)


@pytest.mark.anyio
async def test_an_answer_to_another_request_is_not_passed_on():
    asked = message("tools/list", 1)
    stream = Stream(result(message("tools/call", 2), forged=True), result(asked), end="hangs")
    remote = Remote()
    remote.before = [events(stream)]
    async with session_on(remote) as (session, told, tell):
        await session.exchange(asked, tell)
    assert told == [result(asked)]


@pytest.mark.anyio
async def test_a_stream_that_is_closed_as_soon_as_it_is_opened_is_not_opened_at_once_again(monkeypatch):
    drawn = []

    def waiting():
        drawn.append(0)
        while True:
            drawn[-1] += 1
            yield 0.0

    monkeypatch.setattr(remote_session, "waiting", waiting)
    notice = message("notifications/tools/list_changed")
    remote = Remote()
    remote.before = [
        *(events(Stream(end="breaks")) for _ in range(3)),
        events(Stream(notice, end="breaks")),
        httpx2.Response(405),
    ]
    async with session_on(remote) as (session, told, tell):
        await session.listen(tell)
    assert drawn == [3, 1]  # waits grow until something is heard
    assert told == [notice]


class Lines:
    """A host's end of a bridge, in this process."""

    def __init__(self, remote):
        self._to, self.read = anyio.create_memory_object_stream(100)
        self.written, self._from = anyio.create_memory_object_stream(100)
        self._remote = remote

    @asynccontextmanager
    async def bridge(self):
        async with (
            httpx2.AsyncClient(transport=httpx2.MockTransport(self._remote)) as client,
            anyio.create_task_group() as tasks,
        ):
            endpoint = RawEndpoint(client, "http://gateway/mcp", "http://gateway/mcp")
            with anyio.fail_after(PATIENCE):
                tasks.start_soon(
                    Bridge(endpoint, self.read.receive, self.written.send, patience_seconds=0).run
                )
                yield self
                await self._to.aclose()
        for stream in (self.read, self.written, self._from):
            stream.close()

    async def say(self, one):
        await self._to.send(one if isinstance(one, bytes) else json.dumps(one).encode())

    async def hear(self):
        return json.loads(await self._from.receive())


class Stream(httpx2.AsyncByteStream):
    """Events of a response; at the end it hangs, breaks or is closed."""

    def __init__(self, *messages, end):
        self._messages = messages
        self._end = end
        self.closed = anyio.Event()

    async def __aiter__(self):
        for one in self._messages:
            yield f"event: message\ndata: {json.dumps(one)}\n\n".encode()
        if self._end == "hangs":
            await anyio.sleep_forever()
        raise httpx2.ReadError("reset")

    async def aclose(self):
        self.closed.set()


def events(stream):
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)


def modern(method, number, **params):
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN}
    return message(method, number, **params, _meta=meta)


@pytest.mark.anyio
async def test_a_subscription_is_made_again_and_its_host_told_what_it_may_have_missed():
    stamp = {"io.modelcontextprotocol/subscriptionId": 1}
    honoured = {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
    ack = message("notifications/subscriptions/acknowledged", notifications=honoured, _meta=stamp)
    remote = Remote()
    remote.before = [events(Stream(ack, end="breaks")), events(Stream(ack, end="hangs"))]
    async with Lines(remote).bridge() as lines:
        await lines.say(modern("subscriptions/listen", 1, notifications=honoured))
        said = [await lines.hear() for _ in range(3)]
    assert [one["method"] for one in said] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    assert said[1]["params"]["_meta"] == stamp
    assert said[2]["params"] == {"uri": "a:1", "_meta": stamp}


@pytest.mark.anyio
async def test_a_call_that_a_modern_host_gives_up_is_closed_and_not_answered():
    progress, stream = message("notifications/progress", progress=1), None
    remote = Remote()
    stream = Stream(progress, end="hangs")
    remote.before = [events(stream)]
    async with Lines(remote).bridge() as lines:
        await lines.say(modern("tools/call", 1, name="x"))
        assert await lines.hear() == progress
        await lines.say(message("notifications/cancelled", requestId=1))
        await stream.closed.wait()
        await lines.say(["no message"])
        assert (await lines.hear())["id"] is None
    assert [method for _, method in remote.seen] == ["tools/call"]


ODD_VERSION = {"_meta": {"io.modelcontextprotocol/protocolVersion": "é"}}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "odd",
    [
        message("notifications/cancelled", requestId=[]),
        message("notifications/odd", **ODD_VERSION),
        rb'{"jsonrpc":"2.0","method":"notifications/odd","params":{"half":"\ud800"}}',
    ],
    ids=["a cancelled list", "a version", "half a character"],
)
async def test_no_odd_message_of_a_host_ends_its_bridge(odd):
    async with Lines(Remote()).bridge() as lines:
        await lines.say(odd)
        await lines.say(message("initialize", 1))
        assert (await lines.hear())["id"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("request_", "body", "headers"),
    [
        (message("tools/list", 1), {"result": {"half": "\ud83d"}}, {}),
        (message("initialize", 1), {"result": {"protocolVersion": "é"}}, {}),
        (message("initialize", 1), {"result": {}}, {"mcp-session-id": "é".encode()}),
        (modern("tools/list", 1), {"result": {"tools": 5}}, {}),
    ],
    ids=["half a character", "version", "session", "tools"],
)
async def test_no_odd_answer_of_a_gateway_ends_a_bridge(request_, body, headers):
    remote = Remote()
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, **body}).encode()
    kind = {"content-type": "application/json"}
    remote.before = [httpx2.Response(200, content=answer, headers=kind | headers)]
    async with Lines(remote).bridge() as lines:
        await lines.say(request_)
        assert await lines.hear() == json.loads(answer)
        await lines.say(message("tools/list", 2))
        assert (await lines.hear())["id"] == 2
        await lines.say(message("initialize", 3))
        assert "result" in await lines.hear()


@pytest.mark.anyio
async def test_an_odd_acknowledgement_does_not_end_a_bridge():
    ack = message("notifications/subscriptions/acknowledged", notifications={"resourceSubscriptions": 5})
    remote = Remote()
    remote.before = [
        events(Stream(ack, end="breaks")),
        events(Stream(ack, end="breaks")),
        httpx2.Response(403),
    ]
    async with Lines(remote).bridge() as lines:
        await lines.say(modern("subscriptions/listen", 1))
        assert await lines.hear() == ack
        assert "error" in await lines.hear()
