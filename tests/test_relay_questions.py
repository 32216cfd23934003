"""Questions of upstreams to hosts, in all four meetings of the eras: each reaches its host, its answer its call."""

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from support.fake_relay import (
    MODERN,
    PATIENCE,
    FakeFleet,
    always,
    host_of,
    over_streams,
    raw_request,
    relaying_server,
)

from adapters.ports import Era, HostRefused, UpstreamRefused
from nexus_gateway.access.host import HostKey
from nexus_gateway.server.asking_calls import AskingCalls
from nexus_gateway.server.parking import Parking, Questions

pytestmark = pytest.mark.anyio
FORM = {
    "message": "Which?",
    "requestedSchema": {"type": "object", "properties": {"it": {"type": "string"}}},
}
ASK = {"ask": {"method": "elicitation/create", "params": FORM}}
TOOLS = {"s": [{"name": "t", "inputSchema": {"type": "object"}}]}
CAPABLE = {"elicitation": {}}


def said(result):
    return result.content[0].text


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def answering(word):
    """An elicitation callback, and what it was asked."""
    asked = []

    async def callback(_context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"it": word})

    return callback, asked


async def asks_in_mid_call(server, params, caller, on_progress):
    """A legacy upstream: asks the caller's host twice, and says what it heard."""
    heard = []
    for _ in range(2):
        try:
            answer = await caller.host.ask("elicitation/create", FORM)
        except HostRefused as error:
            return text(f"refused: {error.message}")
        heard.append(answer["content"]["it"])
    return text(" ".join(heard))


def modern_upstream(rounds=1, state="secret of s"):
    """A modern upstream: asks `rounds` times with an interim result, and says what came back at the end."""

    async def answer(server, params, caller, on_progress):
        if (
            params.get("inputResponses") is None
            or len(params.get("requestState", "")) < len(state) + rounds - 1
        ):
            grown = params.get("requestState", state) + ("." if "inputResponses" in params else "")
            return {"resultType": "input_required", "inputRequests": ASK, "requestState": grown, "odd": 1}
        heard = params["inputResponses"]["ask"]["content"]["it"]
        return text(f"{heard} {params['requestState']}")

    return answer


def fleet_of(answer, era):
    return FakeFleet(TOOLS, answers={"tools/call": answer}, eras={"s": era})


async def test_a_legacy_host_answers_a_legacy_upstream_in_mid_call():
    callback, asked = answering("blue")
    fleet = fleet_of(asks_in_mid_call, Era.LEGACY)
    async with host_of(fleet, "legacy", elicitation_callback=callback) as client:
        assert said(await client.call_tool("s__t", {})) == "blue blue"
    assert asked == ["Which?"] * 2


async def test_a_legacy_host_answers_a_modern_upstream_through_retries():
    callback, asked = answering("blue")
    fleet = fleet_of(modern_upstream(rounds=2), Era.MODERN)
    async with host_of(fleet, "legacy", elicitation_callback=callback) as client:
        assert said(await client.call_tool("s__t", {"a": 1})) == "blue secret of s."
    assert asked == ["Which?"] * 2
    assert [params["arguments"] for *_, params in fleet.requests] == [{"a": 1}] * 3
    assert all(params["name"] == "t" for *_, params in fleet.requests)


async def test_a_modern_host_answers_a_modern_upstream_whose_state_it_cannot_read():
    callback, asked = answering("blue")
    fleet = fleet_of(modern_upstream(), Era.MODERN)
    async with host_of(fleet, MODERN, elicitation_callback=callback) as client:
        interim = await raw_request(client, "tools/call", {"name": "s__t", "arguments": {}})
        assert interim["inputRequests"] == ASK
        assert interim["odd"] == 1
        assert "secret" not in interim["requestState"]
        assert said(await client.call_tool("s__t", {})) == "blue secret of s"
    assert asked == ["Which?"]


async def test_a_modern_host_answers_a_legacy_upstream_while_its_call_is_parked():
    callback, asked = answering("blue")
    fleet = fleet_of(asks_in_mid_call, Era.LEGACY)
    async with host_of(fleet, MODERN, elicitation_callback=callback) as client:
        assert said(await client.call_tool("s__t", {})) == "blue blue"
    assert asked == ["Which?"] * 2
    assert len(fleet.requests) == 1


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_a_host_that_cannot_be_asked_is_not_and_the_upstream_is_told(era):
    fleet = fleet_of(asks_in_mid_call, Era.LEGACY)
    async with host_of(fleet, era) as client:
        assert (
            said(await client.call_tool("s__t", {})) == "refused: the host does not offer elicitation/create"
        )


