"""Listed input schemas become plain ones that stand alone, whatever a server lists."""

import copy
import json
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tool_registry.schema import MAX_NODES, alternatives, normalise, properties, required

SHARED = Path(__file__).parents[1].parent / "shared"
EMPTY = {"type": "object", "properties": {}}
STRING = {"type": "string"}
NUMBER = {"type": "number"}

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
REFERENCES = [
    "#",
    "#/properties/a",
    "#/$defs/a",
    "#/$defs/b",
    "#/allOf/0",
    "#/nowhere",
    "https://x.test/s",
    "#a",
]
TYPES = ["string", "object", "array", "integer", "number", "null", "int", "any"]


def _lines(name):
    return (SHARED / "data" / name).read_text(encoding="utf-8").rstrip("\n").split("\n")


def _schemas(inner):
    named = st.dictionaries(st.sampled_from(["a", "b", "c/d"]), inner, max_size=3)
    keywords = {
        "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES)) | JSON,
        "properties": named | JSON,
        "$defs": named,
        "required": st.lists(st.sampled_from(["a", "b", "e"])) | JSON,
        "$ref": st.sampled_from(REFERENCES) | JSON,
        "items": inner | st.lists(inner, max_size=2),
        "additionalProperties": inner,
        "allOf": st.lists(inner, max_size=3) | JSON,
        "anyOf": st.lists(inner, max_size=3) | JSON,
        "oneOf": st.lists(inner, max_size=3),
        "enum": st.lists(SCALARS, max_size=3) | JSON,
        "const": JSON,
        "default": JSON,
        "nullable": st.booleans(),
        "minimum": JSON,
        "exclusiveMinimum": st.booleans() | st.integers(),
        "maxLength": st.integers() | JSON,
        "description": st.text(max_size=5) | JSON,
    }
    return st.fixed_dictionaries({}, optional=keywords)


SCHEMAS = st.recursive(st.booleans() | JSON, _schemas, max_leaves=8)


def _accepts(schema, value):
    return jsonschema_rs.Draft202012Validator(schema).is_valid(value)


