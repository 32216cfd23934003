"""Pass-through: what hosts of both eras list, read and call of the upstreams, and what they don't see."""

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from support.fake_relay import BOTH_ERAS, MODERN, TEXT, FakeFleet, always, host_of, raw_request

from adapters.ports import UpstreamRefused, UpstreamUnavailable
from nexus_gateway.fleet.listings import ListKind
from nexus_gateway.server.instructions import MAX_CHARACTERS, merge
from nexus_gateway.server.meta_tools import META_TOOLS

pytestmark = pytest.mark.anyio
in_both_eras = pytest.mark.parametrize("era", BOTH_ERAS)
greeted_in_both_eras = pytest.mark.parametrize("era", ["legacy", "auto"])  # `auto` discovers a modern server
ALONE = {"meta_tools": False}
SEARCH = {"name": "search", "inputSchema": {"type": "object"}, "futureField": 1}
META_NAMES = [tool["name"] for tool in META_TOOLS]


def tool(name):
    return {"name": name, "inputSchema": {"type": "object"}}


def resource(uri, **more):
    return {"uri": uri, "name": uri, **more}


async def refusal(awaitable):
    with pytest.raises(MCPError) as caught:
        await awaitable
    return caught.value.error


# --- tools


@in_both_eras
async def test_meta_tools_come_first_then_upstream_tools_under_safe_names(era):
    fleet = FakeFleet({"web": [SEARCH, tool("fetch it")], "mail": [SEARCH]})
    async with host_of(fleet, era) as client:
        listed = [one.name for one in (await client.list_tools()).tools]
    assert listed[:5] == META_NAMES
    assert listed[5:6] + listed[-1:] == ["mail__search", "web__search"]
    assert len(listed) == 8


@in_both_eras
async def test_definitions_pass_raw_but_for_their_name(era):
    async with host_of(FakeFleet({"web": [SEARCH]}), era, expose=ALONE) as client:
        result = await raw_request(client, "tools/list")
    assert result["tools"] == [{**SEARCH, "name": "web__search"}]
    assert ("ttlMs" in result) is ("resultType" in result) is (era == MODERN)


async def test_pinned_tools_alone_are_listed_and_callable_under_the_names_that_all_would_have():
    fleet = FakeFleet(
        {"web": [SEARCH, tool("fetch")], "mail": [SEARCH]}, answers={"tools/call": always(TEXT)}
    )
    expose = {"meta_tools": False, "tools": "pinned", "pinned": ("web/search",), "prefix": "collisions"}
    async with host_of(fleet, "legacy", expose=expose) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["web__search"]
        await client.call_tool("web__search", {})
        assert (await refusal(client.call_tool("fetch", {}))).code == types.INVALID_PARAMS
    assert len(fleet.requests) == 1


@in_both_eras
async def test_the_meta_tools_alone_are_listed_without_waiting_for_any_server(era):
    fleet = FakeFleet({"web": [SEARCH]})
    fleet.synced = anyio.Event()
    async with host_of(fleet, era, expose={"tools": "none"}) as client:
        assert [one.name for one in (await client.list_tools()).tools] == META_NAMES


async def test_upstream_tools_are_waited_for_but_not_for_ever():
    fleet = FakeFleet({"web": [SEARCH]})
    fleet.synced = anyio.Event()
    async with host_of(fleet, "legacy", expose={**ALONE, "patience_seconds": 0.05}) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["web__search"]


async def test_a_name_a_host_remembers_waits_for_its_server_to_come_up():
    fleet = FakeFleet(answers={"tools/call": always(TEXT)})
    fleet.synced = anyio.Event()
    results = []
    async with host_of(fleet, "legacy", expose=ALONE) as client, anyio.create_task_group() as tasks:

        async def call():
            results.append(await client.call_tool("web__search", {}))

        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        fleet.set_tools("web", [SEARCH])
        fleet.synced.set()
    assert not results[0].is_error


