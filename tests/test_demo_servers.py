"""The demo fleet: each server is real, does what its tools say, and stays in the workspace."""

import json
import shutil
import sqlite3
from contextlib import asynccontextmanager, closing

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED

from nexus_gateway.demo.servers.git_command import run_git
from nexus_gateway.demo.workspace import SERVERS, demo_servers, seed_workspace

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
UNANNOTATED = {"git_create_branch", "git_switch_branch", "git_commit"}


@pytest.fixture
def workspace(tmp_path):
    seed_workspace(tmp_path / "workspace")
    return tmp_path / "workspace"


@asynccontextmanager
async def connected(workspace, server, mode="auto"):
    started = demo_servers(workspace)[server].transport
    parameters = StdioServerParameters(
        command=started.command, args=list(started.args), env=dict(started.env)
    )
    async with Client(parameters, mode=mode, read_timeout_seconds=60) as client:
        yield client


async def answer(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    text = "\n".join(block.text for block in result.content)
    assert not result.is_error, text
    return text


async def refusal(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return "\n".join(block.text for block in result.content)


@pytest.mark.anyio
async def test_the_fleet_has_at_least_45_documented_tools_with_honest_annotations(workspace):
    tools = []
    for server in SERVERS:
        async with connected(workspace, server) as client:
            tools += (await client.list_tools()).tools
    names = [tool.name for tool in tools]
    assert len(names) >= 45
    assert len(set(names)) == len(names)
    for tool in tools:
        assert tool.description, tool.name
        undescribed = [
            name for name, schema in tool.input_schema["properties"].items() if "description" not in schema
        ]
        assert not undescribed, (tool.name, undescribed)
    assert {tool.name for tool in tools if tool.annotations is None} == UNANNOTATED
    destructive = {tool.name for tool in tools if tool.annotations and tool.annotations.destructive_hint}
    assert {name for name in names if "delete" in name or "discard" in name} <= destructive
    assert {"write_file", "update_row", "update_contact"} <= destructive
    read_only = {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint}
    assert not read_only & destructive
    assert any(tool.output_schema for tool in tools)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_notes_are_written_tagged_and_deleted_on_disk_in_both_eras(workspace, mode):
    note = workspace / "notes" / "garden-plan.md"
    async with connected(workspace, "notes", mode) as client:
        await answer(client, "create_note", title="Garden plan", body="Plant beans", tags=["garden"])
        await answer(client, "append_to_note", title="garden plan", text="Water them")
        await answer(client, "tag_note", title="Garden plan", tag="spring")
        assert note.read_text() == "# Garden plan\nTags: garden, spring\n\nPlant beans\nWater them\n"
        assert "Garden plan" in await answer(client, "list_notes", tag="spring")
        assert "Garden plan" in await answer(client, "search_notes", text="WATER")
        tags = await client.call_tool("list_tags", {})
        assert {"tag": "garden", "notes": 1} in tags.structured_content["result"]
        await answer(client, "untag_note", title="Garden plan", tag="spring")
        await answer(client, "rename_note", title="Garden plan", new_title="Vegetable plan")
        assert "# Vegetable plan\nTags: garden\n" in await answer(client, "read_note", title="Vegetable plan")
        await answer(client, "delete_note", title="Vegetable plan")
        assert "list_notes" in await refusal(client, "read_note", title="Garden plan")
    assert not note.exists()
    assert not note.with_name("vegetable-plan.md").exists()


@pytest.mark.anyio
async def test_files_are_read_found_and_changed_on_disk(workspace):
    documents = workspace / "documents"
    async with connected(workspace, "files") as client:
        assert "Passport" in await answer(client, "read_file", path="packing-list.txt")
        assert "trips/" in await answer(client, "list_directory")
        assert await answer(client, "find_files", pattern="*.csv") == "budget.csv"
        assert "trips/oslo.md:3:" in await answer(client, "search_in_files", text="FERRY")
        await answer(client, "write_file", path="new/hello.txt", content="Hello")
        await answer(client, "append_to_file", path="new/hello.txt", content="again")
        assert (documents / "new/hello.txt").read_text() == "Hello\nagain\n"
        info = await client.call_tool("get_file_info", {"path": "new/hello.txt"})
        assert (info.structured_content["kind"], info.structured_content["size_bytes"]) == ("file", 12)
        await answer(client, "copy_file", path="new/hello.txt", destination="copy.txt")
        await answer(client, "move_file", path="copy.txt", destination="kept/moved.txt")
        await answer(client, "create_directory", path="empty")
        await answer(client, "delete_file", path="new/hello.txt")
        assert "exists already" in await refusal(
            client, "copy_file", path="budget.csv", destination="kept/moved.txt"
        )
        assert "is a folder" in await refusal(client, "write_file", path="trips", content="x")
    assert (documents / "kept/moved.txt").read_text() == "Hello\nagain\n"
    assert (documents / "empty").is_dir()
    assert not (documents / "copy.txt").exists()
    assert not (documents / "new/hello.txt").exists()


@pytest.mark.anyio
async def test_paths_that_lead_out_of_the_documents_are_refused(workspace):
    (workspace / "documents/link").symlink_to(workspace)
    (workspace / "documents/people.txt").symlink_to(workspace / "contacts.json")
    async with connected(workspace, "files") as client:
        for path in ("../contacts.json", "/etc/hosts", "trips/../../shop.db", "link/contacts.json"):
            assert "outside" in await refusal(client, "read_file", path=path)
            assert "outside" in await refusal(client, "delete_file", path=path)
            assert "outside" in await refusal(client, "write_file", path=path, content="")
            assert "outside" in await refusal(client, "move_file", path="budget.csv", destination=path)
        assert "not a path" in await refusal(client, "read_file", path="a\0b")
        assert await answer(client, "search_in_files", text="ana.ruiz@") == "No file contains 'ana.ruiz@'"
    assert (workspace / "contacts.json").stat().st_size
    assert (workspace / "documents/budget.csv").exists()


@pytest.mark.anyio
async def test_database_rows_are_counted_found_inserted_changed_and_deleted(workspace):
    async with connected(workspace, "database") as client:
        assert await answer(client, "list_tables") == "customers\norders\nproducts"
        described = await client.call_tool("describe_table", {"table": "products"})
        assert described.structured_content["columns"][1] == {
            "name": "name",
            "type": "TEXT",
            "required": True,
            "primary_key": False,
        }
        counted = await client.call_tool("count_rows", {"table": "customers"})
        assert counted.structured_content == {"table": "customers", "rows": 4}
        assert "Mei Tanaka" in await answer(
            client, "find_rows", table="customers", column="city", value="osaka"
        )
        assert len((await answer(client, "preview_table", table="orders", limit=2)).splitlines()) == 3
        total = await answer(client, "run_select", sql="SELECT sum(quantity) AS total FROM orders")
        assert total == "total\n18"
        await answer(client, "insert_row", table="customers", values={"name": "Li Wei", "city": "Delft"})
        await answer(client, "update_row", table="products", row_id=1, values={"price": 35.5, "stock": 11})
        await answer(client, "delete_row", table="orders", row_id=6)
    with closing(sqlite3.connect(workspace / "shop.db")) as shop:
        assert shop.execute("SELECT name FROM customers WHERE city = 'Delft'").fetchall() == [("Li Wei",)]
        assert shop.execute("SELECT price, stock FROM products WHERE id = 1").fetchall() == [(35.5, 11)]
        assert shop.execute("SELECT count(*) FROM orders").fetchall() == [(5,)]


@pytest.mark.anyio
async def test_a_select_can_do_no_more_than_read(workspace):
    before = (workspace / "shop.db").read_bytes()
    other = workspace / "other.db"
    async with connected(workspace, "database") as client:
        for sql in (
            "DELETE FROM orders",
            "DROP TABLE orders",
            f"ATTACH '{other}' AS other",
            "PRAGMA user_version = 3",
        ):
            assert "only SELECT is allowed" in await refusal(client, "run_select", sql=sql)
        assert "one statement" in await refusal(client, "run_select", sql="SELECT 1; DELETE FROM orders")
        assert "larger than" in await refusal(client, "run_select", sql="SELECT zeroblob(2000000)")
        assert "no column colour" in await refusal(
            client, "insert_row", table="products", values={"colour": "red"}
        )
        assert "the tables are customers" in await refusal(client, "count_rows", table='orders"; --')
    assert (workspace / "shop.db").read_bytes() == before
    assert not other.exists()


@needs_git
@pytest.mark.anyio
async def test_git_shows_history_and_commits_for_real(workspace):
    async with connected(workspace, "git") as client:
        assert "M index.html" in await answer(client, "git_status")
        assert "Add the price list" in await answer(client, "git_log", limit=1)
        assert "+<p>Open from May to October.</p>" in await answer(client, "git_diff")
        assert "style.css" in await answer(client, "git_show", revision="HEAD~1")
        compared = await answer(client, "git_compare_branches", base="spring-prices", branch="main")
        assert "Add the price list" in compared
        assert "90 euros" in await answer(client, "git_blame", path="prices.html")
        await answer(client, "git_create_branch", name="autumn")
        assert "autumn" in await answer(client, "git_list_branches")
        assert "Say when we are open" in await answer(client, "git_commit", message="Say when we are open")
        (workspace / "website/prices.html").write_text("free")
        await answer(client, "git_discard_changes", path="prices.html")
        await answer(client, "git_switch_branch", name="autumn")
        for option in ("--output=stolen", "-p"):
            assert "revision" in await refusal(client, "git_show", revision=option)
    website = workspace / "website"
    assert run_git(website, "log", "--format=%s", "-1", "main") == "Say when we are open"
    assert run_git(website, "branch", "--show-current") == "autumn"
    assert (website / "prices.html").read_text() == "<p>90 euros a night</p>\n"


@pytest.mark.anyio
async def test_git_tools_say_so_where_there_is_no_repository(workspace):
    shutil.rmtree(workspace / "website", ignore_errors=True)
    async with connected(workspace, "git") as client:
        assert "no repository website/" in await refusal(client, "git_status")


def test_seeding_without_git_leaves_the_repository_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    seed_workspace(tmp_path)
    assert (tmp_path / "shop.db").exists()
    assert not (tmp_path / "website").exists()


@needs_git
def test_seeding_gives_the_same_commits_each_time_and_keeps_what_is_there(tmp_path):
    for name in ("one", "two"):
        seed_workspace(tmp_path / name)
    one, two = (run_git(tmp_path / name / "website", "rev-parse", "HEAD") for name in ("one", "two"))
    assert one == two
    (tmp_path / "one/contacts.json").write_text("[]")
    seed_workspace(tmp_path / "one")
    assert (tmp_path / "one/contacts.json").read_text() == "[]"


@pytest.mark.anyio
async def test_calendar_events_are_listed_created_moved_and_deleted(workspace):
    async with connected(workspace, "calendar") as client:
        assert "Dentist" in await answer(client, "list_events", day="2026-12-07", days=2)
        assert "event-3" in await answer(client, "search_events", text="clara")
        await answer(client, "create_event", title="Lunch", day="2026-12-08", start_time="12:00")
        free = await client.call_tool("find_free_time", {"day": "2026-12-08", "duration_minutes": 90})
        assert free.structured_content["result"] == [
            {"start": "09:00", "end": "12:00", "minutes": 180},
            {"start": "15:00", "end": "17:00", "minutes": 120},
        ]
        await answer(client, "move_event", event="budget review", day="2026-12-11", start_time="10:00")
        await answer(client, "add_attendee", event="Lunch", person="Ana Ruiz")
        await answer(client, "set_event_location", event="Lunch", location="Cafe Mokka")
        await answer(client, "delete_event", event="event-4")
        assert "search_events" in await refusal(client, "delete_event", event="Choir rehearsal")
        await refusal(client, "create_event", title="Late", day="2026-12-08", start_time="25:00")
    events = {event["title"]: event for event in json.loads((workspace / "calendar.json").read_text())}
    assert set(events) == {"Team standup", "Dentist", "Budget review", "Lunch"}
    assert (events["Budget review"]["start"], events["Budget review"]["end"]) == (
        "2026-12-11T10:00",
        "2026-12-11T11:30",
    )
    assert (events["Lunch"]["attendees"], events["Lunch"]["location"]) == (["Ana Ruiz"], "Cafe Mokka")


@pytest.mark.anyio
async def test_contacts_are_found_added_changed_and_deleted(workspace):
    async with connected(workspace, "contacts") as client:
        assert "Ben Okafor" in await answer(client, "find_contact", text="northwind")
        person = await client.call_tool("get_contact", {"name": "ana ruiz"})
        assert person.structured_content["email"] == "ana.ruiz@example.com"
        assert await answer(client, "list_birthdays", month=12) == "12-02 Ben Okafor\n12-24 Clara Lindqvist"
        await answer(client, "add_contact", name="Dana Fox", email="dana@example.com")
        await answer(client, "add_to_group", name="Dana Fox", group="choir")
        await answer(client, "update_contact", name="Dana Fox", detail="phone", value="555 0199")
        assert "Dana Fox" in await answer(client, "list_contacts", group="choir")
        assert "1990-04-23" in await refusal(
            client, "update_contact", name="Dana Fox", detail="birthday", value="soon"
        )
        await answer(client, "delete_contact", name="Ben Okafor")
        assert "already" in await refusal(client, "add_contact", name="Dana Fox")
    people = {person["name"]: person for person in json.loads((workspace / "contacts.json").read_text())}
    assert set(people) == {"Ana Ruiz", "Clara Lindqvist", "Dana Fox"}
    assert (people["Dana Fox"]["phone"], people["Dana Fox"]["groups"]) == ("555 0199", ["choir"])


@pytest.mark.anyio
async def test_a_broken_data_file_is_named_in_the_answer(workspace):
    (workspace / "contacts.json").write_text("{oops")
    async with connected(workspace, "contacts") as client:
        assert "contacts.json is not valid JSON" in await refusal(client, "list_contacts")


@pytest.mark.anyio
async def test_the_flaky_server_dies_in_the_call(workspace):
    async with connected(workspace, "flaky") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["print_label"]
        with pytest.raises(MCPError) as closed:
            await client.call_tool("print_label", {"address": "12 Harbour Street"})
    assert closed.value.error.code == CONNECTION_CLOSED
