"""Requests and tools as nobody wants them, on real models: a sensible outcome each time, never a crash."""

import anyio
import pytest
from support.gateways import python_server, settings_of
from support.processes import children

from nexus_gateway.access.caller import Caller
from nexus_gateway.app import open_gateway
from nexus_gateway.demo.workspace import demo_servers, seed_workspace
from nexus_gateway.turn.result import Outcome

NEEDLE = "read the file packing-list.txt"
LONG = 100_000
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    seed_workspace(folder / "workspace")
    files = demo_servers(folder / "workspace")["files"].transport
    servers = {
        "files": {"command": files.command, "args": list(files.args)},
        "odd": python_server("odd_tools_server.py"),
    }
    async with open_gateway(settings_of(folder, servers)) as gateway:
        with anyio.fail_after(100):
            await gateway.readiness.wait()
        yield gateway
    assert children() == []


async def turn(gateway, request, **more):
    with anyio.fail_after(60):
        return await gateway.turns.turn(request, Caller(), **more)


@pytest.mark.parametrize("request_text", ["", "   \n\t"])
async def test_an_empty_request_is_no_tool_and_asks_for_a_sentence(gateway, request_text):
    result = await turn(gateway, request_text)
    assert result.outcome is Outcome.NO_TOOL
    assert "empty" in result.message


async def test_a_request_of_100_000_characters_is_done_or_said_not_to_fit(gateway):
    result = await turn(gateway, NEEDLE + "\n" + "lorem ipsum dolor sit amet " * (LONG // 27))
    assert result.outcome in (Outcome.CALLED, Outcome.AMBIGUOUS, Outcome.NO_TOOL), result.message
    if result.outcome is Outcome.CALLED:
        assert "Rain jacket" in str(result.raw)


async def test_a_file_name_before_100_000_characters_of_the_same_request_is_found(gateway):
    result = await turn(gateway, NEEDLE + ". " + "Please read the file. " * (LONG // 22))
    assert result.outcome is Outcome.CALLED, result.message
    assert result.arguments == {"path": "packing-list.txt"}
    assert "Rain jacket" in str(result.raw)


@pytest.mark.parametrize("filler", ["a", "/", '"', "🦊", "9 ", "x@y.", "\x00"])
async def test_a_request_of_100_000_odd_characters_ends_in_an_outcome(gateway, filler):
    result = await turn(gateway, (filler * LONG)[:LONG])
    assert result.outcome in Outcome
    assert result.outcome is not Outcome.FAILED, result.message


async def test_a_long_context_is_no_problem_either(gateway):
    result = await turn(gateway, "read the file", context="packing-list.txt\n" + "lorem " * (LONG // 6))
    assert result.outcome is not Outcome.FAILED, result.message


@pytest.mark.parametrize(
    "request_text",
    [
        "lies die Datei packing-list.txt",
        "读取文件 packing-list.txt",
        "اقرأ الملف packing-list.txt",
        "прочитай файл packing-list.txt",
    ],
)
async def test_a_request_in_another_language_ends_in_an_outcome_and_changes_nothing(gateway, request_text):
    result = await turn(gateway, request_text)
    assert result.outcome is not Outcome.FAILED, result.message
    if result.outcome is Outcome.CALLED:
        assert gateway.fleet.catalog.tools[result.tool_id].annotations.read_only
        assert set(result.arguments.values()) <= {"packing-list.txt"}


async def test_a_tool_with_a_description_of_20_000_characters_is_routed_and_called(gateway):
    result = await turn(gateway, 'translate the sentence "good morning" into Klingon')
    assert result.outcome is Outcome.CALLED, (result.outcome, result.message, result.candidates)
    assert str(result.tool_id) == "odd/translate_sentence"
    assert result.arguments == {"sentence": "good morning"}


async def test_tool_names_with_spaces_and_200_characters_can_be_called(gateway):
    names = {tool.id.name for tool in gateway.fleet.catalog if tool.id.server == "odd"}
    assert {"two words", "n" * 200} <= names
    for name in ("two words", "n" * 200):
        with anyio.fail_after(30):
            result = await gateway.turns.call(f"odd/{name}", {}, Caller())
        assert result.outcome is Outcome.CALLED, result.message
        assert result.raw["content"][0]["text"] == name


async def test_an_unpaired_surrogate_in_an_argument_fails_that_call_alone(gateway):
    with anyio.fail_after(30):
        broken = await gateway.turns.call("files/read_file", {"path": "\ud800"}, Caller())
        fine = await gateway.turns.call("files/read_file", {"path": "budget.csv"}, Caller())
    assert broken.is_error
    assert fine.outcome is Outcome.CALLED
    assert not fine.is_error
