"""`service`: the files that it writes, the commands that it gives, and the process that they run."""

import json
import os
import plistlib
import shlex
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest
from support.served import Served, free_port, write_configuration
from support.services import home_of_nobody, install, nexus

from adapters.services.launchd import LABEL, Launchd
from adapters.services.manager import ServicePlan, Step
from adapters.services.systemd import Systemd
from nexus_gateway.cli import service
from nexus_gateway.cli.bearer_token import TokenPlace
from nexus_gateway.cli.connect import _check
from nexus_gateway.cli.service_plan import installation, service_environment
from nexus_gateway.cli.service_steps import ServiceError, find_manager, run_steps
from nexus_gateway.settings.snapshot import HttpSettings

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    with home_of_nobody(tmp_path, monkeypatch) as home:
        yield home


# --- the files


def test_the_agent_of_a_mac_by_value(home, tmp_path):
    own = write_configuration(tmp_path)
    told = install("--no-start", "--config", own, "--http", "127.0.0.1:9000", manager="launchd")
    file = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    agent = plistlib.loads(file.read_bytes())
    token = home / ".config" / "nexus-gateway" / "http-token"
    log = str(home / "Library" / "Logs" / "nexus-gateway" / "gateway.log")
    command = agent.pop("ProgramArguments")
    assert told["file"] == str(file)
    assert Path(command[0]).is_absolute()
    assert command[1:] == [
        *("serve", "--http", "127.0.0.1:9000"),
        *("--config", str(own), "--hosts", "--token-file", str(token)),
    ]
    assert agent.pop("EnvironmentVariables") == service_environment(os.environ)
    assert agent == {
        "Label": LABEL,
        "WorkingDirectory": str(home),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 5,
        "ExitTimeOut": 40,
        "SoftResourceLimits": {"NumberOfFiles": 4096},
        "ProcessType": "Interactive",
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    assert Path(log).parent.is_dir()


AWKWARD = ("/opt/a $b 50%/nexus", "serve", "50%", "$HOME", 'say "hi"', "back\\slash", "it's", "")


@pytest.mark.parametrize("manager", [Launchd(Path("/Users/me"), 501), Systemd(Path("/home/me/.config"))])
def test_a_command_comes_out_of_its_file_as_it_went_in(manager):
    plan = ServicePlan(AWKWARD, {"PATH": "/usr/bin:/opt/100% mine/bin"}, 40)
    assert manager.command_of(manager.render(plan)) == AWKWARD
    assert b"/opt/a $b" in manager.render(plan)  # systemd replaces no variables in the program's own path


@pytest.mark.parametrize("description", [b"", b"rubbish", b"[Service]\nType=exec\n"])
@pytest.mark.parametrize("manager", [Launchd(Path("/Users/me"), 501), Systemd(Path("/home/me/.config"))])
def test_another_file_is_no_service_of_ours(manager, description):
    with pytest.raises(ValueError, match="it "):
        manager.command_of(description)


def test_systemd_accepts_the_unit(home, tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    folder = tmp_path / "a folder with 100% of spaces"
    folder.mkdir()
    install("--no-start", "--config", write_configuration(folder))
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    unit = home / ".config" / "systemd" / "user" / "nexus-gateway.service"
    checked = subprocess.run(
        [analyze, "verify", "--user", "--man=no", str(unit)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_dry_run_writes_nothing(home, tmp_path):
    own = write_configuration(tmp_path)
    shown = nexus("install", "--manager", "systemd", "--dry-run", "--config", own)
    assert shown.exit_code == 0
    assert "ExecStart=" in shown.stdout
    assert "systemctl --user enable" in shown.stdout
    assert not list(home.rglob("*"))


def test_a_path_that_no_unit_can_have_is_said_before_anything_is_written(home, tmp_path):
    odd = tmp_path / "two\nlines"
    odd.mkdir()
    (odd / "servers.json").write_text('{"mcpServers": {"a": {"command": "a"}}}')
    shown = nexus("install", "--manager", "systemd", "--dry-run", "--mcp-config", odd / "servers.json")
    assert shown.exit_code == 1
    assert "line break" in shown.stderr


@pytest.mark.parametrize(
    ("host", "url", "options"),
    [
        ("127.0.0.1", "http://127.0.0.1:8765/mcp", []),
        ("::1", "http://[::1]:8765/mcp", []),
        ("0.0.0.0", "http://127.0.0.1:8765/mcp", []),
        ("::", "http://[::1]:8765/mcp", []),
        ("192.168.1.5", "http://192.168.1.5:8765/mcp", ["--plain-http"]),
    ],
)
def test_a_host_is_given_an_address_that_connect_takes(host, url, options):
    planned = installation(HttpSettings(host=host), TokenPlace(file=Path("/t")), None, [])
    assert planned.host_entry["args"][-4:] == ["connect", url, "--token-file", "/t", *options][-4:]
    _check(planned.url, "token", plain_http=bool(options))


def test_nothing_of_the_shell_but_the_path_reaches_the_service(tmp_path):
    (tmp_path / "bin").mkdir()
    environ = {
        "PATH": f"relative:{tmp_path}/bin:{tmp_path}/gone:/usr/bin",
        "API_KEY": "s3cret",
        "HOME": "/home/me",
    }
    kept = service_environment(environ)
    assert list(kept) == ["PATH"]
    assert kept["PATH"].split(":")[:2] == [f"{tmp_path}/bin", "/usr/bin"]
    assert len(set(kept["PATH"].split(":"))) == len(kept["PATH"].split(":"))


def test_a_variable_that_the_service_will_not_have_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("SHELL_ONLY", "x")
    file = tmp_path / "servers.json"
    file.write_text(
        json.dumps({"mcpServers": {"a": {"command": "${HOME}/run", "env": {"KEY": "${SHELL_ONLY}"}}}})
    )
    result = nexus("install", "--manager", "systemd", "--no-start", "--mcp-config", file)
    assert result.exit_code == 0
    assert "SHELL_ONLY" in result.stderr
    assert "HOME" not in result.stderr


# --- the commands


@pytest.fixture
def manager_program(tmp_path, monkeypatch):
    """A stand-in for a manager's program: notes how it is called, prints what a file says, fails if one is there."""
    folder = tmp_path / "programs"
    folder.mkdir()

    def make(name, says=""):
        (folder / "says").write_text(says)
        program = folder / name
        program.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n[ -e {folder}/fails ] && echo no luck >&2 && exit 3\n'
            f"cat {folder}/says\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return folder

    return make


def calls(folder):
    return (folder / "calls").read_text().splitlines()


def test_what_systemd_is_told(manager_program, tmp_path):
    folder = manager_program("systemctl", "ActiveState=active\nSubState=running\nMainPID=123\n")
    told = install(
        "--no-start", "--config", write_configuration(tmp_path), "--http", f"127.0.0.1:{free_port()}"
    )
    assert nexus("stop", "--manager", "systemd").exit_code == 0
    status = nexus("status", "--manager", "systemd", "--json")
    assert nexus("uninstall", "--manager", "systemd").exit_code == 0
    assert calls(folder) == [
        "systemctl --user stop nexus-gateway.service",
        "systemctl --user show nexus-gateway.service --property=ActiveState,SubState,MainPID",
        "systemctl --user disable --now nexus-gateway.service",
        "systemctl --user daemon-reload",
    ]
    said = json.loads(status.stdout)
    assert status.exit_code == 1  # nothing serves there
    assert (said["state"], said["pid"], said["alive"]) == ("active (running)", 123, False)
    assert not Path(told["file"]).exists()
    assert not (Path(os.environ["HOME"]) / ".config" / "nexus-gateway" / "http-token").exists()


def test_a_manager_that_is_out_of_reach_does_not_keep_a_service_from_going(manager_program, tmp_path):
    folder = manager_program("systemctl")
    told = install("--no-start", "--config", write_configuration(tmp_path))
    (folder / "fails").touch()
    gone = nexus("uninstall", "--manager", "systemd")
    assert gone.exit_code == 0
    assert "no luck" in gone.stderr
    assert not Path(told["file"]).exists()


def test_another_gateway_at_the_address_is_not_taken_for_the_service(manager_program, tmp_path, monkeypatch):
    monkeypatch.setattr(service, "_health", lambda _url: (True, []))
    folder = manager_program("systemctl", "ActiveState=inactive\nMainPID=0\n")
    options = ("install", "--manager", "systemd", "--config", write_configuration(tmp_path))
    refused = nexus(*options)
    assert refused.exit_code == 1
    assert "served already" in refused.stderr
    assert not any("restart" in call for call in calls(folder))
    manager_program("systemctl", "ActiveState=active\nMainPID=5\n")
    assert nexus(*options).exit_code == 0


def test_what_launchd_is_told():
    manager, plist = Launchd(Path("/Users/me"), 501), f"/Users/me/Library/LaunchAgents/{LABEL}.plist"
    target = f"gui/501/{LABEL}"
    assert [step.command[1:] for step in manager.starting()] == [
        ("bootout", target),
        ("enable", target),
        ("bootstrap", "gui/501", plist),
    ]
    assert [step.command for step in manager.stopping()] == [("launchctl", "bootout", target)]
    printed = f"{target} = {{\n\tactive count = 1\n\tstate = running\n\tpid = 4711\n}}"
    assert manager.state_from(printed) == ("running", 4711)
    assert manager.state_from("\tstate = not running\n") == ("not running", None)
    assert manager.reading_log(9, follow=True).command[:4] == ("tail", "-n", "9", "-F")


def test_a_manager_that_refuses_is_quoted_with_the_command_for_the_foreground(manager_program, tmp_path):
    folder = manager_program("systemctl")
    (folder / "fails").touch()
    result = nexus("install", "--manager", "systemd", "--config", write_configuration(tmp_path))
    assert result.exit_code == 1
    assert "no luck" in result.stderr
    assert " serve --http 127.0.0.1:8765 --config " in result.stderr


def test_a_manager_that_is_not_there_is_said_with_the_command_for_the_foreground(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = nexus("install", "--manager", "launchd", "--config", write_configuration(tmp_path))
    assert result.exit_code == 1
    assert "launchctl is not on this machine" in result.stderr
    assert " serve --http " in result.stderr


@pytest.mark.parametrize("command", ["start", "stop", "status", "logs", "uninstall"])
def test_without_an_installed_service_that_is_said(command):
    result = nexus(command, "--manager", "systemd")
    assert result.exit_code == 1
    assert "service install" in result.stderr


def test_logs_come_from_where_the_manager_has_them(manager_program, tmp_path):
    folder = manager_program("journalctl")
    install("--no-start", "--config", write_configuration(tmp_path))
    assert nexus("logs", "--manager", "systemd", "-n", "7").exit_code == 0
    (called,) = calls(folder)
    assert "--user-unit=nexus-gateway.service --lines=7" in called


def test_each_platform_has_its_manager(home):
    assert isinstance(find_manager(platform="darwin", home=home), Launchd)
    found = find_manager(platform="linux", home=home, environ={})
    assert found.file == home / ".config" / "systemd" / "user" / "nexus-gateway.service"
    elsewhere = find_manager(platform="linux", home=home, environ={"XDG_CONFIG_HOME": "/etc/mine"})
    assert elsewhere.file == Path("/etc/mine/systemd/user/nexus-gateway.service")
    assert find_manager(platform="win32", home=home) is None


def test_a_step_is_tried_again_while_what_it_needs_is_on_its_way(manager_program):
    folder = manager_program("launchctl")
    (folder / "fails").touch()
    run_steps([Step(("launchctl", "bootstrap"), retry_seconds=60)], lambda _: (folder / "fails").unlink())
    assert len(calls(folder)) == 2
    (folder / "fails").touch()
    run_steps([Step(("launchctl", "bootout"), may_fail=True)])
    with pytest.raises(ServiceError, match="no luck"):
        run_steps([Step(("launchctl", "enable"))])


# --- the process


def status(served, token):
    headers = {"accept": "application/json, text/event-stream"} | (
        {"authorization": f"Bearer {token}"} if token else {}
    )
    return httpx.post(served.url, json=INITIALIZE, headers=headers, timeout=30, trust_env=False).status_code


def written_service(manager, text):
    """The command and the variables in a service's file, read as the manager would."""
    if manager == "launchd":
        agent = plistlib.loads(text)
        return agent["ProgramArguments"], agent["EnvironmentVariables"]
    lines = text.decode().splitlines()
    command = next(line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart="))
    variables = [line.removeprefix("Environment=") for line in lines if line.startswith("Environment=")]
    return shlex.split(command), dict(shlex.split(one)[0].split("=", 1) for one in variables)


def test_the_command_in_the_files_serves_behind_its_token_and_comes_back_after_a_kill(home, tmp_path):
    options = ("--no-start", "--config", write_configuration(tmp_path), "--http", f"127.0.0.1:{free_port()}")
    agent, told = install(*options, manager="launchd"), install(*options)
    command, variables = written_service("systemd", Path(told["file"]).read_bytes())
    assert written_service("launchd", Path(agent["file"]).read_bytes()) == (command, variables)
    token = (home / ".config" / "nexus-gateway" / "http-token").read_text().strip()
    served = Served(command, {**variables, "HOME": str(home)}, tmp_path)
    try:
        served.start()
        assert served.url == told["url"]
        assert [status(served, given) for given in (None, "wrong", token)] == [401, 401, 200]
        served.kill()
        served.start()
        assert [status(served, given) for given in (None, token)] == [401, 200]
        asked = nexus("status", "--manager", "systemd", "--json")
        served.process.terminate()
        assert served.process.wait(60) == 0, served.said()
    finally:
        served.close()
    said = json.loads(asked.stdout)
    assert said["alive"]
    assert not said["ready"]  # its models are not there
    assert token not in served.said() + asked.output
