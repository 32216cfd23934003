"""A request that states another value wins over a binding; one that only holds other values does not."""

import pytest
from support.making_tools import STRING, compiled

from adapters.engine_double import ScriptedEngine
from nexus_gateway.turn.arguments import ArgumentWriter, slots, with_rivals
from nexus_gateway.turn.result import Ground, GroundKind
from nexus_gateway.turn.sources import Source
from nexus_gateway.turn.stated import bound_choice

ID = {"type": "integer"}


def chosen(request, name="projectId", schema=STRING, *, bound="p-1", also=(), context=""):
    """The values that are left for an argument, and whether the binding counts as unsure."""
    more = dict.fromkeys(also, STRING)
    properties, needed = {name: schema, **more}, [name, *more]
    made = compiled("tracker", "list_bugs", "List the bugs.", properties, needed)
    sources = [Source(text, GroundKind.SPAN, made.vocabulary) for text in (request, context) if text]
    slot = next(slot for slot in with_rivals(slots(made.schema)) if slot.name == name)
    return bound_choice(slot, sources, bound).options


@pytest.mark.parametrize(
    "request_text",
    [
        "list the bugs",
        "list the 5 latest bugs of my project",
        "list the bugs of the current project",
        "list bugs in this project about a crash",
        "list the last 5 project bugs",
        "list bugs that Ann reported, for BUG-12 and a.txt",
        "",
    ],
)
def test_what_states_no_value_leaves_the_binding(request_text):
    assert [(option.value, option.ground) for option in chosen(request_text)] == [
        ("p-1", Ground(GroundKind.BINDING))
    ]


@pytest.mark.parametrize(
    ("request_text", "value"),
    [
        ("list bugs in project p-2", "p-2"),
        ("list bugs of project apollo", "apollo"),
        ("acme-web project: list bugs", "acme-web"),
        ("list bugs, the project is p-3", "p-3"),
        ("list bugs, the project key is apollo", "apollo"),
        ("list bugs in project 'Apollo'.", "Apollo"),
        ("list bugs, project: apollo", "apollo"),
        ("list bugs, the project is called apollo", "apollo"),
        ("list bugs with projectId apollo", "apollo"),
        ("list bugs where projectId=apollo", "apollo"),
        ("list bugs in the acme-web project", "acme-web"),
        ("list the bugs of the Apollo project", "Apollo"),
        ("list the bugs of p-22", "p-22"),
        ("list bugs in PROJECT #22", "22"),
    ],
)
def test_what_states_another_value_wins(request_text, value):
    [option] = chosen(request_text)
    assert (option.value, option.ground.kind) == (value, GroundKind.SPAN)
    assert option.span.text == value
    assert request_text[option.span.start : option.span.end] == value


def test_the_context_states_values_too():
    [option] = chosen("list the bugs", context="We work on project p-7.")
    assert option.value == "p-7"


@pytest.mark.parametrize(
    ("request_text", "sure"), [("bugs in project p-2", True), ("bugs in project plans", False)]
)
def test_a_plain_word_after_the_name_is_used_as_one_of_several(request_text, sure):
    [option] = chosen(request_text)
    assert (option.value, option.ground.chosen) == (request_text.split()[-1], not sure)


@pytest.mark.parametrize(
    "request_text",
    ["list bugs of the apollo project", "show the project timeline", "list bugs, the project is broken"],
)
def test_a_word_that_may_be_another_value_makes_the_binding_unsure(request_text):
    [option] = chosen(request_text)
    assert (option.value, option.ground.kind, option.ground.chosen) == ("p-1", GroundKind.BINDING, True)


@pytest.mark.parametrize(
    ("request_text", "value"), [("bugs of account 12", 12), ("bugs of account apollo", 7), ("5 bugs", 7)]
)
def test_a_stated_value_has_to_fit_the_schema(request_text, value):
    assert [option.value for option in chosen(request_text, "accountId", ID, bound=7)] == [value]


@pytest.mark.parametrize(("request_text", "value"), [("bugs in the north", "north"), ("bugs", "south")])
def test_an_enum_is_overruled_by_its_members(request_text, value):
    schema = {"type": "string", "enum": ["north", "south"]}
    assert [option.value for option in chosen(request_text, "region", schema, bound="south")] == [value]


@pytest.mark.parametrize(
    ("request_text", "also", "value"),
    [
        ("bugs at https://b.io", (), "https://b.io"),
        ("bugs at https://b.io", ("pageUrl",), "https://a.io"),
        ("bugs of p-2", ("boardId",), "p-1"),
    ],
)
def test_values_that_another_argument_needs_overrule_nothing(request_text, also, value):
    url = value.startswith("https")
    name, bound = ("baseUrl", "https://a.io") if url else ("projectId", "p-1")
    assert [option.value for option in chosen(request_text, name, bound=bound, also=also)] == [value]


@pytest.mark.anyio
async def test_the_writer_fills_what_is_unstated_and_shows_no_bound_value_to_the_model():
    tool = compiled(
        "t", "copy", "Copy.", {"projectId": STRING, "a": STRING, "owner": STRING}, ["projectId", "a"]
    )
    engine = ScriptedEngine(['"x"'])

    async def loaded():
        return engine

    bindings = {"projectId": "p-1", "owner": "me"}
    draft = await ArgumentWriter(loaded, max_tokens=64).write(tool, 'copy "x" or "y"', "", bindings)
    assert draft.arguments == {"projectId": "p-1", "a": "x", "owner": "me"}
    assert [draft.grounds[name].kind for name in ("projectId", "a", "owner")] == [
        GroundKind.BINDING, GroundKind.SPAN, GroundKind.BINDING
    ]  # fmt: skip
    [call] = engine.calls
    assert all("p-1" not in segment.text for segment in call.segments)


@pytest.mark.parametrize(
    "request_text",
    ["project " * 20_000, "a-" * 40_000 + " project", "#" * 80_000 + " project", "project" + " id" * 20_000],
)
def test_a_long_request_ends_in_an_option(request_text):
    assert chosen(request_text)
