"""The server as hosts see it: the official client in both eras, over every transport, and calls by name."""

import json
import re
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

import anyio
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from support.fake_gateway import BOTH_ERAS, PATIENCE, fake_gateway, host, outcome, said, tool

from adapters.upstream_double import FakeUpstream, fake_connect
from nexus_gateway.demo.workspace import demo_servers, seed_workspace
from nexus_gateway.settings.snapshot import ToolSettings

pytestmark = pytest.mark.anyio
META_TOOLS = ["nexus_turn", "nexus_read", "find_tools", "describe_tool", "call_tool"]
README = Path(__file__).parents[1] / "README.md"
in_both_eras = pytest.mark.parametrize("era", BOTH_ERAS)
NUMBER = {"type": "integer", "minimum": 1}
LONG_NAME = "very_long_" * 20


@pytest.fixture(autouse=True, scope="module")
def no_child_is_left():
    yield
    left = psutil.Process().children(recursive=True)
    assert not left, left


# --- real servers, real models, real transports


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A demo workspace, and the same two servers as nexus.toml and as a host's mcpServers file."""
    folder = tmp_path_factory.mktemp("hosts")
    seed_workspace(folder / "workspace")
    servers = {name: demo_servers(folder / "workspace")[name].transport for name in ("files", "notes")}
    lines = [f"cache_dir = {json.dumps(str(folder / 'cache'))}"]
    for name, spec in servers.items():
        lines += [
            f"[servers.{name}]",
            f"command = {json.dumps(spec.command)}",
            f"args = {json.dumps(spec.args)}",
        ]
    (folder / "nexus.toml").write_text("\n".join(lines))
    entries = {
        name: {key: asdict(spec)[key] for key in ("command", "args")} for name, spec in servers.items()
    }
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    return folder


def serving(folder, *more):
    return ["-m", "nexus_gateway", "serve", "--config", str(folder / "nexus.toml"), *more]


