"""Hosts' own files: found where each platform has them, changed in one place only, and given back to the byte."""

import codecs
import json
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.host_files import CASES, ENVIRON, FIXTURES, files_below, machine, own_folder, put

from adapters.hosts.document import HostFileError, read_document
from adapters.hosts.jsonc import decode_jsonc
from adapters.hosts.known import Dialect, all_places, host_named, standard_place
from nexus_gateway.hosts import giving_back, takeover
from nexus_gateway.hosts.candidates import candidates, read_place
from nexus_gateway.hosts.masking import masked
from nexus_gateway.hosts.showing import difference
from nexus_gateway.hosts.takeover import plan, standing
from nexus_gateway.settings import load_settings

COMMAND = ("/opt/nexus/bin/nexus-gateway", "serve")
ENTRY = {"command": COMMAND[0], "args": ["serve"]}
SECRETS = (
    "ghp_FixtureFixture",
    "t0ken-of-a-fixture",
    "sk-ant-fixture",
    "hunter2",
    "fixture-token-of-sentry",
    "commented-out-secret",
    "rk_fixture",
    "fixture-key",
)
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.host}: {case.fixture}")


def as_it_is(raw):
    return raw


def with_crlf(raw):
    return raw.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def with_bom(raw):
    return codecs.BOM_UTF8 + raw.removeprefix(codecs.BOM_UTF8)


def without_final_newline(raw):
    return raw.rstrip()


def register(place, home, only=None):
    chosen = plan(place, own_folder(home), COMMAND, ENVIRON, only=only)
    return chosen, takeover.carry_out(chosen, own_folder(home))


def undo(place, registration, home):
    chosen = giving_back.plan_undo(place, registration)
    giving_back.carry_out(chosen, own_folder(home))
    return chosen


@cases
@pytest.mark.parametrize("form", [as_it_is, with_crlf, with_bom, without_final_newline])
def test_register_changes_the_servers_alone_and_unregister_restores_every_byte(case, form, tmp_path):
    place = put(case, tmp_path)
    place.file.write_bytes(form(place.file.read_bytes()))
    place.file.chmod(0o640)
    before, there = place.file.read_bytes(), files_below(tmp_path)
    document = read_place(place)[1]
    chosen, registration = register(place, tmp_path)
    after = read_place(place)[1]
    assert tuple(one.name for one in chosen.moved) == case.moved
    assert {name for name, _ in chosen.staying} == set(case.staying)
    assert set(after.servers) == {*case.staying, "nexus"}
    assert all(after.servers[name] == document.servers[name] for name in case.staying)
    assert after.servers["nexus"]["args"] == ["serve", "--mcp-config", str(chosen.servers_file)]
    assert registration.backup.read_bytes() == before
    assert [f.stat().st_mode & 0o777 for f in (place.file, registration.backup)] == [0o640, 0o640]
    assert chosen.servers_file.stat().st_mode & 0o777 == 0o600
    assert undo(place, registration, tmp_path).exact
    assert place.file.read_bytes() == before
    assert place.file.stat().st_mode & 0o777 == 0o640
    assert files_below(tmp_path) == there


@cases
def test_everything_before_the_first_and_behind_the_last_moved_server_is_as_it_was(case, tmp_path):
    place = put(case, tmp_path)
    before = place.file.read_bytes().decode()
    document = read_place(place)[1]
    register(place, tmp_path)
    if not case.moved:
        return
    texts = [document.written(name) for name in case.moved]
    first, last = before.index(texts[0]), before.rindex(texts[-1]) + len(texts[-1])
    if place.file.suffix == ".json":
        first = before.rindex(f'"{case.moved[0]}"', 0, first)
    after = place.file.read_bytes().decode()
    assert after.startswith(before[:first])
    assert after.endswith(before[last:].lstrip(", \r\n"))  # its comma goes with a member


@cases
def test_what_the_host_changed_since_stays_and_the_servers_come_back_as_they_were(case, tmp_path):
    place = put(case, tmp_path)
    before = read_place(place)[1]
    _, registration = register(place, tmp_path)
    _change(place.file)
    chosen = undo(place, registration, tmp_path)
    after = read_place(place)[1]
    assert not chosen.exact
    assert after.servers == before.servers
    assert after.document["added_by_the_host"] == {"at": 7}
    rest = {key: value for key, value in after.document.items() if key != "added_by_the_host"}
    assert rest == before.document
    assert registration.backup.exists()
    assert not registration.servers_file.exists()


