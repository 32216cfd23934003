"""What upstreams send of their own accord: questions to the host, notices, progress. Raw, in both eras."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import anyio
import psutil
import pytest
from servers.handmade_http import handmade_server, reply, start_stream

from adapters.mcp_upstream import connect
from adapters.ports import (
    Era,
    HostRefused,
    HostSide,
    HttpSpec,
    StdioSpec,
    UpstreamRefused,
    UpstreamSpec,
    UpstreamUnavailable,
)

SERVERS = Path(__file__).parent / "servers"
ASKING = UpstreamSpec(
    "asking", StdioSpec(sys.executable, (str(SERVERS / "asking_server.py"),)), era=Era.LEGACY
)
URI = "note:///one"
EVERYTHING = {"elicitation": {"form": {}, "future": 1}, "sampling": {}, "roots": {"listChanged": True}}
ANSWERS = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada"}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "ho"},
        "model": "m",
        "stopReason": "endTurn",
    },
    "roots/list": {"roots": [{"uri": "file:///home", "name": "home"}]},
}
LEGACY_LINKS = pytest.mark.parametrize("link", ["stdio", "http", "sse"])
MODERN_LINKS = pytest.mark.parametrize("link", ["stdio", "http"])
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    left = psutil.Process().children(recursive=True)
    assert not left, left


class Host:
    """Answers questions from a script and keeps what it hears."""

    def __init__(self, answers=None):
        self.answers = ANSWERS if answers is None else answers
        self.asked = []
        self.told = []
        self._news = anyio.Event()

    async def ask(self, method, params):
        self.asked.append((method, params))
        answer = self.answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def heard(self, method, params):
        self.told.append((method, params))
        self._news.set()

    async def until_told(self, *methods):
        with anyio.fail_after(20):
            while not {method for method, _ in self.told} >= set(methods):
                self._news = anyio.Event()
                await self._news.wait()

    def side(self, capabilities=EVERYTHING):
        return HostSide(capabilities, self.ask, self.heard)


@contextmanager
def pushing(link, era=None, port=0):
    """The spec of a running server; over stdio it is started by whoever connects."""
    command = [str(SERVERS / "pushing_server.py"), link]
    if link == "stdio":
        yield UpstreamSpec("pushing", StdioSpec(sys.executable, tuple(command)), era)
        return
    command = [sys.executable, *command, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            path = "sse" if link == "sse" else "mcp"
            url = f"http://127.0.0.1:{int(process.stdout.readline())}/{path}"
            yield UpstreamSpec("pushing", HttpSpec(url, sse=link == "sse"), era)
        finally:
            process.kill()


def call(upstream, tool, timeout_seconds=30, **rest):
    params = {"name": tool, "arguments": rest.pop("arguments", {})}
    return upstream.request("tools/call", params, timeout_seconds=timeout_seconds, **rest)


@LEGACY_LINKS
async def test_a_question_inside_a_call_is_answered_by_the_host(link):
    host = Host()
    with pushing(link, Era.LEGACY) as spec:
        async with connect(spec, host.side()) as upstream:
            result = await call(upstream, "ask")
    assert [method for method, _ in host.asked] == list(ANSWERS)
    answers = json.loads(result["content"][0]["text"])
    assert answers[0]["content"] == {"name": "Ada"}
    assert answers[1]["content"]["text"] == "ho"
    assert answers[2]["roots"][0]["uri"] == "file:///home"


async def test_questions_and_answers_keep_their_unknown_fields():
    question = {"message": "?", "future": {"deep": [1, 1.0, None]}, "_meta": {"vendor/k": 1}}
    answer = {"action": "accept", "content": {"n": 12345678901234567890}, "futureField": [{}]}
    host = Host({"elicitation/create": answer})
    async with connect(ASKING, host.side()) as upstream:
        asked = {"method": "elicitation/create", "params": question}
        result = await call(upstream, "ask", arguments=asked)
    assert host.asked == [("elicitation/create", question)]
    assert result["answer"]["result"] == answer


async def test_a_hosts_refusal_reaches_the_server_unchanged():
    host = Host({"roots/list": HostRefused(-32042, "not today", {"retry": 1})})
    async with connect(ASKING, host.side()) as upstream:
        result = await call(upstream, "ask", arguments={"method": "roots/list"})
    assert result["answer"]["error"] == {"code": -32042, "message": "not today", "data": {"retry": 1}}


@pytest.mark.parametrize(
    ("side", "method"),
    [
        (HostSide(), "elicitation/create"),
        (Host().side({"roots": {}}), "elicitation/create"),
        (Host().side({"elicitation": {}}), "sampling/createMessage"),
        (Host().side(), "vendor/question"),
    ],
)
async def test_a_question_that_the_host_did_not_offer_to_answer_reaches_nobody(side, method):
    async with connect(ASKING, side) as upstream:
        result = await call(upstream, "ask", arguments={"method": method, "params": {}})
    assert result["answer"]["error"]["code"] == -32601


async def test_a_bug_in_asking_costs_the_question_alone():
    host = Host({"roots/list": KeyError("bug")})
    async with connect(ASKING, host.side()) as upstream:
        result = await call(upstream, "ask", arguments={"method": "roots/list"})
        assert result["answer"]["error"]["code"] == -32603
        assert (await call(upstream, "hello"))["hello"]


async def test_a_ping_is_answered():
    async with connect(ASKING, HostSide()) as upstream:
        result = await call(upstream, "ask", arguments={"method": "ping"})
    assert result["answer"]["result"] == {}


async def test_a_question_that_is_taken_back_is_cancelled():
    asked, withdrawn = anyio.Event(), anyio.Event()

    async def ask(method, params):
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()

    async with connect(ASKING, HostSide({"roots": {}}, ask)) as upstream, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(upstream, "withdraw", arguments={"method": "roots/list"}))
        with anyio.fail_after(20):
            await asked.wait()
            await call(upstream, "go")
            await withdrawn.wait()


async def test_the_hosts_capabilities_are_declared_as_they_are():
    async with connect(ASKING, HostSide(EVERYTHING)) as upstream:
        hello = (await call(upstream, "hello"))["hello"]
    assert hello["capabilities"] == EVERYTHING
    assert hello["protocolVersion"] == "2025-11-25"


async def test_a_servers_capabilities_are_raw():
    async with connect(ASKING, HostSide()) as upstream:
        assert upstream.capabilities["vendor"] == {"odd": 1.0}


@pytest.mark.parametrize(
    "notice",
    [
        {"method": "notifications/message", "params": {"level": "odd", "data": None, "future": 1}},
        {"method": "notifications/resources/updated", "params": {"uri": "odd:1", "title": "t"}},
        {"method": "notifications/tasks/status", "params": {"taskId": "1", "status": "working"}},
        {"method": "notifications/vendor.example/odd", "params": {"a": [1.0]}},
        {"method": "notifications/prompts/list_changed"},
    ],
)
async def test_any_notice_of_the_connection_is_heard_raw(notice):
    host = Host()
    async with connect(ASKING, host.side()) as upstream:
        await call(upstream, "notify", arguments=notice)
        await host.until_told(notice["method"])
    assert host.told == [(notice["method"], notice.get("params", {}))]


async def test_progress_is_told_raw_in_order_and_before_the_answer():
    told, tokens = [], []

    async with connect(ASKING, HostSide()) as upstream:

        async def on_progress(*notice):
            await call(upstream, "hello")  # answered in order: by now the answer to `progress` is here, too
            told.append(notice)

        for _ in range(2):
            result = await call(upstream, "progress", on_progress=on_progress)
            tokens.append(result["token"])
            assert json.dumps(told) == '[[1, 2, null], [2.5, null, "half"]]'
            told.clear()
    assert tokens[0] != tokens[1]


async def test_every_page_of_a_listing_is_fetched_raw():
    async with connect(ASKING, HostSide()) as upstream:
        listed = await upstream.list_entries("resources/list", "resources")
        templates = await upstream.list_entries("resources/templates/list", "resourceTemplates")
        prompts = await upstream.list_entries("prompts/list", "prompts")
    assert listed == ["odd", {"uri": "odd:2", "future": 1}]
    assert templates == []
    assert prompts == []


@LEGACY_LINKS
async def test_a_legacy_server_tells_of_its_changes(link):
    host = Host()
    with pushing(link, Era.LEGACY) as spec:
        async with connect(spec, host.side({})) as upstream:
            await upstream.watch_resource(URI)
            await call(upstream, "change")
            await host.until_told(
                "notifications/tools/list_changed",
                "notifications/resources/list_changed",
                "notifications/resources/updated",
                "notifications/message",
            )
            await upstream.unwatch_resource(URI)
    assert ("notifications/resources/updated", {"uri": URI}) in host.told


@MODERN_LINKS
async def test_a_modern_server_tells_of_its_changes(link):
    host = Host()
    with pushing(link, Era.MODERN) as spec:
        async with connect(spec, host.side()) as upstream:
            await upstream.watch_resource(URI)
            await call(upstream, "change")
            await host.until_told(
                "notifications/tools/list_changed",
                "notifications/resources/list_changed",
                "notifications/resources/updated",
            )
    # The id of our own subscription means nothing to others.
    assert dict(host.told)["notifications/resources/updated"] == {"uri": URI}
    assert dict(host.told)["notifications/tools/list_changed"] == {}


@MODERN_LINKS
async def test_a_modern_server_tells_no_more_of_what_is_not_watched(link):
    host = Host()
    with pushing(link, Era.MODERN) as spec:
        async with connect(spec, host.side()) as upstream:
            await upstream.watch_resource(URI)
            await upstream.unwatch_resource(URI)
            await upstream.watch_resource("note:///other")  # acknowledged under the filter without the first
            await call(upstream, "change")
            await host.until_told("notifications/tools/list_changed", "notifications/resources/list_changed")
            await upstream.list_tools()
    assert "notifications/resources/updated" not in dict(host.told)


async def test_a_server_without_watches_refuses_them():
    spec = UpstreamSpec("sdk", StdioSpec(sys.executable, (str(SERVERS / "sdk_server.py"), "stdio")))
    async with connect(spec, HostSide()) as upstream:
        with pytest.raises(UpstreamRefused, match="does not tell of changed resources"):
            await upstream.watch_resource(URI)


async def test_an_sse_server_is_called_and_a_big_answer_arrives_whole():
    with pushing("sse") as spec:
        async with connect(spec, HostSide()) as upstream:
            assert upstream.era is Era.LEGACY
            assert [tool["name"] for tool in await upstream.list_tools()] == ["ask", "change", "big", "wait"]
            result = await call(upstream, "big")
    assert len(result["content"][0]["text"]) == 1_000_000


async def test_an_sse_server_that_dies_ends_its_calls_and_its_connection():
    failed = anyio.Event()

    async def waits(upstream):
        with pytest.raises(UpstreamUnavailable, match=r"127\.0\.0\.1:\d+/sse: .*(broke|closed)"):
            await call(upstream, "wait")
        failed.set()

    with pushing("sse") as spec:
        async with connect(spec, HostSide()) as upstream, anyio.create_task_group() as tasks:
            tasks.start_soon(waits, upstream)
            await call(upstream, "change")
            psutil.Process().children()[0].kill()
            with anyio.fail_after(20):
                await failed.wait()
                assert "/sse: " in await upstream.wait_closed()


async def test_an_sse_address_that_is_wrong_is_told():
    with pushing("http") as spec:
        url = spec.transport.url.replace("/mcp", "/sse")
        assert "answered 404 Not Found" in await failure(url)
    assert "is the server running" in await failure(url)


async def test_an_sse_address_where_no_events_come_is_told():
    with handmade_server() as server:
        server.on_get = lambda handler: reply(handler, {})
        assert "stream of events" in await failure(f"http://127.0.0.1:{server.port}/sse")


async def test_an_sse_server_that_sends_messages_to_another_origin_is_not_trusted():
    def on_get(handler):
        start_stream(handler)
        handler.wfile.write(b"event: endpoint\ndata: http://other.invalid/messages\n\n")

    with handmade_server() as server:
        server.on_get = on_get
        assert "another origin" in await failure(f"http://127.0.0.1:{server.port}/sse")


async def failure(url):
    with pytest.raises(UpstreamUnavailable) as caught:
        async with connect(UpstreamSpec("pushing", HttpSpec(url, sse=True)), HostSide()):
            pass
    return str(caught.value)
