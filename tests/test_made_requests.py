"""Requests made from definitions read as a user's, and are the same for the same seed."""

import random

from nexus_gateway.routing.made_requests import RequestMaker
from tool_registry.index import compile_tool
from tool_registry.tool import tool_from_definition


def tool(name, description="", properties=None, required=()):
    schema = {"type": "object", "properties": properties or {}, "required": list(required)}
    return compile_tool(
        tool_from_definition("s", {"name": name, "description": description, "inputSchema": schema})
    )


LISTING = tool(
    "list_open_issues",
    "Lists all open issues of a repository. Returns JSON.",
    {"repository": {"type": "string"}, "state": {"type": "string", "enum": ["open", "closed"]}},
    ["repository"],
)


def made(compiled, count=30, seed=1, **options):
    return RequestMaker(random.Random(seed), **options).make(compiled, count)


def test_the_same_seed_makes_the_same_requests_and_another_seed_others():
    assert made(LISTING) == made(LISTING)
    assert made(LISTING) != made(LISTING, seed=2)


def test_requests_are_different_ones_about_what_the_tool_does():
    requests = made(LISTING)
    assert len(set(requests)) == len(requests) == 30
    about = [text for text in requests if "issue" in text.lower() or "repository" in text.lower()]
    assert len(about) > 25
    assert not any("lists" in text.lower().split() for text in requests), "a user gives an order"


def test_boilerplate_before_the_verb_is_left_out():
    requests = made(tool("x", "This tool is used to convert a picture into another format."))
    assert any("convert" in text.lower() for text in requests)
    assert not any("this tool" in text.lower() for text in requests)


def test_odd_definitions_make_requests_or_none_and_never_fail():
    assert made(tool("x")) == []
    odd = tool(
        "run-it",
        "跑",
        {"ids": {"type": ["string", "null"]}, "flag": {"type": "boolean"}, "e": {"enum": [1]}},
        ["ids"],
    )
    assert made(odd)
    assert made(tool("a" * 60, "word " * 4000))
