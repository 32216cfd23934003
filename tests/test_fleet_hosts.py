"""Questions of legacy servers and the hosts they are for: one host at a time on a connection, and never another one's."""

from collections import Counter

import anyio
import pytest
from support.fleets import FORMS, SOON, Asked, Thinking, call, fake_members, real_member, running, tool, until
from support.processes import children

from adapters.mcp_upstream import connect
from adapters.ports import Era, HostRefused, UpstreamTimeout, UpstreamUnavailable
from adapters.upstream_double import FakeUpstream, fake_connect
from nexus_gateway.access.caller import Caller
from nexus_gateway.fleet import further, lease
from nexus_gateway.fleet.back_channel import asking
from nexus_gateway.fleet.fleet import Fleet

ROOTS = {"roots": {"listChanged": True}}
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    assert children() == []


async def ask(call):
    answer = await call.ask("elicitation/create", {"message": call.arguments["text"]})
    return {"content": [], "said": answer}


class FakeServers:
    """A server named `a`, each start of which is kept."""

    def __init__(self, handlers=None, era=Era.LEGACY):
        self.started = []
        self._handlers, self._era = {"ask": ask, **(handlers or {})}, era

    def fleet(self, **options):
        members = fake_members("a", **options)
        return Fleet(members, fake_connect({"a": self._start}), policy=SOON)

    def _start(self):
        tools = [tool(name) for name in ("plain", *self._handlers)]
        self.started.append(FakeUpstream("a", tools, self._handlers, era=self._era))
        return self.started[-1]

    def declared(self):
        return [upstream.host.capabilities for upstream in self.started]

    def calls(self):
        return [len(upstream.calls) for upstream in self.started]


async def test_two_hosts_on_one_real_server_never_get_each_others_question():
    hosts = [Asked("one"), Asked("two")]
    pids = Counter()

    async def hundred(fleet, host):
        async def once(number):
            text = f"{host.key} {number}"
            result = await call(fleet, "real", "ask", host, text=text)
            pids[result["pid"]] += 1
            assert result["said"]["content"] == {"by": host.key, "about": text}

        for start in range(0, 100, 5):  # some at once, as a host's agents do
            async with anyio.create_task_group() as tasks:
                for number in range(start, start + 5):
                    tasks.start_soon(once, number)

    async with running(Fleet([real_member()], connect)) as fleet:
        async with anyio.create_task_group() as tasks:
            for host in hosts:
                tasks.start_soon(hundred, fleet, host)
        for host in hosts:
            asked = {params["message"] for _, params in host.questions}
            assert asked == {f"{host.key} {number}" for number in range(100)}
        assert sum(pids.values()) == 200
        assert len(pids) <= 2  # a second one only because neither waits for the other's user
        assert len(children()) == len(pids) + 1  # and the base


async def test_the_base_declares_what_the_first_host_can_be_asked_and_lists_accordingly():
    first = Asked("one", {**FORMS, "extensions": {"io.modelcontextprotocol/ui": {}}})
    async with running(Fleet([real_member()], connect)) as fleet:
        await fleet.first_sync()
        assert "ask" not in {found.id.name for found in fleet.catalog}
        fleet.meet(first.caller)
        await until(lambda: "ask" in {found.id.name for found in fleet.catalog})
        result = await call(fleet, "real", "ask", first, text="hello")
        assert result["said"]["content"] == {"by": "one", "about": "hello"}
        assert result["capabilities"] == first.capabilities
        assert len(children()) == 1


async def test_a_host_that_is_met_before_the_start_costs_no_second_start():
    servers = FakeServers()
    fleet = servers.fleet()
    fleet.meet(Asked("one").caller)
    fleet.meet(Asked("two", ROOTS).caller)
    async with running(fleet):
        await fleet.first_sync()
        assert servers.declared() == [FORMS]


async def test_modern_requests_share_the_base_once_one_of_them_was_met():
    servers = FakeServers()
    fleet = servers.fleet()
    async with running(fleet):
        for number in range(5):
            host = Asked(f"request {number}", {**FORMS, **ROOTS}, era=Era.MODERN)
            fleet.meet(host.caller)
            assert (await call(fleet, "a", "ask", host, text="?"))["said"]["content"]["by"] == host.key
        assert servers.declared()[-1] == FORMS
        assert servers.calls()[-1] == 5


async def test_hosts_that_can_be_asked_different_things_have_connections_of_their_own():
    servers = FakeServers()
    urls = {"elicitation": {"url": {}}}
    async with running(servers.fleet()) as fleet:
        for host in (Asked("none", {}), Asked("forms"), Asked("more forms"), Asked("urls", urls)):
            await call(fleet, "a", "plain", host)
        assert servers.declared() == [{}, FORMS, urls]
        assert servers.calls() == [1, 2, 1]


async def test_a_host_that_can_be_asked_nothing_is_not_put_on_a_connection_that_promises_answers():
    servers = FakeServers()
    fleet = servers.fleet()
    fleet.meet(Asked("first").caller)
    async with running(fleet):
        for caller in (Asked("none", {}).caller, Caller()):
            await fleet.call_tool("a", "plain", {"name": "plain"}, caller=caller)
        assert servers.declared() == [FORMS, {}]
        assert servers.calls() == [0, 2]


