"""What servers list besides tools, what changes, and what hosts watch."""

import anyio
import pytest
from support.fleets import NOWHERE, SOON, call, fake_members, real_member, running, state_of, tool, until
from support.processes import children

from adapters.mcp_upstream import connect
from adapters.ports import UpstreamRefused, UpstreamSpec, UpstreamUnavailable
from adapters.upstream_double import FakeUpstream, fake_connect
from nexus_gateway.access.host import HostKey
from nexus_gateway.fleet import managed, watches
from nexus_gateway.fleet.changes import Change
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.listings import Entry, ListKind
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.status import ServerState

ONE, TWO = HostKey("one"), HostKey("two")
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    assert children() == []


def resource(name, **more):
    return {"uri": f"note:{name}", "name": name, **more}


def prompt(name):
    return {"name": name, "unknownField": 1.0}


def listed(upstream, method="resources/list"):
    return sum(1 for asked, _ in upstream.requests if asked == method)


def fleet_of(*upstreams, **options):
    """Each server is one upstream, in this order."""
    fakes = {upstream.server: lambda one=upstream: one for upstream in upstreams}
    return Fleet(fake_members(*fakes), fake_connect(fakes), policy=SOON, **options)


class Lives:
    """A server that can die: each start is a new upstream with what it lists now."""

    def __init__(self, name="a"):
        self.name, self.gone, self.started = name, False, []
        self.resources, self.prompts = [resource("x")], [prompt("p")]

    def fleet(self, *others, **options):
        fakes = {self.name: self._start} | {one.server: lambda one=one: one for one in others}
        return Fleet(fake_members(*fakes, **options), fake_connect(fakes), policy=SOON)

    def _start(self):
        if self.gone:
            raise UpstreamUnavailable(self.name, "gone")
        started = FakeUpstream(self.name, [tool("plain")], resources=self.resources, prompts=self.prompts)
        self.started.append(started)
        return started


async def test_entries_come_raw_in_configured_order_from_the_servers_that_have_them():
    odd = resource("x", annotations={"mood": 1.0}, unknownField=[None])
    a, b, c = (
        FakeUpstream("b", resources=[odd], templates=[{"uriTemplate": "note:{id}"}]),
        FakeUpstream("a", prompts=[prompt("p")]),
        FakeUpstream("c", resources=[resource("y"), "not an object", resource("x")]),
    )
    async with running(fleet_of(a, b, c)) as fleet:
        await fleet.first_sync()
        assert await fleet.entries(ListKind.RESOURCES) == [
            Entry("b", odd),
            Entry("c", resource("y")),
            Entry("c", resource("x")),
        ]
        assert await fleet.entries(ListKind.TEMPLATES) == [Entry("b", {"uriTemplate": "note:{id}"})]
        assert await fleet.entries(ListKind.PROMPTS) == [Entry("a", prompt("p"))]


async def test_a_list_is_asked_for_once_until_it_has_changed():
    upstream = FakeUpstream("a", resources=[resource("x")], prompts=[prompt("p")])
    told = []
    fleet = fleet_of(upstream)
    fleet.on_change(told.append)
    async with running(fleet):
        await fleet.first_sync()
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(fleet.entries, ListKind.RESOURCES)
        assert listed(upstream) == 1
        upstream.resources = [resource("y")]
        told.clear()
        upstream.say("notifications/resources/list_changed", {"_meta": {"k": 1}})
        assert told == [Change("resources", "a", {"_meta": {"k": 1}})]
        assert await fleet.entries(ListKind.RESOURCES) == [Entry("a", resource("y"))]
        await fleet.entries(ListKind.PROMPTS)
        assert (listed(upstream), listed(upstream, "prompts/list")) == (2, 1)
        upstream.say("notifications/prompts/list_changed")
        await fleet.entries(ListKind.PROMPTS)
        await fleet.entries(ListKind.RESOURCES)
        assert (listed(upstream), listed(upstream, "prompts/list")) == (2, 2)
        assert [change.kind for change in told] == ["resources", "prompts"]


async def test_a_change_while_the_list_is_asked_for_counts_again():
    async def list_resources(request):
        result = {"resources": list(upstream.resources)}
        if listed(upstream) == 1:
            upstream.resources = [resource("y")]
            upstream.say("notifications/resources/list_changed")
        return result

    upstream = FakeUpstream("a", resources=[resource("x")], answers={"resources/list": list_resources})
    async with running(fleet_of(upstream)) as fleet:
        await fleet.first_sync()
        await fleet.entries(ListKind.RESOURCES)
        assert await fleet.entries(ListKind.RESOURCES) == [Entry("a", resource("y"))]


