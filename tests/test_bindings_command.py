"""`nexus-gateway bindings`: what is bound is listed, set and forgotten, and credentials are refused or masked."""

import json

import pytest
from support.gateways import write_config
from typer.testing import CliRunner

from nexus_gateway.access.caller import LOCAL_TENANT, Tenant
from nexus_gateway.cli.bindings import app
from nexus_gateway.cli.exits import Exit
from nexus_gateway.turn.binding_file import FILE_NAME, BindingFile, Remembered, RememberedBy

TOML = '[servers.tracker]\ncommand = "x"\nbindings = { region = "north", owner = 7 }\n'


@pytest.fixture
def options(tmp_path):
    return write_config(tmp_path, {"board": {"command": "x"}}, TOML)


@pytest.fixture
def file(tmp_path):
    return BindingFile(tmp_path / "cache" / FILE_NAME)


@pytest.fixture
def run(options):
    """The command in this process: exit code, stdout, stderr."""

    def run_command(*args):
        result = CliRunner().invoke(app, [*args, *options])
        return result.exit_code, result.stdout, result.stderr

    return run_command


def put(file, name, value, tenant=LOCAL_TENANT, *, server="tracker"):
    file.put(Remembered(tenant, server, name, value, RememberedBy.ANSWER))


def test_an_empty_list_says_how_to_make_a_binding(tmp_path):
    result = CliRunner().invoke(app, ["list", *write_config(tmp_path, {})])
    assert result.exit_code == 0
    assert "bindings set SERVER NAME VALUE" in result.stdout
    assert "answers to questions are not remembered" in result.stdout


def test_without_a_command_it_lists_and_masks_what_looks_secret(run, file):
    put(file, "projectId", "p-[bold]1[/bold]")
    put(file, "accountId", "ghp_abcdefghijkl", Tenant("other"))
    put(file, "region", "south")
    code, shown, _ = run()
    assert code == 0
    assert "p-[bold]1[/bold]" in shown
    assert "south (not in use)" in shown
    assert "configured" in shown
    code, text, _ = run("--json")
    assert "ghp_" not in shown + text
    rows = {(one["argument"], one["from"]): one for one in json.loads(text)["bindings"]}
    assert rows["region", "configured"] | {"at": None} == {
        "server": "tracker", "argument": "region", "value": "north", "masked": False, "from": "configured",
        "tenant": None, "at": None, "in_use": True,
    }  # fmt: skip
    assert rows["owner", "configured"]["value"] == 7
    assert rows["accountId", "answer"]["masked"]
    assert rows["accountId", "answer"]["tenant"] == "other"
    assert not rows["region", "answer"]["in_use"]


def test_a_value_is_set_changed_and_forgotten(run, file):
    assert run("set", "tracker", "projectId", "p-1") == (0, "projectId of tracker is p-1\n", "")
    assert json.loads(run("set", "tracker", "projectId", "p-2", "--json")[1])["set"]["value"] == "p-2"
    [entry] = file.entries()
    assert (entry.value, entry.by, entry.tenant) == ("p-2", RememberedBy.SET, LOCAL_TENANT)
    assert run("forget", "tracker", "projectId") == (0, "forgot projectId of tracker\n", "")
    assert file.entries() == ()


def test_forgetting_a_server_forgets_what_is_of_this_tenant_and_says_what_is_configured(run, file):
    for name in ("projectId", "accountId"):
        put(file, name, "1")
    put(file, "projectId", "2", Tenant("other"))
    put(file, "projectId", "3", server="board")
    code, shown, said = run("forget", "tracker")
    assert (code, shown) == (0, "forgot projectId of tracker\nforgot accountId of tracker\n")
    assert "still set in [servers.tracker.bindings]" in said.replace("\n", " ")
    assert [entry.value for entry in file.entries()] == ["2", "3"]
    assert run("forget", "tracker", "--tenant", "other")[0] == 0
    assert json.loads(run("forget", "gone", "--json")[1]) == {"forgotten": []}
    assert run("forget", "gone")[0] == Exit.FAILED


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("tracer", "projectId", "p"), "did you mean 'tracker'?"),
        (("tracker", "apiKey", "hunter2"), "apiKey looks like a credential"),
        (("tracker", "projectId", " "), "one line of printable text"),
        (("tracker", "projectId", "a\nb"), "one line of printable text"),
        (("tracker", "region", "south"), "is set in [servers.tracker.bindings]; change it there"),
    ],
)
def test_what_cannot_be_bound_is_refused_with_the_reason(run, file, args, reason):
    code, shown, said = run("set", *args)
    assert (code, shown) == (Exit.USAGE, "")
    assert reason in said.replace("\n", " ")
    assert "hunter2" not in said
    assert file.entries() == ()


def test_a_folder_that_cannot_be_written_is_named(run, tmp_path):
    (tmp_path / "cache").write_text("in the way")
    code, _, said = run("set", "tracker", "projectId", "p-1")
    assert code == Exit.FAILED
    assert "can't be written" in said.replace("\n", " ")


def test_the_help_says_how_bindings_come_to_be():
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(word in result.stdout for word in ("nexus.toml", "remember_answers", "list", "set", "forget"))
