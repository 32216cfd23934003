"""What a caller may not see, and what the configuration disables, is nowhere: not listed, not found, not called."""

import anyio
import pytest
from support.fake_relay import FakeFleet, relaying_server
from support.fake_turns import FILES, service_of
from support.gateways import python_server, settings_of
from support.making_tools import catalog_of, definition, index_of

from nexus_gateway.access.caller import Caller
from nexus_gateway.access.visibility import NameFilter
from nexus_gateway.app import open_gateway
from nexus_gateway.diagnosis import servers as server_findings
from nexus_gateway.routing.masks import Masks
from nexus_gateway.server.exposed import ExposedTools
from nexus_gateway.settings.snapshot import ExposeSettings
from nexus_gateway.turn.parts import TurnOptions
from nexus_gateway.turn.result import Outcome
from tool_registry.tool import ToolId

READER = Caller(visible=NameFilter(denied=("files/delete_*",)))
pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("allowed", "denied", "seen"),
    [
        (None, (), {"get_a", "get_b", "set[a]"}),
        (("get_*",), (), {"get_a", "get_b"}),
        (None, ("get_*",), {"set[a]"}),
        (("get_*",), ("get_a",), {"get_b"}),
        ((), (), set()),
        (("set[a]",), (), {"set[a]"}),
        (("GET_A",), (), set()),
    ],
)
def test_a_name_passes_if_it_is_allowed_and_not_denied(allowed, denied, seen):
    names = NameFilter(allowed, denied)
    assert {name for name in ("get_a", "get_b", "set[a]") if names.passes(name)} == seen


async def test_a_mask_is_made_once_for_an_index_and_a_filter():
    index, masks = await index_of(catalog_of(**FILES)), Masks()
    first = masks.mask(index, READER)
    assert first.tolist() == [compiled.id.name != "delete_file" for compiled in index.tools]
    assert masks.mask(index, Caller(visible=NameFilter(denied=("files/delete_*",)))) is first
    assert masks.mask(index, Caller(visible=NameFilter(denied=("sky/*",)))) is not first
    assert masks.mask(await index_of(catalog_of(**FILES)), READER) is not first
    assert masks.mask(index, Caller()) is None


async def test_a_mask_does_not_keep_an_index_that_is_gone():
    index, masks = await index_of(catalog_of(**FILES)), Masks()
    masks.mask(index, READER)
    assert len(masks._masks) == 1
    del index
    assert len(masks._masks) == 0


async def test_a_request_for_a_tool_out_of_sight_is_as_if_there_were_none():
    service, calls = await service_of()
    with anyio.fail_after(30):
        result = await service.turn("delete_file /a/b.txt", READER)
        nothing = await service.turn("delete_file /a", Caller(visible=NameFilter(allowed=())))
    assert "delete_file" not in {candidate.tool_id.name for candidate in result.candidates}
    assert nothing.outcome is Outcome.NO_TOOL
    assert nothing.message == "No tool was called: no tool is available."
    assert not [call for call in calls.calls if call[1] == "delete_file"]


async def test_it_can_be_neither_called_nor_described_nor_guessed_by_its_name():
    service, calls = await service_of()
    for reference in ("files/delete_file", "delete_file", "files/delete_fil"):
        with anyio.fail_after(30):
            called = await service.call(reference, {"path": "a"}, READER)
            described = await service.named(reference, READER)
        assert called.outcome is Outcome.FAILED
        assert called.message == described
        assert described.startswith(f"No tool is named {reference!r}.")
        assert "files/delete_file" not in described.removeprefix(f"No tool is named {reference!r}.")
    assert not calls.calls


async def test_a_question_that_another_caller_was_asked_does_not_lead_to_it_either():
    service, calls = await service_of()
    with anyio.fail_after(30):
        asked = await service.turn("delete_file /a/b.txt", Caller(), options=TurnOptions())
        result = await service.resume(asked.pending, {}, READER, confirmed=True)
    assert asked.outcome is Outcome.NEEDS_INPUT
    assert result.outcome is Outcome.FAILED
    assert not calls.calls


async def test_exposed_tools_are_listed_as_the_caller_sees_them():
    exposed, catalog = ExposedTools(ExposeSettings(tools="all")), catalog_of(**FILES)
    assert "files__delete_file" in {tool["name"] for tool in exposed.listed(catalog, Caller())}
    seen = {tool["name"] for tool in exposed.listed(catalog, READER)}
    assert seen == {"files__copy_file", "files__read_file", "sky__get_weather"}


async def test_an_exposed_tool_out_of_sight_is_not_called(monkeypatch):
    from mcp import Client  # noqa: PLC0415 - heavy

    from nexus_gateway.server import gateway  # noqa: PLC0415

    fleet = FakeFleet({"files": [definition("delete_file")]})
    real = gateway.caller_of

    def blind(ctx):
        caller = real(ctx)
        return Caller(era=caller.era, host=caller.host, visible=READER.visible)

    monkeypatch.setattr(gateway, "caller_of", blind)
    with anyio.fail_after(60):
        async with relaying_server(fleet) as server, Client(server) as client:
            listed = await client.list_tools()
            result = await client.call_tool("files__delete_file", {})
    assert "files__delete_file" not in {tool.name for tool in listed.tools}
    assert result.is_error
    assert not fleet.requests


async def test_a_disabled_tool_is_gone_and_comes_back_with_a_reload(tmp_path):
    servers = {"files": python_server("fleet_server.py")}
    with anyio.fail_after(100):
        async with open_gateway(settings_of(tmp_path, servers)) as gateway:
            await gateway.fleet.first_sync()
            every = [tool.id for tool in gateway.fleet.catalog]
            gone = every[0]
            toml = f'[servers.files]\ndisabled_tools = ["{gone.name}", "misspelt_*"]\n'
            await gateway.reload(settings_of(tmp_path, servers, toml))
            assert gone not in gateway.fleet.catalog.tools
            assert {tool.id for tool in gateway.fleet.catalog} == set(every) - {gone}
            refused = await gateway.turns.call(str(gone), {}, Caller())
            assert refused.outcome is Outcome.FAILED
            assert "No tool is named" in refused.message
            details = [finding.detail for finding in await server_findings(gateway)]
            assert f"1 tools are disabled: {gone.name}" in details
            assert any("'misspelt_*', which fits none of its tools" in detail for detail in details)
            await gateway.reload(settings_of(tmp_path, servers))
            assert [tool.id for tool in gateway.fleet.catalog] == every


async def test_enabled_tools_are_the_only_ones_in_use(tmp_path):
    settings = settings_of(
        tmp_path,
        {"a": python_server("fleet_server.py"), "b": python_server("fleet_server.py")},
        '[servers.a]\nenabled_tools = ["get_*"]\ndisabled_tools = ["get_secret"]\n',
    )
    assert settings.in_use(ToolId("a", "get_x"))
    assert not settings.in_use(ToolId("a", "get_secret"))
    assert not settings.in_use(ToolId("a", "put_x"))
    assert settings.in_use(ToolId("b", "put_x"))


async def test_a_better_match_that_is_out_of_sight_changes_no_other_tools_relevance():
    service, _ = await service_of()
    with anyio.fail_after(30):
        blind = await service.find("delete a file for ever", READER, limit=50)
        seen = await service.find("delete a file for ever", Caller(), limit=50)
    relevance = {found.tool.id: found.relevance for found in seen.tools}
    assert "delete_file" not in {found.tool.id.name for found in blind.tools}
    assert all(found.relevance == relevance[found.tool.id] for found in blind.tools)