async def test_a_server_that_does_not_list_leaves_the_others_alone(monkeypatch):
    async def never(_):
        await anyio.sleep_forever()

    async def refuse(_):
        raise UpstreamRefused("refusing", -32603, "broken")

    monkeypatch.setattr(managed, "LIST_SECONDS", 0.05)
    upstreams = (
        FakeUpstream("good", resources=[resource("x")]),
        FakeUpstream("hanging", resources=[resource("y")], answers={"resources/list": never}),
        FakeUpstream("refusing", resources=[resource("z")], answers={"resources/list": refuse}),
    )
    async with running(fleet_of(*upstreams)) as fleet:
        await fleet.first_sync()
        assert await fleet.entries(ListKind.RESOURCES) == [Entry("good", resource("x"))]


async def test_a_server_that_is_down_is_left_out_and_hosts_hear_when_it_is_back():
    lives, told, back = Lives(), [], anyio.Event()
    fleet = lives.fleet(FakeUpstream("b", resources=[resource("z")]))
    async with running(fleet):
        await fleet.first_sync()
        assert len(await fleet.entries(ListKind.RESOURCES)) == 2

        def hear(change):
            told.append((change.kind, change.server))
            back.set()

        fleet.on_change(hear)
        lives.resources, lives.gone = [resource("new")], True
        lives.started[0].close("died")
        await until(lambda: state_of(fleet, "a").cause == "gone")
        assert await fleet.entries(ListKind.RESOURCES) == [Entry("b", resource("z"))]
        lives.gone = False
        await back.wait()
        assert told == [("resources", "a")]  # nobody has asked for its prompts
        await until(lambda: len(lives.started) == 2)
        assert (await fleet.entries(ListKind.RESOURCES))[0] == Entry("a", resource("new"))


async def test_changed_tools_are_told_once_the_catalogue_has_them():
    upstream = FakeUpstream("a", [tool("one")])
    told = []
    fleet = fleet_of(upstream)
    fleet.on_change(lambda change: told.append((change.kind, [str(found.id) for found in fleet.catalog])))
    async with running(fleet):
        await fleet.first_sync()
        upstream.change_tools([tool("two")])
        await until(lambda: len(told) == 2)
        assert told == [("tools", ["a/one"]), ("tools", ["a/two"])]
        upstream.change_tools([tool("two")])
        await until(lambda: listed(upstream, "tools/list") == 3)
        await anyio.wait_all_tasks_blocked()
        assert len(told) == 2


async def test_a_listener_that_raises_ends_nothing():
    def bad(_):
        raise RuntimeError("a bug")

    told = []
    upstream = FakeUpstream("a", [tool("one")])
    fleet = fleet_of(upstream)
    fleet.on_change(bad)
    fleet.on_change(told.append)
    async with running(fleet):
        await fleet.first_sync()
        assert [change.kind for change in told] == ["tools"]
        await call(fleet, "a", "one")


async def test_instructions_are_those_of_each_server_that_has_some():
    upstreams = (
        FakeUpstream("b", instructions="be kind"),
        FakeUpstream("a"),
        FakeUpstream("c", instructions=""),
    )
    async with running(fleet_of(*upstreams)) as fleet:
        await fleet.first_sync()
        assert fleet.instructions() == [("b", "be kind")]


async def test_a_resource_is_watched_while_any_host_watches_it():
    upstream, told = FakeUpstream("a", resources=[resource("x")]), []
    fleet = fleet_of(upstream)
    fleet.on_change(told.append)
    async with running(fleet):
        for host in (ONE, TWO, ONE):
            await fleet.watch("a", "note:x", host)
        assert listed(upstream, "resources/subscribe") == 1
        upstream.say("notifications/resources/updated", {"uri": "note:x", "odd": 1.0})
        assert told[-1] == Change("resource", "a", {"uri": "note:x", "odd": 1.0})
        await fleet.unwatch("a", "note:x", ONE)
        assert upstream.watched == {"note:x"}
        await fleet.unwatch("a", "note:x", TWO)
        assert upstream.watched == set()
        await fleet.unwatch("a", "note:x", TWO)
        assert listed(upstream, "resources/unsubscribe") == 1


async def test_a_host_that_is_gone_watches_nothing():
    upstream = FakeUpstream("a", resources=[resource("x")])
    async with running(fleet_of(upstream)) as fleet:
        for uri in ("note:x", "note:y"):
            await fleet.watch("a", uri, ONE)
        await fleet.watch("a", "note:x", TWO)
        await fleet.forget(ONE)
        assert upstream.watched == {"note:x"}


