"""What the shell is offered, and what a command that starts nothing imports."""

import importlib
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from adapters.hosts.known import HOSTS
from nexus_gateway import __version__
from nexus_gateway.cli.main import _COMMANDS, app
from nexus_gateway.fleet.pin_file import FILE_NAME, PinFile
from tool_registry.tool import tool_from_definition

HEAVY = {"mcp", "llama_cpp", "torch", "sentence_transformers", "uvicorn"}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A configuration with two servers, and a cache folder where a gateway has listed the tools of three."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    cache = tmp_path / "cache"
    tools = [
        tool_from_definition(server, {"name": name, "inputSchema": {"type": "object"}})
        for server, name in [("files", "read_file"), ("files", "move_file"), ("notes", "add"), ("gone", "x")]
    ]
    PinFile(cache / FILE_NAME).update(lambda pins: pins.with_new(tools))
    file = tmp_path / "nexus.toml"
    file.write_text(
        f'cache_dir = "{cache}"\n[servers.files]\ncommand = "f"\n[servers.notes]\ncommand = "n"\n'
    )
    return file


@pytest.fixture
def offered(monkeypatch):
    """What is offered for the last word of a line."""

    def ask(*words, shell="bash"):
        line = " ".join(["nexus-gateway", *words])
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_NEXUS_GATEWAY_COMPLETE", f"complete_{shell}")
        result = CliRunner().invoke(app, prog_name="nexus-gateway")
        assert result.exit_code == 0, result.output
        assert not result.stderr
        return result.stdout.split() if shell == "bash" else result.stdout

    return ask


def test_commands_and_their_options_are_offered(offered):
    assert offered("reg") == ["register"]
    assert set(offered("")) == set(_COMMANDS)
    assert "--dry-run" in offered("turn", "--d")
    assert offered("tools", "sh") == ["show"]
    assert "Give a host its file back" in offered("unr", shell="zsh")


def test_hosts_and_presets_are_offered(offered):
    assert set(offered("register", "")) == {host.id for host in HOSTS}
    assert offered("unregister", "zed") == ["zed"]
    assert offered("import", "windsu") == ["windsurf"]
    assert offered("models", "pull", "bal") == ["balanced"]


def test_servers_and_their_listed_tools_are_offered(offered, own):
    given = ["--config", str(own)]
    assert offered("tools", "show", *given, "") == ["files/move_file", "files/read_file", "notes/add"]
    assert offered("tools", "approve", *given, "files/r") == ["files/read_file"]
    assert offered("blocks", "compile", *given, "--tool", "n") == ["notes/add"]
    assert offered("bindings", "set", *given, "") == ["files", "notes"]


@pytest.mark.parametrize("damage", ["rubbish", "[]", '{"version": 1}'])
def test_what_can_not_be_read_is_offered_as_nothing(offered, own, damage):
    (own.parent / "cache" / FILE_NAME).write_text(damage)
    assert offered("tools", "show", "--config", str(own), "") == []
    own.write_text("this is no TOML")
    assert offered("tools", "show", "--config", str(own), "") == []
    assert offered("bindings", "set", "--config", str(own), "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_each_shell_names_the_command(shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    result = CliRunner().invoke(app, ["--show-completion", shell], prog_name="nexus-gateway")
    assert result.exit_code == 0
    assert "_NEXUS_GATEWAY_COMPLETE" in result.stdout


def test_every_command_of_the_help_is_there():
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for name, (module, line) in _COMMANDS.items():
        assert f"  {name} " in shown
        assert line in shown
        command = typer.main.get_command(importlib.import_module(f"nexus_gateway.cli.{module}").app)
        assert not {parameter.name for parameter in command.params} & {"install_completion"}


def test_a_mistyped_command_is_answered_with_the_nearest():
    result = CliRunner().invoke(app, ["regsiter"])
    assert result.exit_code == 2
    assert "Did you mean 'register'" in result.stderr
    assert CliRunner().invoke(app, ["--version"]).stdout == f"nexus-gateway {__version__}\n"


@pytest.mark.parametrize(
    "line",
    ["--help", "blocks list", "bindings", "service --help", "register --help", "models list"],
)
def test_what_starts_nothing_imports_no_runtime(line, own):
    code = (
        "import sys\nfrom nexus_gateway.cli.main import main\n"
        f"sys.argv[1:] = {line.split()!r}\n"
        f"try:\n    main()\nfinally:\n    print(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "HOME": str(own.parent)},
    )
    assert (ran.returncode, ran.stderr) == (0, "[]\n")
