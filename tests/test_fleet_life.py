"""A fleet's life: servers that are slow, crash, change, die and come back, each alone."""

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from support.gateways import python_server, run_command, write_config
from support.processes import children

from adapters.embedder_double import HashingEmbedder
from adapters.mcp_upstream import connect
from adapters.ports import StdioSpec, UpstreamSpec, UpstreamTimeout, UpstreamUnavailable
from adapters.upstream_double import FakeUpstream, fake_connect
from nexus_gateway.fleet.fleet import Fleet, Member
from nexus_gateway.fleet.supervisor import RestartPolicy, ServerState
from nexus_gateway.registry.indexer import Indexer
from nexus_gateway.turn.naming import resolve
from tool_registry.compiled_store import CompiledStore
from tool_registry.tool import ToolId

RAW = str(Path(__file__).parent / "servers" / "raw_server.py")
SOON = RestartPolicy(first_seconds=0.01, longest_seconds=0.05)
NOWHERE = StdioSpec("nowhere")
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    assert children() == []


def fake_members(*servers, **options):
    return [Member(UpstreamSpec(server, NOWHERE), **options) for server in servers]


def real_member(server, mode="plain", **options):
    return Member(UpstreamSpec(server, StdioSpec(sys.executable, (RAW, mode))), **options)


def tool(name, description="", **more):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def call(fleet, server, name):
    return fleet.call_tool(server, name, {"name": name, "arguments": {}})


@asynccontextmanager
async def running(fleet, seconds=60):
    """The fleet at work; a block that takes longer than `seconds` fails."""
    with anyio.fail_after(seconds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.run)
            yield fleet
            tasks.cancel_scope.cancel()


async def statuses(fleet):
    return {status.server: status for status in await fleet.first_sync()}


async def test_all_servers_connect_at_the_same_time():
    names = ["a", "b", "c", "d", "e"]
    begun, all_begun = set(), anyio.Event()
    plain = fake_connect({name: lambda name=name: FakeUpstream(name) for name in names})

    @asynccontextmanager
    async def together(spec, host):
        begun.add(spec.server)
        if begun == set(names):
            all_begun.set()
        await all_begun.wait()  # one after the other would wait here for ever
        async with plain(spec, host) as upstream:
            yield upstream

    async with running(Fleet(fake_members(*names), together), 20) as fleet:
        assert {status.state for status in await fleet.first_sync()} == {ServerState.READY}


async def test_a_slow_and_a_crashing_server_are_named_with_their_cause_and_leave_the_others_alone():
    silent = StdioSpec(sys.executable, ("-c", "import sys; sys.stdin.read()"))
    members = [
        real_member("good"),
        real_member("crashing", "crash"),
        Member(UpstreamSpec("slow", silent), connect_timeout_seconds=2),
    ]
    async with running(Fleet(members, connect, policy=SOON)) as fleet:
        assert (await call(fleet, "good", "odd"))["futureField"]  # while the slow one is still connecting
        known = await statuses(fleet)
        assert known["good"].state is ServerState.READY
        assert "exited with code 1" in known["crashing"].cause
        assert "no module named cheese" in known["crashing"].cause
        assert "did not answer within 2 s" in known["slow"].cause
        assert {tool.id.server for tool in fleet.catalog} == {"good"}


async def test_every_page_is_listed_and_a_bad_tool_is_set_aside_by_name():
    async with running(Fleet([real_member("raw")], connect)) as fleet:
        await fleet.first_sync()
        assert {tool.id.name for tool in fleet.catalog} == {"odd", "big", "die", "never"}
        assert [(aside.server, aside.name) for aside in fleet.catalog.set_aside] == [("raw", "entry 3")]
        assert fleet.statuses()[0].tools == 4


async def test_two_servers_with_the_same_tool_names_keep_their_own():
    upstreams = {name: FakeUpstream(name, [tool("search"), tool(f"only_{name}")]) for name in ("a", "b")}
    fakes = fake_connect({name: lambda name=name: upstreams[name] for name in upstreams})
    async with running(Fleet(fake_members("a", "b"), fakes)) as fleet:
        await fleet.first_sync()
        await call(fleet, "b", "search")
        assert [len(upstreams[name].calls) for name in ("a", "b")] == [0, 1]
        assert resolve(fleet.catalog, "a/search").id == ToolId("a", "search")
        assert "a/search, b/search" in resolve(fleet.catalog, "search")
        assert resolve(fleet.catalog, "only_b").id == ToolId("b", "only_b")


