"""What can go wrong around a host's file: links, copies that are gone, other writers, odd contents; nothing is lost."""

import errno
import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.host_files import CASES, ENVIRON, FIXTURES, files_below, machine, own_folder, put

from adapters.hosts.document import HostFileError, read_document
from adapters.hosts.entries import translate
from adapters.hosts.json_edit import remove_members
from adapters.hosts.known import HOSTS, Dialect, host_named, place_in
from nexus_gateway.hosts import giving_back, takeover
from nexus_gateway.hosts.candidates import is_gateway
from nexus_gateway.hosts.finding import search
from nexus_gateway.hosts.takeover import plan, standing

COMMAND = ("/opt/nexus/bin/nexus-gateway", "serve")
ENTRY = {"command": COMMAND[0], "args": ["serve"]}
SERVERS = ("mcpServers",)


@pytest.fixture
def desktop(tmp_path):
    return put(CASES[0], tmp_path)


def register(place, home, only=None):
    chosen = plan(place, own_folder(home), COMMAND, ENVIRON, only=only)
    return takeover.carry_out(chosen, own_folder(home))


def undo(place, home):
    chosen = giving_back.plan_undo(place, own_folder(home).find(place))
    giving_back.carry_out(chosen, own_folder(home))
    return chosen


def servers_of(place):
    return json.loads(place.file.read_bytes())["mcpServers"]


def test_a_file_that_became_a_link_since_stays_a_link(desktop, tmp_path):
    before = desktop.file.read_bytes()
    register(desktop, tmp_path)
    real = tmp_path / "dotfiles.json"
    desktop.file.rename(real)
    desktop.file.symlink_to(real)
    assert undo(desktop, tmp_path).exact
    assert desktop.file.is_symlink()
    assert real.read_bytes() == before


def test_another_name_of_the_same_file_is_the_same_registration(desktop, tmp_path):
    register(desktop, tmp_path)
    link = tmp_path / "link.json"
    link.symlink_to(desktop.file)
    for alias in (desktop.file.parent / ".." / "Claude" / desktop.file.name, link):
        same = place_in(desktop.host, alias, machine(tmp_path))
        assert standing(same, own_folder(tmp_path)).moved == CASES[0].moved


def test_servers_named_as_the_gateway_come_back_after_a_change(desktop, tmp_path):
    entries = {"nexus": {"command": "x"}, "nexus-gateway": {"command": "y", "env": {"K": "v"}}}
    desktop.file.write_text(json.dumps({"mcpServers": entries}))
    assert register(desktop, tmp_path).name == "nexus-gateway-2"
    desktop.file.write_text(desktop.file.read_text() + "\n")
    undo(desktop, tmp_path)
    assert servers_of(desktop) == entries


def test_the_last_copy_of_a_moved_entry_is_kept(desktop, tmp_path):
    registration = register(desktop, tmp_path)
    registration.backup.unlink()
    document = json.loads(desktop.file.read_text())
    document["mcpServers"]["github"] = {"command": "without-its-token"}
    desktop.file.write_text(json.dumps(document))
    chosen = undo(desktop, tmp_path)
    assert chosen.restored == ("filesystem", "sqlite")
    assert "backup is gone" in chosen.remark
    assert servers_of(desktop)["github"] == {"command": "without-its-token"}
    assert [file for file, _ in chosen.kept] == [registration.servers_file]
    assert "ghp_Fixture" in registration.servers_file.read_text()


def test_a_renamed_entry_is_known_by_what_it_starts(desktop, tmp_path):
    registration = register(desktop, tmp_path)
    desktop.file.write_text(desktop.file.read_text().replace('"nexus"', '"gate"'))
    assert standing(desktop, own_folder(tmp_path)) == registration
    undo(desktop, tmp_path)
    assert tuple(servers_of(desktop)) == CASES[0].moved