@in_both_eras
async def test_an_exposed_call_goes_straight_through_with_its_result_verbatim(era):
    odd = {
        "content": [{"type": "hologram", "depth": 3}],
        "structuredContent": {"n": None},
        "future": [1.0],
        "_meta": {"vendor/x": {}},
    }
    fleet = FakeFleet({"web": [SEARCH]}, answers={"tools/call": always(odd)})
    async with host_of(fleet, era) as client:
        params = {
            "name": "web__search",
            "arguments": {"undeclared": 1},
            "_meta": {"vendor/a": 1, "progressToken": 7},
        }
        result = await raw_request(client, "tools/call", params)
    envelope = {"resultType", "_meta"}
    assert {k: v for k, v in result.items() if k not in envelope} == {
        k: v for k, v in odd.items() if k not in envelope
    }
    assert result["_meta"]["vendor/x"] == {}
    assert fleet.requests == [
        ("web", "tools/call", {"name": "search", "arguments": {"undeclared": 1}, "_meta": {"vendor/a": 1}})
    ]


@in_both_eras
async def test_meta_tools_are_still_ours(era):
    fleet = FakeFleet({"web": [SEARCH]})
    async with host_of(fleet, era) as client:
        result = await client.call_tool("find_tools", {"query": "x"})
    assert result.content[0].text == "meta find_tools"
    assert fleet.requests == []


@in_both_eras
async def test_an_upstreams_refusal_passes_and_a_dead_upstream_is_said_in_the_result(era):
    async def answer(server, params, caller, on_progress):
        if params["name"] == "refuse":
            raise UpstreamRefused(server, -32042, "quota", {"retryAfter": 3.0})
        raise UpstreamUnavailable(server, "web: exited with 3")

    fleet = FakeFleet({"web": [tool("refuse"), tool("die")]}, answers={"tools/call": answer})
    async with host_of(fleet, era) as client:
        error = await refusal(client.call_tool("web__refuse", {}))
        assert (error.code, error.message, error.data) == (-32042, "quota", {"retryAfter": 3.0})
        died = await client.call_tool("web__die", {})
    assert died.is_error
    assert "exited with 3" in died.content[0].text


@in_both_eras
async def test_progress_passes_and_is_not_asked_for_unless_the_host_does(era):
    wanted = []

    async def answer(server, params, caller, on_progress):
        wanted.append(on_progress is not None)
        if on_progress:
            await on_progress(1, 3, "one of three")
        return TEXT

    told = []

    async def note(progress, total, message):
        told.append((progress, total, message))

    fleet = FakeFleet({"web": [SEARCH]}, answers={"tools/call": answer})
    async with host_of(fleet, era) as client:
        await client.call_tool("web__search", {}, progress_callback=note)
        await raw_request(client, "tools/call", {"name": "web__search", "arguments": {}})
    assert told == [(1, 3, "one of three")]
    assert wanted == [True, False]


@in_both_eras
async def test_a_cancelled_call_is_cancelled_upstream(era):
    started, cancelled = anyio.Event(), anyio.Event()

    async def answer(server, params, caller, on_progress):
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    fleet = FakeFleet({"web": [SEARCH]}, answers={"tools/call": answer})
    async with host_of(fleet, era) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "web__search", {})
            await started.wait()
            tasks.cancel_scope.cancel()
        await cancelled.wait()


# --- resources


RESOURCES = {
    ListKind.RESOURCES: {
        "a": [resource("file:///x y?q=1#é", mimeType="text/odd", vendor=1), resource("shared:1")],
        "b": [resource("shared:1"), resource("b:1")],
    },
    ListKind.TEMPLATES: {
        "a": [{"name": "t", "uriTemplate": "item://a/{id}"}],
        "b": [{"name": "t", "uriTemplate": "item://{+path}"}],
    },
}


async def contents(server, params, caller, on_progress):
    if params["uri"] == "item://a/none":
        raise UpstreamRefused(server, -32002, f"not of {server}")
    return {"contents": [{"uri": params["uri"], "text": server, "odd": None}]}


