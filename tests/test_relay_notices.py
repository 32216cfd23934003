"""What hosts are told: list changes, updated resources, log messages, each to whom it concerns and no other."""

from contextlib import asynccontextmanager

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_types import LOG_LEVEL_META_KEY
from support.fake_relay import (
    BOTH_ERAS,
    MODERN,
    PATIENCE,
    TEXT,
    FakeFleet,
    host_of,
    over_streams,
    raw_request,
    relaying_server,
)

from adapters.ports import Era
from nexus_gateway.fleet.listings import ListKind
from nexus_gateway.server.outbox import Outbox

pytestmark = pytest.mark.anyio
TOOLS = {"s": [{"name": "t", "inputSchema": {"type": "object"}}]}
LISTS = {
    ListKind.RESOURCES: {
        "s": [{"uri": "a:1", "name": "a"}, {"uri": "gone:1", "name": "g"}],
        "r": [{"uri": "b:1", "name": "b"}],
    }
}


class Heard:
    """Every notification a legacy host gets."""

    def __init__(self):
        self._send, self._receive = anyio.create_memory_object_stream(1000)

    async def __call__(self, message):
        await self._send.send(message)

    async def next(self):
        with anyio.fail_after(PATIENCE):
            return await self._receive.receive()

    def nothing_more(self):
        return self._receive.statistics().current_buffer_used == 0

    def close(self):
        self._send.close()
        self._receive.close()


@asynccontextmanager
async def legacy_host(server, **options):
    heard = Heard()
    try:
        async with Client(
            over_streams(server),
            mode="legacy",
            message_handler=heard,
            read_timeout_seconds=PATIENCE,
            **options,
        ) as client:
            await client.session.send_ping()  # its `initialized` has arrived
            yield client, heard
    finally:
        heard.close()


@asynccontextmanager
async def fleet_with(**options):
    fleet = FakeFleet(TOOLS, lists=LISTS, eras={"s": Era.LEGACY, "r": Era.LEGACY}, **options)
    with anyio.fail_after(100):
        async with relaying_server(fleet) as server:
            yield fleet, server


async def test_every_legacy_host_hears_of_changed_lists():
    async with (
        fleet_with() as (fleet, server),
        legacy_host(server) as (_, one),
        legacy_host(server) as (_, two),
    ):
        for kind, told in [
            ("tools", types.ToolListChangedNotification),
            ("resources", types.ResourceListChangedNotification),
            ("prompts", types.PromptListChangedNotification),
        ]:
            fleet.change(kind)
            assert isinstance(await one.next(), told)
            assert isinstance(await two.next(), told)


async def test_a_modern_host_hears_over_its_stream_of_what_it_wants():
    async with (
        fleet_with() as (fleet, server),
        Client(over_streams(server), mode=MODERN) as client,
        client.listen(
            tools_list_changed=True, prompts_list_changed=True, resource_subscriptions=["a:1"]
        ) as stream,
    ):
        assert fleet.watched["s", "a:1"] == 1
        for kind, params in [
            ("resources", {}), ("resource", {"uri": "b:1"}),
            ("tools", {}), ("prompts", {}), ("resource", {"uri": "a:1"}),
        ]:  # fmt: skip
            fleet.change(kind, params=params)
        events = [await anext(stream) for _ in range(3)]
    assert events == [ToolsListChanged(), PromptsListChanged(), ResourceUpdated(uri="a:1")]
    assert ResourcesListChanged() not in events


async def test_the_end_of_a_stream_ends_its_watches():
    async with fleet_with() as (fleet, server), Client(over_streams(server), mode=MODERN) as client:
        async with client.listen(resource_subscriptions=["a:1", "gone:1", "nobody:1"]):
            assert +fleet.watched == {("s", "a:1"): 1}
        with anyio.fail_after(PATIENCE):
            while fleet.watched["s", "a:1"]:
                await anyio.lowlevel.checkpoint()