def test_a_file_that_is_its_old_self_again_needs_no_backup(desktop, tmp_path):
    before, there = desktop.file.read_bytes(), files_below(tmp_path)
    registration = register(desktop, tmp_path)
    desktop.file.write_bytes(before)
    registration.backup.unlink()
    with pytest.raises(HostFileError, match="run `nexus-gateway unregister claude-desktop` first"):
        standing(desktop, own_folder(tmp_path))
    assert undo(desktop, tmp_path).exact
    assert desktop.file.read_bytes() == before
    assert files_below(tmp_path) == there


def test_an_interrupted_registration_is_undone(desktop, tmp_path, monkeypatch):
    before, there = desktop.file.read_bytes(), files_below(tmp_path)

    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(takeover, "write_bytes_atomically", interrupted)
    with pytest.raises(KeyboardInterrupt):
        register(desktop, tmp_path)
    assert undo(desktop, tmp_path).exact
    assert desktop.file.read_bytes() == before
    assert files_below(tmp_path) == there


def test_with_every_copy_gone_the_servers_are_put_back_by_hand(desktop, tmp_path):
    registration = register(desktop, tmp_path)
    registration.backup.unlink()
    registration.servers_file.unlink()
    with pytest.raises(HostFileError, match="in the place of nexus by hand, then run this again"):
        undo(desktop, tmp_path)
    desktop.file.write_text('{"mcpServers": {"mine": {"command": "x"}}}')
    undo(desktop, tmp_path)
    assert list(servers_of(desktop)) == ["mine"]
    assert standing(desktop, own_folder(tmp_path)) is None


def test_a_host_that_writes_while_we_do_keeps_what_it_wrote(desktop, tmp_path, monkeypatch):
    write_new = takeover.write_new

    def host_writes_too(file, content, *, mode):
        write_new(file, content, mode=mode)
        desktop.file.write_text('{"written": "by the host"}')

    monkeypatch.setattr(takeover, "write_new", host_writes_too)
    with pytest.raises(HostFileError, match="changed meanwhile"):
        register(desktop, tmp_path)
    assert desktop.file.read_text() == '{"written": "by the host"}'
    assert len(files_below(tmp_path)) == 1


def test_of_two_commands_at_once_one_fails_and_leaves_the_others_files(desktop, tmp_path):
    folder = own_folder(tmp_path)
    first, second = (plan(desktop, folder, COMMAND, ENVIRON) for _ in range(2))
    before = desktop.file.read_bytes()
    registration = takeover.carry_out(first, folder)
    done = files_below(tmp_path)
    desktop.file.write_bytes(before)  # the second has looked before the first wrote
    with pytest.raises(HostFileError, match="File exists; nothing is changed"):
        takeover.carry_out(second, folder)
    assert files_below(tmp_path) == done
    assert registration.servers_file.read_bytes() == first.servers


def test_a_full_disk_changes_nothing(desktop, tmp_path, monkeypatch):
    before = desktop.file.read_bytes()

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HostFileError, match="No space left on device; nothing is changed"):
        register(desktop, tmp_path)
    assert desktop.file.read_bytes() == before
    assert len(files_below(tmp_path)) == 1


def test_a_file_of_another_user_is_left_alone(desktop, tmp_path, monkeypatch):
    register(desktop, tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: desktop.file.stat().st_uid + 1)
    for change in (
        lambda: undo(desktop, tmp_path),
        lambda: plan(desktop, own_folder(tmp_path), COMMAND, ENVIRON),
    ):
        with pytest.raises(HostFileError, match="belongs to another user"):
            change()


def test_the_hosts_file_moved_by_a_variable_is_not_taken_for_the_registered_one(tmp_path):
    host = host_named("codex")
    places = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        place = place_in(
            host, tmp_path / folder / "config.toml", machine(tmp_path, CODEX_HOME=str(tmp_path / folder))
        )
        place.file.write_text('[mcp_servers.a]\ncommand = "x"\n')
        places.append(place)
    register(places[0], tmp_path)
    with pytest.raises(HostFileError, match=r"one/config.toml is registered as codex, not .*two/config.toml"):
        standing(places[1], own_folder(tmp_path))


