"""What users of other gateways suffer from, each with the tests that show it does not happen here.

The table names every pain in the words of its sufferers and the tests that stand for it. Those that no other module
has are below, and in `test_pains_lifecycle.py` where they need real servers. `LATER` says which are not dealt with yet.
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
    "Lifecycle": {
        "processes never end (2,018 processes, 38.9 GB in 14 days)": [
            "test_leaks.py::test_many_http_hosts_leave_nothing_behind",
            "test_leaks.py::test_many_http_hosts_that_hang_up_during_a_call_leave_nothing_running",
            "test_leaks.py::test_20_stdio_hosts_leave_no_process_behind",
            "test_leaks.py::test_many_restarts_of_an_upstream_leave_nothing_behind",
            "test_process_end.py::test_closing_stdin_ends_all",
            "test_process_end.py::test_a_signal_while_servers_and_models_start_ends_all",
            "test_fleet_power.py::test_an_idle_server_is_stopped_with_its_process_and_comes_back_when_called",
            "test_fleet_hosts.py::test_a_hosts_own_connection_ends_with_the_host_and_an_idle_one_by_itself",
        ],
        "grandchildren outlive servers": [
            "test_mcp_upstream.py::test_a_grandchild_ends_with_the_connection",
            "test_mcp_upstream.py::test_a_grandchild_ends_when_the_server_exits_by_itself",
            "test_process_end.py::test_a_signal_during_a_call_ends_all",
        ],
        "one process per server x namespace": [
            "test_pains_lifecycle.py::test_hosts_without_a_back_channel_share_one_process",
            "test_fleet_hosts.py::test_one_connection_to_a_modern_server_serves_every_host_with_its_own_capabilities",
            "test_fleet_hosts.py::test_the_number_of_connections_is_capped_and_the_longest_idle_one_makes_room",
        ],
        "each refresh leaks a session": [
            "test_pains_lifecycle.py::test_refreshing_opens_no_session",
            "test_fleet_reload.py::test_a_reload_touches_only_what_changed",
        ],
        "one bad server takes all tools down": [
            "test_fleet_life.py::test_a_slow_and_a_crashing_server_are_named_with_their_cause_and_leave_the_others_alone",
            "test_fleet_listings.py::test_a_server_that_does_not_list_leaves_the_others_alone",
            "test_long_soak.py::test_every_call_is_answered_rightly_or_fails_clearly_while_servers_misbehave",
        ],
        "a call hangs for ever when the stdio child dies": [
            "test_pains_lifecycle.py::test_a_call_ends_when_its_server_dies_even_if_a_grandchild_holds_its_output",
            "test_mcp_upstream.py::test_a_killed_server_is_told_by_signal",
            "test_mcp_upstream.py::test_all_running_calls_learn_of_the_end",
            "test_fleet_life.py::test_a_call_in_flight_fails_when_its_server_dies_and_is_not_repeated",
        ],
    },
    "Transports": {
        "stale session after an upstream restart (404 not re-initialised)": [
            "test_pains_lifecycle.py::test_a_session_that_the_server_forgot_is_begun_anew_and_its_tools_stay",
            "test_pains_lifecycle.py::test_a_restarted_http_server_is_back_and_nobody_else_notices",
            "test_mcp_upstream_http.py::test_stale_session_after_an_upstream_restart_ends_the_connection",
            "test_mcp_upstream_http.py::test_a_session_that_is_lost_between_calls_is_noticed_at_once",
        ],
        "tools vanish once a session expires": [
            "test_pains_lifecycle.py::test_a_session_that_the_server_forgot_is_begun_anew_and_its_tools_stay",
            "test_pains_lifecycle.py::test_tools_stay_listed_while_their_server_lets_nobody_in",
        ],
        "an SSE drop kills the proxy": [
            "test_mcp_upstream_http.py::test_an_sse_drop_kills_no_proxy_the_stream_of_notices_is_opened_again_each_time",
            "test_mcp_upstream_pushes.py::test_an_sse_server_that_dies_ends_its_calls_and_its_connection",
            "test_pains_lifecycle.py::test_a_restarted_http_server_is_back_and_nobody_else_notices",
            "test_listen_stream.py::test_after_a_loss_it_listens_again_and_tells_that_all_may_have_changed",
        ],
        "list_changed never reaches clients": [
            "test_pains_lifecycle.py::test_a_host_hears_that_an_upstream_lists_other_tools",
            "test_relay_notices.py::test_every_legacy_host_hears_of_changed_lists",
            "test_relay_notices.py::test_a_modern_host_hears_over_its_stream_of_what_it_wants",
            "test_fleet_listings.py::test_a_silent_server_is_listed_again_at_every_interval",
        ],
        "buffering kills progress": [
            "test_pains_lifecycle.py::test_progress_reaches_a_host_before_there_is_a_result",
            "test_mcp_upstream_pushes.py::test_progress_is_told_raw_in_order_and_before_the_answer",
        ],
        "elicitation replies dropped": [
            "test_pains_lifecycle.py::test_answers_of_two_users_reach_the_server_that_asked_each_for_its_call",
            "test_relay_questions.py::test_a_modern_host_answers_a_modern_upstream_whose_state_it_cannot_read",
            "test_relay_questions.py::test_of_many_hosts_and_calls_at_once_each_hears_its_own_question_and_gets_its_own_answer",
        ],
        "upstream `instructions` discarded": [
            "test_pains_lifecycle.py::test_a_host_is_told_an_upstreams_instructions",
            "test_relay.py::test_instructions_are_merged_and_say_whose_they_are",
        ],
        "proxying 10-100x slower than direct (a fresh session per call)": [
            "test_pains_lifecycle.py::test_many_calls_have_one_session",
        ],
    },
    "Auth and tenants": {
        "session pool leaks state between users": [
            "test_fleet_hosts.py::test_two_hosts_on_one_real_server_never_get_each_others_question",
            "test_fleet_hosts.py::test_after_a_call_that_was_given_up_its_late_question_does_not_reach_the_next_host",
            "test_relay_notices.py::test_a_log_message_that_is_for_one_host_reaches_no_other",
            "test_large_results.py::test_nobody_else_reads_a_result",
            "test_confirmation_flow.py::test_a_token_is_good_for_its_caller_alone",
            "test_turn_questions.py::test_an_approval_is_of_one_tenant",
        ],
        "search reveals tools the caller may not call": [
            "test_routing.py::test_a_tool_the_caller_may_not_see_is_never_scored_not_even_by_name",
            "test_lookaside.py::test_invisible_tools_never_reach_the_top",
        ],
    },
    "Search": {
        "exact tool name missed in the top N": [
            "test_routing.py::test_a_request_that_names_a_tool_is_routed_there_whatever_the_vectors_say",
            "test_routing.py::test_a_named_tool_is_routed_even_below_the_floor",
        ],
        "server-name tokens dominate BM25": [
            "test_lexical.py::test_a_word_of_the_name_weighs_more_than_one_of_the_server",
        ],
        "an unanswerable request returns five wrong tools instead of none": [
            "test_routing.py::test_nothing_close_is_no_tool",
            "test_turn_service.py::test_nothing_near_is_no_tool_with_the_reason",
        ],
        "everything re-embedded per session": [
            "test_indexer.py::test_a_second_start_computes_nothing_and_gives_the_same_index",
            "test_indexer.py::test_a_second_start_with_500_real_tools_embeds_none_says_the_log",
        ],
    },
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

LATER = {
    "Auth and tenants": {
        "another user's OAuth token used": "the gateway signs in nowhere yet: servers get what is configured",
        "credentials keyed by URL mix tenants": "there is one tenant, and its credentials are a server's own",
    },
    "Search": {
        'vocabulary mismatch ("check my inbox")': "to be measured with the routing that is trained for tools",
    },
}
"""Not dealt with yet, and why."""


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
    named = [*PAINS[heading], *LATER.get(heading, {})]
    assert sorted(map(normal, named)) == sorted(map(normal, listed_pains(heading)))


def normal(pain):
    typed = pain.casefold().replace("\N{MULTIPLICATION SIGN}", "x").replace("\N{EN DASH}", "-")
    return " ".join(typed.split())


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
