"""The command line: what it prints for people and for scripts, and how it ends when something is wrong."""

import json

import pytest
from support.gateways import python_server, run_command, write_config
from support.processes import children
from typer.testing import CliRunner

from nexus_gateway import __version__
from nexus_gateway.cli.main import app

NO_MODELS = '[models]\nargument = "/nowhere/a.gguf"\nembedder = "/nowhere/e"\n'
pytestmark = pytest.mark.usefixtures("logs_as_they_were")

RAW = python_server("raw_server.py")
DEAD = {"command": "no-such-command-anywhere"}
PRESETS = ("offline", "balanced", "paper", "multilingual")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in this process; no configuration of the machine's user takes part."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("COLUMNS", "200")
    yield lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])
    assert not children()


@pytest.fixture
def fleet(tmp_path):
    """Options for one live and one dead server, without models."""
    return write_config(tmp_path, {"raw": RAW, "dead": DEAD}, NO_MODELS)


def one_json(result):
    """The one line on stdout."""
    (line,) = result.stdout.splitlines()
    return json.loads(line)


def test_the_version_is_that_of_the_package(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"nexus-gateway {__version__}\n")


def test_help_names_every_command_and_what_to_begin_with(run):
    result = run("--help")
    assert result.exit_code == 0
    for word in ("serve", "turn", "tools", "models", "doctor", "demo", "Start with `nexus-gateway demo`"):
        assert word in result.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["--no-such-option"],
        ["no-such-command"],
        ["tools", "no-such-command"],
        ["tools", "list", "--no-such-option"],
        ["tools", "search"],
        ["tools", "search", "x", "--limit", "0"],
        ["tools", "search", "x", "--limit", "many"],
        ["tools", "show"],
        ["turn"],
        ["doctor", "extra"],
        ["serve", "--http", "nonsense"],
        ["serve", "--http", "127.0.0.1:99999"],
    ],
)
def test_wrong_options_end_with_2_and_say_why(run, args):
    result = run(*args)
    assert result.exit_code == 2
    assert result.stderr
    assert not result.stdout
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "command", [["tools", "list"], ["doctor"], ["models", "list"], ["turn", "x"], ["serve"]]
)
def test_a_malformed_own_file_ends_with_2_naming_file_line_key_and_what_was_expected(run, tmp_path, command):
    own = tmp_path / "nexus.toml"
    own.write_text("[turn]\n\ndeadline_seconds = 'soon'\n")
    result = run(*command, "--config", own)
    assert result.exit_code == 2
    assert result.stderr == f'{own}:3: turn.deadline_seconds: expected a number of seconds, got "soon"\n'
    assert not result.stdout


def test_a_toml_syntax_error_names_its_line(run, tmp_path):
    own = tmp_path / "nexus.toml"
    own.write_text("[turn]\nexplain = tru\n")
    result = run("tools", "list", "--config", own)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{own}:2: ")


@pytest.mark.parametrize("option", ["--config", "--mcp-config"])
def test_a_file_that_is_not_there_ends_with_2(run, tmp_path, option):
    result = run("doctor", option, tmp_path / "none")
    assert result.exit_code == 2
    assert result.stderr == f"{tmp_path / 'none'}: there is no such file\n"


def test_a_malformed_host_file_is_said_by_line_and_doctor_fails(run, tmp_path):
    own, _, *_ = write_config(tmp_path, {}, NO_MODELS)[1:]
    host = tmp_path / "broken.json"
    host.write_text('{\n "mcpServers": {,}\n}\n')
    result = run("doctor", "--config", own, "--mcp-config", host, "--json")
    assert result.exit_code == 1
    assert f"warning: {host}:2: " in result.stderr
    (finding,) = [
        f for f in one_json(result)["findings"] if str(host) in f["detail"] and f["verdict"] == "failed"
    ]
    assert finding["subject"] == "configuration"
    assert finding["fix"]


def test_one_bad_entry_of_a_host_file_leaves_the_others_in_use(run, tmp_path):
    options = write_config(tmp_path, {"raw": RAW, "bad": {"command": 5}}, NO_MODELS)
    result = run("tools", "list", "--json", *options)
    assert result.exit_code == 0
    assert "mcpServers.bad.command" in result.stderr
    assert [server["server"] for server in one_json(result)["servers"]] == ["raw"]


def test_the_list_has_every_tool_what_was_set_aside_and_who_is_down(run, fleet):
    result = run("tools", "list", "--json", *fleet)
    assert result.exit_code == 0
    listed = one_json(result)
    assert [tool["tool"] for tool in listed["tools"]] == ["raw/big", "raw/die", "raw/never", "raw/odd"]
    assert listed["tools"][0] | {"content_hash": ""} == {
        "tool": "raw/big",
        "server": "raw",
        "name": "big",
        "signature": "big()",
        "kind": "not said",
        "content_hash": "",
        "suspicious": [],
    }
    assert listed["set_aside"] == [
        {"server": "raw", "name": "entry 3", "reason": "the entry is a JSON str, not an object"}
    ]
    live, dead = sorted(listed["servers"], key=lambda server: server["server"], reverse=True)
    assert (live["state"], live["cause"], live["tools"], live["era"]) == ("ready", "", 4, "legacy")
    assert (dead["state"], dead["tools"], dead["era"]) == ("down", 0, None)
    assert "no-such-command-anywhere" in dead["cause"]


