"""`nexus-gateway import`: what hosts' servers cost, which fail and why, and what shares a name; nothing is changed."""

import json
import sys

import pytest
from support.gateways import python_server
from support.host_files import FIXTURES, empty_home, files_below
from support.processes import children
from typer.testing import CliRunner

from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.main import app
from nexus_gateway.server.meta_tools import META_TOOLS

pytestmark = pytest.mark.usefixtures("logs_as_they_were")
RAW = python_server("raw_server.py")
DEAD = {"command": "no-such-command-anywhere", "env": {"TOKEN": "secret-of-the-dead"}}
NO_MODEL = '[models]\nargument = "/nowhere/a.gguf"\n'


@pytest.fixture
def home(tmp_path, monkeypatch):
    return empty_home(tmp_path, monkeypatch)


@pytest.fixture
def run(home, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    yield lambda *args: CliRunner().invoke(app, ["import", *(str(arg) for arg in args)])
    assert not children()


@pytest.fixture
def no_model(home):
    own = home / "nexus.toml"
    own.write_text(NO_MODEL)
    return ["--config", own]


def put(home, place, servers):
    file = home / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def test_the_bill_counts_tools_and_tokens_and_says_why_a_server_failed(run, home):
    put(
        home,
        ".cursor/mcp.json",
        {
            "one": RAW,
            "two": {**RAW, "args": [*RAW["args"], "--"]},
            "dead": DEAD,
            "off": {**RAW, "disabled": True},
        },
    )
    before = files_below(home)
    result = run("cursor", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    (host,) = document["hosts"]
    states = {server["server"]: server for server in host["servers"]}
    assert [one["state"] for one in states.values()] == ["ready", "ready", "failed", "disabled"]
    assert states["one"]["tools"] == states["two"]["tools"] > 0
    assert host["tokens"] == 2 * states["one"]["tokens"] > 0
    assert "was not found" in states["dead"]["cause"]
    assert set(next(iter(host["collisions"].values()))) == {"one", "two"}
    assert document["unit"] == "tokens of SmolLM2's tokenizer"
    assert document["through_nexus"]["tools"] == len(META_TOOLS)
    assert "secret-of-the-dead" not in result.output
    assert files_below(home) == before


DIES = "import pathlib, sys; pathlib.Path(sys.argv[1]).open('a').write('x'); sys.exit('its own reason')"
WAITS_FOR_ANOTHER_START = """
import pathlib, sys, time
deaths, end = pathlib.Path(sys.argv[1]), time.monotonic() + 1.0
while time.monotonic() < end and not (deaths.exists() and deaths.stat().st_size > 2):
    time.sleep(0.02)
"""


def test_a_server_that_fails_is_started_once_and_its_first_cause_is_told(run, home, no_model):
    deaths = home / "deaths"
    quick, slow = (
        {"command": sys.executable, "args": ["-c", program, str(deaths)]}
        for program in (DIES, WAITS_FOR_ANOTHER_START)
    )
    put(home, ".cursor/mcp.json", {"quick": quick, "slow": slow})
    result = run(*no_model, "cursor", "--json")
    assert result.exit_code == 0, result.output
    (host,) = json.loads(result.stdout)["hosts"]
    cause = host["servers"][0]["cause"]
    assert "its own reason" in cause
    assert "in a row" not in cause
    assert len(deaths.read_text()) <= 2  # one process an era


def test_without_the_model_tokens_are_a_quarter_of_the_characters(run, home, no_model):
    put(home, ".cursor/mcp.json", {"one": RAW})
    result = run(*no_model)
    assert result.exit_code == 0, result.output
    assert "tokens, estimated; through Nexus 5 tools" in result.stdout
    assert "a quarter of the characters" in result.stderr
    assert "nexus-gateway register cursor" in result.stdout


def test_every_host_is_found_and_the_same_server_is_started_once(run, home, no_model):
    put(home, ".cursor/mcp.json", {"one": RAW})
    put(home, ".codeium/windsurf/mcp_config.json", {"same": RAW})
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text("{ broken")
    (home / ".claude.json").write_bytes((FIXTURES / "claude-code.json").read_bytes())
    listed = run(*no_model, "--no-start", "--json")
    document = json.loads(listed.stdout)
    found = {host["host"]: [s["server"] for s in host["servers"]] for host in document["hosts"]}
    assert found == {"claude-code": ["linear", "sentry"], "cursor": ["one"], "windsurf": ["same"]}
    assert {s["state"] for host in document["hosts"] for s in host["servers"]} == {"listed"}
    (problem,) = document["problems"]
    assert "settings.json: line 1" in problem
    shown = run(*no_model, "--no-start")
    assert "1 more of Claude Code for /home/ana/shop" in shown.stdout
    assert "not started" in shown.stdout


def test_on_a_terminal_it_offers_to_take_the_servers_over(home, no_model, monkeypatch):
    file = put(home, ".cursor/mcp.json", {"one": RAW})
    before = file.read_bytes()
    for module in ("import_servers", "register"):
        monkeypatch.setattr(f"nexus_gateway.cli.{module}.can_ask", lambda: True)

    def offered(answers):
        return CliRunner().invoke(app, ["import", *map(str, no_model), "--no-start"], input=answers)

    assert "Show what registering Cursor would change?" in offered("n\n").stderr
    assert file.read_bytes() == before
    assert offered("y\nn\n").exit_code == Exit.NEEDS_INPUT
    assert file.read_bytes() == before
    assert offered("y\ny\n").exit_code == 0
    assert list(json.loads(file.read_text())["mcpServers"]) == ["nexus"]
    again = offered("")
    assert "the gateway is registered here" in again.stdout
    assert "Show what" not in again.output


@pytest.mark.parametrize(
    "fixture", ["vscode.json", "zed.json", "codex.toml", "gemini.json", "claude-desktop-windows.json"]
)
def test_a_file_of_any_format_can_be_named(run, no_model, fixture):
    result = run(FIXTURES / fixture, *no_model, "--no-start", "--json")
    assert result.exit_code == 0, result.output
    (host,) = json.loads(result.stdout)["hosts"]
    assert host["servers"]
    assert host["file"].endswith(fixture)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("no-such-thing", "no host of that name"),
        ("windsurf", "Windsurf has no file"),
        (FIXTURES / ".gitattributes", "line 1"),
    ],
)
def test_what_can_not_be_read_ends_with_2(run, no_model, source, says):
    result = run(source, *no_model)
    assert result.exit_code == Exit.USAGE
    assert says in result.stderr