def test_at_home_a_file_is_found_once(tmp_path):
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_bytes((FIXTURES / "cursor.json").read_bytes())
    here = machine(tmp_path)
    at_home = type(here)(here.platform, here.home, here.home, here.environ)
    assert [one.place.host.id for one in search(at_home).found] == ["cursor"]


def test_half_a_surrogate_pair_in_an_entry_moves_and_comes_back(desktop, tmp_path):
    text = '{"mcpServers": {"a": {"command": "x", "note": "\\ud800"}, "\\ud800": {"command": "y"}}}'
    desktop.file.write_text(text)
    registration = register(desktop, tmp_path)
    assert registration.moved == ("a",)
    assert json.loads(registration.servers_file.read_bytes())["mcpServers"]["a"]["note"] == "\ud800"
    undo(desktop, tmp_path)
    assert desktop.file.read_text() == text


@pytest.mark.parametrize("value", [None, 1, "x", [1], {"a": 1}, [], {}, True])
@pytest.mark.parametrize(
    "key",
    [
        "http_headers",
        "env_http_headers",
        "env_vars",
        "bearer_token_env_var",
        "headers",
        "env",
        "args",
        "command",
    ],
)
def test_an_entry_of_any_types_is_an_entry_that_stays(key, value, desktop, tmp_path):
    entry = {"command": "x", "env_vars": ["A"], "http_headers": {"B": "c"}, key: value}
    assert translate(host_named("codex"), entry).entry is not entry
    desktop.file.write_text(json.dumps({"mcpServers": {"odd": entry, "good": {"command": "y"}}}))
    assert "good" in [one.name for one in plan(desktop, own_folder(tmp_path), COMMAND, ENVIRON).moved]


@pytest.mark.parametrize("key", ["oauth", "headersHelper"])
def test_a_server_that_the_host_logs_in_to_stays(key, desktop, tmp_path):
    entry = {"type": "http", "url": "https://h.example/mcp", key: {"clientId": "x"}}
    desktop.file.write_text(json.dumps({"mcpServers": {"a": entry, "b": {"url": "https://h.example/mcp"}}}))
    chosen = plan(desktop, own_folder(tmp_path), COMMAND, ENVIRON)
    assert [name for name, _ in chosen.staying] == ["a"]
    assert f"logs in to it ({key})" in chosen.staying[0][1]
    assert chosen.remarks == (
        "b: if the host has logged in to it (OAuth), it needs a header behind the gateway",
    )


