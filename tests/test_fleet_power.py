"""When a server runs: lazily, until idle, after failures, after long silence."""

import json
from dataclasses import replace

import anyio
import pytest
from support.fleets import (
    SOON,
    Starts,
    call,
    fake_members,
    pid_of,
    real_member,
    running,
    state_of,
    tool,
    until,
)
from support.processes import children

from adapters.mcp_upstream import connect
from adapters.ports import Era, StdioSpec, UpstreamSpec, UpstreamUnavailable
from adapters.upstream_double import FakeUpstream, fake_connect
from nexus_gateway.access.host import HostKey
from nexus_gateway.fleet import health
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.listings import ListKind
from nexus_gateway.fleet.policy import RestartPolicy
from nexus_gateway.fleet.status import ServerState

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    assert children() == []


async def test_a_lazy_server_is_listed_without_a_process_and_started_by_its_first_call(tmp_path):
    member = real_member(lazy=True)
    async with running(Fleet([member], connect, listings_folder=tmp_path)) as fleet:
        await fleet.first_sync()  # nothing is known yet: it starts once
        assert len(children()) == 1
        known = await fleet.entries(ListKind.RESOURCES)
    async with running(Fleet([member], connect, listings_folder=tmp_path)) as fleet:
        (status,) = await fleet.first_sync()
        assert (status.state, status.tools, status.cause) == (ServerState.IDLE, 2, "")
        assert {found.id.name for found in fleet.catalog} == {"pid", "hang"}
        assert await fleet.entries(ListKind.RESOURCES) == known
        assert children() == []
        await pid_of(fleet, "real")
        assert len(children()) == 1
        assert state_of(fleet, "real").state is ServerState.READY


async def test_a_kept_listing_of_another_command_or_a_broken_one_is_not_used(tmp_path):
    starts = Starts(instructions="be kind")
    (member,) = fake_members("a", lazy=True)

    def lazy(member):
        return Fleet([member], starts.connect(), listings_folder=tmp_path, policy=SOON)

    async with running(lazy(member)) as fleet:
        await fleet.first_sync()
    async with running(lazy(member)) as fleet:
        await fleet.first_sync()
        assert fleet.instructions() == [("a", "be kind")]
        assert starts.tried == 1
    async with running(lazy(replace(member, spec=UpstreamSpec("a", StdioSpec("another"))))) as fleet:
        await fleet.first_sync()
        assert starts.tried == 2
    (file,) = tmp_path.iterdir()
    for broken in ("", "[]", '{"tools": 3}', json.dumps({**json.loads(file.read_text()), "tools": {}})):
        file.write_text(broken)
        tried = starts.tried
        async with running(lazy(replace(member, spec=UpstreamSpec("a", StdioSpec("another"))))) as fleet:
            await fleet.first_sync()
            assert starts.tried == tried + 1


async def test_a_kept_listing_holds_no_secret_and_has_a_safe_name(tmp_path):
    spec = UpstreamSpec("../a/b", StdioSpec("server", ("--token", "s3cret"), {"KEY": "s3cret"}))
    fakes = fake_connect({"../a/b": lambda: FakeUpstream("../a/b", [tool("plain")])})
    member = replace(fake_members("x", lazy=True)[0], spec=spec)
    async with running(Fleet([member], fakes, listings_folder=tmp_path / "listings")) as fleet:
        await fleet.first_sync()
    (file,) = (tmp_path / "listings").iterdir()
    assert "s3cret" not in file.read_text()
    assert "plain" in file.read_text()


async def test_an_idle_server_is_stopped_with_its_process_and_comes_back_when_called():
    async with running(Fleet([real_member(idle_stop_seconds=0.1)], connect)) as fleet:
        first = await pid_of(fleet, "real")
        known = await fleet.entries(ListKind.RESOURCES)
        await until(lambda: not children())
        await until(lambda: state_of(fleet, "real").state is ServerState.IDLE)
        assert state_of(fleet, "real").cause == ""
        assert {found.id.name for found in fleet.catalog} == {"pid", "hang"}
        assert await fleet.entries(ListKind.RESOURCES) == known
        assert children() == []
        assert await pid_of(fleet, "real") != first


async def test_a_server_is_not_idle_while_it_works_or_a_host_watches():
    release = anyio.Event()

    async def hold(_):
        await release.wait()
        return {"content": []}

    starts = Starts(handlers={"plain": hold}, resources=[{"uri": "note:x"}])
    async with running(starts.fleet(idle_stop_seconds=0.02)) as fleet:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, fleet, "a", "plain")
            await until(lambda: starts.started and starts.started[-1].calls)
            working = len(starts.started)
            await anyio.sleep(0.1)
            assert len(starts.started) == working
            await fleet.watch("a", "note:x", HostKey("one"))
            release.set()
        await anyio.sleep(0.1)
        assert state_of(fleet, "a").state is ServerState.READY
        assert len(starts.started) == working
        await fleet.unwatch("a", "note:x", HostKey("one"))
        await until(lambda: state_of(fleet, "a").state is ServerState.IDLE)