def test_a_machine_without_hosts_is_told_where_was_looked(run, no_model):
    result = run(*no_model)
    assert result.exit_code == 0
    assert "claude_desktop_config.json" in result.stdout
    assert "give a file" in result.stdout


def test_what_comes_with_a_project_is_started_only_by_its_name(run, home, no_model):
    trace = home / "was-started"
    touch = {"command": "touch", "args": [str(trace)]}
    (home / "project" / ".mcp.json").write_text(json.dumps({"mcpServers": {"foreign": touch}}))
    put(home, ".cursor/mcp.json", {"one": RAW})
    document = json.loads(run(*no_model, "--json").stdout)
    states = {server["server"]: server for host in document["hosts"] for server in host["servers"]}
    assert (states["one"]["state"], states["foreign"]["state"]) == ("ready", "listed")
    assert "nexus-gateway import claude-code-project" in states["foreign"]["cause"]
    assert not trace.exists()
    assert "1 server, not started" in run(*no_model).stdout
    assert not trace.exists()
    run("claude-code-project", *no_model)
    assert trace.exists()


def test_a_dying_servers_last_words_do_not_repeat_its_secrets(run, home, no_model):
    says = "import os, sys; sys.exit('no such key: ' + os.environ['SERVICE'])"
    dead = {"command": sys.executable, "args": ["-c", says], "env": {"SERVICE": "hunter2hunter2"}}
    put(home, ".cursor/mcp.json", {"dead": dead})
    result = run(*no_model, "--json")
    assert "no such key: ••••" in result.stdout
    assert "hunter2" not in result.output


def test_names_that_would_command_a_terminal_are_only_shown(run, home, no_model):
    put(home, ".cursor/mcp.json", {"red\x1b[31m": RAW, "half\ud800": RAW})
    result = run(*no_model, "--no-start")
    assert result.exit_code == 0, result.output
    assert r"red\x1b[31m" in result.stdout
    assert r"half\ud800" in result.stdout
    listed = json.loads(run(*no_model, "--no-start", "--json").stdout)
    assert [one["server"] for one in listed["hosts"][0]["servers"]] == ["red\x1b[31m", "half\ud800"]