def _keywords(schema):
    """Every subschema below a plain schema, itself included."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", []), *schema.get("prefixItems", [])]
    for sub in [*inner, schema.get("items"), schema.get("additionalProperties")]:
        if isinstance(sub, dict):
            yield from _keywords(sub)


@given(SCHEMAS | st.fixed_dictionaries({"type": st.just("object")}, optional={"properties": SCHEMAS}))
@settings(deadline=None, max_examples=400)
def test_any_json_value_becomes_a_valid_plain_object_schema(raw):
    before = copy.deepcopy(raw)
    plain = normalise(raw)
    assert raw == before
    assert plain["type"] == "object"
    assert set(required(plain)) <= set(plain["properties"])
    assert jsonschema_rs.meta.is_valid({"$schema": "https://json-schema.org/draft/2020-12/schema", **plain})
    assert not [
        sub for sub in _keywords(plain) if sub.keys() & {"$ref", "allOf", "oneOf", "$defs", "nullable"}
    ]
    assert json.dumps(normalise(raw)) == json.dumps(plain)


@given(SCHEMAS)
@settings(deadline=None, max_examples=200)
def test_a_plain_schema_stays_a_plain_schema(raw):
    plain = normalise(raw)
    assert set(normalise(plain)["properties"]) == set(plain["properties"])
    assert required(normalise(plain)) == required(plain)


@pytest.mark.parametrize(
    "raw", [None, True, False, [], "object", 3, {}, {"type": "string"}, {"properties": []}]
)
def test_what_is_no_object_schema_becomes_the_empty_one(raw):
    assert normalise(raw) == EMPTY


def test_a_missing_type_is_stated_and_unlisted_required_names_become_properties():
    plain = normalise({"properties": {"a": STRING}, "required": ["b", "a", 3, "a"]})
    assert plain == {"type": "object", "properties": {"a": STRING, "b": {}}, "required": ["b", "a"]}


def test_local_references_are_inlined_with_their_siblings_kept():
    plain = normalise(
        {
            "type": "object",
            "properties": {
                "colour": {"$ref": "#/$defs/Colour", "description": "of the wall", "default": "red"},
                "odd": {"$ref": "#/definitions/a~1b%20c~0"},
                "first": {"$ref": "#/properties/list/prefixItems/0"},
                "list": {"type": "array", "prefixItems": [NUMBER]},
            },
            "$defs": {"Colour": {"enum": ["red", "blue"], "description": "a colour"}},
            "definitions": {"a/b c~": STRING},
        }
    )
    assert properties(plain)["colour"] == {
        "description": "of the wall",
        "default": "red",
        "enum": ["red", "blue"],
    }
    assert properties(plain)["odd"] == STRING
    assert properties(plain)["first"] == NUMBER
    assert "$defs" not in plain


@pytest.mark.parametrize(
    "reference", ["https://example.test/s.json", "other.json#/a", "#/no/where", "#anchor"]
)
def test_references_that_lead_nowhere_accept_anything(reference):
    assert normalise({"properties": {"a": {"$ref": reference}}})["properties"] == {"a": {}}


def test_recursion_is_cut_where_a_reference_comes_up_within_itself():
    node = {"type": "object", "properties": {"name": STRING, "children": {"items": {"$ref": "#/$defs/Node"}}}}
    plain = normalise({"properties": {"tree": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}})
    tree = properties(plain)["tree"]
    assert tree["properties"] == {"name": STRING, "children": {"items": {"type": "object"}}}


def test_a_schema_that_refers_to_itself_is_cut():
    plain = normalise({"type": "object", "properties": {"next": {"$ref": "#"}}})
    assert plain["properties"] == {"next": {"type": "object"}}
    assert normalise({"$ref": "#"}) == EMPTY


def test_references_that_double_at_each_level_end_within_the_budget():
    levels = {
        f"l{n}": {"properties": {side: {"$ref": f"#/$defs/l{n + 1}"} for side in "ab"}} for n in range(30)
    }
    plain = normalise({"$ref": "#/$defs/l0", "$defs": {**levels, "l30": {"enum": ["x"] * 1000}}})
    assert MAX_NODES / 10 < sum(1 for _ in _keywords(plain)) <= 3 * MAX_NODES
    assert _accepts(plain, {"a": {"b": {"a": {}}}})


def test_a_very_deep_schema_ends_in_accepting_anything():
    deep = STRING
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
    assert len(json.dumps(normalise(deep))) < 2_000


def test_conjunctions_of_objects_are_merged():
    plain = normalise(
        {
            "allOf": [
                {"properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
                {"properties": {"a": {"type": "number", "minimum": 5, "maximum": 9}, "b": STRING}},
                {"required": ["b"]},
            ]
        }
    )
    assert plain["properties"] == {"a": {"type": "integer", "minimum": 5, "maximum": 9}, "b": STRING}
    assert required(plain) == ("a", "b")


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"enum": ["a"], "type": "string", "nullable": True},
            {"enum": ["a", None], "type": ["string", "null"]},
        ),
        (
            {"anyOf": [STRING, {"type": "null"}], "default": None},
            {"type": ["string", "null"], "default": None},
        ),
        ({"oneOf": [STRING]}, STRING),
        ({"anyOf": [{"type": "null"}, {"const": None}]}, {"type": "null"}),
        ({"anyOf": [STRING, NUMBER, {"type": "null"}]}, {"anyOf": [STRING, NUMBER, {"type": "null"}]}),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, {"enum": ["a", "b"]}),
        ({"anyOf": [STRING, {}]}, {}),
        ({"anyOf": [STRING, False]}, STRING),
        ({"type": ["integer"]}, {"type": "integer"}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": "array", "items": [STRING]}, {"type": "array", "prefixItems": [STRING], "items": {}}),
        (
            {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            {**NUMBER, "minimum": 0, "exclusiveMinimum": 0},
        ),
        ({"type": "string", "minLength": -1, "maximum": "9", "enum": []}, STRING),
        ({"type": "str"}, STRING),
        ({"type": "String"}, STRING),
        ({"type": "any"}, {}),
        ({"type": ["string", "any"]}, {}),
        ({"anyOf": [{"not": {}}, STRING]}, STRING),
        ({"anyOf": [{"anyOf": [{"not": {}}, STRING]}, {"type": "null"}]}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a", None, 1]}, {"type": "string", "enum": ["a"]}),
        ({"type": "integer", "enum": ["1", "20", "any"]}, {"type": "integer", "enum": [1, 20]}),
        ({"type": "boolean", "enum": ["True", "False"]}, {"type": "boolean", "enum": [True, False]}),
        ({"type": "boolean", "enum": ["perhaps"]}, {"type": "boolean"}),
        ({"type": "integer", "enum": ["1e999", "nan", "9" * 400]}, {"type": "integer"}),
        (
            {"type": "array", "items": STRING, "enum": ["a", "b"]},
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        ),
        (
            {"type": "array", "items": STRING, "enum": [["a"], ["b"]]},
            {"type": "array", "items": STRING, "enum": [["a"], ["b"]]},
        ),
        (
            {"type": "object", "additionalProperties": False},
            {"type": "object", "additionalProperties": False},
        ),
        (True, {}),
        (False, False),
    ],
)
def test_a_property_is_written_plainly(raw, plain):
    assert normalise({"type": "object", "properties": {"p": raw}})["properties"]["p"] == plain


def test_alternatives_at_the_top_become_optional_properties():
    plain = normalise(
        {
            "type": "object",
            "oneOf": [
                {"properties": {"action": {"const": "add"}, "text": STRING}, "required": ["action", "text"]},
                {"properties": {"action": {"const": "drop"}, "id": NUMBER}, "required": ["action", "id"]},
            ],
        }
    )
    assert plain["properties"] == {"action": {"enum": ["add", "drop"]}, "text": STRING, "id": NUMBER}
    assert required(plain) == ("action",)


def test_alternatives_of_a_nested_object_are_looked_into():
    by = {
        "properties": {"id": STRING},
        "required": ["id"],
        "anyOf": [
            {"properties": {"kind": {"const": "a"}, "x": STRING}, "required": ["kind", "x"]},
            {"properties": {"kind": {"const": "b"}, "y": NUMBER}, "required": ["kind"]},
            {"type": "null"},
        ],
    }
    plain = properties(normalise({"properties": {"f": by}}))["f"]
    assert properties(plain) == {"id": STRING, "kind": {"enum": ["a", "b"]}, "x": STRING, "y": NUMBER}
    assert required(plain) == ("id", "kind")
    assert [required(way) for way in alternatives(plain)] == [("id", "kind", "x"), ("id", "kind")]
    assert not alternatives(normalise({"properties": {"f": {"anyOf": [STRING, by]}}})["properties"]["f"])


def test_a_schema_that_was_put_under_properties_by_mistake_is_taken_out():
    inner = {"type": "object", "properties": {"query": STRING}, "required": ["query"], "$schema": "x"}
    assert normalise({"type": "object", "properties": inner}) == {
        "type": "object",
        "properties": {"query": STRING},
        "required": ["query"],
    }
    named = {"type": STRING, "properties": {"type": "object"}}
    assert set(properties(normalise({"properties": named}))) == {"type", "properties"}


@pytest.mark.timeout(20)
def test_alternatives_within_alternatives_end():
    tree = {"type": "object", "properties": {"leaf": STRING}}
    for level in range(12):
        ways = [{**tree, "title": str(way)} for way in range(2)]
        tree = {"type": "object", "properties": {f"p{level}": STRING}, "anyOf": ways}
    known = properties(properties(normalise({"properties": {"a": tree}}))["a"])
    assert list(known)[:3] == ["p11", "p10", "p9"]


def test_either_or_requirements_at_the_top_require_neither():
    raw = {"properties": {"a": STRING, "b": STRING}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert normalise(raw) == {"type": "object", "properties": {"a": STRING, "b": STRING}}


def test_a_property_may_be_named_like_a_keyword():
    names = dict.fromkeys(("$ref", "properties", "allOf", "required", "$defs"), STRING)
    assert properties(normalise({"properties": names})) == names


def test_forbidden_properties_are_not_listed_as_ones_to_give():
    assert properties(normalise({"properties": {"a": False, "b": True}})) == {"b": {}}


@pytest.mark.skipif(not SHARED.exists(), reason="needs the shared data")
def test_real_schemas_become_valid_ones_with_every_property():
    rows = [json.loads(line) for line in _lines("wild_tools.jsonl")]
    listed = [row["inputSchema"] for row in rows[::3]]
    assert len(listed) > 1_000
    for raw in listed:
        plain = normalise(raw)
        assert jsonschema_rs.meta.is_valid(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **plain}
        )
        if isinstance(raw, dict) and isinstance(raw.get("properties"), dict):
            inner = raw["properties"]
            listed_names = inner["properties"] if inner.get("type") == "object" else inner
            assert set(plain["properties"]) >= set(listed_names)
