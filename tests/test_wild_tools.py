"""All 6,796 tools that were found in the wild, listed by one real server: loaded, or set aside by name and reason."""

import json
import sys
from collections import Counter
from pathlib import Path

import anyio
import jsonschema_rs
import pytest
from support.processes import children

from adapters.mcp_upstream import connect
from adapters.ports import StdioSpec, UpstreamSpec
from nexus_gateway.fleet.fleet import Fleet, Member
from nexus_gateway.fleet.pin_file import PinFile
from nexus_gateway.fleet.quarantine import Quarantine
from tool_registry.index import compile_tool
from tool_registry.pins import pin_of
from tool_registry.schema import normalise

TESTS = Path(__file__).parent
DATA = TESTS.parents[1] / "shared" / "data"
FILES = [DATA / "wild_tools.jsonl", DATA / "wild_tools_docker.jsonl"]
ALL = 6_796
DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not all(file.exists() for file in FILES), reason="needs the shared data"),
]


@pytest.fixture
def rows():
    return [json.loads(line) for file in FILES for line in file.read_text(encoding="utf-8").splitlines()]


async def loaded(mode, **options):
    """The catalogue of a fleet with the wild server, and a call of its last tool."""
    args = (str(TESTS / "servers" / "wild_server.py"), mode, *map(str, FILES))
    fleet = Fleet([Member(UpstreamSpec("wild", StdioSpec(sys.executable, args)))], connect, **options)
    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.run)
            (status,) = await fleet.first_sync()
            assert not status.cause
            catalog = fleet.catalog
            last = max(tool.id.name for tool in catalog)
            result = await fleet.call_tool("wild", last, {"name": last, "arguments": {}})
            tasks.cancel_scope.cancel()
    assert result["content"][0]["text"] == f"called {last}"
    assert children() == []
    return catalog


async def test_every_one_of_them_loads_and_compiles_whatever_its_schema(rows, tmp_path):
    quarantine = Quarantine(PinFile(tmp_path / "pins.json"), set_aside_changes=True)
    catalog = await loaded("unique", review=quarantine.review)
    assert (len(catalog), catalog.set_aside) == (ALL, ())
    listed = {f"{row['server']}__{row['name']}": row for row in rows}
    malformed = [tool for tool in catalog if not jsonschema_rs.meta.is_valid(tool.input_schema)]
    assert 9 <= len(malformed) < 1_000, "the odd ones are among them"
    for tool in catalog:
        assert tool.input_schema == listed[tool.id.name]["inputSchema"], "as it was listed"
        assert compile_tool(tool).signature
        assert jsonschema_rs.meta.is_valid({**DIALECT, **normalise(tool.input_schema)})
    approved = PinFile(tmp_path / "pins.json").read().approved
    assert {tool.id: pin_of(tool).content_hash for tool in catalog} == {
        tool_id: pin.content_hash for tool_id, pin in approved.items()
    }


async def test_those_that_are_set_aside_are_named_with_the_reason(rows):
    catalog = await loaded("own")
    names = Counter(row["name"] for row in rows)
    assert {tool.id.name for tool in catalog} == set(names)
    assert len(catalog) + len(catalog.set_aside) == ALL
    assert Counter(aside.name for aside in catalog.set_aside) == names - Counter(set(names))
    assert {aside.reason for aside in catalog.set_aside} == {"listed twice; the first definition is in use"}
