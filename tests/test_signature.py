"""Signatures say in one line what a tool takes; texts and words say what it is found by."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_registry.schema import normalise
from tool_registry.signature import MAX_CHARACTERS, MAX_OPTIONAL, signature
from tool_registry.text import TEXT_CHARACTERS, split_words, tool_text, tool_words
from tool_registry.tool import tool_from_definition

SHARED = Path(__file__).parents[1].parent / "shared"


def _lines(name):
    return (SHARED / "data" / name).read_text(encoding="utf-8").rstrip("\n").split("\n")


def _signature(properties, required=(), name="tool"):
    return signature(name, normalise({"properties": properties, "required": list(required)}))


def _tool(server="my-files", **definition):
    tool = tool_from_definition(server, {"name": "readFile", **definition})
    return tool, normalise(tool.input_schema)


def test_required_parameters_come_first():
    shown = _signature({"limit": {"type": "integer"}, "path": {"type": "string"}}, ["path"])
    assert shown == "tool(path: string, limit?: int)"


def test_a_tool_without_parameters_has_empty_brackets():
    assert signature("ping", normalise(None)) == "ping()"


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "boolean"}, "bool"),
        ({"type": "number"}, "number"),
        ({}, "any"),
        ({"enum": ["a", "b", 3, None]}, '"a"|"b"|3|null'),
        ({"enum": list(range(15))}, "0|1|2|3|4|5|6|7|8|9|10|11|… 3 more"),
        ({"enum": [True, False]}, "bool"),
        ({"const": "fixed"}, '"fixed"'),
        ({"type": ["string", "null"]}, "string|null"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "string|int"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a"|"b")[]'),
        ({"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]}, "[number, string]"),
        ({"type": "object"}, "object"),
        ({"enum": ["x" * 60] * 8}, '"' + '"|"'.join(["x" * 60] * 4) + '"|… 4 more'),
        ({"type": "string", "enum": ["x" * 90] * 8}, "string"),
        ({"type": "array", "items": {"type": "string", "enum": ["x" * 90] * 8}}, "string[]"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5}, "string[1..5]"),
        ({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}, "number[2]"),
        ({"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2}, "(int ≥1)[2..]"),
        ({"type": "integer", "minimum": 1, "maximum": 100}, "int 1..100"),
        ({"type": "number", "exclusiveMinimum": 0}, "number >0"),
        ({"type": "number", "minimum": 0.5, "exclusiveMaximum": 3}, "number ≥0.5 <3"),
        ({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991}, "int"),
        ({"type": "integer", "multipleOf": 5}, "int step 5"),
        ({"type": "number", "description": "How long to wait, in milliseconds."}, "number milliseconds"),
        ({"type": "string", "description": "Day in the form YYYY-MM-DD"}, "string YYYY-MM-DD"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": ["string", "null"], "format": "uri"}, "uri|null"),
        ({"type": "string", "format": "binary"}, "string"),
        ({"type": "string", "pattern": "^[A-Z]{3}$"}, "string /^[A-Z]{3}$/"),
        ({"type": "string", "minLength": 2, "maxLength": 8}, "string 2..8 chars"),
        ({"type": "string", "minLength": 1, "maxLength": 100_000}, "string"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "{[key]: number}"),
        ({"type": "object", "patternProperties": {"^x-": {"type": "string"}}}, "{[key]: string}"),
    ],
)
def test_a_type_is_written_shortly(schema, written):
    assert _signature({"p": schema}, ["p"]) == f"tool(p: {written})"


def test_objects_are_written_out_to_four_levels():
    deep = {"type": "string"}
    for name in "fedcb":
        deep = {"properties": {name: deep}, "required": [name]}
    assert _signature({"a": deep}, ["a"]) == "tool(a: {b: {c: {d: {e: object}}}})"


def test_a_long_type_loses_its_inner_levels_and_values_before_its_members():
    inner = {f"option{n}": {"type": "string"} for n in range(12)}
    outer = {"name": {"type": "string"}, "more": {"properties": inner}, "kind": {"enum": ["k" * 30] * 12}}
    shown = _signature({"a": {"properties": outer}})
    assert (
        shown
        == "tool(a?: {name?: string, more?: object, kind?: "
        + "|".join(['"' + "k" * 30 + '"'] * 4)
        + "|… 8 more})"
    )


def test_alternatives_of_an_object_are_each_written_whole():
    by = {
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "oneOf": [
            {"properties": {"x": {"type": "string"}}, "required": ["x"]},
            {"properties": {"y": {"type": "integer"}}},
        ],
    }
    assert _signature({"f": by}) == "tool(f?: {id: string, x: string}|{id: string, y?: int})"


def test_an_array_of_objects_shows_its_members():
    item = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["id"],
    }
    assert _signature({"rows": {"type": "array", "items": item}}) == "tool(rows?: {id: int, note?: string}[])"


def test_short_defaults_are_shown_and_those_that_say_nothing_are_not():
    known = {
        "n": {"type": "integer", "default": 5},
        "flag": {"type": "boolean", "default": False},
        "none": {"type": ["string", "null"], "default": None},
        "list": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
        "empty": {"type": "array", "items": {"type": "string"}, "default": []},
        "long": {"type": "string", "default": "x" * 100},
    }
    assert _signature(known) == (
        "tool(n?: int = 5, flag?: bool = false, none?: string|null, "
        'list?: string[] = ["a"], empty?: string[], long?: string)'
    )


def test_names_that_are_not_identifiers_are_quoted():
    assert _signature({"auth-method": {"type": "string"}}) == 'tool("auth-method"?: string)'
    assert signature("read the (file)", normalise(None)) == '"read the (file)"()'
    assert signature("files.read-text", normalise(None)) == "files.read-text()"


def test_monsters_are_cut_after_the_required_parameters():
    many = {f"p{n}": {"type": "string"} for n in range(100)}
    shown = _signature(many, ["p99"])
    assert shown.startswith("tool(p99: string, p0?: string")
    assert shown.endswith(f"p{MAX_OPTIONAL - 1}?: string, … {99 - MAX_OPTIONAL} more)")
    assert (
        len(_signature({"x" * 100 + str(n): {} for n in range(500)}, ["x" * 100 + "7"])) < MAX_CHARACTERS + 20
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("read_text_file", ["read", "text", "file"]),
        ("getHTTPResponseV2", ["get", "http", "response", "v", "2"]),
        ("browser.take-screenshot", ["browser", "take", "screenshot"]),
        (
            "List all repositories, branches and statuses!",
            ["list", "all", "repositories", "branches", "and", "statuses"],
        ),
        ("Café Übersicht", ["cafe", "ubersicht"]),
        ("删除文件 now", ["删除", "除文", "文件", "now"]),
        ("PDF转换", ["pdf", "转换"]),
        ("письма", ["письма"]),
        ("", []),
    ],
)
def test_words_of_identifiers_and_prose(text, words):
    assert split_words(text) == words


@given(st.text(max_size=60))
def test_splitting_never_fails_and_gives_lower_case_words(text):
    words = split_words(text)
    assert all(word and word == word.lower() and "_" not in word and not word.isspace() for word in words)


def test_a_tools_text_names_the_tool_first_and_the_server_last():
    tool, schema = _tool(
        description="Read a file.\nReturns its text.",
        inputSchema={
            "properties": {
                "filePath": {"type": "string", "description": "Path of the file."},
                "as": {"enum": ["text", "bytes"]},
            }
        },
    )
    assert tool_text(tool, schema) == (
        "read File. Read a file. Returns its text. Parameters: file Path, as. "
        "Values: text, bytes. Server: my files."
    )


def test_a_long_description_is_cut_at_a_sentence_and_the_text_is_bounded():
    known = {f"parameter{n}": {"description": "d" * 200, "enum": ["v" * 90]} for n in range(60)}
    tool, schema = _tool(
        description="A first sentence that says what it does, at some length to be sure of it. "
        + "More " * 900,
        inputSchema={"properties": known},
        server="s" * 500,
    )
    text = tool_text(tool, schema)
    assert "to be sure of it. Parameters:" in text
    assert len(text) < TEXT_CHARACTERS + 80


def test_a_tools_words_are_sorted_into_fields():
    tool, schema = _tool(
        title="Reader",
        description="Reads files",
        inputSchema={"properties": {"maxLines": {"type": "array", "items": {"enum": ["all"]}}}},
    )
    assert tool_words(tool, schema) == {
        "name": ["read", "file", "reader"],
        "description": ["reads", "files"],
        "parameters": ["max", "lines", "all"],
        "server": ["my", "files"],
    }


@pytest.mark.skipif(not SHARED.exists(), reason="needs the shared data")
def test_signatures_and_texts_of_real_tools_are_bounded_and_name_what_is_required():
    rows = [json.loads(line) for line in _lines("registry.jsonl")]
    for row in rows:
        tool = tool_from_definition(row["server"], row)
        schema = normalise(tool.input_schema)
        shown = signature(tool.id.name, schema)
        assert len(shown) < MAX_CHARACTERS + 100
        assert all(name in shown for name in schema.get("required", ()))
        assert 10 < len(tool_text(tool, schema)) < TEXT_CHARACTERS + 80