@pytest.mark.parametrize(
    ("raw", "dialect"),
    [
        (b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", Dialect.JSON),
        (b'{"a": ' + b"[" * 900 + b"]" * 900 + b"}", Dialect.JSON),
        (b"[" * 100_000, Dialect.JSON),
        (b"a = " + b"[" * 5000 + b"]" * 5000, Dialect.TOML),
        (b"a = " + b"9" * 5000, Dialect.TOML),
        (b'{"a": ' + b"9" * 5000 + b"}", Dialect.JSON),
    ],
)
def test_what_is_too_deep_or_too_long_is_said_so(raw, dialect):
    with pytest.raises(HostFileError, match=r"nested|recursion|digits"):
        read_document(raw, dialect, SERVERS)


def test_a_large_file_is_changed_in_one_go():
    projects = {f"/p/{number}": {"history": [{"display": 'said "this"'}] * 20} for number in range(500)}
    servers = {f"s{number}": {"command": "c", "args": ["\\" * 50_000]} for number in range(20)}
    text = json.dumps({"projects": projects, "mcpServers": servers}, indent=2)
    found = read_document(text.encode(), Dialect.JSON, SERVERS)
    after = read_document(found.with_gateway(list(servers), "nexus", ENTRY), Dialect.JSON, SERVERS)
    assert after.document == {"projects": projects, "mcpServers": {"nexus": ENTRY}}


@pytest.mark.parametrize(
    ("text", "names", "rest"),
    [
        ('{"a": 1, "b": 2, "c": 3}', ["b", "c"], '{"a": 1}'),
        ('{"a": 1, "b": 2, "c": 3}', ["a", "b"], '{"c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', ["a", "c"], '{"b": 2}'),
        ('{\n "a": 1,\n "b": 2,\n "c": 3\n}', ["b", "c"], '{\n "a": 1\n}'),
        ('{\n "a": 1, // one\n "b": 2,\n}', ["b"], '{\n "a": 1, // one\n}'),
        ('{"a": 1, "b": 2}', ["a", "b"], "{}"),
    ],
)
def test_members_go_with_their_commas(text, names, rest):
    assert remove_members(text, (), names) == rest


def test_a_comment_alone_is_no_obstacle():
    after = read_document(b"// nothing yet", Dialect.JSONC, SERVERS).with_gateway([], "nexus", ENTRY)
    assert after.startswith(b"// nothing yet\n{\n")
    assert read_document(after, Dialect.JSONC, SERVERS).servers == {"nexus": ENTRY}


def test_a_table_from_the_end_of_a_file_without_a_last_line_break_comes_back_in_the_middle():
    text = '[mcp_servers.a]\ncommand = "x"\n[other]\nx = 1\n\n[mcp_servers.b]\ncommand = "y"'
    found = read_document(text.encode(), Dialect.TOML, ("mcp_servers",))
    after = read_document(found.with_gateway(["a", "b"], "nexus", ENTRY), Dialect.TOML, ("mcp_servers",))
    texts = {name: found.written(name) for name in ("a", "b")}
    back = read_document(
        after.without_gateway("nexus", texts, made_servers=False), Dialect.TOML, ("mcp_servers",)
    )
    assert back.document == found.document


def test_the_gateway_is_known_behind_a_runner():
    assert is_gateway({"command": "uvx", "args": ["nexus-gateway", "serve"]})
    assert is_gateway({"command": r"C:\x\nexus-gateway.exe"})
    assert not is_gateway({"command": "npx", "args": ["-y", "server", "/home/ana/nexus-gateway"]})


def test_only_files_of_projects_come_with_a_project():
    coming = {host.id for host in HOSTS if host.comes_with_project}
    assert coming == {
        "claude-code-project",
        "cursor-project",
        "vscode-workspace",
        "codex-project",
        "gemini-project",
    }


NOISE = st.lists(st.sampled_from(["/* c */", '// "{ ,\n', "\n", "\r\n", "  ", "\t"]), max_size=2).map("".join)
SOME_SERVERS = st.lists(
    st.sampled_from([{"command": "c // x", "args": ["/*"]}, {"env": {"A": "}"}}, {}]), max_size=4
)


def noisy(value, draw):
    """A value as JSONC with comments, blanks and trailing commas wherever they may be."""
    if not isinstance(value, dict | list):
        return json.dumps(value)
    named = isinstance(value, dict)
    parts = [
        (f"{json.dumps(one)}{draw(NOISE)}:{draw(NOISE)}" if named else "")
        + noisy(value[one] if named else one, draw)
        + draw(NOISE)
        for one in value
    ]
    last = "," if parts and draw(st.booleans()) else ""
    opening, closing = "{}" if named else "[]"
    return opening + draw(NOISE) + f",{draw(NOISE)}".join(parts) + last + draw(NOISE) + closing


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(entries=SOME_SERVERS, data=st.data())
def test_comments_and_commas_in_odd_places_are_no_obstacle(entries, data):
    servers = {f"s{number}": entry for number, entry in enumerate(entries)}
    document = {"a": 1, "mcpServers": servers, "z": [{"q": 2}]}
    text = data.draw(NOISE) + noisy(document, data.draw) + data.draw(NOISE)
    found = read_document(text.encode(), Dialect.JSONC, SERVERS)
    assert found.document == document
    moved = [name for name in servers if data.draw(st.booleans())]
    after = read_document(found.with_gateway(moved, "nexus", ENTRY), Dialect.JSONC, SERVERS)
    texts = {name: found.written(name) for name in moved}
    back = after.without_gateway("nexus", texts, made_servers=False)
    assert read_document(back, Dialect.JSONC, SERVERS).document == document