async def test_changed_tools_are_not_told_where_upstream_tools_are_not_listed():
    fleet = FakeFleet(TOOLS)
    with anyio.fail_after(100):
        async with relaying_server(fleet, tools="none") as server, legacy_host(server) as (_, heard):
            fleet.change("tools")
            fleet.change("prompts")
            assert isinstance(await heard.next(), types.PromptListChangedNotification)


async def test_only_subscribers_hear_of_an_updated_resource_until_they_unsubscribe():
    async with (
        fleet_with() as (fleet, server),
        legacy_host(server) as (client, one),
        legacy_host(server) as (_, two),
    ):
        await raw_request(client, "resources/subscribe", {"uri": "a:1"})
        assert fleet.watched["s", "a:1"] == 1
        fleet.change("resource", params={"uri": "a:1", "_meta": {"vendor/x": 1}})
        told = await one.next()
        assert (told.params.uri, told.params.meta) == ("a:1", {"vendor/x": 1})
        fleet.change("resource", server="r", params={"uri": "a:1"})  # another server's
        await raw_request(client, "resources/unsubscribe", {"uri": "a:1"})
        fleet.change("resource", params={"uri": "a:1"})
        fleet.change("prompts")
        assert isinstance(await one.next(), types.PromptListChangedNotification)
        assert isinstance(await two.next(), types.PromptListChangedNotification)
    assert fleet.watched["s", "a:1"] == 0


async def test_a_host_that_leaves_watches_nothing_any_more():
    async with fleet_with() as (fleet, server):
        async with legacy_host(server) as (client, _):
            await raw_request(client, "resources/subscribe", {"uri": "a:1"})
            await raw_request(client, "resources/subscribe", {"uri": "b:1"})
        with anyio.fail_after(PATIENCE):
            while fleet.watched["s", "a:1"] or fleet.watched["r", "b:1"]:
                await anyio.lowlevel.checkpoint()


async def test_a_subscription_that_the_upstream_can_not_take_is_refused():
    async with fleet_with() as (_, server), legacy_host(server) as (client, _):
        with pytest.raises(MCPError, match="gone"):
            await raw_request(client, "resources/subscribe", {"uri": "gone:1"})
        with pytest.raises(MCPError, match="no connected server"):
            await raw_request(client, "resources/subscribe", {"uri": "nobody:1"})


def log_of(level, data="x"):
    return {"level": level, "data": data, "logger": "l"}


async def test_a_legacy_host_hears_the_log_from_the_level_it_set():
    async with (
        fleet_with() as (fleet, server),
        legacy_host(server) as (client, loud),
        legacy_host(server) as (_, all_of_it),
    ):
        await raw_request(client, "logging/setLevel", {"level": "warning"})
        for level in ("debug", "warning", "emergency"):
            fleet.change("log", params=log_of(level))
        assert [(await loud.next()).params.level for _ in range(2)] == ["warning", "emergency"]
        assert [(await all_of_it.next()).params.level for _ in range(3)] == ["debug", "warning", "emergency"]


async def test_servers_are_told_the_least_level_that_any_host_wants():
    async with (
        fleet_with() as (fleet, server),
        legacy_host(server) as (one, _),
        legacy_host(server) as (two, _),
    ):
        await raw_request(one, "logging/setLevel", {"level": "debug"})
        await raw_request(two, "logging/setLevel", {"level": "error"})
    told = [(server, params) for server, method, params in fleet.requests if method == "logging/setLevel"]
    assert sorted(server for server, _ in told) == ["r", "r", "s", "s"]
    assert all(params == {"level": "debug"} for _, params in told)


