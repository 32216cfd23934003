"""Which tools of different servers are one tool."""

import itertools
import json
from pathlib import Path

import pytest
from support.making_tools import definition

from tool_registry.equivalents import Equivalents
from tool_registry.tool import ToolId, UnusableToolError, tool_from_definition

DATA = Path(__file__).parents[2] / "shared" / "data"


def tool(server, name, description="Reads one file from the disk"):
    return tool_from_definition(server, definition(name, description))


def groups_of(*tools):
    return {tuple(map(str, group)) for group in Equivalents.build(tools).groups}


def test_a_name_counts_by_its_letters_and_digits():
    assert groups_of(tool("a", "read_file"), tool("b", "readFile"), tool("c", "read-file2")) == {
        ("a/read_file", "b/readFile")
    }


def test_descriptions_must_share_half_of_their_words():
    assert groups_of(tool("a", "x", "one two three four"), tool("b", "x", "one two three")) == {
        ("a/x", "b/x")
    }
    assert not groups_of(tool("a", "x", "one two three four"), tool("b", "x", "one six seven"))


def test_names_and_descriptions_in_other_scripts_are_compared_too():
    assert groups_of(tool("a", "读取", "读取文件"), tool("b", "读取", "读取文件")) == {("a/读取", "b/读取")}
    assert not groups_of(tool("a", "读取", "读取文件"), tool("b", "写入", "读取文件"))


def test_tools_of_one_server_are_not_equivalent_and_neither_are_those_that_say_nothing():
    assert not groups_of(tool("a", "read_file"), tool("a", "readFile"))
    assert not groups_of(tool("a", "search", " "), tool("b", "search", " "))


def test_what_equals_a_third_tool_is_in_one_group_with_it():
    one, two, three = (tool(*of) for of in (("a", "x", "p q"), ("b", "x", "p q r s"), ("c", "x", "r s")))
    for order in itertools.permutations([one, two, three]):
        assert groups_of(*order) == {("a/x", "b/x", "c/x")}
    assert not groups_of(one, three)


def test_a_tool_alone_is_its_own_group():
    found = Equivalents.build([tool("a", "x"), tool("b", "x"), tool("c", "y")])
    assert found.group_of(ToolId("b", "x")) == (ToolId("a", "x"), ToolId("b", "x"))
    assert found.group_of(ToolId("c", "y")) == (ToolId("c", "y"),)
    assert found.group_of(ToolId("nobody", "knows")) == (ToolId("nobody", "knows"),)


def test_a_group_falls_apart_when_what_held_it_together_goes():
    one, two, three = (tool(*of) for of in (("a", "x", "p q"), ("b", "x", "p q r s"), ("c", "x", "r s")))
    before = Equivalents.build([one, two, three])
    after = before.edited([], [two])
    assert not after.groups
    assert after.group_of(one.id) == (one.id,)
    assert len(before.groups) == 1
    again = after.edited([tool("b", "x", "p q r s")], [])
    assert again.groups == before.groups


@pytest.mark.skipif(not DATA.exists(), reason="the measuring data is not here")
def test_the_groups_are_those_of_the_measuring_data_but_for_what_ours_is_stricter_about():
    tools = {}
    for name in ("registry", "wild_tools", "livemcp_tools"):
        for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            try:
                one = tool_from_definition(entry.pop("server"), entry)
            except UnusableToolError:
                continue
            tools.setdefault(str(one.id), one)
    theirs = [
        set(group) & tools.keys() for group in json.loads((DATA / "equivalents.json").read_text())["groups"]
    ]
    expected = {pair for group in theirs for pair in itertools.combinations(sorted(group), 2)}
    groups = (sorted(map(str, group)) for group in Equivalents.build(tools.values()).groups)
    found = {pair for group in groups for pair in itertools.combinations(group, 2)}
    assert len(expected & found) / len(expected) > 0.9  # theirs join other scripts and empty descriptions
    assert len(expected & found) / len(found) > 0.99
