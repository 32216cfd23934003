"""Many turns and calls at once while servers are killed: each ends in an outcome, and nothing is left behind."""

import sys
from collections import Counter

import anyio
import psutil
import pytest
from support.gateways import python_server, settings_of
from support.processes import assert_none_is_left, children, marked, new_mark

from nexus_gateway.access.caller import Caller
from nexus_gateway.app import open_gateway
from nexus_gateway.demo.workspace import seed_workspace
from nexus_gateway.turn.result import Outcome

TURNS, CALLS, AT_ONCE = 40, 400, 20
KILL_SECONDS = 2.0
DEMO = ("files", "notes", "calendar", "contacts")
HOLDING = ("first", "second")
REQUESTS = (
    "read the file packing-list.txt",
    'search my notes for "flour"',
    "find Ben Okafor's contact details",
    "what is in my calendar on 2026-12-08?",
    "paint the ceiling of the chapel",
)
EXACT = (
    ("files/read_file", {"path": "budget.csv"}),
    ("first/pause", {"seconds": 1.5}),
    ("notes/search_notes", {"text": "milk"}),
    ("second/pause", {"seconds": 1.5}),
    ("contacts/find_contact", {"text": "Ana"}),
)
"""`pause` makes the load last long enough for each server to be killed, some in a call."""
pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def servers(workspace, mark):
    demo = {
        name: {
            "command": sys.executable,
            "args": ["-m", f"nexus_gateway.demo.servers.{name}", str(workspace)],
            "env": mark,
        }
        for name in DEMO
    }
    return demo | {name: python_server("holding_server.py", "fork", name, env=mark) for name in HOLDING}


def process_of(server):
    """The server's own process, if it is up just now."""
    for child in psutil.Process().children():
        try:
            if any(part.endswith(f"servers.{server}") or part == server for part in child.cmdline()):
                return child
        except psutil.NoSuchProcess:
            continue
    return None


async def kill_in_rotation(killed):
    names = [HOLDING[0], *DEMO[:2], HOLDING[1], *DEMO[2:]]
    while True:
        await anyio.sleep(KILL_SECONDS)
        victim = process_of(names[0])
        if victim is not None:
            victim.kill()
            killed[names[0]] += 1
            names.append(names.pop(0))


async def under_load(gateway, killed):
    """The outcomes of all turns and calls, and the causes of the failed ones."""
    outcomes = {"turn": Counter(), "call": Counter()}
    failures = Counter()
    jobs = iter(
        [("turn", REQUESTS[n % len(REQUESTS)]) for n in range(TURNS)]
        + [("call", EXACT[n % len(EXACT)]) for n in range(CALLS)]
    )

    async def work():
        for kind, what in jobs:
            if kind == "turn":
                result = await gateway.turns.turn(what, Caller())
            else:
                result = await gateway.turns.call(*what, Caller())
            outcomes[kind][result.outcome] += 1
            wrong = result.outcome is Outcome.CALLED and result.is_error
            assert not wrong, (what, result.raw)
            if result.outcome is Outcome.FAILED:
                failures[result.message.split(":")[-1].strip()[:60]] += 1

    async with anyio.create_task_group() as killer:
        killer.start_soon(kill_in_rotation, killed)
        async with anyio.create_task_group() as workers:
            for _ in range(AT_ONCE):
                workers.start_soon(work)
        killer.cancel_scope.cancel()
    return outcomes, failures


@pytest.mark.timeout(150)
async def test_turns_and_calls_end_in_outcomes_while_servers_are_killed(tmp_path, capsys, record_property):
    mark, killed = new_mark(), Counter()
    seed_workspace(tmp_path / "workspace")
    settings = settings_of(tmp_path, servers(tmp_path / "workspace", mark))
    with anyio.fail_after(120):
        async with open_gateway(settings) as gateway:
            await gateway.readiness.wait()
            assert len(marked(mark)) >= len(DEMO) + 2 * len(HOLDING)
            outcomes, failures = await under_load(gateway, killed)
    report = {
        kind: {str(outcome): count for outcome, count in found.items()} for kind, found in outcomes.items()
    }
    report |= {"killed": dict(killed), "failures": dict(failures)}
    record_property("soak", report)
    with capsys.disabled():
        print("\n", report)  # noqa: T201 - the report
    assert outcomes["turn"].total() == TURNS
    assert outcomes["call"].total() == CALLS
    assert set(outcomes["call"]) <= {Outcome.CALLED, Outcome.FAILED}
    assert outcomes["call"][Outcome.CALLED] > CALLS / 2, report
    assert outcomes["turn"][Outcome.CALLED] > 0, report
    assert killed.total() >= 3, report
    assert children() == []
    assert_none_is_left(mark)
