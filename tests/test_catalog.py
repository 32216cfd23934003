"""The catalogue: immutable snapshots with epochs, differences by content, and what was set aside with its reason."""

import pytest
from support.making_tools import catalog_of, definition

from tool_registry.catalog import SetAside, ToolCatalog, read_listing
from tool_registry.tool import ToolId, content_hash

READ = definition(
    "read", "Read a file", {"path": {"type": "string"}}, ["path"], annotations={"readOnlyHint": True}
)


def listing(*definitions, server="s"):
    return read_listing(server, definitions)


def ids(tools):
    return [str(getattr(tool, "id", tool)) for tool in tools]


def test_each_snapshot_that_differs_has_the_next_epoch():
    empty = ToolCatalog()
    one = empty.with_server("s", listing(READ))
    two = one.with_server("t", listing(READ, server="t"))
    assert [empty.epoch, one.epoch, two.epoch] == [0, 1, 2]
    assert (len(empty), len(one), len(two)) == (0, 1, 2)
    assert ids(one) == ["s/read"], "an earlier snapshot is as it was"


def test_the_same_listing_again_is_the_same_snapshot():
    one = catalog_of(s=[READ])
    reordered = dict(reversed(READ.items()))
    assert one.with_server("s", listing(reordered)) is one
    assert one.without_server("unknown") is one


def test_tools_are_sorted_whatever_the_order_of_servers_and_listings():
    one = catalog_of(b=[definition("z"), definition("a")], a=[definition("m")])
    assert ids(one) == ["a/m", "b/a", "b/z"]


def test_the_difference_names_what_to_compile_and_what_to_forget():
    older = catalog_of(s=[READ, definition("old"), definition("same")])
    newer = older.with_server(
        "s", listing(READ | {"description": "Read it"}, definition("same"), definition("new"))
    )
    diff = newer.diff(older)
    assert (ids(diff.added), ids(diff.changed), ids(diff.removed)) == (["s/new"], ["s/read"], ["s/old"])
    assert diff
    assert not newer.diff(newer)


def test_a_server_that_goes_takes_its_tools_and_faults_along():
    both = catalog_of(s=[READ, "rubbish"], t=[READ])
    left = both.without_server("s")
    assert ids(left) == ["t/read"]
    assert left.set_aside == ()
    assert ids(left.diff(both).removed) == ["s/read"]


def test_two_servers_may_have_a_tool_of_one_name():
    assert ids(catalog_of(s=[READ], t=[READ])) == ["s/read", "t/read"]


@pytest.mark.parametrize(
    "change",
    [
        {"description": "Read a file!"},
        {"title": "Read"},
        {"annotations": {"readOnlyHint": False}},
        {"annotations": {}},
        {"inputSchema": READ["inputSchema"] | {"required": []}},
        {"inputSchema": READ["inputSchema"] | {"additionalProperties": False}},
        {"outputSchema": {"type": "object"}},
        {"_meta": {"vendor/key": 1}},
        {"futureField": None},
        {"name": "Read"},
    ],
)
def test_any_part_of_a_definition_is_in_its_hash(change):
    assert content_hash(READ | change) != content_hash(READ)


def test_the_order_of_keys_and_the_server_are_not_in_the_hash():
    assert content_hash(dict(reversed(READ.items()))) == content_hash(READ)
    catalog = catalog_of(s=[READ], t=[READ])
    assert len({tool.content_hash for tool in catalog}) == 1


@pytest.mark.parametrize(
    ("entry", "label", "reason"),
    [
        ("rubbish", "entry 2", "the entry is a JSON str, not an object"),
        (None, "entry 2", "the entry is a JSON NoneType, not an object"),
        ({}, "entry 2", "the definition has no name"),
        ({"name": "  "}, "entry 2", "the definition has no name"),
        ({"name": 7}, "entry 2", "the definition has no name"),
        ({"name": "x" * 2000}, "x" * 80, "the name has 2,000 characters; at most 1,024 are usable"),
        ({"name": "t", "inputSchema": []}, "t", "inputSchema is a JSON list, not an object"),
        ({"name": "t", "inputSchema": "object"}, "t", "inputSchema is a JSON str, not an object"),
        (READ | {"description": "again"}, "read", "listed twice; the first definition is in use"),
    ],
)
def test_an_entry_that_is_no_tool_is_set_aside_by_name_and_the_rest_stays(entry, label, reason):
    result = listing(READ, entry, definition("after"))
    assert ids(result.tools) == ["s/read", "s/after"]
    assert result.set_aside == (SetAside("s", label, reason),)
    assert result.tools[0].description == "Read a file"


@pytest.mark.parametrize("schema", [None, True, False, {}, {"type": "object"}])
def test_a_missing_or_odd_schema_is_usable(schema):
    assert ids(listing({"name": "t", "inputSchema": schema}).tools) == ["s/t"]
    assert ids(listing({"name": "t"}).tools) == ["s/t"]


@pytest.mark.parametrize("name", ["with spaces", "x" * 200, "ünï/çödé", "党"])
def test_odd_names_are_kept_verbatim(name):
    assert listing({"name": name}).tools[0].id == ToolId("s", name)


def test_a_change_of_what_is_set_aside_alone_is_a_new_snapshot():
    one = catalog_of(s=[READ])
    two = one.with_server("s", listing(READ, "rubbish"))
    assert two.epoch == one.epoch + 1
    assert not two.diff(one)


def test_behaviour_hints_are_taken_only_where_they_are_said():
    hints = {"readOnlyHint": True, "destructiveHint": "yes", "idempotentHint": None}
    (tool,) = listing(definition("t", annotations=hints)).tools
    assert (tool.annotations.read_only, tool.annotations.destructive, tool.annotations.idempotent) == (
        True,
        None,
        None,
    )
    (silent,) = listing(definition("t", annotations="none")).tools
    assert silent.annotations.read_only is None
