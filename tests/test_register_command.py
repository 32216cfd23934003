"""`nexus-gateway register` and `unregister`: shown first, asked for, done once, undone to the byte."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from support.gateways import python_server
from support.host_files import FIXTURES, empty_home
from support.processes import children
from support.raw_host import RawHost
from typer.testing import CliRunner

from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.main import app
from nexus_gateway.hosts.programs import absolute, gateway_command

pytestmark = pytest.mark.usefixtures("logs_as_they_were")
TOKEN = "ghp_FixtureFixtureFixture0000000000000000"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home, and a project in it."""
    return empty_home(tmp_path, monkeypatch)


@pytest.fixture
def desktop(home):
    file = home / ".config" / "Claude" / "claude_desktop_config.json"
    file.parent.mkdir(parents=True)
    file.write_bytes((FIXTURES / "claude-desktop.json").read_bytes())
    return file


@pytest.fixture
def run(home, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    yield lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])
    assert not children()


def talk(entry, *requests, env):
    """List the tools and take turns, as a host with almost no environment would."""
    process = subprocess.Popen(
        [entry["command"], *entry["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd="/",
    )
    with process:
        host = RawHost(process, "2025-06-18")
        host.handshake()
        answers = [host.request("tools/list")]
        answers += [host.call("nexus_turn", {"request": request}) for request in requests]
        process.stdin.close()
    assert process.returncode == 0
    return answers


def servers_of(file):
    return json.loads(file.read_bytes())["mcpServers"]


def test_registering_shows_a_masked_difference_and_does_nothing_without_a_yes(run, desktop):
    before = desktop.read_bytes()
    result = run("register", "claude-desktop")
    assert result.exit_code == Exit.NEEDS_INPUT
    assert "add --yes" in result.stderr
    assert f"--- {desktop}" in result.stdout
    assert '+    "nexus": {' in result.stdout
    assert TOKEN not in result.output
    assert "github: env.GITHUB_PERSONAL_ACCESS_TOKEN" in result.stdout
    assert "only you can read it" in result.stdout
    assert desktop.read_bytes() == before


def test_a_dry_run_shows_the_same_and_ends_well(run, desktop):
    before = desktop.read_bytes()
    result = run("register", "claude-desktop", "--dry-run", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["moved"] == ["filesystem", "github", "sqlite"]
    assert not document["changed"]
    assert '"nexus"' in document["diff"]
    assert TOKEN not in result.output
    assert desktop.read_bytes() == before
    assert list(desktop.parent.iterdir()) == [desktop]


def test_register_and_unregister_are_idempotent_and_exact(run, desktop, home):
    before = desktop.read_bytes()
    first = run("register", "claude-desktop", "--yes")
    assert first.exit_code == 0, first.output
    registered = desktop.read_bytes()
    command, *args = servers_of(desktop)["nexus"]["command"], *servers_of(desktop)["nexus"]["args"]
    assert command == gateway_command()[0]
    assert Path(command).is_absolute()
    assert args == ["serve", "--mcp-config", str(home / ".config/nexus-gateway/servers/claude-desktop.json")]
    second = run("register", "claude-desktop", "--yes")
    assert second.exit_code == 0
    assert "registered already" in second.stdout
    assert desktop.read_bytes() == registered
    shown = run("unregister", "claude-desktop", "--dry-run")
    assert "would be what it was" in shown.stdout
    assert TOKEN not in shown.output
    assert desktop.read_bytes() == registered
    undone = json.loads(run("unregister", "claude-desktop", "--json").stdout)
    assert (undone["changed"], undone["exact"]) == (True, True)
    assert desktop.read_bytes() == before
    again = run("unregister", "claude-desktop")
    assert again.exit_code == 0
    assert "nothing to undo" in again.stdout
    assert list(desktop.parent.iterdir()) == [desktop]


def test_an_entry_that_is_gone_is_said_and_unregister_brings_the_servers_back(run, desktop):
    assert run("register", "claude-desktop", "--yes").exit_code == 0
    desktop.write_text('{"mcpServers": {"new": {"command": "x"}}}')
    result = run("register", "claude-desktop", "--yes")
    assert result.exit_code == Exit.USAGE
    assert "unregister claude-desktop" in result.stderr
    undone = run("unregister", "claude-desktop")
    assert "the changes stay" in undone.stdout
    assert set(servers_of(desktop)) == {"new", "filesystem", "github", "sqlite"}


def test_a_gateway_that_was_put_there_by_hand_is_left_alone(run, desktop):
    text = (
        '{"mcpServers": {"mine": {"command": "/x/nexus-gateway", "args": ["serve"]}, "b": {"command": "c"}}}'
    )
    desktop.write_text(text)
    result = run("register", "claude-desktop", "--yes")
    assert result.exit_code == 0
    assert "by hand" in result.stdout
    assert desktop.read_text() == text


def test_a_file_and_a_configuration_can_be_named(run, home):
    file, own = home / "mine.json", home / "own" / "nexus.toml"
    own.parent.mkdir()
    own.write_text("")
    file.write_text('{"mcpServers": {"a": {"command": "true"}, "b": {"command": "true"}}}')
    result = run("register", "cursor", "--file", file, "--config", own, "--servers", "b", "--yes", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["moved"] == ["b"]
    args = servers_of(file)["nexus"]["args"]
    assert args[:3] == ["serve", "--config", str(own)]
    assert args[4].startswith(str(own.parent / "servers" / "cursor-"))
    assert run("unregister", "cursor", "--file", file, "--config", own).exit_code == 0
    assert list(servers_of(file)) == ["a", "b"]


def test_what_it_says_to_run_can_be_pasted_into_a_shell(run, home):
    file, own = home / "with a blank" / "m y.json", home / "own nexus.toml"
    file.parent.mkdir()
    own.write_text("")
    file.write_text('{"mcpServers": {"a": {"command": "true"}}}')
    before = file.read_bytes()
    assert str(file) in run("import", file, "--no-start", "--config", own).stdout.replace("'", "")
    done = run("register", "cursor", "--file", file, "--config", own, "--servers", " a , ", "--yes")
    assert done.exit_code == 0, done.output
    (undo,) = [line for line in done.stdout.splitlines() if line.startswith("undo: ")]
    again = run("register", "cursor", "--file", file, "--config", own)
    assert undo.removeprefix("undo: ") in again.stdout
    words = shlex.split(undo.removeprefix("undo: nexus-gateway "))
    assert run(*words).exit_code == 0
    assert file.read_bytes() == before


def test_a_configuration_that_is_not_there_is_not_registered(run, desktop, home):
    before = desktop.read_bytes()
    result = run("register", "claude-desktop", "--config", home / "nowhere.toml", "--yes")
    assert result.exit_code == Exit.USAGE
    assert "would not start with it" in result.stderr
    assert desktop.read_bytes() == before


def test_a_project_is_told_that_its_file_is_shared(run, home):
    file = home / "project" / ".mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "true"}}}')
    assert "comes with the project" in run("register", "claude-code-project", "--dry-run").stdout


def test_a_program_of_the_present_folder_is_not_taken_for_one_on_the_path(tmp_path, monkeypatch):
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in (":/bin", ".:/bin", "/bin:"):
        assert "not on your PATH" in absolute({"command": "tool"}, {"PATH": path})[1]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["claude-desktop", "--file", "."], "Is a directory"),
        (["cluade-desktop"], "did you mean claude-desktop"),
        (["emacs-of-nobody"], "known are claude-desktop"),
        (
            ["claude-desktop", "--servers", "nobody"],
            "no server named nobody; it has filesystem, github, sqlite",
        ),
        (["windsurf"], "is the host installed"),
    ],
)
def test_what_can_not_be_registered_is_said_with_the_fix(run, desktop, args, says):
    result = run("register", *args, "--yes")
    assert result.exit_code == Exit.USAGE
    assert says in result.stderr
    assert "Traceback" not in result.output


def test_a_bare_command_becomes_a_path_and_keeps_the_users_path(tmp_path):
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = f"{tmp_path}:/nowhere:relative:/bin:{tmp_path}"
    entry, said = absolute({"command": "tool", "env": {"A": "b"}}, {"PATH": path})
    assert entry == {"command": str(program), "env": {"A": "b", "PATH": f"{tmp_path}:/bin"}}
    assert said == f"tool → {program}"
    for kept in ({"command": "/x/tool"}, {"command": "./tool"}, {"command": "${TOOL}"}, {"url": "http://x"}):
        assert absolute(kept, {"PATH": path}) == (kept, "")
    own = {"command": "tool", "env": {"PATH": str(tmp_path)}}
    assert absolute(own, {"PATH": "/bin"})[0] == {**own, "command": str(program)}
    assert "not on your PATH" in absolute({"command": "no-such-tool"}, {"PATH": path})[1]


def test_the_registered_command_answers_with_an_empty_environment(run, home):
    file = home / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"raw": python_server("raw_server.py")}}))
    own = home / "nexus.toml"
    own.write_text(
        f'cache_dir = "{home}/cache"\n[models]\nargument = "/nowhere/a.gguf"\nembedder = "/nowhere/e"\n'
    )
    assert run("register", "cursor", "--file", file, "--config", own, "--yes").exit_code == 0
    entry = servers_of(file)["nexus"]
    (listed,) = talk(entry, env={})
    assert [tool["name"] for tool in listed["result"]["tools"]][:2] == ["nexus_turn", "nexus_read"]