async def test_a_legacy_host_that_cannot_be_asked_gets_a_clear_error_from_a_modern_upstreams_question():
    async with host_of(fleet_of(modern_upstream(), Era.MODERN), "legacy") as client:
        with pytest.raises(MCPError, match="does not offer elicitation/create"):
            await client.call_tool("s__t", {})


async def test_an_upstream_that_never_stops_asking_is_given_up():
    callback, asked = answering("blue")
    fleet = fleet_of(always({"resultType": "input_required", "inputRequests": ASK}), Era.MODERN)
    async with host_of(fleet, "legacy", elicitation_callback=callback) as client:
        with pytest.raises(MCPError, match="given up"):
            await client.call_tool("s__t", {})
    assert len(asked) == 10


async def test_what_a_host_refuses_is_the_error_it_gave():
    async def refuse(_context, _params):
        return types.ErrorData(code=-32050, message="not now", data={"why": 1})

    async with host_of(
        fleet_of(modern_upstream(), Era.MODERN), "legacy", elicitation_callback=refuse
    ) as client:
        with pytest.raises(MCPError, match="not now") as caught:
            await client.call_tool("s__t", {})
    assert (caught.value.error.code, caught.value.error.data) == (-32050, {"why": 1})


async def test_sampling_and_roots_take_the_same_way():
    async def answer(server, params, caller, on_progress):
        sampled = await caller.host.ask("sampling/createMessage", {"messages": [], "maxTokens": 1})
        roots = await caller.host.ask("roots/list", {})
        return text(f"{sampled['model']} {roots['roots'][0]['uri']}")

    async def sample(_context, _params):
        content = types.TextContent(type="text", text="x")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    async def roots(_context):
        return types.ListRootsResult(roots=[types.Root(uri="file:///r")])

    for era in ("legacy", MODERN):
        async with host_of(
            fleet_of(answer, Era.LEGACY), era, sampling_callback=sample, list_roots_callback=roots
        ) as client:
            assert said(await client.call_tool("s__t", {})) == "m file:///r"


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_of_many_hosts_and_calls_at_once_each_hears_its_own_question_and_gets_its_own_answer(era):
    async def answer(server, params, caller, on_progress):
        mine = params["arguments"]["me"]
        answer = await caller.host.ask("elicitation/create", {**FORM, "message": mine})
        return text(f"{mine}: {answer['content']['it']}")

    async def one(server, me):
        async def callback(_context, params):
            assert params.message.startswith(me)
            return types.ElicitResult(action="accept", content={"it": params.message})

        async with Client(
            over_streams(server), mode=era, elicitation_callback=callback, read_timeout_seconds=PATIENCE
        ) as client:

            async def call(number):
                mine = f"{me} {number}"
                assert said(await client.call_tool("s__t", {"me": mine})) == f"{mine}: {mine}"

            async with anyio.create_task_group() as calls:
                for number in range(10):
                    calls.start_soon(call, number)

    with anyio.fail_after(100):
        async with (
            relaying_server(fleet_of(answer, Era.LEGACY)) as server,
            anyio.create_task_group() as hosts,
        ):
            for number in range(5):
                hosts.start_soon(one, server, f"host {number}")


# --- meta-tools


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_an_upstream_can_ask_during_a_meta_tool_too(era):
    async def meta(name, arguments, ctx, caller):
        return await asks_in_mid_call("s", arguments, caller, None)

    callback, asked = answering("blue")
    expose = {"meta": meta}
    async with host_of(FakeFleet(), era, expose=expose, elicitation_callback=callback) as client:
        assert said(await client.call_tool("call_tool", {"tool": "t"})) == "blue blue"
    assert asked == ["Which?"] * 2


@pytest.mark.parametrize("era", ["legacy", MODERN])
async def test_a_turns_call_to_a_modern_upstream_asks_the_host_and_ends_with_a_final_result(era):
    fleet = fleet_of(modern_upstream(rounds=2), Era.MODERN)

    async def meta(name, arguments, ctx, caller):
        return await AskingCalls(fleet).call_tool("s", "t", {"name": "t"}, caller=caller)

    callback, _ = answering("blue")
    async with host_of(fleet, era, expose={"meta": meta}, elicitation_callback=callback) as client:
        assert said(await client.call_tool("call_tool", {"tool": "t"})) == "blue secret of s."


async def test_a_turn_without_a_host_says_that_there_is_nobody_to_ask():
    calls = AskingCalls(fleet_of(modern_upstream(), Era.MODERN))
    with pytest.raises(UpstreamRefused, match="no host to give it"):
        await calls.call_tool("s", "t", {"name": "t"})


