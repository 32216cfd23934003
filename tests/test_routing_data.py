"""The files that routing is measured on: what they hold, and what is said of bad ones."""

import json

import pytest
from support.json_lines import lines
from support.making_tools import catalog_of, definition

from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing_data import (
    RoutingQuery,
    of_server,
    read_equivalents,
    read_queries,
    read_tools,
)

FLEET = catalog_of(
    mail=[definition("send_mail")],
    files=[definition("read_file"), definition("delete_file")],
    sky=[definition("rain")],
)
RAIN = RoutingQuery("1", "will it rain", ("sky/rain",))
READ = RoutingQuery("2", "read the file", ("files/read_file",))
GOOD = {"query": "read it", "gold": ["files/read_file"], "split": "calib"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no request"),
        ("\n \n", "holds no request"),
        (json.dumps(GOOD) + "\n{not json", "line 2: not a line of JSON"),
        ("[1]", "line 1: expected an object, got a list"),
        (json.dumps({"gold": ["a/b"]}), "line 1: query is missing"),
        (json.dumps(GOOD | {"query": " "}), "line 1: query is no text"),
        (json.dumps(GOOD | {"gold": []}), "line 1: gold names no tool; .*--irrelevance"),
        (json.dumps(GOOD | {"gold": "files/read_file"}), "line 1: gold is no list"),
        (json.dumps(GOOD), "no request of split 'test'; there is: calib"),
    ],
)
def test_a_bad_file_of_requests_is_named_with_the_line_and_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "queries.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BenchError, match=message) as caught:
        read_queries(path, split="test")
    assert "queries.jsonl" in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_named(tmp_path):
    with pytest.raises(BenchError, match=r"nowhere.jsonl can't be read: No such file"):
        read_tools(tmp_path / "nowhere.jsonl")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe{}")
    with pytest.raises(BenchError, match="binary is not UTF-8"):
        read_tools(binary)
    with pytest.raises(BenchError, match="binary is not UTF-8"):
        read_equivalents(binary)
    with pytest.raises(BenchError, match=r"equivalents: expected .*groups"):
        read_equivalents(lines(tmp_path / "equivalents", ["a/b"]))


def test_tools_that_are_unusable_or_listed_twice_are_set_aside_and_none_at_all_is_an_error(tmp_path):
    twice = [{"server": "a", "name": "x", "description": text} for text in ("first", "second")]
    catalog = read_tools(lines(tmp_path / "tools", *twice, {"server": "a", "description": "nameless"}))
    assert [tool.description for tool in catalog] == ["first"]
    assert {aside.reason for aside in catalog.set_aside} == {
        "listed twice; the first definition is in use",
        "the definition has no name",
    }
    with pytest.raises(BenchError, match="holds no usable tool"):
        read_tools(lines(tmp_path / "none"))


def test_groups_of_equivalents_add_to_what_is_right(tmp_path):
    groups = read_equivalents(lines(tmp_path / "groups", {"groups": [["a/x", "b/x"]]}))
    (query,) = read_queries(lines(tmp_path / "q", {"query": "x", "gold": ["a/x"]}), split=None, groups=groups)
    assert (query.gold, query.equivalents, query.id, query.source) == (("a/x",), {"b/x"}, "x", "q")


def test_a_server_by_itself_has_its_own_tools_and_requests_and_another_name_is_helped():
    catalog, queries = of_server(FLEET, [RAIN, READ], "files")
    assert ([str(tool_id) for tool_id in catalog.tools], queries) == (
        ["files/delete_file", "files/read_file"],
        [READ],
    )
    with pytest.raises(BenchError, match=r"no tool is of a server 'file'.*files"):
        of_server(FLEET, [READ], "file")
    with pytest.raises(BenchError, match="no request is meant for a tool of 'mail'"):
        of_server(FLEET, [READ], "mail")