def _change(file):
    raw = file.read_bytes()
    if file.suffix == ".toml":
        file.write_bytes(raw + b"\n[added_by_the_host]\nat = 7\n")
    else:
        at = raw.index(b"{") + 1
        file.write_bytes(raw[:at] + b'"added_by_the_host": {"at": 7}, ' + raw[at:])


@cases
def test_moved_entries_are_what_the_gateway_starts_and_secrets_are_nowhere_else(case, tmp_path):
    place = put(case, tmp_path)
    document = read_place(place)[1]
    specs = {one.name: one.spec for one in candidates(place, document, ENVIRON) if one.name in case.moved}
    chosen, registration = register(place, tmp_path)
    own = tmp_path / "nexus.toml"
    own.write_text("")
    loaded = load_settings(own, [chosen.servers_file], ENVIRON)
    assert not loaded.problems
    assert set(loaded.settings.servers) == set(case.moved)
    for name, spec in specs.items():
        found = loaded.settings.servers[name].spec.transport
        assert getattr(found, "args", None) == getattr(spec.transport, "args", None)
        assert getattr(found, "url", None) == getattr(spec.transport, "url", None)
        assert dict(getattr(found, "headers", {})) == dict(getattr(spec.transport, "headers", {}))
    states = [
        path
        for path in own_folder(tmp_path).path.rglob("*")
        if path.is_file() and path != chosen.servers_file
    ]
    assert len(states) == 1
    assert not any(secret in states[0].read_text() for secret in SECRETS)
    shown = difference(chosen.file, chosen.before, chosen.after, place.host.dialect)
    shown += (
        difference(chosen.servers_file, None, chosen.servers, Dialect.JSON)
        + repr(chosen)
        + repr(registration)
    )
    assert not [secret for secret in SECRETS if secret in shown]


def test_entries_of_every_dialect_become_the_gateways(tmp_path):
    specs = {}
    for case in CASES:
        place = put(case, tmp_path)
        specs |= {one.name: one.spec for one in candidates(place, read_place(place)[1], ENVIRON) if one.spec}
    assert specs["legacy"].transport.sse
    assert not specs["stripe"].transport.sse
    assert specs["stripe"].transport.url == "https://mcp.stripe.example/mcp"
    assert specs["figma"].transport.sse
    assert specs["old-style"].transport.command == "/usr/local/bin/old"
    assert dict(specs["old-style"].transport.env) == {"A": "b"}
    figma = dict(specs["figma remote"].transport.headers)
    assert figma == {"X-Region": "eu", "Authorization": "Bearer /home/ana"}
    assert specs["api"].transport.url == "https://api.example.com/mcp"


def test_every_profile_of_vs_code_is_a_place_of_its_own(tmp_path):
    user = tmp_path / ".config/Code/User"
    for profile in ("-1a2b", "7f00"):
        (user / "profiles" / profile).mkdir(parents=True)
        (user / "profiles" / profile / "mcp.json").write_bytes(
            (FIXTURES / "vscode-profile.json").read_bytes()
        )
    found = [place for place in all_places(machine(tmp_path)) if place.host.id == "vscode"]
    assert [place.label for place in found] == ["VS Code", "VS Code, profile -1a2b", "VS Code, profile 7f00"]
    done = [register(place, tmp_path) for place in found[1:]]
    assert len({chosen.servers_file for chosen, _ in done}) == 2
    for place, (_, registration) in zip(found[1:], done, strict=True):
        undo(place, registration, tmp_path)
        assert place.file.read_bytes() == (FIXTURES / "vscode-profile.json").read_bytes()


def test_both_scopes_of_one_file_are_undone_in_any_order(tmp_path):
    user, project = (
        next(c for c in CASES if c.host == host) for host in ("claude-code", "claude-code-local")
    )
    place = put(user, tmp_path)
    before = json.loads(place.file.read_bytes())
    _, first = register(place, tmp_path)
    local = standard_place(host_named(project.host), machine(tmp_path))
    _, second = register(local, tmp_path)
    assert not undo(place, first, tmp_path).exact
    assert not undo(local, second, tmp_path).exact
    assert json.loads(place.file.read_bytes()) == before