def test_people_get_a_table_and_the_faults_apart_from_it(run, fleet):
    result = run("tools", "list", *fleet)
    assert result.exit_code == 0
    assert "4 tools on 1 servers" in result.stdout
    assert "odd" in result.stdout
    assert "set aside: raw/entry 3" in result.stderr
    assert "down: dead" in result.stderr


def test_showing_gives_the_whole_definition(run, fleet):
    for reference in ("raw/odd", "odd"):
        result = run("tools", "show", reference, "--json", *fleet)
        assert result.exit_code == 0
        shown = one_json(result)
        assert shown["definition"] == {"name": "odd", "inputSchema": None, "futureField": 1}
        assert shown["content_hash"]
        assert shown["signature"] == "odd()"
    assert "futureField" in run("tools", "show", "odd", *fleet).stdout


def test_showing_what_is_not_there_fails_with_what_is_close(run, fleet):
    result = run("tools", "show", "raw/od", "--json", *fleet)
    assert result.exit_code == 1
    assert "Close: raw/odd" in " ".join(result.stderr.split())
    assert not result.stdout


@pytest.mark.parametrize("command", [["tools", "search", "x"], ["turn", "x"]])
def test_without_a_model_search_and_turn_fail_with_the_cause(run, fleet, command):
    result = run(*command, "--json", *fleet)
    assert result.exit_code == 1
    assert "/nowhere/" in result.stdout + " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_doctor_names_each_fault_with_its_cause(run, fleet):
    result = run("doctor", "--json", *fleet)
    assert result.exit_code == 1
    report = one_json(result)
    assert report["ok"] is False
    by_subject = {finding["subject"]: finding for finding in report["findings"]}
    assert by_subject["server raw"]["verdict"] == "ok"
    assert by_subject["server raw"]["detail"].startswith("4 tools, legacy era")
    assert by_subject["server dead"]["verdict"] == "failed"
    assert "no-such-command-anywhere" in by_subject["server dead"]["detail"]
    assert by_subject["tool raw/entry 3"]["verdict"] == "note"
    for model in ("embedding model", "argument model"):
        assert by_subject[model]["verdict"] == "failed"
        assert "/nowhere/" in by_subject[model]["detail"]
    assert all(
        finding["fix"] or "/nowhere" in finding["detail"]
        for finding in report["findings"]
        if finding["verdict"] == "failed"
    )


def test_doctor_counts_the_faults_for_people(run, fleet):
    result = run("doctor", *fleet)
    assert result.exit_code == 1
    assert "3 failed" in result.stdout


def test_doctor_says_that_nothing_is_configured(run, tmp_path):
    result = run("doctor", "--json", *write_config(tmp_path, {}, NO_MODELS))
    assert result.exit_code == 1
    assert "no server is configured" in [finding["detail"] for finding in one_json(result)["findings"]]


def test_the_models_are_those_in_use_and_those_of_every_preset(run, tmp_path):
    result = run("models", "list", "--json", "--config", write_config(tmp_path, {})[1])
    assert result.exit_code == 0
    models = {model["name"]: model for model in one_json(result)["models"]}
    used = " ".join(model["used_by"] for model in models.values())
    for preset in PRESETS:
        assert preset in used
    in_use = [model for model in models.values() if "(in use)" in model["used_by"]]
    assert [model["used_by"].split(" (")[0] for model in in_use] == ["arguments", "embedder", "reader"]
    for model in in_use:
        assert model["present"], f"the packaged model {model['name']}"
        assert model["bytes"] > 0
        assert model["path"]


def test_a_missing_model_is_listed_as_missing(run, tmp_path):
    result = run("models", "list", "--json", "--config", write_config(tmp_path, {}, NO_MODELS)[1])
    in_use = {model["used_by"]: model for model in one_json(result)["models"]}
    missing = [in_use[f"{use} (in use)"] for use in ("arguments", "embedder")]
    assert [(model["present"], model["path"]) for model in missing] == [(False, None)] * 2


def test_a_reranker_in_use_is_listed_and_those_of_presets_are_always(run, tmp_path):
    toml = NO_MODELS + 'reranker = "/nowhere/r"\n[routing]\nrerank = "cross-encoder"\n'
    result = run("models", "list", "--json", "--config", write_config(tmp_path, {}, toml)[1])
    used = {model["used_by"]: model for model in one_json(result)["models"]}
    assert used["reranker (in use)"]["name"] == "/nowhere/r"
    assert not used["reranker (in use)"]["present"]
    assert any(model["name"].startswith("hf:cross-encoder/") for model in used.values())