async def test_one_connection_to_a_modern_server_serves_every_host_with_its_own_capabilities():
    servers = FakeServers(era=Era.MODERN)
    async with running(servers.fleet()) as fleet:
        for host in (Asked("forms"), Asked("roots", ROOTS), Asked("none", {})):
            await call(fleet, "a", "plain", host)
        assert len(servers.started) == 1
        assert servers.started[0].host_capabilities[-3:] == [FORMS, ROOTS, {}]


async def test_calls_of_the_same_host_run_at_the_same_time_and_another_host_waits_its_turn():
    order, entered, go = [], anyio.Event(), anyio.Event()

    async def hold(request):
        order.append(request.arguments["text"])
        if len(order) == 2:
            entered.set()
        await go.wait()
        return {"content": []}

    servers = FakeServers({"hold": hold})
    one, two = Asked("one"), Asked("two")
    async with running(servers.fleet()) as fleet, anyio.create_task_group() as tasks:
        for number in (1, 2):
            tasks.start_soon(lambda n=number: call(fleet, "a", "hold", one, text=f"one {n}"))
        await entered.wait()
        tasks.start_soon(lambda: call(fleet, "a", "hold", two, text="two"))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(lambda: call(fleet, "a", "hold", one, text="one again"))
        await anyio.wait_all_tasks_blocked()
        assert order == ["one 1", "one 2"]
        go.set()
        await until(lambda: len(order) == 4)
        assert order[2:] == ["two", "one again"]  # the host that has it does not keep it from one that waits
        assert len(servers.started) == 2


async def test_waiting_for_another_hosts_call_ends_at_the_deadline_and_says_why():
    begun, over = anyio.Event(), anyio.Event()

    async def work(_call):
        begun.set()
        await over.wait()
        return {"content": []}

    servers = FakeServers({"work": work})
    async with running(servers.fleet(tool_timeout_seconds={"plain": 0.05})) as fleet:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: call(fleet, "a", "work", Asked("busy")))
            await begun.wait()
            with pytest.raises(UpstreamTimeout, match="did not get its turn among other hosts' calls"):
                await call(fleet, "a", "plain", Asked("other"))
            over.set()
        await call(fleet, "a", "plain", Asked("other"))
        assert servers.calls() == [0, 2]


async def test_the_time_a_user_takes_to_answer_is_not_the_servers():
    thinking = Thinking("slow")
    async with (
        running(FakeServers().fleet(timeout_seconds=0.05)) as fleet,
        anyio.create_task_group() as tasks,
    ):

        async def answer_late():
            await thinking.asked.wait()
            await anyio.sleep(0.2)
            thinking.answer.set()

        tasks.start_soon(answer_late)
        answered = await call(fleet, "a", "ask", thinking, text="?")
        assert answered["said"]["content"]["by"] == "slow"


async def test_a_user_who_ponders_a_question_keeps_no_other_host_waiting():
    servers, thinking = FakeServers(), Thinking("slow")
    async with running(servers.fleet()) as fleet, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(fleet, "a", "ask", thinking, text="?"))
        await thinking.asked.wait()
        answered = await call(fleet, "a", "ask", Asked("quick"), text="?")
        assert answered["said"]["content"]["by"] == "quick"
        assert servers.calls() == [0, 1, 1]
        thinking.answer.set()


async def test_a_user_who_never_answers_is_given_up_on(monkeypatch):
    monkeypatch.setattr(lease, "QUESTION_SECONDS", 0.05)
    async with running(FakeServers().fleet()) as fleet:
        with pytest.raises(HostRefused, match="did not answer within"):
            await call(fleet, "a", "ask", Thinking("away"), text="?")


async def test_after_a_call_that_was_given_up_its_late_question_does_not_reach_the_next_host():
    servers = FakeServers({"hang": lambda _: anyio.sleep_forever()})
    one, two = Asked("one"), Thinking("two")
    async with running(servers.fleet()) as fleet, anyio.create_task_group() as tasks:
        with anyio.move_on_after(0.05):
            await call(fleet, "a", "hang", one)
        tasks.start_soon(lambda: call(fleet, "a", "ask", two, text="mine"))
        await two.asked.wait()
        with pytest.raises(HostRefused):
            await servers.started[1].ask_host("elicitation/create", {"message": "late"})
        two.answer.set()
    assert [params["message"] for _, params in two.questions] == ["mine"]
    assert servers.calls() == [0, 1, 1]  # the first host keeps its own


async def test_roots_are_asked_of_the_one_host_that_a_connection_is_for():
    one, two = Asked("one", ROOTS), Asked("two", ROOTS)
    async with running(Fleet([real_member()], connect)) as fleet:
        seen = {}
        for host in (one, two, one, two):
            result = await call(fleet, "real", "pid", host)
            assert result["roots"] in ([], [{"uri": f"file:///{host.key}"}])
            seen.setdefault(host.key, set()).add(result["pid"])
        assert [len(pids) for pids in seen.values()] == [1, 1]
        assert not seen["one"] & seen["two"]
        await until(lambda: one.questions and two.questions)
        assert [method for method, _ in (*one.questions, *two.questions)] == ["roots/list"] * 2