def test_a_link_to_a_file_elsewhere_stays_a_link(tmp_path):
    place = put(CASES[0], tmp_path)
    real = tmp_path / "dotfiles.json"
    place.file.rename(real)
    place.file.symlink_to(real)
    before = real.read_bytes()
    _, registration = register(place, tmp_path)
    assert place.file.is_symlink()
    assert real.read_bytes() != before
    undo(place, registration, tmp_path)
    assert place.file.is_symlink()
    assert real.read_bytes() == before


def test_a_missing_file_is_made_where_its_host_is_installed_and_goes_again(tmp_path):
    place = put(CASES[0], tmp_path)
    place.file.unlink()
    _, registration = register(place, tmp_path)
    assert registration.backup is None
    assert list(json.loads(place.file.read_text())["mcpServers"]) == ["nexus"]
    undo(place, registration, tmp_path)
    assert not place.file.exists()
    place.file.parent.rmdir()
    with pytest.raises(HostFileError, match="is the host installed"):
        plan(place, own_folder(tmp_path), COMMAND, ENVIRON)


def test_a_file_that_is_gone_since_comes_back(tmp_path):
    place = put(CASES[0], tmp_path)
    before = place.file.read_bytes()
    _, registration = register(place, tmp_path)
    place.file.unlink()
    undo(place, registration, tmp_path)
    assert place.file.read_bytes() == before


def test_a_read_only_file_is_left_alone(tmp_path):
    place = put(CASES[0], tmp_path)
    place.file.chmod(0o444)
    with pytest.raises(HostFileError, match="read-only; make it writable"):
        plan(place, own_folder(tmp_path), COMMAND, ENVIRON)


def test_a_file_that_changes_between_plan_and_yes_is_left_alone(tmp_path):
    place = put(CASES[0], tmp_path)
    chosen = plan(place, own_folder(tmp_path), COMMAND, ENVIRON)
    place.file.write_text("{}")
    with pytest.raises(HostFileError, match="changed meanwhile"):
        takeover.carry_out(chosen, own_folder(tmp_path))
    assert place.file.read_text() == "{}"
    assert len(files_below(tmp_path)) == 1


def test_what_can_not_be_written_leaves_everything_as_it_was(tmp_path):
    place = put(CASES[0], tmp_path)
    before = place.file.read_bytes()
    own_folder(tmp_path).path.parent.mkdir(exist_ok=True)
    own_folder(tmp_path).path.write_text("a file where the folder should be")
    chosen = plan(place, own_folder(tmp_path), COMMAND, ENVIRON)
    with pytest.raises(HostFileError, match="nothing is changed"):
        takeover.carry_out(chosen, own_folder(tmp_path))
    assert place.file.read_bytes() == before
    assert len(files_below(place.file.parent)) == 1


def test_without_its_backup_a_json_file_gets_its_servers_from_the_gateways_own(tmp_path):
    place = put(CASES[0], tmp_path)
    _, registration = register(place, tmp_path)
    registration.backup.unlink()
    undo(place, registration, tmp_path)
    found = json.loads(place.file.read_text())["mcpServers"]
    assert list(found) == list(CASES[0].moved)
    assert found["github"]["env"]["GITHUB_PERSONAL_ACCESS_TOKEN"].startswith("ghp_Fixture")


def test_an_edited_file_of_servers_is_kept(tmp_path):
    place = put(CASES[0], tmp_path)
    _, registration = register(place, tmp_path)
    registration.servers_file.write_text('{"mcpServers": {"mine": {"command": "x"}}}')
    chosen = undo(place, registration, tmp_path)
    assert [file for file, _ in chosen.kept] == [registration.servers_file]
    assert registration.servers_file.exists()
    again, _ = register(place, tmp_path)
    assert again.servers_file.name == "claude-desktop-2.json"


def test_another_server_that_took_the_gateways_name_stays(tmp_path):
    place = put(CASES[0], tmp_path)
    _, registration = register(place, tmp_path)
    place.file.write_text('{"mcpServers": {"nexus": {"command": "mine"}}}')
    undo(place, registration, tmp_path)
    found = json.loads(place.file.read_text())["mcpServers"]
    assert found["nexus"] == {"command": "mine"}
    assert set(found) == {"nexus", *CASES[0].moved}


