"""Tasks of upstreams, as 2025-11-25 has them and as the extension of 2026-07-28 has them."""

import mcp_types as types
import pytest
from mcp.client.extension import advertise
from mcp.shared.exceptions import MCPError
from support.fake_relay import MODERN, FakeFleet, always, host_of, raw_request

from adapters.envelope import Envelope
from adapters.ports import Era
from nexus_gateway.server.task_routes import EXTENSION

pytestmark = pytest.mark.anyio

JOB = {"name": "job", "inputSchema": {"type": "object"}}
STATE = {"taskId": "t-1", "status": "working", "odd": 1.0}
ANSWERS = {"tools/call": always({"resultType": "task", **STATE}), "tasks/get": always(STATE)}


def fleet():
    return FakeFleet({"work": [JOB]}, answers=ANSWERS)


async def refused(client, method):
    with pytest.raises(MCPError) as caught:
        await raw_request(client, method, {"taskId": "t-1"})
    return caught.value.error


async def test_a_modern_host_that_knows_tasks_makes_one_and_asks_about_it():
    async with host_of(fleet(), MODERN, extensions=[advertise(EXTENSION)]) as client:
        made = await raw_request(client, "tools/call", {"name": "work__job", "arguments": {}})
        state = await raw_request(client, "tasks/get", {"taskId": "t-1"})
        removed = await refused(client, "tasks/result")
    assert (made["resultType"], made["taskId"]) == ("task", "t-1")
    assert STATE.items() <= state.items()
    assert removed.code == types.METHOD_NOT_FOUND


async def test_a_modern_host_that_does_not_know_tasks_is_told_what_it_lacks():
    async with host_of(fleet(), MODERN) as client:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            error = await refused(client, method)
            assert error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert error.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


async def test_hosts_of_both_eras_are_told_that_tasks_pass():
    async with host_of(fleet(), "legacy") as client:
        legacy = client.server_capabilities
        unknown = await refused(client, "tasks/update")
    async with host_of(fleet(), "auto") as client:
        modern = client.server_capabilities
    assert legacy.tasks.requests.tools.call is not None
    assert unknown.code == types.METHOD_NOT_FOUND
    assert modern.extensions == {EXTENSION: {}}
    assert modern.tasks is None
    async with host_of(fleet(), "auto", expose={"pass_through": False}) as client:
        assert not client.server_capabilities.extensions


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_request_about_a_task_names_it_in_its_header(method):
    envelope = Envelope(Era.MODERN, MODERN, client_info={}, capabilities={})
    _, options = envelope.stamp(method, {"taskId": "t-1"})
    assert options["headers"]["mcp-name"] == "t-1"
