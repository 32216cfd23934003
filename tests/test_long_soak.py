"""The soak of `tests/soak/calls.py`, short: servers misbehave and are killed, and each call has its own answer or a cause."""

import os

import pytest
from soak.calls import CALL_SECONDS, GRACE_SECONDS, Plan, is_right, soak

CALLS, SECONDS = (2_000, 40) if "NEXUS_FULL_TESTS" in os.environ else (500, 10)
pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_every_call_is_answered_rightly_or_fails_clearly_while_servers_misbehave(
    tmp_path, transport, record_property
):
    plan = Plan(calls=CALLS, seconds=SECONDS, transport=transport, seed=7)
    found = await soak(plan, tmp_path)
    record_property("soak", found)
    assert found["faults"] == 0, found
    assert found["calls"] == CALLS
    assert found["answered"] + sum(found["failed"].values()) == CALLS
    assert found["answered"] > CALLS / 2, found
    assert found["failed"], "nothing went wrong: the servers were too kind"
    assert sum(found["blows"].values()) > 0
    assert found["longest_seconds"] <= CALL_SECONDS + GRACE_SECONDS
    assert found["flat"], found["thirds"]


def test_the_soak_can_tell_another_result_from_the_right_one():
    def said(server, token):
        return {
            "content": [{"type": "text", "text": f"{server} {token}"}],
            "structuredContent": {"server": server, "token": token},
        }

    assert is_right("chaos1", "7", said("chaos1", "7"))
    assert not is_right("chaos1", "7", said("chaos1", "8"))
    assert not is_right("chaos1", "7", said("chaos2", "7"))
    assert not is_right("chaos1", "7", said("chaos1", "7") | {"structuredContent": {}})