async def test_a_log_message_that_is_for_one_host_reaches_no_other():
    keys = []

    async def answer(server, params, caller, on_progress):
        keys.append(caller.host.key)
        return TEXT

    async with (
        fleet_with(answers={"tools/call": answer}) as (fleet, server),
        legacy_host(server) as (client, one),
        legacy_host(server) as (_, two),
    ):
        await client.call_tool("s__t", {})
        fleet.change("log", params=log_of("info", "secret"), host=keys[0])
        fleet.change("log", params=log_of("info", "for all"))
        assert [(await one.next()).params.data for _ in range(2)] == ["secret", "for all"]
        assert (await two.next()).params.data == "for all"


async def test_a_modern_request_gets_the_log_it_opted_in_to_while_it_runs_and_before_its_result():
    async def answer(server, params, caller, on_progress):
        fleet.change("log", server="r", params=log_of("error", "another server's"))
        fleet.change("log", params=log_of("debug", "below"))
        fleet.change("log", params=log_of("info", "mine"), host=caller.host.key)
        return TEXT

    heard = Heard()
    async with (
        fleet_with(answers={"tools/call": answer}) as (fleet, server),
        Client(over_streams(server), mode=MODERN, message_handler=heard) as client,
    ):
        call = {"name": "s__t", "arguments": {}}
        await raw_request(client, "tools/call", call)
        await raw_request(client, "tools/call", {**call, "_meta": {LOG_LEVEL_META_KEY: "info"}})
        assert (await heard.next()).params.data == "mine"
        assert heard.nothing_more()
    heard.close()


async def test_a_modern_upstream_is_told_which_messages_a_legacy_host_wants():
    async def answer(server, params, caller, on_progress):
        return TEXT

    async with (
        fleet_with(answers={"tools/call": answer}) as (fleet, server),
        legacy_host(server) as (client, _),
    ):
        await raw_request(client, "logging/setLevel", {"level": "notice"})
        await client.call_tool("s__t", {})
    assert fleet.requests[-1][2]["_meta"] == {LOG_LEVEL_META_KEY: "notice"}


@pytest.mark.parametrize("era", BOTH_ERAS)
async def test_rubbish_from_an_upstream_tells_nobody_anything_and_breaks_nothing(era):
    fleet = FakeFleet(TOOLS, lists=LISTS)
    async with host_of(fleet, era) as client:
        for params in ({}, {"level": "shout"}, {"level": None}, {"uri": 7}, {"uri": None}):
            fleet.change("log", params=params)
            fleet.change("resource", params=params)
        assert (await client.list_tools()).tools


# --- the queue


async def drained(box):
    sent = []

    async def send(method, params):
        sent.append((method, params.get("n")))

    box.close()
    with anyio.fail_after(PATIENCE):
        await box.run(send)
    return sent


async def test_news_about_the_same_thing_waits_once():
    box = Outbox()
    for _ in range(3):
        box.put("changed", {}, about="tools")
    box.put("changed", {}, about="prompts")
    assert await drained(box) == [("changed", None)] * 2


async def test_a_host_that_does_not_read_loses_old_log_messages_and_no_change():
    box = Outbox(capacity=4)
    box.put("changed", {}, about="tools")
    for number in range(10):
        box.put("log", {"n": number})
    box.put("changed", {}, about="prompts")
    assert (box.statistics().waiting, box.statistics().dropped) == (4, 8)
    assert await drained(box) == [("changed", None), ("log", 8), ("log", 9), ("changed", None)]


async def test_a_host_that_does_not_read_holds_up_no_other():
    async with fleet_with() as (fleet, server):
        stuck, released = anyio.Event(), anyio.Event()

        async def block(_message):
            stuck.set()
            await released.wait()

        async with Client(over_streams(server), mode="legacy", message_handler=block) as deaf:
            await deaf.session.send_ping()
            async with legacy_host(server) as (_, heard):
                for number in range(2_000):
                    fleet.change("log", params=log_of("info", number))
                    if number == 0:
                        await stuck.wait()
                fleet.change("tools")
                last = await heard.next()
                while not isinstance(last, types.ToolListChangedNotification):
                    last = await heard.next()
            released.set()