async def test_no_call_is_lost_to_a_server_that_stops_all_the_time():
    starts = Starts()
    async with running(starts.fleet(idle_stop_seconds=0.001)) as fleet:
        for number in range(100):
            assert (await call(fleet, "a", "plain"))["content"]
            await anyio.sleep(0.0005 * (number % 5))
        assert len(starts.started) > 1


async def test_a_server_that_keeps_failing_rests_says_so_and_is_tried_at_once_when_called():
    starts = Starts()
    starts.failing = True
    policy = replace(SOON, breaker_failures=3, breaker_seconds=3600)
    async with running(starts.fleet(policy=policy)) as fleet:
        await until(lambda: state_of(fleet, "a").resting)
        status = state_of(fleet, "a")
        assert (status.state, starts.tried) == (ServerState.DOWN, 3)
        assert "a: no luck, try 3 (3 starts failed in a row: tried again in" in status.cause
        with pytest.raises(UpstreamUnavailable, match="no luck, try 4"):
            await call(fleet, "a", "plain")
        assert starts.tried == 4  # one try, and no wait beyond it
        starts.failing = False
        await call(fleet, "a", "plain")
        status = state_of(fleet, "a")
        assert (status.state, status.resting, status.cause) == (ServerState.READY, False, "")


async def test_a_server_that_dies_soon_after_each_start_is_not_one_that_does_not_start():
    starts = Starts()
    async with running(starts.fleet(policy=replace(SOON, breaker_failures=2, breaker_seconds=3600))) as fleet:
        for number in range(1, 6):
            await until(lambda n=number: len(starts.started) == n)
            await until(lambda: state_of(fleet, "a").state is ServerState.READY)
            starts.started[-1].close("died")
        await until(lambda: len(starts.started) == 6)
        assert not state_of(fleet, "a").resting


async def test_a_resting_server_is_tried_again_by_itself():
    starts = Starts()
    starts.failing = True
    policy = replace(SOON, breaker_failures=2, breaker_seconds=0.05)
    async with running(starts.fleet(policy=policy)) as fleet:
        await until(lambda: state_of(fleet, "a").resting)
        starts.failing = False
        await until(lambda: state_of(fleet, "a").state is ServerState.READY)


def test_waits_grow_to_a_longest_and_are_spread():
    policy = RestartPolicy(first_seconds=1, longest_seconds=60, breaker_failures=8, breaker_seconds=300)
    for failures, full in ((1, 1), (2, 2), (4, 8), (20, 60)):
        waits = [policy.wait(failures, 0) for _ in range(50)]
        assert all(full / 2 <= wait <= full for wait in waits)
        assert len(set(waits)) > 1
    assert policy.wait(0, 0) <= 1
    assert policy.wait(8, 8) >= 150
    assert not policy.rests(7)
    assert policy.rests(8)


async def test_a_connection_that_was_silent_for_long_is_asked_before_it_is_used(monkeypatch):
    starts = Starts()
    async with running(starts.fleet()) as fleet:
        await call(fleet, "a", "plain")
        pinged = lambda: [method for method, _ in starts.started[0].requests].count("ping")  # noqa: E731
        assert pinged() == 0
        monkeypatch.setattr(health, "SILENT_SECONDS", 0.0)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(call, fleet, "a", "plain")
        assert pinged() >= 1
        assert len(starts.started) == 1


async def test_a_silent_connection_that_answers_no_more_is_made_anew_before_the_call(monkeypatch):
    monkeypatch.setattr(health, "PING_SECONDS", 0.1)
    async with running(Fleet([real_member()], connect)) as fleet:
        deaf = (await call(fleet, "real", "hang"))["pid"]
        monkeypatch.setattr(health, "SILENT_SECONDS", 0.0)
        assert await pid_of(fleet, "real") != deaf


async def test_a_modern_server_is_never_pinged(monkeypatch):
    monkeypatch.setattr(health, "SILENT_SECONDS", 0.0)
    starts = Starts(era=Era.MODERN)
    async with running(starts.fleet()) as fleet:
        await call(fleet, "a", "plain")
        assert "ping" not in [method for method, _ in starts.started[0].requests]


async def test_after_many_timeouts_a_server_still_serves():
    async def hang(_):
        await anyio.sleep_forever()

    starts = Starts(handlers={"plain": hang})
    async with running(starts.fleet(timeout_seconds=0.01)) as fleet:
        for _ in range(20):
            with pytest.raises(Exception, match="within"):
                await call(fleet, "a", "plain")
        assert state_of(fleet, "a").state is ServerState.READY
        starts.started[0]._handlers.clear()
        await call(fleet, "a", "plain")
        assert len(starts.started) == 1