async def test_a_state_of_the_handlers_own_reaches_them():
    states = []

    async def meta(name, arguments, ctx, caller):
        states.append((ctx.params or {}).get("requestState"))
        return text("done")

    callback, _ = answering("blue")
    async with host_of(FakeFleet(), MODERN, expose={"meta": meta}, elicitation_callback=callback) as client:
        params = {"name": "call_tool", "arguments": {"tool": "t"}, "requestState": "theirs"}
        await raw_request(client, "tools/call", params)
    assert states == ["theirs"]


# --- states


@pytest.mark.parametrize("change", ["altered", "another tool"])
async def test_a_state_that_is_not_this_requests_is_refused(change):
    tools = {"s": [*TOOLS["s"], {"name": "u", "inputSchema": {"type": "object"}}]}
    fleet = FakeFleet(tools, answers={"tools/call": modern_upstream()}, eras={"s": Era.MODERN})
    async with host_of(fleet, MODERN) as client:
        params = {"name": "s__t", "arguments": {}}
        interim = await raw_request(client, "tools/call", params)
        retry = {**params, "requestState": interim["requestState"], "inputResponses": {}}
        if change == "altered":
            retry["requestState"] = retry["requestState"][:-4] + "AAAA"
        else:
            retry["name"] = "s__u"
        with pytest.raises(MCPError) as caught:
            await raw_request(client, "tools/call", retry)
    assert caught.value.error.code == types.INVALID_PARAMS
    assert len(fleet.requests) == 1


async def test_a_parked_call_works_once():
    fleet = fleet_of(asks_in_mid_call, Era.LEGACY)

    async def callback(_context, _params):
        raise AssertionError

    async with host_of(fleet, MODERN, elicitation_callback=callback) as client:
        params = {"name": "s__t", "arguments": {}}
        interim = await raw_request(client, "tools/call", params)
        (key,) = interim["inputRequests"]
        answers = {key: {"action": "accept", "content": {"it": "x"}}}
        retry = {**params, "requestState": interim["requestState"], "inputResponses": answers}
        second = await raw_request(client, "tools/call", retry)
        (key,) = second["inputRequests"]
        last = {
            **retry,
            "requestState": second["requestState"],
            "inputResponses": {key: answers.popitem()[1]},
        }
        assert (await raw_request(client, "tools/call", last))["content"] == text("x x")["content"]
        with pytest.raises(MCPError, match="make the request again"):
            await raw_request(client, "tools/call", last)


# --- parking


class AskingHost:
    capabilities = CAPABLE

    def __init__(self, name):
        self.key = HostKey(name)

    async def ask(self, method, params):
        raise AssertionError("a modern host can't be asked")


async def asking(host, _on_progress):
    return await host.ask("elicitation/create", FORM)


async def parking_of(tasks, **options):
    parking = Parking(**options)
    tasks.start_soon(parking.run)
    await anyio.wait_all_tasks_blocked()
    return parking


async def test_a_parked_call_that_nobody_comes_back_for_is_cancelled_upstream():
    cancelled = anyio.Event()

    async def send(host, on_progress):
        try:
            return await asking(host, on_progress)
        finally:
            cancelled.set()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            parking = await parking_of(tasks, patience_seconds=0.01)
            parked = await parking.begin(AskingHost("h"), send, None)
            await cancelled.wait()
            with pytest.raises(MCPError, match="make the request again"):
                await parking.resume(parked.parked, {}, None)
            tasks.cancel_scope.cancel()


async def test_no_more_calls_are_parked_than_allowed():
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            parking = await parking_of(tasks, capacity=1)
            assert isinstance(await parking.begin(AskingHost("a"), asking, None), Questions)
            with pytest.raises(HostRefused, match="wait for answers"):
                await parking.begin(AskingHost("b"), asking, None)
            tasks.cancel_scope.cancel()


async def test_a_host_that_goes_away_while_its_resumed_call_runs_cancels_it():
    cancelled = anyio.Event()

    async def send(host, on_progress):
        await asking(host, on_progress)
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            parking = await parking_of(tasks)
            parked = await parking.begin(AskingHost("a"), send, None)
            (key,) = parked.requests
            async with anyio.create_task_group() as resuming:
                resuming.start_soon(parking.resume, parked.parked, {key: {"action": "cancel"}}, None)
                await anyio.wait_all_tasks_blocked()
                resuming.cancel_scope.cancel()
            await cancelled.wait()
            tasks.cancel_scope.cancel()