@pytest.mark.npm
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_from_a_hosts_file_to_a_turn_in_an_empty_environment_and_back(run, home, npm_servers):
    folder = home / "documents"
    folder.mkdir()
    (folder / "notes.txt").write_text("buy flour\n")
    file = home / ".config" / "Claude" / "claude_desktop_config.json"
    file.parent.mkdir(parents=True)
    entries = {
        "everything": {"command": "node", "args": [str(npm_servers["everything"]), "stdio"]},
        "filesystem": {"command": "node", "args": [str(npm_servers["filesystem"]), str(folder)]},
        "memory": {
            "command": "node",
            "args": [str(npm_servers["memory"])],
            "env": {"MEMORY_FILE_PATH": str(home / "m.json")},
        },
    }
    file.write_text(json.dumps({"mcpServers": entries, "scale": 1}, indent=4))
    before = file.read_bytes()
    own = home / "nexus.toml"
    own.write_text(f'cache_dir = "{home}/cache"\n')
    billed = json.loads(run("import", "claude-desktop", "--config", own, "--json").stdout)
    (host,) = billed["hosts"]
    assert [server["state"] for server in host["servers"]] == ["ready"] * 3
    assert host["tokens"] > 5 * billed["through_nexus"]["tokens"]
    registered = run("register", "claude-desktop", "--config", own, "--yes")
    assert registered.exit_code == 0, registered.output
    entry = servers_of(file)["nexus"]
    answers = talk(entry, f"read the file {folder / 'notes.txt'}", env={"PATH": "/usr/bin:/bin"})
    assert [tool["name"] for tool in answers[0]["result"]["tools"]][:2] == ["nexus_turn", "nexus_read"]
    assert answers[1]["result"]["content"][0]["text"] == "buy flour\n"
    assert json.loads(run("unregister", "claude-desktop", "--config", own, "--json").stdout)["exact"]
    assert file.read_bytes() == before