def test_a_model_of_ours_that_is_not_shipped_is_listed_only_where_it_is_missed(run, tmp_path, monkeypatch):
    monkeypatch.setattr("adapters.shipped_weights.FOLDER", tmp_path / "weights")
    for toml, missed in ((NO_MODELS + 'reader = "off"\n', []), ("", ["nexus:embedder", "nexus:reader"])):
        listed = run("models", "list", "--json", "--config", write_config(tmp_path, {}, toml)[1])
        names = {model["name"] for model in one_json(listed)["models"]}
        assert sorted(name for name in names if name.startswith("nexus:")) == missed
    toml = '[routing]\nrerank = "cross-encoder"\n'
    listed = run("models", "list", "--json", "--config", write_config(tmp_path, {}, toml)[1])
    assert "nexus:reranker" in {model["name"] for model in one_json(listed)["models"]}


def test_with_an_engine_elsewhere_the_argument_model_of_this_machine_is_not_in_use(run, tmp_path):
    toml = NO_MODELS.replace("/nowhere/e", str(tmp_path))
    config = write_config(tmp_path, {}, toml)[1]
    pulled = run("models", "pull", "--json", "--config", config)
    assert pulled.exit_code == 1
    assert "/nowhere/a.gguf" in pulled.stderr
    config = write_config(tmp_path, {}, f'{toml}[engine]\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\n')[1]
    listed = run("models", "list", "--json", "--config", config)
    used = {model["used_by"] for model in one_json(listed)["models"]}
    assert "embedder (in use)" in used
    assert not any("arguments" in one for one in used)
    pulled = run("models", "pull", "--json", "--config", config)
    assert pulled.exit_code == 0, pulled.stderr
    assert [model["name"] for model in one_json(pulled)["models"]] == [str(tmp_path), "nexus:reader"]


def test_doctor_says_what_a_reranker_that_is_not_there_costs(run, tmp_path):
    toml = NO_MODELS + 'reranker = "/nowhere/r"\n[routing]\nrerank = "cross-encoder"\n'
    result = run("doctor", "--json", *write_config(tmp_path, {"raw": RAW}, toml))
    assert result.exit_code == 1
    (finding,) = [entry for entry in one_json(result)["findings"] if entry["subject"] == "reranker"]
    assert finding["verdict"] == "failed"
    assert "/nowhere/r" in finding["detail"]
    assert "requests are routed without it" in finding["fix"]


def test_doctor_does_not_speak_of_a_reranker_that_nobody_asked_for(run, fleet):
    findings = one_json(run("doctor", "--json", *fleet))["findings"]
    assert "reranker" not in [entry["subject"] for entry in findings]


@pytest.mark.slow
def test_doctor_names_the_argument_model_as_reranker(tmp_path):
    options = write_config(tmp_path, {"raw": RAW}, '[routing]\nrerank = "llm"\n')
    report = json.loads(run_command("doctor", "--json", *options).stdout)
    (finding,) = [entry for entry in report["findings"] if entry["subject"] == "reranker"]
    assert (finding["verdict"], finding["detail"]) == ("ok", "the argument model")


@pytest.mark.slow
def test_with_the_packaged_models_doctor_is_content_and_says_what_the_embedder_reads(tmp_path):
    result = run_command("doctor", "--json", *write_config(tmp_path, {"raw": RAW}))
    report = json.loads(result.stdout)
    assert result.returncode == 0, report
    assert report["ok"] is True
    assert any("English only" in finding["detail"] for finding in report["findings"])


@pytest.mark.slow
def test_a_dry_run_shows_tool_and_arguments_and_ends_with_3(tmp_path):
    options = write_config(tmp_path, {"sdk": python_server("sdk_server.py", "stdio")})
    result = run_command("turn", "--dry-run", "--json", 'echo the text "hello"', *options)
    assert result.returncode == 3, result.stderr
    shown = json.loads(result.stdout)
    assert shown["outcome"] == "proposed"
    assert shown["result"] is None
    assert shown["message"] == "Dry run: sdk/echo was not called."
    assert (shown["offer"]["tool"], shown["offer"]["arguments"]) == ("sdk/echo", {"text": "hello"})


@pytest.mark.slow
def test_search_gives_the_best_tools_first(tmp_path):
    options = write_config(tmp_path, {"sdk": python_server("sdk_server.py", "stdio")})
    result = run_command("tools", "search", "echo: say a text again", "--limit", "2", "--json", *options)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["tools"][0]["tool"] == "sdk/echo"
    assert len(found["tools"]) <= 2
    assert found["outcome"] in ("routed", "ambiguous")
