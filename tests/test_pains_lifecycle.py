"""Pains of lifecycle and transports, shown with real processes and servers: hosts over HTTP, a gateway, its upstreams.

`test_pains.py` has the table of all pains.
"""

import json
import subprocess
import sys
import threading
from contextlib import AsyncExitStack, ExitStack, contextmanager

import anyio
import mcp_types as types
import pytest
from servers.handmade_http import accept, handmade_server, never, reply, start_stream
from soak.hosts import http_host
from structlog.testing import capture_logs
from support.fake_relay import BOTH_ERAS, MODERN, PATIENCE
from support.fleets import SERVERS, real_member, state_of, until
from support.http_gateway import gateway, host
from support.processes import children

from adapters.ports import Era, HttpSpec, UpstreamSpec
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.status import ServerState

HOUR = 3600
RAW = str(SERVERS / "raw_server.py")
PUSHING = str(SERVERS / "pushing_server.py")
in_both_eras = pytest.mark.parametrize("era", BOTH_ERAS)
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    assert children() == []


class Web:
    """A legacy upstream over HTTP whose sessions a test can end; `handmade` has what it received."""

    def __init__(self, handmade):
        self.handmade = handmade
        self.tools = ["work"]
        self.knows_session = False
        handmade.answers |= {
            "initialize": self._initialize,
            "tools/list": self._in_session(self._list),
            "tools/call": self._in_session(lambda handler, message: reply(handler, message, said("done"))),
        }

    def member(self, **options):
        spec = HttpSpec(f"http://127.0.0.1:{self.handmade.port}/mcp")
        return Member(UpstreamSpec("web", spec, Era.LEGACY), **options)

    def received(self, method):
        return sum(message.get("method") == method for message in self.handmade.messages)

    def _initialize(self, handler, message):
        self.knows_session = True
        reply(
            handler,
            message,
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "web", "version": "1"},
                "instructions": "Work before noon.",
            },
        )

    def _in_session(self, answer):
        def checked(handler, message):
            if self.knows_session:
                answer(handler, message)
            else:
                gone = {"code": -32600, "message": "Session not found"}
                reply(handler, message, status=404, body={"jsonrpc": "2.0", "id": None, "error": gone})

        return checked

    def _list(self, handler, message):
        listed = [{"name": name, "inputSchema": {"type": "object"}} for name in self.tools]
        reply(handler, message, {"tools": listed})


@contextmanager
def web():
    with handmade_server() as handmade:
        yield Web(handmade)


def said(text):
    return {"content": [{"type": "text", "text": text}]}


