"""What a person may see of a host's file: no value of a variable, a header or anything that looks like a secret."""

import json
import tomllib
from pathlib import Path

import pytest

from adapters.hosts.document import read_document
from adapters.hosts.known import Dialect
from nexus_gateway.hosts.masking import masked
from nexus_gateway.hosts.showing import difference


def shown(value):
    text = json.dumps(value)
    return masked(text, value)


@pytest.mark.parametrize(
    "value",
    [
        {"args": ["--token", "hunter2"]},
        {"args": ["--api-key=hunter2"]},
        {"args": ["--header", "X-Custom: hunter2"]},
        {"args": ["-H", "Authorization: Bearer hunter2"]},
        {"args": ["Authorization:hunter2"]},
        {"args": ["run", "-e", "DATABASE=hunter2"]},
        {"args": ["--env=API_KEY=hunter2"]},
        {"args": ["GITHUB_PERSONAL_ACCESS_TOKEN=hunter2"]},
        {"url": "https://host.example/mcp?page=2&api_key=hunter2"},
        {"url": "https://host.example/mcp?token=hunter2&password=hunter2"},
        {"url": "https://host.example/s/hunter2hunter2hunter2/mcp"},
        {"url": "https://host.example/mcp?key=hunter2hunter2hunter2"},
        {"env": {"ANYTHING": "hunter2"}},
        {"headers": {"X-Anything": "hunter2"}},
        {"password": ["hunter2"]},
        {"history": "a long text with hunter2 in it " * 20},
    ],
)
def test_no_secret_is_shown(value):
    assert "hunter2" not in shown(value)


def test_numbers_that_are_secrets_are_hidden_and_others_are_not():
    text = shown({"env": {"PIN": 123456}, "password": 7.25, "port": 8080, "args": [-1]})
    assert "123456" not in text
    assert "7.25" not in text
    assert "8080" in text
    assert "-1" in text
    toml = "port = 8080\n[env]\nPIN = 123456\n"
    assert masked(toml, tomllib.loads(toml)) == 'port = 8080\n[env]\nPIN = "••••"\n'


@pytest.mark.parametrize(
    "value",
    [
        {
            "args": [
                "-y",
                "@scope/server-filesystem@1.2.3",
                "/Users/ana/My Documents",
                "--port=8080",
                "-e",
                "NAME",
            ]
        },
        {"args": ["serve", "--mcp-config", "/Users/ana/Library/nexus-gateway/servers/cursor-1acc9a61.json"]},
        {"url": "https://mcp.linear.example/sse?page=2"},
        {"command": "C:\\Program Files\\nodejs\\node.exe", "cwd": "/srv/releases"},
    ],
)
def test_what_is_no_secret_is_shown_as_it_is(value):
    assert shown(value) == json.dumps(value)


@pytest.mark.parametrize(
    "comment",
    [
        "// the token is hunter2",
        '// "env": {"ANYTHING": "hunter2"}',
        "/* password=hunter2\n   of the staging host */",
        '/* {"GH": "hunter2"} */',
        "# bearer hunter2",
    ],
)
def test_comments_keep_secrets_too(comment):
    assert "hunter2" not in masked(f"{comment}\n", {})
    assert masked("// kept short\n", {}) == "// kept short\n"


def test_a_file_on_one_line_is_shown_by_members_and_the_rest_of_it_is_not():
    projects = {f"/p/{number}": {"history": ["what ana said"] * 20} for number in range(50)}
    text = json.dumps({"projects": projects, "mcpServers": {"a": {"command": "x"}}, "last": 1})
    found = read_document(text.encode(), Dialect.JSON, ("mcpServers",))
    after = found.with_gateway(["a"], "nexus", {"command": "/n", "args": []})
    diff = difference(Path("f.json"), text.encode(), after, Dialect.JSON)
    assert '+    "nexus": {' in diff
    assert '-    "a": {' in diff
    assert "what ana said" not in diff
    assert len(diff) < 1000


def test_a_document_is_not_in_its_repr():
    found = read_document(b'{"mcpServers": {"a": {"env": {"X": "hunter2"}}}}', Dialect.JSON, ("mcpServers",))
    assert "hunter2" not in repr(found)