async def test_a_changed_tool_is_compiled_again_and_only_that_one(tmp_path):
    embedder = HashingEmbedder()

    async def get_embedder():
        return embedder

    upstream = FakeUpstream("a", [tool("one", "first"), tool("two", "second"), tool("three", "third")])
    indexed = anyio.Event()
    indexer = Indexer(
        CompiledStore(tmp_path, lambda *_: None), get_embedder, on_index=lambda index: indexed.set()
    )
    other = FakeUpstream("b", [tool("four", "fourth")])
    fakes = fake_connect({"a": lambda: upstream, "b": lambda: other})

    async def change(tools):
        nonlocal indexed
        before, indexed = embedder.embedded_texts, anyio.Event()
        upstream.change_tools(tools)
        await indexed.wait()
        names = {(compiled.id.server, compiled.id.name) for compiled in indexer.index.tools}
        assert names == {("b", "four"), *(("a", tool["name"]) for tool in tools)}
        return embedder.embedded_texts - before

    fleet = Fleet(fake_members("a", "b"), fakes, on_catalog=indexer.follow)
    async with running(fleet), anyio.create_task_group() as tasks:
        tasks.start_soon(indexer.run)
        await fleet.first_sync()
        await indexer.current()
        assert embedder.embedded_texts == 4
        one, two, three = upstream.tools
        assert await change([one, {**two, "description": "another"}, three]) == 1
        assert await change([one, {**two, "annotations": {"readOnlyHint": True}}, three]) == 1
        assert await change([one, three]) == 0
        assert await change([one, two, three]) == 0  # its first definition is in the store
        assert await change([one, two, three, tool("five", "fifth")]) == 1
        tasks.cancel_scope.cancel()


async def test_a_real_server_that_was_killed_comes_back():
    async with running(Fleet([real_member("raw")], connect, policy=SOON)) as fleet:
        await fleet.first_sync()
        with pytest.raises(UpstreamUnavailable, match="out of cheese"):
            await call(fleet, "raw", "die")
        for child in children():
            child.kill()
        assert (await call(fleet, "raw", "odd"))["futureField"] == [{"k": "v"}]
        assert fleet.statuses()[0].state is ServerState.READY


async def test_a_call_to_a_dead_server_fails_with_the_cause_and_does_not_wait_for_its_whole_deadline():
    fleet = Fleet(
        [real_member("dead", "crash", timeout_seconds=3600)],
        connect,
        restart_patience_seconds=0.1,
        policy=SOON,
    )
    async with running(fleet) as fleet:
        await fleet.first_sync()
        with pytest.raises(UpstreamUnavailable, match=r"'dead' is not available.*no module named cheese"):
            await call(fleet, "dead", "odd")


async def test_a_call_to_a_server_that_never_connects_fails_within_the_calls_deadline():
    @asynccontextmanager
    async def never(spec, host):
        await anyio.sleep_forever()
        yield

    async with running(Fleet(fake_members("mute", timeout_seconds=0.1), never), 20) as fleet:
        with pytest.raises(UpstreamUnavailable, match="still connecting"):
            await call(fleet, "mute", "any")


async def test_a_call_in_flight_fails_when_its_server_dies_and_is_not_repeated():
    started, lives = anyio.Event(), []

    async def hold(_):
        started.set()
        await anyio.sleep_forever()

    def start():
        lives.append(FakeUpstream("a", [tool("hold"), tool("quick")], {"hold": hold}))
        return lives[-1]

    async def kill():
        await started.wait()
        lives[0].close("exited with code 7: out of memory")

    async with running(Fleet(fake_members("a"), fake_connect({"a": start}), policy=SOON), 20) as fleet:
        await fleet.first_sync()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            with pytest.raises(UpstreamUnavailable, match="code 7: out of memory"):
                await call(fleet, "a", "hold")
        await call(fleet, "a", "quick")
        assert [[sent["name"] for sent in life.calls] for life in lives] == [["hold"], ["quick"]]


async def test_a_tool_that_never_answers_meets_its_deadline():
    async with running(Fleet([real_member("raw", timeout_seconds=0.2)], connect)) as fleet:
        await fleet.first_sync()
        with pytest.raises(UpstreamTimeout, match="no answer to tools/call"):
            await call(fleet, "raw", "never")
        assert fleet.statuses()[0].state is ServerState.READY


async def test_others_go_on_while_a_tool_does_not_answer():
    async with running(Fleet([real_member("raw"), real_member("other")], connect)) as fleet:
        await fleet.first_sync()
        answered = False

        async def never():
            nonlocal answered
            await call(fleet, "raw", "never")
            answered = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(never)
            for server in ("raw", "other", "raw"):
                assert (await call(fleet, server, "odd"))["futureField"]
            assert not answered
            tasks.cancel_scope.cancel()


async def test_a_tools_own_deadline_goes_before_its_servers():
    limits = {"never": 0.2}
    member = real_member("raw", timeout_seconds=3600, tool_timeout_seconds=limits)
    async with running(Fleet([member], connect)) as fleet:
        await fleet.first_sync()
        with pytest.raises(UpstreamTimeout):
            await call(fleet, "raw", "never")
        assert member.call_timeout("odd") == 3600


def test_a_command_that_is_not_found_is_named_with_the_path_searched_and_the_fix(tmp_path):
    servers = {
        "good": python_server("raw_server.py"),
        "absent": {"command": "no-such-command-here", "args": [], "env": {"PATH": "/usr/bin:/bin"}},
    }
    done = run_command("doctor", *write_config(tmp_path, servers), "--json")
    assert done.returncode == 1, done.stderr
    findings = {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert findings["server good"]["verdict"] == "ok"
    absent = findings["server absent"]
    assert absent["verdict"] == "failed"
    assert "'no-such-command-here' was not found" in absent["detail"]
    assert "PATH searched: /usr/bin:/bin" in absent["detail"]
    assert "absolute path" in absent["detail"]
