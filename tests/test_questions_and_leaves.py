"""What a reading model is asked for a tool: which arguments, in which words, with which values to choose from."""

import pytest
from support.making_tools import STRING

from tool_registry.question import (
    DESCRIPTION_CHARACTERS,
    MAX_LEAVES,
    MAX_OPTIONS,
    OPTION_CHARACTERS,
    Leaf,
    leaves,
    main_type,
    question,
)


def schema_of(properties, required=()):
    return {"type": "object", "properties": properties, "required": list(required)}


def paths(schema):
    return [".".join(leaf.path) for leaf in leaves(schema)]


def asked(schema, *, name="limit", needed=True, request="", tool="search_files"):
    return question(tool, Leaf((name,), schema, needed), request)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, "integer"),
        ({"type": ["null", "number"]}, "number"),
        ({"type": ["string", "integer"]}, "string"),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "boolean"),
        ({"oneOf": [{"anyOf": [{"type": "array"}]}, {"type": "string"}]}, "string"),
        ({"properties": {}}, "object"),
        ({"type": ["null"]}, "string"),
        ({}, "string"),
    ],
)
def test_the_main_type_is_the_first_that_is_not_null(schema, expected):
    assert main_type(schema) == expected


def test_required_arguments_are_asked_for_first_and_otherwise_in_the_schemas_order():
    assert paths(schema_of({"a": STRING, "b": STRING, "c": STRING, "d": STRING}, ["d", "b"])) == [
        "b",
        "d",
        "a",
        "c",
    ]


def test_members_of_objects_are_asked_for_one_by_one_down_to_three_levels():
    deep = schema_of({"leaf": STRING, "deeper": schema_of({"lost": STRING})})
    schema = schema_of({"a": schema_of({"b": deep, "x": STRING})})
    assert paths(schema) == ["a.b.leaf", "a.x"]


def test_a_member_is_needed_only_where_its_whole_path_is():
    inner = schema_of({"must": STRING, "may": STRING}, ["must"])
    found = {leaf.path: leaf.needed for leaf in leaves(schema_of({"in": inner, "out": inner}, ["in"]))}
    assert found == {
        ("in", "must"): True,
        ("in", "may"): False,
        ("out", "must"): False,
        ("out", "may"): False,
    }


def test_lists_of_scalars_are_asked_for_and_lists_of_lists_or_objects_are_not():
    items = {
        "texts": STRING,
        "rows": {"type": "array", "items": STRING},
        "people": schema_of({"name": STRING}),
    }
    schema = schema_of({name: {"type": "array", "items": item} for name, item in items.items()})
    schema["properties"]["anything"] = {"type": "array"}
    assert paths(schema) == ["texts", "anything"]


def test_of_very_many_arguments_the_required_ones_are_asked_for():
    many = {f"a{number}": STRING for number in range(MAX_LEAVES + 20)}
    last = f"a{MAX_LEAVES + 19}"
    found = paths(schema_of(many, [last]))
    assert len(found) == MAX_LEAVES
    assert found[0] == last


def test_a_question_names_the_argument_its_description_its_kind_and_the_tool():
    schema = {"type": "integer", "description": "How  many\nhits."}
    assert asked(schema, name="maxHits").text == "max hits: How many hits. (number; needed) search files"
    assert asked({}, name="q", needed=False).text == "q: (text; optional) search files"
    nested = question("t", Leaf(("start", "postal_code"), STRING, True), "")
    assert nested.text.startswith("start postal code:")


def test_a_description_is_cut_and_one_that_is_no_text_is_left_out():
    assert "x" * DESCRIPTION_CHARACTERS + " (" in asked({"description": "x" * 500}).text
    assert asked({"description": {"en": "x"}}).text == "limit: (text; needed) search files"


def test_a_boolean_is_asked_as_yes_or_no():
    found = asked({"type": "boolean"})
    assert (found.values, found.options) == ((True, False), ("yes", "no"))
    assert "(yes or no; needed)" in found.text


def test_listed_values_are_the_options_those_that_no_text_can_say_left_out():
    found = asked({"enum": ["asc", 5, 2.5, None, {"a": 1}, True]})
    assert found.values == ("asc", 5, 2.5, True)
    assert found.options == ("asc", "5", "2.5", "yes")
    assert "(one of; needed)" in found.text


def test_of_many_listed_values_those_that_share_words_with_the_request_are_shown():
    values = [f"zone_{number}" for number in range(50)] + ["us_east_1", "eu_west"]
    found = asked({"enum": values}, request="start it in eu west please")
    assert len(found.values) == len(found.options) == MAX_OPTIONS
    assert found.values[:2] == ("eu_west", "zone_0")


def test_a_long_option_is_shown_cut_and_keeps_its_value():
    found = asked({"enum": ["y" * 200]})
    assert found.options == ("y" * OPTION_CHARACTERS,)
    assert found.values == ("y" * 200,)


def test_a_list_is_asked_for_as_many_of_what_its_items_are():
    numbers = asked({"type": "array", "items": {"type": "number"}})
    assert numbers.many
    assert "(list of number; needed)" in numbers.text
    listed = asked({"type": "array", "items": {"enum": ["a", "b"]}})
    assert (listed.many, listed.values) == (True, ("a", "b"))
    assert not asked({"type": "number"}).many