@pytest.fixture(scope="module")
def over_http(folder):
    """The address of a gateway process that serves HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, *serving(folder, "--http", f"127.0.0.1:{port}")], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr.readline().strip() == f"serving http://127.0.0.1:{port}/mcp"
            process.stderr.close()  # its log has no reader: that must not stop it
            yield f"http://127.0.0.1:{port}/mcp"
            children = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            assert process.wait(PATIENCE) == 0
            assert children
            assert not [child for child in children if child.is_running()]
        finally:
            process.kill()


async def does_its_job(client):
    """List the meta-tools and run a turn whose answer only the real server can give."""
    listed = await client.list_tools()
    assert [listed_tool.name for listed_tool in listed.tools] == META_TOOLS
    assert all(listed_tool.output_schema is None for listed_tool in listed.tools)
    result = await client.call_tool("nexus_turn", {"request": "read the file packing-list.txt"})
    assert outcome(result) == "called", said(result)
    assert "Hiking boots" in said(result)
    assert result.meta["nexus-gateway/turn"]["tool"] == "files/read_file"


def over_stdio(command, args, folder, **env):
    parameters = StdioServerParameters(command=command, args=args, env={"XDG_CACHE_HOME": str(folder), **env})
    return stdio_client(parameters)


@pytest.mark.slow
@in_both_eras
async def test_a_host_over_stdio_lists_the_meta_tools_and_runs_a_turn(folder, era):
    with anyio.fail_after(110):
        async with Client(over_stdio(sys.executable, serving(folder), folder), mode=era) as client:
            await does_its_job(client)


@pytest.mark.slow
@in_both_eras
async def test_a_host_over_http_lists_the_meta_tools_and_runs_a_turn(over_http, era):
    with anyio.fail_after(110):
        async with Client(over_http, mode=era) as client:
            await does_its_job(client)


@pytest.mark.slow
async def test_hosts_of_both_eras_are_served_at_once(over_http):
    with anyio.fail_after(110):
        async with (
            Client(over_http, mode="legacy") as old,
            Client(over_http, mode="2026-07-28") as new,
            anyio.create_task_group() as tasks,
        ):
            for client in (old, new) * 3:
                tasks.start_soon(does_its_job, client)


def readme_entry():
    """The README's host configuration: the one server of its JSON block that starts `serve`."""
    if not README.exists():
        return None
    blocks = re.findall(
        r"^\s*```json\s*\n(.*?)^\s*```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    documents = [json.loads(block) for block in blocks if "mcpServers" in block and '"serve"' in block]
    return next((entry for document in documents for entry in document["mcpServers"].values()), None)


@pytest.mark.slow
async def test_the_host_configuration_of_the_readme_works(folder):
    entry = readme_entry()
    if entry is None:
        pytest.skip("README.md HAS NO ```json BLOCK WITH mcpServers AND serve: ISSUE 2, SHOW 3 IS NOT SHOWN")
    assert Path(entry["command"]).stem in ("nexus-gateway", "python", "python3"), entry
    files = {"--config": folder / "nexus.toml", "--mcp-config": folder / "mcp.json"}
    args = [
        str(files.get(before, arg)) for before, arg in zip(["", *entry["args"]], entry["args"], strict=False)
    ]
    command = Path(sys.executable).with_name("nexus-gateway")
    assert any(str(file) in args for file in files.values()), entry
    with anyio.fail_after(110):
        async with Client(
            over_stdio(str(command), args, folder, **entry.get("env", {})), mode="auto"
        ) as client:
            await does_its_job(client)


# --- the same server on in-memory upstreams


@asynccontextmanager
async def client_of(cache, *upstreams, era="legacy", **options):
    with anyio.fail_after(100):
        async with fake_gateway(cache, *upstreams, **options) as gateway, host(gateway, era) as client:
            yield client


def call(client, name, arguments=None):
    return client.call_tool("call_tool", {"tool": name, "arguments": arguments or {}})


def reading(name, properties=None, **rest):
    return tool(name, properties, readOnlyHint=True, **rest)


@in_both_eras
async def test_a_turn_that_comes_early_waits_and_says_what_for(tmp_path, era):
    notes = FakeUpstream("notes", [reading("list_notes")])
    told = anyio.Event()

    @asynccontextmanager
    async def late(spec, changed):
        await told.wait()
        async with fake_connect({"notes": lambda: notes})(spec, changed) as upstream:
            yield upstream

    async def progress(_progress, _total, message):
        if "connecting to notes" in (message or ""):
            told.set()

    async with client_of(tmp_path, notes, era=era, connect=late, synced=False) as client:
        result = await client.call_tool("nexus_turn", {"request": "list_notes"}, progress_callback=progress)
    assert outcome(result) == "called"


@in_both_eras
@pytest.mark.parametrize("meta_tool", ["call_tool", "describe_tool"])
async def test_a_name_that_comes_early_waits_for_its_server(tmp_path, era, meta_tool):
    notes = FakeUpstream("notes", [reading("list_notes")])
    connecting, released = anyio.Event(), anyio.Event()

    @asynccontextmanager
    async def late(spec, changed):
        connecting.set()
        await released.wait()
        async with fake_connect({"notes": lambda: notes})(spec, changed) as upstream:
            yield upstream

    results = []
    async with client_of(tmp_path, notes, era=era, connect=late, synced=False) as client:

        async def work():
            results.append(await client.call_tool(meta_tool, {"tool": "list_notes"}))

        async with anyio.create_task_group() as tasks:
            await connecting.wait()
            tasks.start_soon(work)
            await anyio.wait_all_tasks_blocked()
            assert not results
            released.set()
    assert not results[0].is_error, said(results[0])


READ_ME = [
    reading("show_note", {"title": {"type": "string"}}),
    tool("erase_note", {"title": {"type": "string"}}, destructiveHint=True),
    tool("pin_note", {"title": {"type": "string"}}),
    tool("tag_note", {"title": {"type": "string"}}, readOnlyHint=False, destructiveHint=False),
]


@in_both_eras
@pytest.mark.parametrize("name", ["erase_note", "pin_note", "tag_note"])
async def test_nexus_read_refuses_what_may_change_something(tmp_path, era, name):
    notes = FakeUpstream("notes", READ_ME)
    async with client_of(tmp_path, notes, era=era) as client:
        result = await client.call_tool("nexus_read", {"request": f'{name} "Groceries"'})
    assert outcome(result) == "no_tool"
    assert f"notes/{name} may change something" in said(result)
    assert "confirm" not in result.structured_content
    offered = [candidate["tool"] for candidate in result.structured_content["candidates"]]
    assert set(offered) <= {"notes/show_note"}
    assert notes.calls == []


async def test_nexus_read_reaches_what_only_reads(tmp_path):
    notes = FakeUpstream("notes", READ_ME)
    async with client_of(tmp_path, notes) as client:
        await client.call_tool("nexus_read", {"request": 'show_note "Groceries"'})
    assert notes.calls == [{"name": "show_note", "arguments": {"title": "Groceries"}}]


async def test_the_users_word_on_what_only_reads_counts_more_than_the_annotation(tmp_path):
    notes = FakeUpstream("notes", READ_ME)
    word = {"tag_note": ToolSettings(read_only=True), "show_note": ToolSettings(read_only=False)}
    async with client_of(tmp_path, notes, tools=word) as client:
        allowed = await client.call_tool("nexus_read", {"request": 'tag_note "Groceries"'})
        denied = await client.call_tool("nexus_read", {"request": 'show_note "Groceries"'})
    assert (outcome(allowed), outcome(denied)) == ("called", "no_tool")
    assert [params["name"] for params in notes.calls] == ["tag_note"]


STRICT = reading("set_limit", {"limit": NUMBER, "unit": {"enum": ["kg", "g"]}})
STRICT["inputSchema"]["additionalProperties"] = False


@in_both_eras
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"unit": "kg"}, "limit"),
        ({"limit": "3", "unit": "kg"}, "limit"),
        ({"limit": 0, "unit": "kg"}, "limit"),
        ({"limit": 3, "unit": "stone"}, "unit"),
        ({"limit": 3, "unit": "kg", "colour": "red"}, "colour"),
    ],
)
async def test_arguments_are_checked_before_any_call(tmp_path, era, arguments, named):
    scales = FakeUpstream("scales", [STRICT])
    async with client_of(tmp_path, scales, era=era) as client:
        result = await call(client, "set_limit", arguments)
    assert result.is_error
    assert named in said(result)
    assert scales.calls == []


