"""Reloads touch only what changed: servers that stay keep their process, their calls and their watches."""

import os
import signal
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from support.fleets import (
    FORMS,
    SOON,
    Asked,
    Starts,
    call,
    fake_members,
    pid_of,
    real_member,
    running,
    state_of,
    until,
)
from support.gateways import python_server, running_command, settings_of, write_config
from support.processes import children, wait_until

from adapters.mcp_upstream import connect
from adapters.ports import StdioSpec, UpstreamSpec, UpstreamUnavailable
from nexus_gateway.access.host import HostKey
from nexus_gateway.app import open_gateway
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.listings import Entry, ListKind
from nexus_gateway.fleet.status import ServerState
from nexus_gateway.reloading import reload
from nexus_gateway.settings import load_settings

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_child_is_left():
    yield
    assert children() == []


async def test_a_reload_touches_only_what_changed():
    kept, changed, gone = real_member("kept"), real_member("changed"), real_member("gone")
    told = []
    async with running(Fleet([kept, changed, gone], connect)) as fleet:
        await fleet.first_sync()
        before = {name: await pid_of(fleet, name) for name in ("kept", "changed", "gone")}
        fleet.on_change(lambda change: told.append((change.kind, change.server)))
        following = [
            real_member("new"),
            replace(kept, timeout_seconds=1.5, tool_timeout_seconds={"pid": 7}),
            replace(changed, spec=real_member("changed", "another-argument").spec),
        ]
        await fleet.apply(following)
        assert [status.server for status in fleet.statuses()] == ["new", "kept", "changed"]
        await fleet.first_sync()
        after = {name: await pid_of(fleet, name) for name in ("kept", "changed", "new")}
        assert after["kept"] == before["kept"]
        assert after["changed"] != before["changed"]
        assert sorted(child.pid for child in children()) == sorted(after.values())
        assert {found.id.server for found in fleet.catalog} == {"new", "kept", "changed"}
        assert {server for kind, server in told if kind == "tools"} == {"new", "gone"}
        with pytest.raises(UpstreamUnavailable, match="no server named 'gone'"):
            await pid_of(fleet, "gone")


async def test_deadlines_and_options_change_in_place():
    async def hang(_):
        await anyio.sleep_forever()

    starts = Starts(handlers={"plain": hang})
    (member,) = fake_members("a", timeout_seconds=3600)
    async with running(Fleet([member], starts.connect(), policy=SOON)) as fleet:
        await fleet.first_sync()
        await fleet.apply([replace(member, timeout_seconds=0.01, poll_seconds=0.01)])
        with pytest.raises(Exception, match=r"within 0\.01 s"):
            await call(fleet, "a", "plain")
        listed = lambda: [method for method, _ in starts.started[0].requests].count("tools/list")  # noqa: E731
        await until(lambda: listed() > 4)
        await fleet.apply([replace(member, idle_stop_seconds=0.01)])
        await until(lambda: state_of(fleet, "a").state is ServerState.IDLE)
        assert len(starts.started) == 1


async def test_a_call_in_flight_on_an_untouched_server_survives_a_reload():
    release, holding = anyio.Event(), anyio.Event()

    async def hold(_):
        holding.set()
        await release.wait()
        return {"content": ["held"]}

    starts = Starts(handlers={"plain": hold})
    (member,) = fake_members("a")
    results = []

    async def hold_on():
        results.append(await call(fleet, "a", "plain"))

    async with running(Fleet([member], starts.connect())) as fleet:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold_on)
            await holding.wait()
            await fleet.apply([member, *fake_members("nowhere")])
            release.set()
        assert results == [{"content": ["held"]}]


async def test_watches_and_the_first_host_survive_a_changed_server():
    starts = Starts(resources=[{"uri": "note:x"}])
    (member,) = fake_members("a")
    fleet = Fleet([member], starts.connect(), policy=SOON)
    fleet.meet(Asked("one").caller)
    async with running(fleet):
        await fleet.watch("a", "note:x", HostKey("one"))
        await fleet.apply([replace(member, spec=UpstreamSpec("a", StdioSpec("another")))])
        await until(lambda: len(starts.started) == 2 and state_of(fleet, "a").state is ServerState.READY)
        assert starts.started[1].watched == {"note:x"}
        assert starts.started[1].host.capabilities == FORMS
        assert await fleet.entries(ListKind.RESOURCES) == [Entry("a", {"uri": "note:x"})]


async def test_a_reload_in_the_midst_of_a_slow_start_stops_it():
    begun = anyio.Event()

    @asynccontextmanager
    async def never(spec, host):
        begun.set()
        await anyio.sleep_forever()
        yield

    async with running(Fleet(fake_members("a"), never), 20) as fleet:
        await begun.wait()
        await fleet.apply([])
        assert fleet.statuses() == []
        assert await fleet.first_sync() == []


async def test_a_faulty_configuration_leaves_the_old_one_in_place(tmp_path):
    applied = []

    async def apply(settings):
        applied.append(settings)

    (tmp_path / "nexus.toml").write_text("")
    files = write_config(tmp_path, {"raw": python_server("fleet_server.py")})

    def read():
        return load_settings(tmp_path / "nexus.toml", [tmp_path / "mcp.json"])

    await reload(read, apply)
    assert [list(settings.servers) for settings in applied] == [["raw"]]
    for faulty in ("{", '{"mcpServers": {"raw": {}}}'):
        (tmp_path / "mcp.json").write_text(faulty)
        await reload(read, apply)
    (tmp_path / "mcp.json").unlink()
    await reload(read, apply)
    assert len(applied) == 1
    assert files[-1].endswith("mcp.json")


async def test_the_gateway_reloads_servers_and_the_rules_of_their_tools(tmp_path):
    servers = {"one": python_server("fleet_server.py"), "two": python_server("fleet_server.py")}
    with anyio.fail_after(60):
        async with open_gateway(settings_of(tmp_path, servers)) as gateway:
            await gateway.fleet.first_sync()
            one, two = await pid_of(gateway.fleet, "one"), await pid_of(gateway.fleet, "two")
            toml = "[servers.one.tools.pid]\nread_only = true\n"
            following = {"one": servers["one"], "three": servers["two"]}
            await gateway.reload(settings_of(tmp_path, following, toml))
            assert await pid_of(gateway.fleet, "one") == one
            assert await pid_of(gateway.fleet, "three") != two
            assert set(gateway.settings.servers) == {"one", "three"}
            ids = {str(found.id): found.id for found in gateway.fleet.catalog}
            assert gateway.live.approved_read_only(ids["one/pid"]) is True
            assert gateway.live.confirm_policy(replace(ids["one/pid"], server="two")) == "auto"


@pytest.mark.slow
def test_a_hangup_signal_reloads_a_running_gateway(tmp_path):
    options = write_config(tmp_path, {"one": python_server("fleet_server.py")})
    with (tmp_path / "log").open("wb") as log, running_command("serve", *options, stderr=log) as process:
        logged = (tmp_path / "log").read_text
        wait_until(lambda: "upstream.ready" in logged(), logged)
        write_config(tmp_path, {"two": python_server("fleet_server.py")})
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: "settings.reloaded" in logged() and logged().count("upstream.ready") == 2, logged)
        (tmp_path / "mcp.json").write_text("{")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: "settings.not_reloaded" in logged(), logged)
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(30) == 0