async def test_a_modern_host_whose_connection_is_one_request_long_brings_no_roots_to_a_legacy_server():
    servers = FakeServers()
    async with running(servers.fleet()) as fleet:
        for number in range(20):
            await call(fleet, "a", "plain", Asked(f"request {number}", {**FORMS, **ROOTS}, era=Era.MODERN))
        assert servers.declared() == [{}, FORMS]


async def test_a_question_between_calls_reaches_nobody():
    servers, host = FakeServers(), Asked("one")
    async with running(servers.fleet()) as fleet:
        await call(fleet, "a", "ask", host, text="mine")
        with pytest.raises(HostRefused, match="no host has a call running"):
            await servers.started[1].ask_host("elicitation/create", {"message": "?"})
        assert len(host.questions) == 1


async def test_a_hosts_own_connection_ends_with_the_host_and_an_idle_one_by_itself():
    servers = FakeServers()
    rooted = Asked("rooted", ROOTS)
    async with running(servers.fleet(idle_stop_seconds=30)) as fleet:
        await call(fleet, "a", "plain", rooted)
        own = servers.started[1]
        await fleet.forget(rooted.key)
        assert await own.wait_closed() == "closed by the gateway"
    quick = FakeServers()
    async with running(quick.fleet()) as fleet:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(further, "IDLE_STOP_SECONDS", 0.01)
            await call(fleet, "a", "plain", Asked("one"))
            assert await quick.started[1].wait_closed() == "closed by the gateway"
        await call(fleet, "a", "plain", Asked("one"))
        assert quick.calls() == [0, 1, 1]


async def test_the_number_of_connections_is_capped_and_the_longest_idle_one_makes_room():
    servers = FakeServers()
    async with running(servers.fleet()) as fleet:
        for number in range(further.MOST + 3):
            await call(fleet, "a", "plain", Asked(f"host {number}", ROOTS))
        alive = [upstream for upstream in servers.started[1:] if upstream._ending.cause is None]
        assert len(alive) == further.MOST
        assert alive == servers.started[-further.MOST :]


async def test_a_further_connection_that_dies_fails_its_call_and_the_next_opens_another():
    servers, host = FakeServers(), Asked("one")
    async with running(servers.fleet()) as fleet:
        await call(fleet, "a", "plain", host)
        servers.started[1].close("exited with code 3")
        await anyio.wait_all_tasks_blocked()
        await call(fleet, "a", "plain", host)
        assert servers.calls() == [0, 1, 1]


async def test_a_further_connection_that_can_not_be_opened_says_why():
    def only_once():
        if started:
            raise UpstreamUnavailable("a", "a: only one at a time")
        started.append(FakeUpstream("a", [tool("plain")]))
        return started[0]

    started = []
    async with running(Fleet(fake_members("a"), fake_connect({"a": only_once}))) as fleet:
        await call(fleet, "a", "plain")
        with pytest.raises(UpstreamUnavailable, match="only one at a time"):
            await call(fleet, "a", "plain", Asked("one"))
        await call(fleet, "a", "plain")


async def test_log_messages_of_a_connection_that_one_host_has_name_it():
    told = []
    thinking = Thinking("one")
    servers = FakeServers()
    fleet = servers.fleet()
    fleet.on_change(told.append)
    async with running(fleet), anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(fleet, "a", "ask", thinking, text="?"))
        await thinking.asked.wait()
        for upstream in servers.started:
            upstream.say("notifications/message", {"level": "info", "data": "x"})
        thinking.answer.set()
    logs = [change for change in told if change.kind == "log"]
    assert [change.host for change in logs] == [None, "one"]
    assert logs[0].params == {"level": "info", "data": "x"}


async def test_the_log_level_counts_on_every_connection():
    levels = []

    def start():
        async def set_level(request):
            levels.append((number, request.params["level"]))
            return {}

        number = len(started)
        started.append(FakeUpstream("a", [tool("plain")], answers={"logging/setLevel": set_level}))
        return started[-1]

    started = []
    async with running(Fleet(fake_members("a"), fake_connect({"a": start}), policy=SOON)) as fleet:
        await call(fleet, "a", "plain", Asked("one"))
        await fleet.request("a", "logging/setLevel", {"level": "error"}, caller=Asked("one").caller)
        assert sorted(levels) == [(0, "error"), (1, "error")]
        started[0].close("died")
        await anyio.wait_all_tasks_blocked()
        await call(fleet, "a", "plain")
        assert levels[2:] == [(2, "error")]


def test_what_a_host_can_be_asked_is_named_with_its_details():
    raw = {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": None},
        "roots": {"listChanged": True},
    }
    assert asking(raw) == {"elicitation", "elicitation.form", "elicitation.url", "sampling", "roots"}
    assert asking(raw, roots=False) == asking(raw) - {"roots"}
    assert asking({"experimental": {}}) == frozenset()
