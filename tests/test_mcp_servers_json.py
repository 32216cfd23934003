"""Hosts' `mcpServers` files: what is read, and what is said of what can't be."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.hosts.json_text import member_lines
from adapters.hosts.mcp_servers import McpServersFile, parse_mcp_servers, read_mcp_servers
from adapters.ports import HttpSpec, StdioSpec, UpstreamSpec

FILE = Path("claude_desktop_config.json")


def parse(document, environ=None):
    text = document if isinstance(document, str) else json.dumps(document)
    return parse_mcp_servers(FILE, text.encode(), environ or {})


def parse_one(entry, environ=None):
    return parse({"mcpServers": {"one": entry}}, environ)


def messages(found):
    return [str(problem) for problem in found.problems]


def test_a_stdio_entry_keeps_command_arguments_environment_and_folder():
    found = parse_one({"command": "npx", "args": ["-y", "server"], "env": {"A": "1"}, "cwd": "/data"})
    assert found.servers == {
        "one": UpstreamSpec("one", StdioSpec("npx", ("-y", "server"), {"A": "1"}, "/data"))
    }
    assert not found.problems
    assert not found.notes


@pytest.mark.parametrize("kind", [None, "http", "streamable-http", "streamable_http", "streamableHttp"])
def test_an_http_entry_keeps_address_and_headers(kind):
    found = parse_one({"type": kind, "url": "https://host/mcp", "headers": {"Authorization": "Bearer x"}})
    assert found.servers["one"].transport == HttpSpec("https://host/mcp", {"Authorization": "Bearer x"})


def test_the_servers_key_of_vs_code_is_read():
    found = parse({"inputs": [], "servers": {"one": {"type": "stdio", "command": "uvx"}}})
    assert found.servers["one"].transport == StdioSpec("uvx")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_does_no_harm(tmp_path, encoding):
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"ä": {"command": "x"}}}', encoding=encoding)
    assert read_mcp_servers(file, {}).servers.keys() == {"ä"}


def test_variables_are_expanded_in_every_string():
    environ = {"HOME": "/home/me", "TOKEN": "s3cret", "EMPTY": ""}
    stdio = {
        "command": "${HOME}/bin/x",
        "args": ["${A:-b}", "${EMPTY:-c}"],
        "env": {"T": "${TOKEN}"},
        "cwd": "${HOME}",
    }
    http = {"url": "https://${H:-host}/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}}
    servers = parse({"mcpServers": {"a": stdio, "b": http}}, environ).servers
    assert servers["a"].transport == StdioSpec("/home/me/bin/x", ("b", ""), {"T": "s3cret"}, "/home/me")
    assert servers["b"].transport == HttpSpec("https://host/mcp", {"Authorization": "Bearer s3cret"})


def test_text_that_only_looks_like_a_variable_stays():
    found = parse_one({"command": "x", "args": ["$HOME", "${}", "${a b}", "${workspaceFolder"]})
    assert found.servers["one"].transport.args == ("$HOME", "${}", "${a b}", "${workspaceFolder")


def test_an_unset_variable_is_named_with_its_server_and_key():
    found = parse_one({"command": "x", "args": ["ok", "${NOT_SET}"]})
    (problem,) = found.problems
    assert problem.server == "one"
    assert problem.key == "mcpServers.one.args[1]"
    assert "NOT_SET is not set" in problem.message
    assert not found.servers


def test_a_value_that_vs_code_would_ask_for_is_a_problem():
    (message,) = messages(parse_one({"command": "x", "env": {"KEY": "${input:key}"}}))
    assert "mcpServers.one.env.KEY: ${input:...} is asked for by VS Code alone" in message


def test_a_disabled_server_is_left_out_and_noted():
    found = parse(
        {"mcpServers": {"off": {"command": 1, "disabled": True}, "on": {"command": "x", "disabled": False}}}
    )
    assert found.servers.keys() == {"on"}
    assert found.names == {"on", "off"}
    assert [str(note) for note in found.notes] == [f"{FILE}:1: mcpServers.off: the server is disabled"]
    assert not found.problems


def test_unknown_keys_are_notes_and_no_problems():
    found = parse_one({"command": "x", "autoApprove": ["a"], "timeout": 5})
    assert [note.key for note in found.notes] == ["mcpServers.one.autoApprove", "mcpServers.one.timeout"]
    assert found.servers
    assert not found.problems


@pytest.mark.parametrize(
    ("kind", "url", "sse"),
    [
        ("sse", "https://host/events", True),
        (None, "https://host/sse", True),
        (None, "https://host/sse/?key=1", True),
        (None, "https://host/mcp?next=/sse", False),
        ("http", "https://host/sse", False),
    ],
)
def test_the_older_transport_is_used_where_the_entry_or_its_address_says_so(kind, url, sse):
    found = parse_one({"type": kind, "url": url})
    assert found.servers["one"].transport == HttpSpec(url, sse=sse)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ([], "mcpServers.one: expected an object, got a list"),
        ({}, "mcpServers.one: expected a `command` to start or a `url` to connect to, got neither"),
        ({"command": "x", "url": "https://h"}, "got both"),
        ({"type": "stdio", "url": "https://h"}, "mcpServers.one: expected `command`, it is missing"),
        ({"type": "http"}, "mcpServers.one: expected `url`, it is missing"),
        ({"type": "grpc", "url": "https://h"}, 'mcpServers.one.type: expected "stdio", "http" or'),
        ({"command": ["x"]}, "mcpServers.one.command: expected a string, got a list"),
        ({"command": " "}, "mcpServers.one.command: expected the program to start, got an empty string"),
        ({"command": "x\0"}, "mcpServers.one.command: the text has a character"),
        ({"command": "x", "args": "-y"}, "mcpServers.one.args: expected a list of strings, got a string"),
        ({"command": "x", "args": [True]}, "mcpServers.one.args[0]: expected a string, got true or false"),
        ({"command": "x", "env": []}, "mcpServers.one.env: expected names with strings, got a list"),
        (
            {"command": "x", "env": {"P": 80}},
            "mcpServers.one.env.P: expected a string, got a number; put it in quotes",
        ),
        ({"command": "x", "env": {"A=B": "c"}}, 'mcpServers.one.env."A=B": expected a name'),
        ({"command": "x", "cwd": {}}, "mcpServers.one.cwd: expected a string, got an object"),
        ({"url": "host/mcp"}, "mcpServers.one.url: expected an address such as https://host/mcp"),
        ({"url": "http://host:port/"}, "mcpServers.one.url: expected an address"),
        (
            {"url": "https://h", "headers": {"A B": "c"}},
            'mcpServers.one.headers."A B": expected an HTTP header',
        ),
        (
            {"url": "https://h", "headers": {"A": "b\r\nC: d"}},
            "mcpServers.one.headers.A: expected an HTTP header",
        ),
    ],
)
def test_a_bad_entry_is_a_problem_and_the_others_stay(entry, expected):
    found = parse({"mcpServers": {"one": entry, "good": {"command": "x"}}})
    assert found.servers.keys() == {"good"}
    assert any(expected in message for message in messages(found))
    assert {problem.server for problem in found.problems} == {"one"}


@pytest.mark.parametrize("name", ["a b", "c/d.e", "ü", "x" * 100, '"', "[0]"])
def test_odd_server_names_are_fine(name):
    assert parse({"mcpServers": {name: {"command": "x"}}}).servers[name].server == name


@pytest.mark.parametrize("name", ["", "  ", "x" * 101, "\ud800", "nul\0"])
def test_names_that_can_not_be_used_are_problems(name):
    found = parse({"mcpServers": {name: {"command": "x"}, "good": {"command": "x"}}})
    assert found.servers.keys() == {"good"}
    assert "\ud800" not in messages(found)[0]


def test_lines_are_right_though_keys_and_values_repeat():
    text = """{
  "command": "command",
  "mcpServers": {
    "a": {"command": "command",
          "env": {"command": "args", "args": 1}},
    "command": {
      "args": [
        "args",
        {"command": "command"}
      ],
      "command": "\\"command\\": {",
      "env": {
        "command": 2
      }
    },
    "args": {
      "command": 3
    }
  }
}"""
    assert [(problem.line, problem.key) for problem in parse(text).problems] == [
        (5, "mcpServers.a.env.args"),
        (9, "mcpServers.command.args[1]"),
        (13, "mcpServers.command.env.command"),
        (17, "mcpServers.args.command"),
    ]


def test_of_a_repeated_name_the_last_counts_with_its_line():
    text = '{"mcpServers": {\n"a": {"command": "x"},\n"a": {"command": 1}\n}}'
    (problem,) = parse(text).problems
    assert problem.line == 3


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("", 1, "the file is empty"),
        ('{\n"mcpServers": {},\n}', None, "remove the trailing comma"),
        ('{"mcpServers": {"a": {"args": [1,\n]}}}', None, "remove the trailing comma"),
        ('{\n// my servers\n"mcpServers": {}}', 2, "JSON has no comments"),
        ("{'mcpServers': {}}", 1, "use double quotes"),
        ('{"mcpServers":\n{"a": {"command": "C:\\Users"}}}', 2, "write a backslash in a string twice"),
        ('{"mcpServers": {}\n"x": 1}', 2, "expected ',' delimiter"),
        ('{"mcpServers": {}}}', 1, "extra data"),
        ('{"mcpServers": "abc', 1, "unterminated string"),
        ("[" * 100_000, None, "nested too deeply"),
        ("9" * 5_000, None, "too many digits"),
    ],
)
def test_malformed_json_is_explained_with_its_place(text, line, expected):
    found = parse(text)
    (problem,) = found.problems
    assert not found.servers
    assert expected in problem.message
    assert line is None or problem.line == line


def test_bytes_that_are_no_text_are_explained():
    (problem,) = parse_mcp_servers(FILE, b'{"a": "\xff\xfe\xfd"}', {}).problems
    assert "save it as UTF-8" in problem.message


@pytest.mark.parametrize("document", [[], 5, None, {}, {"a": {"command": "x"}}])
def test_a_document_without_servers_is_a_problem(document):
    assert 'expected an object with the member "mcpServers"' in messages(parse(document))[0]


def test_servers_that_are_no_object_are_a_problem():
    assert messages(parse({"mcpServers": []})) == [
        f"{FILE}:1: mcpServers: expected an object of servers, got a list"
    ]


def test_a_file_that_can_not_be_read_is_a_problem_with_its_path(tmp_path):
    assert str(tmp_path) in messages(read_mcp_servers(tmp_path, {}))[0]


def test_values_are_in_no_message_and_no_repr():
    secret = "hunter2"
    bad = [
        {"command": secret, "args": secret},
        {"command": "x", "args": [f"--key={secret}", "${UNSET}"], "env": {"K": secret}},
        {"url": f"ftp://{secret}@host", "headers": {"K": f"{secret}\n"}},
        {"type": secret, "url": "https://h"},
        {"command": f"{secret}\0", "unknown": secret},
    ]
    good = {"command": "x", "args": [secret], "env": {"K": "${SECRET}"}, "cwd": secret}
    servers = {f"bad{number}": entry for number, entry in enumerate(bad)} | {"good": good}
    found = parse({"mcpServers": servers}, {"SECRET": secret})
    assert len({problem.server for problem in found.problems}) == len(bad)
    assert secret not in repr(found)
    assert secret not in "".join(messages(found))
    assert secret not in messages(parse(f'{{"{secret}": {secret}}}'))[0]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["command", "args", "env", "cwd", "type", "url", "headers", "disabled"]) | st.text(
    max_size=8
)
TEXTS = st.sampled_from(["stdio", "http", "sse", "https://h", "http://[", "${A}", "${B:-c}", "\0", "\ud800"])
ENTRIES = (
    st.dictionaries(NAMES, TEXTS | JSON_VALUES | st.lists(TEXTS) | st.dictionaries(NAMES, TEXTS))
    | JSON_VALUES
)
DOCUMENTS = JSON_VALUES | st.fixed_dictionaries(
    {"mcpServers": st.dictionaries(st.text(), ENTRIES) | JSON_VALUES}
)


def assert_accounted_for(found):
    assert isinstance(found, McpServersFile)
    assert found.servers or found.problems or found.notes or not found.names
    set_aside = {entry.server for entry in (*found.problems, *found.notes)}
    assert found.names <= found.servers.keys() | set_aside
    "\n".join(messages(found)).encode()  # raises for what no terminal can show


@settings(max_examples=300, deadline=None, database=None)
@given(DOCUMENTS, st.sampled_from([None, 1]), st.booleans())
def test_any_json_document_gives_servers_and_problems(document, indent, ascii_only):
    raw = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert_accounted_for(parse_mcp_servers(FILE, raw, {"A": "1"}))


@settings(max_examples=200, deadline=None, database=None)
@given(st.binary(max_size=60) | st.text(alphabet="{}[]\":,\\/' 1a\n", max_size=40).map(str.encode))
def test_any_bytes_give_servers_and_problems(raw):
    assert_accounted_for(parse_mcp_servers(FILE, raw, {}))


def paths(value, here=()):
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        yield (*here, key)
        yield from paths(member, (*here, key))


@settings(max_examples=200, deadline=None, database=None)
@given(JSON_VALUES)
def test_every_member_of_any_document_has_its_own_line(document):
    text = json.dumps(document, indent=1)
    lines = member_lines(text)
    assert list(lines) == list(paths(document))
    for path, line in lines.items():
        written = text.split("\n")[line - 1].strip()
        assert isinstance(path[-1], int) or written.startswith(json.dumps(path[-1]) + ":")
    assert len(set(lines.values())) == len(lines)