def event(handler, **message):
    handler.wfile.write(f"data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode())
    handler.wfile.flush()


async def ask(raw_host, tool):
    """The raw result of a call through the gateway."""
    answer = await raw_host.ask("tools/call", {"name": tool, "arguments": {}}, seconds=PATIENCE)
    return answer["result"]


async def listed(raw_host):
    """The upstream tools that a host sees."""
    answer = await raw_host.ask("tools/list", seconds=PATIENCE)
    return {found["name"] for found in answer["result"]["tools"] if "__" in found["name"]}


# --- lifecycle


async def test_hosts_without_a_back_channel_share_one_process():
    async with gateway(real_member("real")) as (url, _):
        pids = set()
        for _ in range(2):  # those who come later get the same one
            async with (
                http_host(url, modern=False) as one,
                http_host(url, modern=False) as two,
                http_host(url, modern=True) as three,
            ):
                pids |= {(await ask(each, "real__pid"))["pid"] for each in (one, two, three)}
        assert pids == {child.pid for child in children()}
        assert len(pids) == 1


async def test_refreshing_opens_no_session():
    with web() as upstream:
        async with gateway(upstream.member(poll_seconds=0.01)) as (_, fleet):
            before = upstream.received("tools/list")
            await until(lambda: upstream.received("tools/list") >= before + 20)
            upstream.tools.append("rest")
            await until(lambda: len(list(fleet.catalog)) == 2)
        assert upstream.received("initialize") == 1


async def test_a_call_ends_when_its_server_dies_even_if_a_grandchild_holds_its_output():
    member = real_member("raw", "grandchild", script=RAW, timeout_seconds=HOUR)
    async with gateway(member) as (url, fleet), http_host(url, modern=False) as one:
        first = {child.pid for child in children()}
        ended = await ask(one, "raw__die")
        assert ended["isError"]
        assert "exited with code 3" in ended["content"][0]["text"]
        assert (await ask(one, "raw__odd"))["futureField"] == [{"k": "v"}]
        assert not first & {child.pid for child in children()}
        assert state_of(fleet, "raw").state is ServerState.READY


# --- transports


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_many_calls_have_one_session(modern):
    with web() as upstream:
        async with gateway(upstream.member()) as (url, _), http_host(url, modern=modern) as one:
            for _ in range(5):
                async with anyio.create_task_group() as tasks:
                    for _ in range(4):
                        tasks.start_soon(ask, one, "web__work")
            assert upstream.received("tools/call") == 20
        assert upstream.received("initialize") == 1


async def test_a_session_that_the_server_forgot_is_begun_anew_and_its_tools_stay():
    with web() as upstream, capture_logs() as logs:
        async with gateway(upstream.member()) as (url, _), http_host(url, modern=False) as one:
            for sessions in (1, 2, 3):
                assert await ask(one, "web__work") == said("done")
                assert upstream.received("initialize") == sessions
                upstream.knows_session = False
                lost = await ask(one, "web__work")
                assert lost["isError"]
                assert "no longer knows this session" in lost["content"][0]["text"]
                assert await listed(one) == {"web__work"}
    assert {log["event"] for log in logs if log["log_level"] == "warning"} == {"upstream.down"}


async def test_tools_stay_listed_while_their_server_lets_nobody_in():
    with web() as upstream:
        async with gateway(upstream.member()) as (url, fleet), http_host(url, modern=True) as one:
            begin = upstream.handmade.answers["initialize"]
            upstream.knows_session = False
            upstream.handmade.answers["initialize"] = lambda handler, message: reply(
                handler, message, status=503
            )
            assert (await ask(one, "web__work"))["isError"]
            await until(lambda: state_of(fleet, "web").attempts > 2)
            assert await listed(one) == {"web__work"}
            upstream.handmade.answers["initialize"] = begin
            assert (await ask(one, "web__work"))["content"] == said("done")["content"]


@contextmanager
def pushing(transport, port=0):
    """The server and its port; killed on the way out, without a word to its clients."""
    command = [sys.executable, PUSHING, transport, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize(("transport", "path"), [("http", "mcp"), ("sse", "sse")])
async def test_a_restarted_http_server_is_back_and_nobody_else_notices(transport, path):
    with ExitStack() as first:
        port = first.enter_context(pushing(transport))
        address = HttpSpec(f"http://127.0.0.1:{port}/{path}", sse=transport == "sse")
        web, other = Member(UpstreamSpec("web", address, Era.LEGACY)), real_member("other")
        async with gateway(web, other) as (url, fleet), http_host(url, modern=False) as one:
            assert (await ask(one, "web__change"))["content"][0]["text"] == "done"
            before = (await ask(one, "other__pid"))["pid"]
            async with anyio.create_task_group() as tasks:
                lost = []

                async def wait():
                    lost.append(await ask(one, "web__wait"))

                tasks.start_soon(wait)
                await until(lambda: fleet._servers["web"]._base.in_use)
                first.close()
            assert lost[0]["isError"]
            tools = await listed(one)
            assert tools >= {"web__change", "other__pid"}
            assert (await ask(one, "other__pid"))["pid"] == before
            with pushing(transport, port):
                # That it was restarted is found out by a call, or before.
                while (again := await ask(one, "web__change")).get("isError"):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                assert again["content"][0]["text"] == "done"
                assert (await ask(one, "other__pid"))["pid"] == before
                assert await listed(one) == tools


@in_both_eras
async def test_a_host_hears_that_an_upstream_lists_other_tools(era):
    told, changed = anyio.Event(), threading.Event()

    def news(handler):
        start_stream(handler)
        handler.wfile.flush()
        if changed.wait(PATIENCE):
            event(handler, method="notifications/tools/list_changed")
        never(handler, {})

    async def heard(message):
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    with web() as upstream:
        upstream.handmade.on_get = news
        async with gateway(upstream.member()) as (url, _), host(url, era, message_handler=heard) as client:
            async with AsyncExitStack() as listening:
                if era == MODERN:
                    stream = await listening.enter_async_context(client.listen(tools_list_changed=True))
                upstream.tools.append("rest")
                changed.set()
                with anyio.fail_after(PATIENCE):
                    await (anext(stream) if era == MODERN else told.wait())
            names = {found.name for found in (await client.list_tools()).tools}
            assert {"web__work", "web__rest"} <= names


@in_both_eras
async def test_progress_reaches_a_host_before_there_is_a_result(era):
    heard = threading.Event()

    def slow(handler, message):
        start_stream(handler)
        token = message["params"]["_meta"]["progressToken"]
        progress = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
        event(handler, method="notifications/progress", params=progress)
        in_time = heard.wait(PATIENCE / 2)
        event(handler, id=message["id"], result=said("heard" if in_time else "held back"))

    async def note(progress, total, text):
        assert (progress, total, text) == (1, 2, "half")
        heard.set()

    with web() as upstream:
        upstream.handmade.answers["tools/call"] = slow
        async with gateway(upstream.member()) as (url, _), host(url, era) as client:
            result = await client.call_tool("web__work", {}, progress_callback=note)
            assert result.content[0].text == "heard"


class Asking:
    """Calls that put a question to the host and answer with its answer."""

    def __init__(self, handmade):
        self._answers = {}
        handmade.answers |= {"tools/call": self._ask, None: self._answered}

    def _ask(self, handler, message):
        question = f"question {message['id']}"
        arrived, holder = self._answers.setdefault(question, (threading.Event(), []))
        start_stream(handler)
        params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        event(handler, id=question, method="elicitation/create", params=params)
        arrived.wait(PATIENCE / 2)
        event(handler, id=message["id"], result=said(json.dumps(holder)))

    def _answered(self, handler, message):
        arrived, holder = self._answers[message["id"]]
        holder.append(message.get("result"))
        arrived.set()
        accept(handler, message)


@in_both_eras
async def test_answers_of_two_users_reach_the_server_that_asked_each_for_its_call(era):
    def user(name):
        async def answer(_context, _params):
            return types.ElicitResult(action="accept", content={"name": name})

        return answer

    async def works(url, name):
        async with host(url, era, elicitation_callback=user(name)) as client:
            for _ in range(5):
                result = await client.call_tool("web__work", {})
                assert json.loads(result.content[0].text) == [{"action": "accept", "content": {"name": name}}]

    with web() as upstream:
        Asking(upstream.handmade)
        async with gateway(upstream.member()) as (url, _), anyio.create_task_group() as tasks:
            for name in ("Ada", "Grace"):
                tasks.start_soon(works, url, name)
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_host_is_told_an_upstreams_instructions(era):
    with web() as upstream:
        async with gateway(upstream.member()) as (url, _), host(url, era) as client:
            assert "## web\nWork before noon." in client.instructions
