"""What users of other gateways suffer from, each with the tests that show it does not happen here.

The table names every pain in the words of its sufferers and the tests that stand for it. Those that no other module
has are below.
"""

import re
from pathlib import Path

import anyio
import pytest
from support.fake_gateway import BOTH_ERAS, fake_gateway, host, tool

from adapters.ports import StdioSpec, UpstreamSpec, UpstreamTimeout
from adapters.upstream_double import FakeUpstream, fake_connect
from nexus_gateway.access.caller import Caller
from nexus_gateway.fleet.fleet import Fleet, Member
from nexus_gateway.fleet.supervisor import ServerState
from nexus_gateway.server.large_results import META_KEY, LargeResults, tokens
from tool_registry.schema import normalise

TESTS = Path(__file__).parent
FACTS = TESTS.parents[1] / "shared" / "facts" / "mcp.md"
in_both_eras = pytest.mark.parametrize("era", BOTH_ERAS)

PAINS = {
    "Schemas": {
        "`$defs/$ref` unresolved": [
            "test_schema.py::test_local_references_are_inlined_with_their_siblings_kept",
            "test_server_hosts.py::test_the_full_schema_counts_references_and_combinations_too",
        ],
        "a `$ref` in an output schema fails the whole list": [
            "test_pains.py::test_a_reference_in_an_output_schema_fails_neither_its_tool_nor_the_list",
        ],
        "array without `items` rejected by hosts": [
            "test_pains.py::test_an_array_without_items_gets_some_where_the_gateway_writes_the_schema",
        ],
        "one bad schema breaks everything and no culprit is named": [
            "test_fleet_life.py::test_every_page_is_listed_and_a_bad_tool_is_set_aside_by_name",
            "test_doctor_and_tools_cli.py::test_doctor_names_each_fault_with_its_cause",
        ],
        "structured content lost": [
            "test_verbatim_relay.py::test_an_exact_call_relays_the_whole_result",
            "test_verbatim_relay.py::test_a_turn_keeps_structured_content_and_errors",
        ],
        "output schema enforced by the proxy": [
            "test_pains.py::test_an_output_schema_is_not_enforced",
        ],
        "`inputSchema` null or without `properties`": [
            "test_catalog.py::test_a_missing_or_odd_schema_is_usable",
            "test_server_hosts.py::test_a_tool_without_a_usable_schema_can_be_called",
        ],
        "12 of 7,918 real tools have an invalid schema": [
            "test_wild_tools.py::test_every_one_of_them_loads_and_compiles_whatever_its_schema",
            "test_wild_tools.py::test_those_that_are_set_aside_are_named_with_the_reason",
        ],
    },
    "Timeouts": {
        "Claude Desktop drops a server that has not initialised in 60 s, cline in 1.5 s": [
            "test_startup.py::test_neither_models_nor_their_libraries_are_imported_before_the_tools_are_listed",
        ],
        "a 16 s embedding-model load inside initialize made the tools vanish silently": [
            "test_startup.py::test_neither_models_nor_their_libraries_are_imported_before_the_tools_are_listed",
            "test_server_hosts.py::test_a_turn_that_comes_early_waits_and_says_what_for",
        ],
        "one timeout marks a server dead until reload": [
            "test_fleet_life.py::test_a_tool_that_never_answers_meets_its_deadline",
            "test_pains.py::test_a_server_that_let_a_call_time_out_answers_the_next",
        ],
        "no per-tool timeout": [
            "test_fleet_life.py::test_a_tools_own_deadline_goes_before_its_servers",
        ],
        "cancellation not forwarded": [
            "test_mcp_upstream.py::test_cancelling_a_call_reaches_a_stdio_server",
            "test_mcp_upstream.py::test_cancelling_a_call_reaches_an_http_server",
            "test_pains.py::test_a_host_that_cancels_a_call_cancels_it_upstream",
        ],
    },
    "Hosts": {
        "macOS GUI apps have a PATH without Homebrew or nvm": [
            "test_fleet_life.py::test_a_command_that_is_not_found_is_named_with_the_path_searched_and_the_fix",
        ],
        "names over 64 characters break a whole session": [
            "test_names.py::test_long_names_are_cut_and_end_in_a_hash_of_the_whole",
            "test_names.py::test_any_set_of_ids_gets_unique_legal_reversible_names_whatever_its_order",
        ],
    },
    "Results": {
        "Results up to 2.9 M tokens against a host cap of 25,000": [
            "test_pains.py::test_a_result_of_millions_of_tokens_fits_a_host_and_loses_nothing",
        ],
    },
}


def listed_pains(heading):
    """The pains of one line of the facts file, as they are written there."""
    text = FACTS.read_text(encoding="utf-8").replace("**", "")
    line = re.search(rf"^{heading}: (.*)\.$", text, re.MULTILINE)
    outside_brackets = re.split(r";\s*(?![^()]*\))", line[1])
    return {pain.strip() for pain in outside_brackets}


