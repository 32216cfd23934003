"""The in-memory upstream keeps the promises of the real one."""

import anyio
import pytest

from adapters.ports import (
    HostRefused,
    HostSide,
    StdioSpec,
    UpstreamRefused,
    UpstreamSpec,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from adapters.upstream_double import FakeUpstream, fake_connect

pytestmark = pytest.mark.anyio

TOOLS = [{"name": "read"}, "not an object"]
SPEC = UpstreamSpec("files", StdioSpec("unused"))


def call(upstream, tool, timeout_seconds=10, **options):
    params = {"name": tool, "arguments": {"path": "a"}}
    return upstream.request("tools/call", params, timeout_seconds=timeout_seconds, **options)


async def test_a_handler_gives_the_result_and_calls_are_recorded():
    async def read(request):
        await request.on_progress(1, 2, None)
        return {"content": [], "path": request.arguments["path"]}

    told = []

    async def on_progress(*progress):
        told.append(progress)

    upstream = FakeUpstream("files", TOOLS, {"read": read})
    assert await upstream.list_tools() == TOOLS
    assert await call(upstream, "read", on_progress=on_progress) == {"content": [], "path": "a"}
    assert upstream.calls == [{"name": "read", "arguments": {"path": "a"}}]
    assert told == [(1, 2, None)]


async def test_what_it_does_not_have_is_refused():
    upstream = FakeUpstream("files", TOOLS)
    with pytest.raises(UpstreamRefused, match="Unknown tool: write"):
        await call(upstream, "write")
    with pytest.raises(UpstreamRefused, match="Method not found"):
        await upstream.request("prompts/list", {}, timeout_seconds=10)


async def test_a_handlers_error_reaches_the_caller_unwrapped():
    async def read(request):
        raise UpstreamRefused("files", -32603, "broken", {"a": 1})

    with pytest.raises(UpstreamRefused, match="broken"):
        await call(FakeUpstream("files", TOOLS, {"read": read}), "read")


async def test_a_slow_answer_ends_at_the_deadline():
    upstream = FakeUpstream("files", TOOLS, delay_seconds=600)
    with pytest.raises(UpstreamTimeout):
        await call(upstream, "read", timeout_seconds=0.01)
    assert upstream.cancelled == 1


async def test_closing_fails_running_and_later_calls_with_the_cause():
    started = anyio.Event()

    async def read(request):
        started.set()
        await anyio.sleep_forever()

    upstream = FakeUpstream("files", TOOLS, {"read": read})

    async def fails():
        with pytest.raises(UpstreamUnavailable, match="files: exited with code 3"):
            await call(upstream, "read")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fails)
        await started.wait()
        upstream.close("exited with code 3")
    await fails()
    assert await upstream.wait_closed() == "exited with code 3"


async def test_a_connection_gets_a_new_upstream_and_leaving_closes_it():
    connect = fake_connect({"files": lambda: FakeUpstream("files", TOOLS)})
    changed = anyio.Event()
    async with connect(SPEC, HostSide(heard=lambda *_: changed.set())) as first:
        first.change_tools([])
        assert changed.is_set()
        assert await first.list_tools() == []
    async with connect(SPEC, HostSide()) as second:
        assert await second.list_tools() == TOOLS
    assert await first.wait_closed() == "closed by the gateway"
    with pytest.raises(UpstreamUnavailable, match="other"):
        async with connect(UpstreamSpec("other", StdioSpec("unused")), HostSide()):
            pass


async def test_what_is_scripted_is_listed_and_declared():
    upstream = FakeUpstream(
        "files", TOOLS, resources=[{"uri": "a:"}], templates=["odd"], prompts=[{"name": "p"}]
    )
    assert upstream.capabilities.keys() == {"tools", "resources", "prompts"}
    assert await upstream.list_entries("resources/list", "resources") == [{"uri": "a:"}]
    assert await upstream.list_entries("resources/templates/list", "resourceTemplates") == ["odd"]
    assert await upstream.list_entries("prompts/list", "prompts") == [{"name": "p"}]
    assert await FakeUpstream("files", TOOLS).list_entries("prompts/list", "prompts") == []


async def test_other_methods_are_answered_by_their_handlers_and_capabilities_are_recorded():
    async def read(call):
        return {"contents": [], "uri": call.params["uri"], "can": call.host_capabilities}

    upstream = FakeUpstream("files", answers={"resources/read": read})
    params, can = {"uri": "a:"}, {"roots": {}}
    result = await upstream.request("resources/read", params, timeout_seconds=10, host_capabilities=can)
    assert result == {"contents": [], "uri": "a:", "can": can}
    assert (upstream.requests, upstream.host_capabilities) == ([("resources/read", params)], [can])


async def test_a_handler_asks_the_host_at_the_other_end():
    async def ask(method, params):
        return {"method": method, **params}

    async def read(call):
        return await call.ask("roots/list", {"a": 1})

    connect = fake_connect({"files": lambda: FakeUpstream("files", TOOLS, {"read": read})})
    async with connect(SPEC, HostSide({"roots": {}}, ask)) as upstream:
        assert await call(upstream, "read") == {"method": "roots/list", "a": 1}
    async with connect(SPEC, HostSide()) as upstream:
        with pytest.raises(HostRefused):
            await upstream.ask_host("roots/list", {})


async def test_watches_are_kept_and_notices_told():
    told = []
    upstream = FakeUpstream("files", resources=[{"uri": "a:"}])
    upstream.attach(HostSide(heard=lambda *notice: told.append(notice)))
    await upstream.watch_resource("a:")
    assert upstream.watched == {"a:"}
    upstream.say("notifications/resources/updated", {"uri": "a:"})
    await upstream.unwatch_resource("a:")
    assert upstream.watched == set()
    assert told == [("notifications/resources/updated", {"uri": "a:"})]
    with pytest.raises(UpstreamRefused):
        await FakeUpstream("files").watch_resource("a:")