@in_both_eras
async def test_resources_of_all_servers_are_listed_once_with_their_uris_verbatim(era):
    async with host_of(FakeFleet(lists=RESOURCES), era) as client:
        result = await raw_request(client, "resources/list")
        templates = await raw_request(client, "resources/templates/list")
    listed = RESOURCES[ListKind.RESOURCES]
    assert result["resources"] == [*listed["a"], listed["b"][1]]
    assert [one["uriTemplate"] for one in templates["resourceTemplates"]] == [
        "item://a/{id}",
        "item://{+path}",
    ]


@in_both_eras
@pytest.mark.parametrize(
    ("uri", "server"),
    [
        ("file:///x y?q=1#é", "a"),
        ("shared:1", "a"),
        ("b:1", "b"),
        ("item://a/1", "a"),
        ("item://c/1/2", "b"),
    ],
)
async def test_a_uri_goes_to_the_first_server_that_lists_or_matches_it(era, uri, server):
    async with host_of(FakeFleet(lists=RESOURCES, answers={"resources/read": contents}), era) as client:
        result = await raw_request(client, "resources/read", {"uri": uri})
    assert result["contents"] == [{"uri": uri, "text": server, "odd": None}]


async def test_a_server_that_does_not_know_a_uri_gives_way_to_the_next_whose_template_matches():
    fleet = FakeFleet(lists=RESOURCES, answers={"resources/read": contents})
    async with host_of(fleet, "legacy") as client:
        error = await refusal(client.read_resource("item://a/none"))
    assert [server for server, *_ in fleet.requests] == ["a", "b"]
    assert error.message == "not of b"


@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), (MODERN, types.INVALID_PARAMS)])
async def test_a_uri_that_nobody_has_is_refused_by_us_and_no_server_hears_of_it(era, code):
    fleet = FakeFleet(lists=RESOURCES, answers={"resources/read": contents})
    async with host_of(fleet, era) as client:
        error = await refusal(client.read_resource("nobody:1"))
    assert (error.code, error.data) == (code, {"uri": "nobody:1"})
    assert fleet.requests == []


async def test_resources_that_only_a_result_or_an_app_tool_links_to_can_be_read():
    app = {**tool("show"), "_meta": {"ui": {"resourceUri": "ui://b/app.html"}}}
    link = {"content": [{"type": "resource_link", "uri": "temp:7", "name": "n"}]}
    fleet = FakeFleet(
        {"b": [app]}, lists=RESOURCES, answers={"resources/read": contents, "tools/call": always(link)}
    )
    async with host_of(fleet, "legacy") as client:
        await client.call_tool("b__show", {})
        for uri in ("ui://b/app.html", "temp:7"):
            assert (await client.read_resource(uri)).contents[0].text == "b"


async def test_the_only_server_with_resources_is_asked_for_what_it_does_not_list():
    lists = {ListKind.RESOURCES: {"a": [resource("a:1")]}}
    async with host_of(FakeFleet(lists=lists, answers={"resources/read": contents}), "legacy") as client:
        assert (await client.read_resource("hidden:1")).contents[0].text == "a"


@in_both_eras
async def test_lists_have_one_page_and_say_so_to_a_cursor(era):
    async with host_of(FakeFleet(lists=RESOURCES), era) as client:
        assert (await refusal(client.list_resources(cursor="2"))).code == types.INVALID_PARAMS
        assert (await client.list_resources()).next_cursor is None


# --- prompts and completion


PROMPTS = {
    ListKind.PROMPTS: {"a": [{"name": "greet me", "odd": 1}, {"title": "nameless"}], "b": [{"name": "greet"}]}
}