@pytest.mark.parametrize("heading", PAINS)
def test_each_pain_has_tests_that_exist(heading):
    for pain, references in PAINS[heading].items():
        assert references, pain
        for reference in references:
            module, _, name = reference.partition("::")
            source = (TESTS / module).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{pain}: {reference}"


@pytest.mark.skipif(not FACTS.exists(), reason="needs the shared facts")
@pytest.mark.parametrize("heading", [heading for heading in PAINS if heading != "Results"])
def test_no_pain_is_forgotten(heading):
    asked = listed_pains(heading)
    assert {normal(pain) for pain in PAINS[heading]} == {normal(pain) for pain in asked}


def normal(pain):
    return " ".join(pain.casefold().split())


REFERRED = {
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/Place"}},
    "$defs": {"Place": {"$ref": "#/nowhere"}},
}


@pytest.mark.anyio
@in_both_eras
async def test_a_reference_in_an_output_schema_fails_neither_its_tool_nor_the_list(era, tmp_path):
    tools = [tool("before"), tool("odd") | {"outputSchema": REFERRED}, tool("after")]
    async with fake_gateway(tmp_path, FakeUpstream("a", tools), confirm="never") as gateway:
        assert [listed.id.name for listed in gateway.fleet.catalog] == ["after", "before", "odd"]
        assert gateway.fleet.catalog.set_aside == ()
        async with host(gateway, era) as client:
            shown = await client.call_tool("describe_tool", {"tool": "a/odd"})
            assert shown.structured_content["definition"]["outputSchema"] == REFERRED
            called = await client.call_tool("call_tool", {"tool": "a/odd", "arguments": {}})
            assert not called.is_error


def test_an_array_without_items_gets_some_where_the_gateway_writes_the_schema():
    written = normalise({"type": "object", "properties": {"rows": {"type": "array"}}})
    assert written["properties"]["rows"] == {"type": "array", "items": {}}


@pytest.mark.anyio
@in_both_eras
@pytest.mark.parametrize(
    "result", [{}, {"structuredContent": {"rows": "no list"}}, {"structuredContent": {}}]
)
async def test_an_output_schema_is_not_enforced(era, tmp_path, result):
    schema = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}

    async def answer(_call):
        return {"content": [{"type": "text", "text": "said"}], **result}

    upstream = FakeUpstream("a", [tool("odd") | {"outputSchema": schema}], {"odd": answer})
    async with fake_gateway(tmp_path, upstream, confirm="never") as gateway, host(gateway, era) as client:
        called = await client.call_tool("call_tool", {"tool": "a/odd", "arguments": {}})
        assert not called.is_error
        assert called.content[0].text == "said"
        assert called.structured_content == result.get("structuredContent")
        assert len(upstream.calls) == 1


@pytest.mark.anyio
async def test_a_server_that_let_a_call_time_out_answers_the_next():
    answers = iter([anyio.sleep_forever, anyio.lowlevel.checkpoint])

    async def sometimes(_call):
        await next(answers)()
        return {"content": []}

    upstream = FakeUpstream("a", [tool("slow")], {"slow": sometimes})
    member = Member(UpstreamSpec("a", StdioSpec("nowhere")), timeout_seconds=0.05)
    fleet = Fleet([member], fake_connect({"a": lambda: upstream}))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.run)
            await fleet.first_sync()
            with pytest.raises(UpstreamTimeout):
                await fleet.call_tool("a", "slow", {"name": "slow"})
            assert await fleet.call_tool("a", "slow", {"name": "slow"}) == {"content": []}
            assert fleet.statuses()[0].state is ServerState.READY
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@in_both_eras
async def test_a_host_that_cancels_a_call_cancels_it_upstream(era, tmp_path):
    called, cancelled = anyio.Event(), anyio.Event()

    async def hold(_call):
        called.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    upstream = FakeUpstream("a", [tool("hold")], {"hold": hold})
    async with fake_gateway(tmp_path, upstream, confirm="never") as gateway, host(gateway, era) as client:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "call_tool", {"tool": "a/hold", "arguments": {}})
                await called.wait()
                tasks.cancel_scope.cancel()
            await cancelled.wait()


def test_a_result_of_millions_of_tokens_fits_a_host_and_loses_nothing():
    store, caller = LargeResults(max_tokens=25_000, keep_seconds=60), Caller()
    whole = "".join(f"row {number}\n" for number in range(1_200_000))
    assert tokens(whole) > 2_900_000
    fitted = store.fit({"content": [{"type": "text", "text": whole}], "structuredContent": {"n": 1}}, caller)
    first, note = (block["text"] for block in fitted["content"])
    assert tokens(first) + tokens(note) <= 25_000
    assert fitted["structuredContent"] == {"n": 1}
    pages, position = [first], len(first)
    while position < len(whole):
        page = store.read(f"{fitted['_meta'][META_KEY]['uri']}?from={position}", caller)["contents"][0][
            "text"
        ]
        pages.append(page)
        position += len(page)
    assert "".join(pages) == whole