async def test_a_server_that_comes_back_is_asked_for_the_watched_resources_again():
    lives = Lives()
    async with running(lives.fleet()) as fleet:
        for uri in ("note:x", "note:y"):
            await fleet.watch("a", uri, ONE)
        lives.started[0].close("died")
        await anyio.wait_all_tasks_blocked()
        await call(fleet, "a", "plain")
        assert lives.started[1].watched == {"note:x", "note:y"}


async def test_a_watch_that_is_refused_is_not_counted(monkeypatch):
    async def refuse(_):
        raise UpstreamRefused("a", -32602, "no such resource")

    answers = {"resources/subscribe": refuse}
    upstream = FakeUpstream("a", resources=[resource("x")], answers=answers)
    async with running(fleet_of(upstream)) as fleet:
        with pytest.raises(UpstreamRefused, match="no such resource"):
            await fleet.watch("a", "note:x", ONE)
        upstream._answers.clear()
        await fleet.watch("a", "note:x", ONE)
        assert upstream.watched == {"note:x"}
        monkeypatch.setattr(watches, "MOST", 1)
        with pytest.raises(UpstreamRefused, match="no more than 1"):
            await fleet.watch("a", "note:y", ONE)


async def test_two_hosts_that_watch_and_unwatch_at_once_end_as_they_are_counted():
    upstream = FakeUpstream("a", resources=[resource("x")], delay_seconds=0.001)

    async def back_and_forth(host):
        for _ in range(20):
            await fleet.watch("a", "note:x", host)
            await fleet.unwatch("a", "note:x", host)
        if host is ONE:
            await fleet.watch("a", "note:x", host)

    async with running(fleet_of(upstream)) as fleet:
        async with anyio.create_task_group() as tasks:
            for host in (ONE, TWO):
                tasks.start_soon(back_and_forth, host)
        assert upstream.watched == {"note:x"}


async def test_a_server_nobody_configured_is_named():
    async with running(fleet_of(FakeUpstream("a"))) as fleet:
        for attempt in (
            fleet.request("x", "prompts/get", {}, caller=None),
            fleet.watch("x", "note:x", ONE),
            call(fleet, "x", "plain"),
        ):
            with pytest.raises(UpstreamUnavailable, match="no server named 'x' is configured"):
                await attempt


async def test_a_request_has_its_own_deadline_and_result():
    async def get(request):
        return {"messages": [], "asked": request.params["name"], "unknownField": 1.0}

    upstream = FakeUpstream("a", prompts=[prompt("p")], answers={"prompts/get": get})
    async with running(fleet_of(upstream)) as fleet:
        got = await fleet.request("a", "prompts/get", {"name": "p"}, caller=None, timeout_seconds=10)
        assert got == {"messages": [], "asked": "p", "unknownField": 1.0}


async def test_a_silent_server_is_listed_again_at_every_interval():
    lives = Lives()
    told = []
    fleet = lives.fleet(poll_seconds=0.01)
    async with running(fleet):
        await fleet.first_sync()
        await fleet.entries(ListKind.RESOURCES)
        fleet.on_change(lambda change: told.append(change.kind))
        upstream = lives.started[0]
        upstream.tools = [tool("another")]  # and says nothing
        upstream.resources = [resource("another")]
        await until(lambda: sorted(told) == ["resources", "tools"])
        assert [found.id.name for found in fleet.catalog] == ["another"]
        assert await fleet.entries(ListKind.RESOURCES) == [Entry("a", resource("another"))]
        asked = listed(upstream, "tools/list")
        await until(lambda: listed(upstream, "tools/list") > asked + 2)
        assert sorted(told) == ["resources", "tools"]


async def test_a_poll_that_fails_ends_nothing():
    async def fail(_):
        if failing:
            raise UpstreamRefused("a", -32603, "busy")
        return {"resources": [resource("x")]}

    failing = False
    upstream = FakeUpstream("a", [tool("one")], resources=[resource("x")], answers={"resources/list": fail})
    fakes = fake_connect({"a": lambda: upstream})
    async with running(Fleet([Member(UpstreamSpec("a", NOWHERE), poll_seconds=0.01)], fakes)) as fleet:
        await fleet.first_sync()
        await fleet.entries(ListKind.RESOURCES)
        failing = True
        asked = listed(upstream)
        await until(lambda: listed(upstream) > asked + 2)
        await call(fleet, "a", "one")


async def test_a_real_server_lists_again_after_it_was_killed():
    async with running(Fleet([real_member()], connect, policy=SOON)) as fleet:
        await fleet.first_sync()
        before = await fleet.entries(ListKind.RESOURCES)
        for child in children():
            child.kill()
        await until(lambda: state_of(fleet, "real").state is not ServerState.READY)
        await call(fleet, "real", "pid")
        after = await fleet.entries(ListKind.RESOURCES)
        assert [len(before), len(after)] == [1, 1]
        assert before != after