@in_both_eras
async def test_prompts_are_exposed_like_tools_and_reached_by_those_names(era):
    got = {"messages": [], "description": "d", "odd": [None]}
    fleet = FakeFleet(lists={**RESOURCES, **PROMPTS}, answers={"prompts/get": always(got)})
    async with host_of(fleet, era) as client:
        listed = (await raw_request(client, "prompts/list"))["prompts"]
        assert [one.get("odd") for one in listed] == [1, None]
        assert listed[1]["name"] == "b__greet"
        result = await raw_request(
            client, "prompts/get", {"name": listed[0]["name"], "arguments": {"who": "x"}}
        )
        assert (await refusal(client.get_prompt("greet"))).code == types.INVALID_PARAMS
    assert {key: result[key] for key in got} == got
    assert fleet.requests == [("a", "prompts/get", {"name": "greet me", "arguments": {"who": "x"}})]


@in_both_eras
async def test_completion_finds_the_prompts_and_the_templates_server(era):
    done = {"completion": {"values": ["x"], "odd": 1}}
    fleet = FakeFleet(lists={**RESOURCES, **PROMPTS}, answers={"completion/complete": always(done)})
    argument = {"name": "id", "value": "x"}
    async with host_of(fleet, era) as client:
        for ref in (
            {"type": "ref/prompt", "name": "b__greet"},
            {"type": "ref/resource", "uri": "item://a/{id}"},
        ):
            result = await raw_request(client, "completion/complete", {"ref": ref, "argument": argument})
            assert result["completion"] == done["completion"]
    assert [(server, params["ref"]) for server, _, params in fleet.requests] == [
        ("b", {"type": "ref/prompt", "name": "greet"}),
        ("a", {"type": "ref/resource", "uri": "item://a/{id}"}),
    ]


# --- greeting


@greeted_in_both_eras
async def test_capabilities_never_vary(era):
    async with host_of(FakeFleet(), era) as client:
        capabilities = client.server_capabilities
    assert capabilities.tools.list_changed
    assert capabilities.prompts.list_changed
    assert capabilities.resources.list_changed
    assert capabilities.resources.subscribe
    assert capabilities.completions is not None
    assert capabilities.logging is not None


@greeted_in_both_eras
async def test_without_pass_through_only_tools_are_offered(era):
    async with host_of(FakeFleet(lists=RESOURCES), era, expose={"pass_through": False}) as client:
        assert client.server_capabilities.resources is None
        assert (await refusal(client.list_resources())).code == types.METHOD_NOT_FOUND


@greeted_in_both_eras
async def test_instructions_are_merged_and_say_whose_they_are(era):
    fleet = FakeFleet(said=[("web", "Be brief."), ("mail", "Ask first.")])
    async with host_of(fleet, era) as client:
        assert client.instructions.startswith("Nexus gateway stands in front")
        assert client.instructions.endswith("## web\nBe brief.\n\n## mail\nAsk first.")
    async with host_of(fleet, era, expose=ALONE) as client:
        assert client.instructions == "## web\nBe brief.\n\n## mail\nAsk first."


def test_instructions_are_bounded_and_say_what_was_left_out():
    merged = merge("ours", [(f"s{n}", "x" * 10_000) for n in range(9)])
    assert len(merged) < MAX_CHARACTERS + 200
    assert merged.startswith("ours\n\n## s0\n")
    assert "(cut)" in merged
    assert merged.endswith("left out: too long.)")
    assert merge("", []) is None


async def test_a_task_is_asked_about_where_it_was_made():
    made = {"content": [], "task": {"taskId": "t-1", "status": "working"}}
    fleet = FakeFleet(
        {"web": [SEARCH]},
        answers={"tools/call": always(made), "tasks/get": always({"taskId": "t-1", "odd": None})},
    )
    async with host_of(fleet, "legacy") as client:
        await client.call_tool("web__search", {})
        result = await raw_request(client, "tasks/get", {"taskId": "t-1"})
        assert (
            await refusal(raw_request(client, "tasks/get", {"taskId": "t-2"}))
        ).code == types.INVALID_PARAMS
    assert result == {"taskId": "t-1", "odd": None}
    assert fleet.requests[-1] == ("web", "tasks/get", {"taskId": "t-1"})
