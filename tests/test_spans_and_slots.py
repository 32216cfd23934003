"""What a request offers as values: spans of it, and for each argument only what its schema allows."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus_gateway.turn.result import GroundKind
from nexus_gateway.turn.slots import Slot, choose, narrow
from nexus_gateway.turn.sources import Source
from nexus_gateway.turn.spans import SpanKind, given_name, said_text, typed_spans, word_runs
from tool_registry.text import split_words

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": name} for name in ("string", "integer", "number", "boolean"))
PRIORITY = {"type": "string", "enum": ["low", "high", "very high"]}


def source(text, known=()):
    return Source(text, GroundKind.SPAN, frozenset(known))


def values(text, name, schema=STRING, *, required=True, known=(), context=None):
    known = {*known, *split_words(name)}  # a tool's own words hold its arguments' names
    sources = [source(text, known)]
    if context is not None:
        sources.append(Source(context, GroundKind.CONTEXT, known))
    return [option.value for option in choose(Slot(name, schema, required), sources).options]


def found(text, kind):
    return [span.text for span in typed_spans(text) if span.kind is kind]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read /etc/hosts.", ["/etc/hosts"]),
        ("open C:\\Users\\me\\notes.txt, please", ["C:\\Users\\me\\notes.txt"]),
        ("open ~/todo.md!", ["~/todo.md"]),
        ("see ./src/main.py; and ../x/y.md?", ["./src/main.py", "../x/y.md"]),
        ("move src/app.py away", ["src/app.py"]),
        ("read (notes.txt).", ["notes.txt"]),
        ("read a.txt, b.tar.gz: now", ["a.txt", "b.tar.gz"]),
        ("path=/a/b", ["/a/b"]),
        ("读取文件 /数据/报告.txt 好", ["/数据/报告.txt"]),
        ("show /tmp/🎉/a.txt", ["/tmp/🎉/a.txt"]),
        ("say it ends. Then stop", []),
    ],
)
def test_paths_end_where_the_sentence_goes_on(text, expected):
    assert found(text, SpanKind.PATH) == expected


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("get https://example.com/a?b=1&c=2#d.", SpanKind.URL, ["https://example.com/a?b=1&c=2#d"]),
        ("(see http://localhost:8080/x)", SpanKind.URL, ["http://localhost:8080/x"]),
        (
            "to ann@example.com, bob.b+x@mail.co.uk.",
            SpanKind.EMAIL,
            ["ann@example.com", "bob.b+x@mail.co.uk"],
        ),
        ("on 2026-11-03, or 3/11/2026.", SpanKind.DATE, ["2026-11-03", "3/11/2026"]),
        ("2026-11-03T09:30:00Z", SpanKind.DATE, ["2026-11-03T09:30:00Z"]),
        ("at 09:30, not 9:05:10", SpanKind.TIME, ["09:30", "9:05:10"]),
        ("set -3.5, 42 and +7.", SpanKind.NUMBER, ["-3.5", "42", "+7"]),
        ("version v2 of a1b2c3d", SpanKind.NUMBER, []),
        ("commit a1b2c3d", SpanKind.IDENTIFIER, ["a1b2c3d"]),
        ("call read_file", SpanKind.IDENTIFIER, ["read_file"]),
        ('say "it\'s mine"', SpanKind.QUOTED, ["it's mine"]),
        ("say 'a \"b\" c'", SpanKind.QUOTED, ['a "b" c']),
        ("write «bonjour», “hi” and `x`", SpanKind.QUOTED, ["bonjour", "hi", "x"]),
        ("it's Ann's file", SpanKind.QUOTED, []),
        ('an "unclosed quote', SpanKind.QUOTED, []),
        ('"/a/b.txt" and "5"', SpanKind.PATH, []),
    ],
)
def test_typed_spans_are_found_without_the_punctuation_around_them(text, kind, expected):
    assert found(text, kind) == expected


@given(st.text(max_size=300))
def test_every_span_is_a_piece_of_the_text_and_none_overlap(text):
    spans = typed_spans(text)
    assert all(text[span.start : span.end] == span.text for span in spans)
    assert all(a.end <= b.start for a, b in pairwise(spans))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write a note saying hello there", "hello there"),
        ("remind me: buy milk", "buy milk"),
        ("commit with message fix the bug", "fix the bug"),
        ('say hello, with the text "line one"', "line one"),
        ("nothing is said", None),
    ],
)
def test_said_text_runs_to_the_end(text, expected):
    span = said_text(text)
    assert (span and span.text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("make a page titled Big plans", "Big plans"),
        ("create a branch named feature-x and switch to it", "feature-x"),
        ("a note called Garden, saying plant tulips", "Garden"),
        ("an event with the title 'Team lunch' on 2026-01-02", "Team lunch"),
        ("nothing has a name", None),
    ],
)
def test_a_given_name_ends_where_the_sentence_goes_on(text, expected):
    span = given_name(text)
    assert (span and span.text) == expected


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("find all the tulips", {"find"}, ["tulips"]),
        ("search for the cat in the hat", {"search"}, ["cat", "cat in the hat", "hat"]),
        ("say hello world. Then stop", {"say"}, ["hello world", "stop"]),
        ("list files", {"file"}, []),
        ("what is Ann's plan?", {"plan"}, ["Ann"]),
    ],
)
def test_runs_are_the_words_that_say_something_new_within_a_sentence(text, known, expected):
    assert [span.text for span in word_runs(text, known)] == expected


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("read the file /a/b.txt", "path", ["/a/b.txt"]),
        ("open https://x.io/a now", "url", ["https://x.io/a"]),
        ("mail ann@x.io hi", "recipient", ["ann@x.io"]),
        ("write a note saying hello there", "content", ["hello there"]),
        ('write "hello world" to a.txt', "content", ["hello world"]),
        ("look at branch main", "branch", ["main"]),
        ("commit a1b2c3d", "sha", ["a1b2c3d"]),
        ("on 2026-01-02 at 10:00", "start_date", ["2026-01-02", "10:00"]),
        ("close PROJ-123", "issue_key", ["PROJ-123"]),
        ("mail ann@x.io the news", "to", ["ann@x.io"]),
    ],
)
def test_the_name_of_an_argument_says_which_spans_suit_it(text, name, expected):
    assert values(text, name) == expected


@pytest.mark.parametrize("text", ["read it", "please read the file", "", "???", "🎉"])
def test_a_request_that_says_nothing_new_fills_no_text(text):
    assert values(text, "path", known={"read", "file"}) == []


@pytest.mark.parametrize(("name", "text"), [("url", "open example"), ("email", "write to Ann")])
def test_addresses_are_never_plain_words(name, text):
    assert values(text, name) == []


def test_a_format_wants_a_value_of_it():
    assert values("due 2026-01-02", "when", STRING | {"format": "date"}) == ["2026-01-02"]
    assert values("due tomorrow", "when", STRING | {"format": "date"}) == []


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("limit 5", INTEGER, [5]),
        ("limit five", INTEGER, [5]),
        ("limit 2.5", INTEGER, []),
        ("limit 2.0", INTEGER, [2]),
        ("limit 2.5 or 3", NUMBER, [2.5, 3]),
        ("limit 500", INTEGER | {"maximum": 100}, []),
        ("limit " + "7" * 400, NUMBER, []),
        ("limit it", INTEGER, []),
    ],
)
def test_numbers_are_those_of_the_text_that_the_schema_allows(text, schema, expected):
    found_values = values(text, "limit", schema)
    assert found_values == expected
    assert [type(value) for value in found_values] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("text", "name", "schema"),
    [
        ("read a.txt", "limit", INTEGER),
        ("show 5 files", "limit", INTEGER),
        ("do it", "priority", PRIORITY),
        ("do it", "force", BOOLEAN),
        ("read a.txt", "encoding", STRING | {"default": "utf-8"}),
        ("read a.txt", "since", STRING | {"format": "date"}),
        ("anything", "kind", {"const": "x"}),
    ],
)
def test_an_optional_argument_without_evidence_stays_away(text, name, schema):
    assert values(text, name, schema, required=False) == []


@pytest.mark.parametrize(
    ("text", "name", "schema", "expected"),
    [
        ("limit 5", "limit", INTEGER, [5]),
        ("with high priority", "priority", PRIORITY, ["high"]),
        ("force it", "force", BOOLEAN, [True]),
        ("do not force it", "force", BOOLEAN, [False]),
        ("encoding latin1", "encoding", STRING, ["latin1"]),
        ("since 2026-01-02", "since", STRING | {"format": "date"}, ["2026-01-02"]),
    ],
)
def test_an_optional_argument_with_evidence_is_filled(text, name, schema, expected):
    assert values(text, name, schema, required=False) == expected


def test_an_enum_is_matched_by_whole_words_the_most_specific_first():
    assert values("a very high one", "priority", PRIORITY) == ["very high"]
    assert values("HIGH", "priority", PRIORITY) == ["high"]
    assert values("high or low", "priority", PRIORITY) == ["low", "high"]
    assert values("a highlight", "priority", PRIORITY, required=False) == []


def test_a_required_flag_is_left_to_the_model_and_says_so():
    options = choose(Slot("force", BOOLEAN, required=True), [source("do it")]).options
    assert [option.value for option in options] == [True, False]
    assert {option.ground.kind for option in options} == {GroundKind.INFERENCE}


def test_a_required_enum_that_nothing_mentions_is_left_to_the_model():
    options = choose(Slot("priority", PRIORITY, required=True), [source("do it")]).options
    assert [option.value for option in options] == PRIORITY["enum"]
    assert {option.ground.kind for option in options} == {GroundKind.INFERENCE}


def test_a_required_argument_that_nothing_mentions_takes_its_default():
    for schema in (STRING | {"default": "z"}, PRIORITY | {"default": "low"}, INTEGER | {"default": 3}):
        options = choose(Slot("mode", schema, required=True), [source("do it", {"do"})]).options
        assert [option.value for option in options] == [schema["default"]]
        assert options[0].ground.kind is GroundKind.DEFAULT


def test_a_constant_is_given():
    assert values("anything", "kind", {"const": {"a": 1}}) == [{"a": 1}]


@pytest.mark.parametrize(
    ("name", "schema", "context", "expected"),
    [
        ("path", STRING, "the file is /a/b.txt", ["/a/b.txt"]),
        ("limit", INTEGER, "limit 7", [7]),
        ("priority", PRIORITY, "it is high", ["high"]),
    ],
)
def test_the_context_is_asked_after_the_request(name, schema, context, expected):
    assert values("do it", name, schema, known={"do"}, context=context) == expected
    assert values("use /r limit 3 low", name, schema, context=context) != expected


@pytest.mark.parametrize(
    ("text", "name", "items", "expected"),
    [
        ("read a.txt and b.txt", "paths", STRING, [["a.txt", "b.txt"]]),
        ('tags "red" and "blue"', "tags", STRING, [["red", "blue"]]),
        ("add 1, 2 and 3.5", "numbers", NUMBER, [[1, 2, 3.5]]),
        ("low and high", "levels", {"enum": ["low", "high", "top"]}, [["low", "high"]]),
        ("nothing", "levels", {"enum": ["low", "high"]}, []),
    ],
)
def test_a_list_holds_what_the_text_names(text, name, items, expected):
    assert values(text, name, {"type": "array", "items": items}) == expected


def test_a_list_in_words_may_be_split_at_its_commas():
    assert ["red", "blue", "green"] in values(
        "tags red, blue and green", "tags", {"type": "array", "items": STRING}
    )


def test_a_nested_object_is_narrowed_to_what_the_text_says():
    person = {
        "type": "object",
        "properties": {"name": STRING, "age": INTEGER, "level": PRIORITY, "active": BOOLEAN},
        "required": ["name"],
    }
    text = "the name Ann, the age 5"
    narrowed = narrow(person, source(text, {"name", "age"}))
    assert narrowed["required"] == ["name", "age"]
    assert narrowed["properties"]["age"] == {"enum": [5]}
    assert "Ann" in narrowed["properties"]["name"]["enum"]
    assert narrowed["additionalProperties"] is False
    choice = choose(Slot("person", person, required=True), [source(text, {"name", "age"})])
    assert choice.free == narrowed


def test_a_nested_object_whose_required_part_is_not_said_is_nothing():
    asked = {"type": "object", "properties": {"url": STRING}, "required": ["url"]}
    assert narrow(asked, source("do it")) is None
    assert values("do it", "target", asked) == []
    assert choose(Slot("target", asked, required=True), [source("do it")]).free is None


def test_a_taken_span_is_not_offered_again():
    text = source("copy a.txt to b.txt")
    first = choose(Slot("source", STRING, required=True), [text]).options
    assert [option.value for option in first] == ["a.txt", "b.txt"]
    text.take(first[0].span)
    assert [
        option.value for option in choose(Slot("destination", STRING, required=True), [text]).options
    ] == ["b.txt"]


@pytest.mark.parametrize("text", ["/数据/报告.txt", "/tmp/🎉.txt", "/tmp/naïve-café.md"])
def test_values_keep_every_character(text):
    assert values(f"read {text}", "path") == [text]


def test_words_without_spaces_are_a_value():
    assert values("搜索猫", "query") == ["搜索猫"]
    assert values("搜索 猫", "query", known={"搜索"}) == ["猫"]


def test_a_number_is_part_of_the_words_around_it():
    assert "python 3 tutorials" in values("search for python 3 tutorials", "query", known={"search"})


def test_a_long_request_gives_a_bounded_number_of_options():
    text = " ".join(f"word{number}" for number in range(2_000))
    assert 0 < len(values(text, "query")) <= 200


def test_a_long_number_keeps_every_digit():
    assert values("message 12345678901234567890", "message_id", INTEGER) == [12345678901234567890]