async def test_the_full_schema_counts_references_and_combinations_too(tmp_path):
    schema = {
        "type": "object",
        "$defs": {"mass": {"type": "object", "required": ["grams"], "properties": {"grams": NUMBER}}},
        "properties": {"mass": {"$ref": "#/$defs/mass"}},
        "oneOf": [{"required": ["mass"]}, {"required": ["volume"]}],
    }
    scales = FakeUpstream("scales", [reading("weigh") | {"inputSchema": schema}])
    async with client_of(tmp_path, scales) as client:
        for wrong in ({}, {"mass": {}}, {"mass": {"grams": 0}}, {"mass": {"grams": 1}, "volume": 1}):
            assert (await call(client, "weigh", wrong)).is_error, wrong
        assert scales.calls == []
        assert not (await call(client, "weigh", {"mass": {"grams": 1}})).is_error


@pytest.mark.parametrize("schema", [None, {}, True, {"type": "nonsense"}, {"$ref": "http://127.0.0.1:9/x"}])
async def test_a_tool_without_a_usable_schema_can_be_called(tmp_path, schema):
    odd = FakeUpstream("odd", [reading("anything") | {"inputSchema": schema}])
    async with client_of(tmp_path, odd) as client:
        assert not (await call(client, "anything", {"a": 1})).is_error
    assert odd.calls == [{"name": "anything", "arguments": {"a": 1}}]


@in_both_eras
async def test_an_unknown_name_gets_the_close_ones(tmp_path, era):
    notes = FakeUpstream("notes", [reading("list_notes"), reading("weather_report")])
    async with client_of(tmp_path, notes, era=era) as client:
        for meta_tool in ("call_tool", "describe_tool"):
            result = await client.call_tool(meta_tool, {"tool": "notes/list_note"})
            assert result.is_error
            assert "'notes/list_note'" in said(result)
            assert "notes/list_notes" in said(result)


async def test_a_name_like_no_other_is_refused_plainly(tmp_path):
    async with client_of(tmp_path, FakeUpstream("notes", [reading("list_notes")])) as client:
        result = await call(client, "\x00" * 50_000)
    assert result.is_error
    assert len(said(result)) < 2_000
    assert "find_tools" in said(result)


@in_both_eras
async def test_a_name_that_two_servers_have_wants_the_server(tmp_path, era):
    one, two = (FakeUpstream(name, [reading("search")]) for name in ("web", "mail"))
    async with client_of(tmp_path, one, two, era=era) as client:
        result = await call(client, "search")
        assert result.is_error
        assert "web/search" in said(result)
        assert "mail/search" in said(result)
        assert one.calls == two.calls == []
        assert not (await call(client, "mail/search")).is_error
    assert (len(one.calls), len(two.calls)) == (0, 1)


@in_both_eras
@pytest.mark.parametrize(
    "name", ["read my  notes", LONG_NAME, "a/b", "notes/list", "höhe 日本", "../x", "{}"]
)
async def test_odd_tool_names_work(tmp_path, era, name):
    notes = FakeUpstream("notes", [reading(name)])
    async with client_of(tmp_path, notes, era=era) as client:
        assert not (await call(client, name)).is_error
        assert not (await call(client, f"notes/{name}")).is_error
        turned = await client.call_tool("nexus_turn", {"request": f"notes/{name}"})
        described = await client.call_tool("describe_tool", {"tool": name})
        found = await client.call_tool("find_tools", {"query": f"notes/{name}"})
    assert outcome(turned) == "called"
    assert notes.calls == [{"name": name, "arguments": {}}] * 3
    assert described.structured_content["definition"]["name"] == name
    assert found.structured_content["tools"][0]["tool"] == f"notes/{name}"


@in_both_eras
async def test_what_is_wrong_with_a_meta_tools_own_arguments_is_said(tmp_path, era):
    async with client_of(tmp_path, FakeUpstream("notes", [reading("list_notes")]), era=era) as client:
        for name, arguments, named in [
            ("nexus_turn", {}, "request"),
            ("nexus_turn", {"request": 3}, "request"),
            ("nexus_read", {"request": "x", "dry_run": True}, "dry_run"),
            ("find_tools", {"query": "x", "limit": 0}, "limit"),
            ("call_tool", {"tool": "list_notes", "arguments": []}, "arguments"),
            ("no_such_tool", {}, "nexus_turn"),
        ]:
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert named in said(result)


@pytest.mark.parametrize("request_text", ["", "  \n", "x" * 100_000, "покажи мои заметки", "\x00\u2028"])
async def test_any_request_ends_in_an_outcome(tmp_path, request_text):
    notes = FakeUpstream("notes", [reading("list_notes"), reading("weather_report")])
    async with client_of(tmp_path, notes) as client:
        result = await client.call_tool("nexus_turn", {"request": request_text})
    assert outcome(result) in ("called", "ambiguous", "no_tool")
