"""Hosts come and go, upstreams restart: descriptors, tasks and processes stay where they were.

NEXUS_FULL_TESTS=1 makes it 200 cycles of each kind instead of 40.
"""

import asyncio
import gc
import os
import socket
import sys
from contextlib import asynccontextmanager, nullcontext

import anyio
import psutil
import pytest
from soak.hosts import http_host, stdio_host
from support.gateways import gateway_command, python_server, settings_of, write_config
from support.processes import assert_none_is_left, children, marked, new_mark

from adapters.mcp_upstream import connect
from adapters.ports import StdioSpec, UpstreamError, UpstreamSpec
from nexus_gateway.boot import serve
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.policy import RestartPolicy
from nexus_gateway.server.http import PATH, serve_http
from nexus_gateway.server.listening import listen
from nexus_gateway.settings.snapshot import HttpSettings

FULL = "NEXUS_FULL_TESTS" in os.environ
HTTP_CYCLES, STDIO_CYCLES, RESTARTS, WARM_UP = (200, 20, 200, 10) if FULL else (40, 4, 40, 5)
SECONDS, HANG_UP_SECONDS = 60, 0.1
QUICKLY = RestartPolicy(first_seconds=0.001, longest_seconds=0.01)
ECHO = {"name": "call_tool", "arguments": {"tool": "calm/echo", "arguments": {"token": "here"}}}
CALM = ("chaos_server.py", "calm", "1", "calm")
TOML = "[servers.calm]\ntimeout_seconds = 5\n"
"""A legacy host that hangs up has not cancelled its call: that ends with its deadline."""
pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Held:
    """What this process holds now."""

    def __init__(self):
        gc.collect()
        self.tasks = len(asyncio.all_tasks())
        self.descriptors = psutil.Process().num_fds()
        self.processes = len(children())

    def within(self, other):
        return (
            self.tasks <= other.tasks
            and self.descriptors <= other.descriptors
            and self.processes <= other.processes
        )

    def __repr__(self):
        return f"{self.tasks} tasks, {self.descriptors} descriptors, {self.processes} processes"


async def assert_no_more_than(before):
    """What is over ends soon, not at once: connections close, tasks wind down."""
    with anyio.move_on_after(SECONDS):
        while not Held().within(before):  # noqa: ASYNC110 - what ends has no event here
            await anyio.sleep(0.05)
    now = Held()
    assert now.within(before), (before, now, sorted(task.get_name() for task in asyncio.all_tasks()))


@asynccontextmanager
async def serving_http(folder, mark):
    """A whole gateway in this process, over one calm server; gives its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings, http, stop = (
        settings_of(folder, {"calm": python_server(*CALM, env=mark)}, TOML),
        HttpSettings(port=port),
        anyio.Event(),
    )
    listening = listen(http)

    async def transport(server, _signalled):
        await serve_http(http, None, listening, server, stop)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, settings, transport)
        yield f"http://127.0.0.1:{port}{PATH}"
        stop.set()


async def visit(url, *, modern, listens=True):
    """One host: it connects, lists, calls, listens for news as hosts do, and leaves."""
    async with http_host(url, modern=modern) as host:
        assert "result" in await host.ask("tools/list", seconds=SECONDS)
        answer = await host.ask("tools/call", ECHO, seconds=SECONDS)
        assert answer["result"]["content"][0]["text"] == "calm here"
        if listens and not modern:
            async with host.client.stream("GET", url, headers=host.headers) as news:
                assert news.status_code == 200
    assert host.faults == []


async def warm(url, *, modern):
    """Servers are up, models loaded: what comes after this leaves no more behind."""
    async with http_host(url, modern=modern) as host:
        turn = {"name": "nexus_turn", "arguments": {"request": 'say the token "x"', "dry_run": True}}
        assert "result" in await host.ask("tools/call", turn, seconds=SECONDS)
    for _ in range(WARM_UP):
        await visit(url, modern=modern)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_many_http_hosts_leave_nothing_behind(tmp_path, modern):
    mark = new_mark()
    with anyio.fail_after(500):
        async with serving_http(tmp_path, mark) as url:
            await warm(url, modern=modern)
            before = Held()
            for _ in range(HTTP_CYCLES):
                await visit(url, modern=modern)
            await assert_no_more_than(before)
    assert_none_is_left(mark)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_many_http_hosts_that_hang_up_during_a_call_leave_nothing_running(tmp_path, modern):
    mark = new_mark()
    hold = {"name": "call_tool", "arguments": {"tool": "calm/hold", "arguments": {}}}
    with anyio.fail_after(500):
        async with serving_http(tmp_path, mark) as url:
            await warm(url, modern=modern)
            before = Held()
            async with http_host(url, modern=modern) as host:
                for _ in range(HTTP_CYCLES):
                    await hang_up_during(host, hold)
            await assert_no_more_than(before)
    assert_none_is_left(mark)


async def hang_up_during(host, call):
    with anyio.move_on_after(HANG_UP_SECONDS) as hung_up:
        await host.ask("tools/call", call, seconds=SECONDS)
    assert hung_up.cancelled_caught


@pytest.mark.timeout(600)
async def test_20_stdio_hosts_leave_no_process_behind(tmp_path):
    mark = new_mark()
    command = gateway_command("serve", *write_config(tmp_path, {"calm": python_server(*CALM, env=mark)}))
    for number in range(STDIO_CYCLES):
        with anyio.fail_after(SECONDS), (tmp_path / "stderr").open("ab") as errors:
            env = {**os.environ, **mark}
            async with stdio_host(command, stderr=errors, env=env, modern=bool(number % 2)) as host:
                assert "result" in await host.ask("tools/list", seconds=SECONDS)
                if number % 4 == 0:  # the others leave while it starts up
                    answer = await host.ask("tools/call", ECHO, seconds=SECONDS)
                    assert answer["result"]["content"][0]["text"] == "calm here"
    assert_none_is_left(mark)


@asynccontextmanager
async def running_fleet(mark):
    arguments = (str(python_server(CALM[0])["args"][0]), *CALM[1:])
    spec = UpstreamSpec("calm", StdioSpec(sys.executable, arguments, env=mark))
    fleet = Fleet([Member(spec)], connect, policy=QUICKLY)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fleet.run)
        await fleet.first_sync()
        yield fleet
        tasks.cancel_scope.cancel()


async def restart(fleet, number):
    """End the server, with an answer or without, and see it answer again."""
    answers = number % 2 == 0
    leave = {"name": "leave" if answers else "die", "arguments": {}}
    with nullcontext() if answers else pytest.raises(UpstreamError):
        await fleet.call_tool("calm", leave["name"], leave)
    while True:
        try:
            echo = {"name": "echo", "arguments": {"token": str(number)}}
            answer = await fleet.call_tool("calm", "echo", echo)
        except UpstreamError:
            continue  # it was still to be seen that the old process is gone
        assert answer["structuredContent"] == {"server": "calm", "token": str(number)}
        return


@pytest.mark.timeout(600)
async def test_many_restarts_of_an_upstream_leave_nothing_behind():
    mark = new_mark()
    with anyio.fail_after(500):
        async with running_fleet(mark) as fleet:
            for number in range(WARM_UP):
                await restart(fleet, number)
            before = Held()
            assert before.processes == 1
            for number in range(RESTARTS):
                await restart(fleet, number)
            await assert_no_more_than(before)
            assert len(marked(mark)) == 1
    assert children() == []
    assert_none_is_left(mark)