def test_chosen_servers_move_and_the_others_stay(tmp_path):
    place = put(CASES[0], tmp_path)
    chosen, _ = register(place, tmp_path, ["sqlite"])
    assert list(json.loads(place.file.read_text())["mcpServers"]) == ["filesystem", "github", "nexus"]
    assert chosen.staying == (("filesystem", "not chosen"), ("github", "not chosen"))
    assert standing(place, own_folder(tmp_path)).moved == ("sqlite",)


def test_a_server_that_is_named_nexus_keeps_its_name(tmp_path):
    place = put(CASES[0], tmp_path)
    place.file.write_text('{"mcpServers": {"nexus": {"command": "other"}, "b": {"command": "c"}}}')
    _, registration = register(place, tmp_path, ["b"])
    assert registration.name == "nexus-gateway"
    assert json.loads(place.file.read_text())["mcpServers"]["nexus"] == {"command": "other"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"mcpServers": {"a": {"command": "x"},}}', "line 1, .*trailing comma"),
        ('{\n// mine\n"mcpServers": {}}', "line 2, .*JSON has no comments"),
        ('{"mcpServers": [1]}', "mcpServers: expected an object of servers"),
        ('{"mcpServers": null}', "mcpServers: expected an object"),
        ('{"mcpServers": {"a": {}, "a": {}}}', "a is there twice"),
        ("[]", "expected an object at the top"),
        ("{", "line 1"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
    ],
)
def test_a_malformed_file_is_named_with_its_line_and_left_alone(text, says, tmp_path):
    place = put(CASES[0], tmp_path)
    place.file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HostFileError, match=says) as caught:
        plan(place, own_folder(tmp_path), COMMAND, ENVIRON)
    assert str(place.file) in str(caught.value)


@pytest.mark.parametrize("text", ["{} /* never closed", '{"a": "/* in a string */", /* open'])
def test_a_comment_that_never_ends_is_said_so(text):
    with pytest.raises(HostFileError, match="never closed"):
        read_document(text.encode(), Dialect.JSONC, ("mcpServers",))


def test_arguments_and_addresses_that_hold_secrets_are_masked_too():
    text = '{"args": ["--token", "abc1", "--api-key=abc2", "x"], "url": "https://h/?api_key=abc3&b=ok", "Password": "abc4"}'
    shown = masked(text, json.loads(text))
    assert not [secret for secret in ("abc1", "abc2", "abc3", "abc4") if secret in shown]
    assert '"x"' in shown
    assert "b=ok" in shown


names = st.text(st.sampled_from('ab"\\/ é{}[],:#'), min_size=1, max_size=4)
leaves = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), names)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3)
)
documents = st.dictionaries(names, values, max_size=3)
servers = st.dictionaries(names, st.dictionaries(names, values, max_size=3), max_size=4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rest=documents, entries=servers, indent=st.sampled_from([None, 2, "\t", 0]), data=st.data())
def test_any_document_takes_the_gateway_in_and_gives_its_servers_back(rest, entries, indent, data):
    document = {**rest, "mcpServers": entries}
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    moved = data.draw(st.lists(st.sampled_from(sorted(entries)), unique=True)) if entries else []
    moved = [name for name in entries if name in moved]
    found = read_document(text.encode(), Dialect.JSONC, ("mcpServers",))
    after = read_document(found.with_gateway(moved, "nexus", ENTRY), Dialect.JSONC, ("mcpServers",))
    assert after.document == {
        **rest,
        "mcpServers": {**{k: v for k, v in entries.items() if k not in moved}, "nexus": ENTRY},
    }
    back = after.without_gateway("nexus", {name: found.written(name) for name in moved}, made_servers=False)
    assert decode_jsonc(back.decode(), strict=True) == document


def test_toml_that_has_no_room_for_a_table_is_left_alone():
    found = read_document(b"mcp_servers = {}\n", Dialect.TOML, ("mcp_servers",))
    with pytest.raises(HostFileError, match=r"by hand|can't be changed here"):
        found.with_gateway([], "nexus", ENTRY)


def test_comments_and_multi_line_strings_of_toml_stay(tmp_path):
    place = put(next(case for case in CASES if case.fixture == "codex.toml"), tmp_path)
    register(place, tmp_path, ["docs"])
    text = place.file.read_text()
    for comment in ("# --- servers", "# the company's", "# profiles come last"):
        assert comment in text
    assert "not_a_table" not in text
    assert tomllib.loads(text)["notices"] == [{"text": "read [this]"}]
