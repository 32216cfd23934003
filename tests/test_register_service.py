"""`register --service`: a host whose servers are behind the service, and what each command says of the other."""

import json
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.host_files import FIXTURES
from support.processes import wait_until
from support.raw_host import RawHost
from support.served import GATED, Served, free_port
from support.services import home_of_nobody, install, nexus
from typer.testing import CliRunner

from adapters.services.systemd import Systemd
from nexus_gateway.cli.exits import Exit
from nexus_gateway.cli.main import app
from nexus_gateway.hosts.programs import gateway_command
from nexus_gateway.hosts.registration import Folder
from nexus_gateway.hosts.service_settings import load_service_settings

pytestmark = [
    pytest.mark.usefixtures("logs_as_they_were"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the service is systemd's"),
]
CURSOR = ".cursor/mcp.json"
WINDSURF = ".codeium/windsurf/mcp_config.json"
URL = "http://127.0.0.1:8765/mcp"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home of nobody; the service manager's program says what the file `says` says, and is never obeyed."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "systemctl").write_text(f"#!/bin/sh\ncat {tmp_path}/says\n")
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("COLUMNS", "200")
    with home_of_nobody(tmp_path, monkeypatch) as home:
        monkeypatch.chdir(home)
        running(home, 0)
        yield home


def running(home, pid):
    (home.parent / "says").write_text(f"ActiveState=active\nMainPID={pid}\n")


def own_folder(home):
    return home / ".config" / "nexus-gateway"


def put(home, place, **servers):
    file = home / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": servers, "other": [1, 2]}, indent=3))
    return file


def gated(folder):
    """A server whose gate is open."""
    folder.mkdir()
    (folder / "open").touch()
    return {"command": sys.executable, "args": [str(GATED), str(folder)]}


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


def register(host, *options):
    """As `register HOST --service --yes --json` has it."""
    result = run("register", host, "--service", "--yes", "--json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def entry_of(file):
    return json.loads(file.read_bytes())["mcpServers"]["nexus"]


def served_names():
    return list(load_service_settings().settings.servers)


# --- what is written


def test_the_entry_is_a_bridge_with_the_services_address_and_its_tokens_place(home):
    file = put(home, CURSOR, a={"command": "/bin/true"})
    token = own_folder(home) / "http-token"
    said = register("cursor")
    command, *arguments = gateway_command()
    entry = entry_of(file)
    assert entry == {
        "command": command,
        "args": [*arguments, "connect", URL, "--token-file", str(token)],
    }
    assert said["service"] == URL
    assert said["service_note"] == "next: nexus-gateway service install"
    assert not token.exists()  # the service makes it
    assert served_names() == ["a"]
    told = install("--no-start")
    assert token.exists()
    assert {"command": entry["command"], "args": entry["args"]} == told["host"]
    assert "--hosts" in told["command"]


def test_a_service_that_is_there_says_address_and_token(home):
    secret = home / "secret"
    secret.write_text("a-token\n")
    own = home / "own" / "nexus.toml"
    own.parent.mkdir()
    own.write_text(f'[http]\ntoken_file = "{secret}"\n')
    install("--no-start", "--config", own, "--http", "127.0.0.1:9001")
    file = put(home, CURSOR, a={"command": "/bin/true"})
    said = register("cursor", "--config", own)
    assert entry_of(file)["args"][-4:] == [
        "connect",
        "http://127.0.0.1:9001/mcp",
        "--token-file",
        str(secret),
    ]
    assert said["service_note"] == "next: nexus-gateway service start"
    assert (own.parent / "servers" / "cursor.json").exists()


def test_a_service_with_another_configuration_is_said(home):
    install("--no-start")
    own = home / "own" / "nexus.toml"
    own.parent.mkdir()
    own.write_text("")
    file = put(home, CURSOR, a={"command": "/bin/true"})
    before = file.read_bytes()
    result = run("register", "cursor", "--service", "--config", own, "--yes")
    assert result.exit_code == Exit.USAGE
    assert "register with no --config" in result.stderr
    assert file.read_bytes() == before


def test_a_service_that_reads_no_hosts_is_said(home):
    told = install("--no-start")
    unit = Path(told["file"])
    unit.write_text(unit.read_text().replace(" --hosts", ""))
    put(home, CURSOR, a={"command": "/bin/true"})
    result = run("register", "cursor", "--service", "--yes")
    assert result.exit_code == Exit.USAGE
    assert "`nexus-gateway service install` again" in result.stderr


def test_a_dry_run_shows_the_bridge_and_changes_nothing(home):
    file = put(home, CURSOR, a={"command": "/bin/true"})
    before = file.read_bytes()
    result = run("register", "cursor", "--service", "--dry-run")
    assert result.exit_code == 0
    assert f'"connect", "{URL}"' in result.stdout.replace("\n", "")
    assert file.read_bytes() == before
    assert not own_folder(home).exists()


@pytest.mark.parametrize(
    ("host", "place", "fixture"),
    [
        ("vscode", ".config/Code/User/mcp.json", "vscode.json"),
        ("zed", ".config/zed/settings.json", "zed.json"),
        ("codex", ".codex/config.toml", "codex.toml"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json", "claude-desktop.json"),
    ],
)
def test_a_file_of_any_format_comes_back_to_the_byte(home, host, place, fixture):
    file = home / place
    file.parent.mkdir(parents=True)
    file.write_bytes((FIXTURES / fixture).read_bytes())
    before = file.read_bytes()
    said = register(host)
    after = file.read_bytes()
    assert said["moved"]
    assert URL.encode() in after
    again = register(host)
    assert not again["changed"]
    assert file.read_bytes() == after
    undone = json.loads(run("unregister", host, "--json").stdout)
    assert undone["exact"]
    assert file.read_bytes() == before
    assert not [one for one in own_folder(home).rglob("*") if one.is_file()]


def test_a_renamed_bridge_is_known_and_taken_out(home):
    file = put(home, CURSOR, a={"command": "/bin/true"})
    register("cursor")
    document = json.loads(file.read_bytes())
    document["mcpServers"]["mine"] = document["mcpServers"].pop("nexus")
    file.write_text(json.dumps(document))
    assert run("unregister", "cursor").exit_code == 0
    assert list(json.loads(file.read_bytes())["mcpServers"]) == ["a"]


def test_a_host_gets_its_file_back_whatever_became_of_the_service(home):
    file = put(home, CURSOR, a={"command": "/bin/true"})
    before = file.read_bytes()
    for toml in (f'[http]\ntoken_file = "{home}/nowhere"\n', "rubbish"):
        register("cursor")
        own = own_folder(home) / "nexus.toml"
        own.write_text(toml)
        assert run("unregister", "cursor").exit_code == 0
        assert file.read_bytes() == before
        own.unlink()


# --- from one way to the other


def test_from_one_way_to_the_other_the_command_says_what_to_do_and_that_works(home):
    file = put(home, CURSOR, a={"command": "/bin/true"})
    before = file.read_bytes()
    for way, other in (([], ["--service"]), (["--service"], [])):
        assert run("register", "cursor", *way, "--yes").exit_code == 0
        registered = file.read_bytes()
        refused = run("register", "cursor", *other, "--yes")
        assert refused.exit_code == Exit.USAGE
        assert file.read_bytes() == registered
        for command in refused.stderr.split("`")[1::2]:
            done = run(*shlex.split(command)[1:], *(["--yes"] if " register " in command else []))
            assert done.exit_code == 0, done.output
        assert ("connect" in entry_of(file)["args"]) == (other == ["--service"])
        assert run("unregister", "cursor").exit_code == 0
        assert file.read_bytes() == before


def test_a_service_that_moves_says_which_hosts_look_elsewhere(home):
    put(home, CURSOR, a={"command": "/bin/true"})
    register("cursor")
    kept = nexus("install", "--manager", "systemd", "--no-start")
    assert "elsewhere" not in kept.stderr
    moved = nexus("install", "--manager", "systemd", "--no-start", "--http", "127.0.0.1:9002")
    assert "Cursor looks for the service elsewhere: nexus-gateway unregister cursor" in moved.stderr
    refused = run("register", "cursor", "--service", "--yes")
    assert refused.exit_code == Exit.USAGE
    assert "at another address" in refused.stderr
    gone = nexus("uninstall", "--manager", "systemd")
    assert "Cursor has its servers behind the service: nexus-gateway unregister cursor" in gone.stderr


# --- what the service has


def test_installing_again_loses_no_host_and_leaves_those_with_a_gateway_of_their_own(home):
    put(home, CURSOR, a={"command": "/bin/true"})
    put(home, WINDSURF, b={"command": "/bin/true"})
    put(home, ".config/Claude/claude_desktop_config.json", c={"command": "/bin/true"})
    register("cursor")
    install("--no-start")
    register("windsurf")
    assert run("register", "claude-desktop", "--yes").exit_code == 0
    install("--no-start")
    assert served_names() == ["a", "b"]
    assert run("unregister", "cursor").exit_code == 0
    assert served_names() == ["b"]


def test_of_two_servers_of_a_name_the_second_stays_with_its_host_unless_it_is_the_same(home):
    put(home, CURSOR, same={"command": "true", "env": {"A": "1"}}, other={"command": "/bin/true"})
    register("cursor")
    put(home, WINDSURF, same={"command": "true", "env": {"A": "1"}}, other={"command": "/bin/false"})
    said = register("windsurf")
    assert said["moved"] == ["same"]
    assert [(one["server"], "another server of that name" in one["reason"]) for one in said["staying"]] == [
        ("other", True)
    ]


def test_a_variable_that_the_service_will_not_have_is_said(home, monkeypatch):
    monkeypatch.setenv("SHELL_ONLY", "x")
    put(home, CURSOR, a={"command": "/bin/true", "env": {"KEY": "${SHELL_ONLY}", "HOME": "${HOME}"}})
    (remark,) = register("cursor")["remarks"]
    assert remark.startswith("a: the service has not your shell's variables")
    assert "SHELL_ONLY" in remark


def test_what_is_damaged_is_said_and_leaves_the_rest_in_use(home):
    put(home, CURSOR, a={"command": "/bin/true"})
    put(home, WINDSURF, b={"command": "/bin/true"})
    put(home, ".config/Claude/claude_desktop_config.json", c={"command": "/bin/true"})
    for host in ("cursor", "windsurf", "claude-desktop"):
        register(host)
    folder = Folder(own_folder(home)).path
    (folder / "servers" / "cursor.json").unlink()
    (folder / "registrations" / "windsurf.json").write_text("{}")
    loaded = load_service_settings()
    assert list(loaded.settings.servers) == ["c"]
    said = "\n".join(map(str, loaded.problems))
    assert "cursor.json: there is no such file" in said
    assert "windsurf.json is no registration any more" in said


# --- the whole way


@contextmanager
def host_with(entry):
    """A host that starts an entry with no environment at all."""
    process = subprocess.Popen(
        [entry["command"], *entry["args"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
    )
    with process:
        try:
            host = RawHost(process, "2025-06-18")
            host.handshake()
            yield host
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def from_its_unit(told, home, folder):
    """The service as its manager would start it."""
    unit = Path(told["file"]).read_bytes()
    words = [
        line.removeprefix("Environment=") for line in unit.decode().splitlines() if "Environment=" in line
    ]
    variables = dict(shlex.split(word)[0].split("=", 1) for word in words)
    command = Systemd(home / ".config").command_of(unit)
    return Served(list(command), {**variables, "HOME": str(home)}, folder)


def passed(host, tool):
    result = host.call("call_tool", {"tool": tool, "arguments": {}}).get("result", {})
    return not result.get("isError") and "through" in json.dumps(result)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_from_two_hosts_files_to_calls_through_one_service_and_back(home, tmp_path):
    own_folder(home).mkdir(parents=True)
    (own_folder(home) / "nexus.toml").write_text(
        f'cache_dir = "{tmp_path}/cache"\n[http]\nport = {free_port()}\n'
        '[models]\nargument = "/nowhere/a.gguf"\nembedder = "/nowhere/e"\nreader = "off"\n'
    )
    files = [
        put(home, CURSOR, first=gated(tmp_path / "1")),
        put(home, WINDSURF, second=gated(tmp_path / "2")),
    ]
    before = [file.read_bytes() for file in files]
    register("cursor")
    served = from_its_unit(install("--no-start"), home, tmp_path)
    try:
        served.start()
        running(home, served.process.pid)
        with host_with(entry_of(files[0])) as host:
            listed = host.request("tools/list")["result"]["tools"]
            assert [tool["name"] for tool in listed][:2] == ["nexus_turn", "nexus_read"]
            wait_until(lambda: passed(host, "first/pass_gate"), served.said)
            served.kill()
            served.start()
            running(home, served.process.pid)
            wait_until(lambda: passed(host, "first/pass_gate"), served.said)
            assert not passed(host, "second/pass_gate")
            assert register("windsurf")["service_note"] == "the service reads its files again now"
            wait_until(lambda: passed(host, "second/pass_gate"), served.said)
        with host_with(entry_of(files[1])) as host:
            assert passed(host, "first/pass_gate")
            assert "reads its files again" in run("unregister", "windsurf").stdout
            wait_until(lambda: not passed(host, "second/pass_gate"), served.said)
        assert run("unregister", "cursor").exit_code == 0
        served.process.terminate()
        assert served.process.wait(60) == 0, served.said()
    finally:
        served.close()
    assert [file.read_bytes() for file in files] == before
    token = (own_folder(home) / "http-token").read_text().strip()
    assert token not in served.said()
    assert not any(token in path.read_text() for path in home.rglob("*.json"))
