"""The public Node servers as people have them, in one mcpServers file, behind the gateway with its real models."""

import json

import anyio
import pytest
from support.gateways import run_command, settings_of, write_config
from support.processes import children

from nexus_gateway.access.caller import Caller
from nexus_gateway.app import open_gateway
from nexus_gateway.turn.result import Outcome

pytestmark = [pytest.mark.npm, pytest.mark.anyio]

NOTES = "buy flour\nand eggs: zwölf\n"
GRAPH = (
    {"type": "entity", "name": "Ada Lovelace", "entityType": "person", "observations": ["wrote a program"]},
    {"type": "entity", "name": "Analytical Engine", "entityType": "machine", "observations": []},
)
EIGHT = (
    ("list the directory {folder}", "filesystem/list_directory", "[FILE] notes.txt"),
    ("which directories are you allowed to access?", "filesystem/list_allowed_directories", "{folder}"),
    ('echo the message "hello there"', "everything/echo", "Echo: hello there"),
    ("what is the sum of 2.5 and 40?", "everything/get-sum", "42.5"),
    ("get the structured content for Chicago", "everything/get-structured-content", "temperature"),
    ("read the knowledge graph", "memory/read_graph", "Analytical Engine"),
    ('open the nodes "Ada Lovelace" and "Analytical Engine"', "memory/open_nodes", "wrote a program"),
    ('create an entity named "Grace Hopper" of type person', "memory/create_entities", "Grace Hopper"),
)
AT_LEAST = 7
"""The last one is an array of objects: it may be proposed or asked about instead of called."""


@pytest.fixture
def folder(tmp_path_factory):
    """The words of a path count in routing: this one has no test's name in it."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "notes.txt").write_text(NOTES)
    return folder


@pytest.fixture
def three_servers(npm_servers, folder, tmp_path):
    memory = tmp_path / "memory.json"
    memory.write_text("\n".join(map(json.dumps, GRAPH)))
    return {
        "filesystem": node(npm_servers["filesystem"], str(folder)),
        "memory": {**node(npm_servers["memory"]), "env": {"MEMORY_FILE_PATH": str(memory)}},
        "everything": node(npm_servers["everything"], "stdio"),
    }


def node(script, *args):
    return {"command": "node", "args": [str(script), *args]}


def text_of(result):
    return "\n".join(block.get("text", "") for block in (result or {}).get("content", ()))


def test_one_command_reads_a_file_through_the_public_server_without_a_question(
    three_servers, folder, tmp_path
):
    request = f"read the file {folder / 'notes.txt'}"
    done = run_command("turn", *write_config(tmp_path, three_servers), "--json", request)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcome"] == "called"
    assert answer["result"]["content"] == [{"type": "text", "text": NOTES}]
    assert answer["offer"] is None
    assert children() == []


@pytest.mark.slow
async def test_most_of_eight_requests_reach_the_right_public_server(
    three_servers, folder, tmp_path, record_property, capsys
):
    rows = []
    with anyio.fail_after(100):
        async with open_gateway(settings_of(tmp_path, three_servers)) as gateway:
            for request, tool, says in EIGHT:
                asked = request.format(folder=folder)
                result = await gateway.turns.turn(asked, Caller())
                right = result.outcome is Outcome.CALLED and str(result.tool_id) == tool
                right = right and says.format(folder=folder) in text_of(result.raw)
                rows.append((right, request, str(result.outcome), str(result.tool_id), result.message))
    for row in rows:
        record_property("request", row)
    with capsys.disabled():
        print(*(f"\n{'ok  ' if right else 'not '} {rest}" for right, *rest in rows), sep="")  # noqa: T201 - the report
    assert sum(row[0] for row in rows) >= AT_LEAST, rows
    assert all(row[0] or row[2] in ("ambiguous", "needs_input", "proposed", "no_tool") for row in rows), rows
    assert children() == []
