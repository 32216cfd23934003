"""From scores to a decision: names win, twins are one choice, the gate has three outcomes."""

import numpy as np
import pytest
from support.making_tools import DESTROYS, READS, STRING, compiled

from tool_registry.evidence import evidence
from tool_registry.index import build_index
from tool_registry.routing import Gate, RoutingOutcome, decide, exact_names, fold_duplicates, fuse, rank

GATE = Gate(margin=0.06, floor=0.24, candidates=3)
PATH = {"path": STRING}
FILE_TOOLS = [
    (
        "read_file",
        "Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead.",
        PATH,
        ["path"],
    ),
    ("read_text_file", "Read the complete contents of a file from the file system as text.", PATH, ["path"]),
    (
        "read_media_file",
        "Read an image or audio file. Returns the base64 encoded data and MIME type.",
        PATH,
        ["path"],
    ),
]


def unit(*numbers):
    vector = np.array(numbers, np.float32)
    return vector / np.linalg.norm(vector)


def index_with(*tools):
    """Each a compiled tool and its vector."""
    return build_index(1, [tool for tool, _ in tools], [vector[None] for _, vector in tools])


def plain(*names, server="s"):
    """Tools whose vectors are the axes of the space."""
    axes = np.eye(max(len(names), 3), dtype=np.float32)
    return index_with(*((compiled(server, name), axes[place]) for place, name in enumerate(names)))


def names(candidates):
    return [candidate.tool_id.name for candidate in candidates]


def route(index, request, query=None, gate=GATE, visible=None):
    query = unit(1, 1, 1) if query is None else query
    return decide(rank(index, request, query, visible=visible), gate)


@pytest.mark.parametrize(
    "request_text",
    [
        "files/create_directory for me",
        "use create_directory to make one",
        "please run CREATE_DIRECTORY.",
        "call `create_directory`",
        "create_directory",
        "(create_directory)",
    ],
)
def test_a_request_that_names_a_tool_is_routed_there_whatever_the_vectors_say(request_text):
    index = plain("create_directory", "list_directory", "search", server="files")
    decision = route(index, request_text, query=unit(0, 0, 1))
    assert decision.outcome is RoutingOutcome.ROUTED
    assert decision.candidates[0].tool_id.name == "create_directory"
    assert decision.candidates[0].exact
    assert decision.reason == "the request names the tool"


def test_a_named_tool_is_routed_even_below_the_floor():
    decision = route(plain("create_directory", "b", "c"), "create_directory", query=unit(-1, 0, 0))
    assert decision.outcome is RoutingOutcome.ROUTED
    assert decision.candidates[0].dense < GATE.floor


@pytest.mark.parametrize(
    "request_text", ["call `search`", 'use "search" now', "the tool search", "the search tool", "Search"]
)
def test_a_one_word_name_counts_where_the_request_marks_it_as_a_name(request_text):
    index = plain("search", "other", "third")
    assert exact_names(index, request_text, None) == [0]


@pytest.mark.parametrize(
    ("tool", "request_text"),
    [
        ("search", "search the web for cats"),
        ("search", "do some research"),
        ("read_file", "open /srv/read_file/notes.txt"),
        ("read_file", "open docs/read_file"),  # ends like `s/read_file`
        ("read_file", "use read_file_lines"),
        ("read_file", "use my_read_file"),
        ("read_file", "use read_file-v2"),
        ("git_log", "see git_logs"),
    ],
)
def test_a_name_inside_prose_a_path_or_a_longer_name_is_not_one(tool, request_text):
    assert exact_names(plain(tool, "other", "third"), request_text, None) == []


def test_the_longer_of_two_names_wins_where_the_request_has_it():
    index = plain("read_file", "read_file_lines", "third")
    assert exact_names(index, "use read_file_lines on a.txt", None) == [1]


def test_two_named_tools_are_ambiguous():
    index = plain("copy_file", "move_file", "third")
    decision = route(index, "copy_file or move_file?")
    assert decision.outcome is RoutingOutcome.AMBIGUOUS
    assert set(names(decision.candidates[:2])) == {"copy_file", "move_file"}


def test_a_server_tells_tools_of_one_name_apart():
    axes = np.eye(3, dtype=np.float32)
    index = index_with(*((compiled(server, "echo"), axes[place]) for place, server in enumerate(["a", "b"])))
    decision = route(index, "run b/echo")
    assert decision.outcome is RoutingOutcome.ROUTED
    assert str(decision.candidates[0].tool_id) == "b/echo"
    assert route(index, "run `echo`").outcome is RoutingOutcome.AMBIGUOUS


def files_index(order=(0, 1, 2), annotations=READS):
    vectors = [unit(1, 0.1, 0), unit(1, 0, 0), unit(0.6, 0, 0.8)]
    return index_with(
        *((compiled("fs", *FILE_TOOLS[place], annotations=annotations), vectors[place]) for place in order)
    )


@pytest.mark.parametrize("query", [unit(1, 0.1, 0), unit(1, 0, 0)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_deprecated_twin_loses_to_its_replacement_however_it_scores(query, order):
    decision = route(files_index(order), "read the file a.txt", query)
    assert decision.outcome is RoutingOutcome.ROUTED
    assert names(decision.candidates) == ["read_text_file", "read_media_file"]


def unfolded(index, request, query):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tool_registry.routing.fold_duplicates", lambda _index, ranked, _prefer: ranked)
        return rank(index, request, query)


def test_twins_keep_the_better_score_so_that_they_are_no_close_choice():
    query = unit(1, 0.1, 0)
    scores = [candidate.score for candidate in unfolded(files_index(), "read file", query)]
    best = rank(files_index(), "read file", query)[0]
    assert best.tool_id.name == "read_text_file"
    assert best.score == pytest.approx(scores[0])
    assert scores[0] > scores[1]


@pytest.mark.parametrize(
    "other",
    [
        compiled("other", "read_text_file", "Read a file.", PATH, ["path"]),
        compiled("fs", "read_text_file", "Read a file.", PATH | {"encoding": STRING}, ["path", "encoding"]),
        compiled("fs", "read_text_file", "Read a file.", {"path": {"type": "integer"}}, ["path"]),
        compiled("fs", "read_text_file", "Read a file.", PATH, ["path"], annotations=DESTROYS),
        compiled("fs", "read_text_document", "Read a file.", PATH, ["path"]),
    ],
    ids=["another server", "other needs", "other types", "destructive", "other words"],
)
def test_tools_that_differ_in_use_are_not_twins(other):
    index = index_with(
        (compiled("fs", "read_file", "Read a file.", PATH, ["path"]), unit(1, 0, 0)), (other, unit(1, 0, 0))
    )
    assert len(rank(index, "read the file", unit(1, 0, 0))) == 2


def test_folding_nothing_gives_nothing():
    assert fold_duplicates(plain("a"), []) == []


def test_the_best_of_two_clear_tools_is_routed():
    decision = route(plain("alpha", "beta", "gamma"), "zzz", unit(1, 0.2, 0))
    assert decision.outcome is RoutingOutcome.ROUTED
    assert names(decision.candidates) == ["alpha", "beta", "gamma"]
    assert decision.margin > GATE.margin


def test_equally_close_tools_are_offered_best_first_and_no_more_than_the_gate_keeps():
    index = plain("alpha", "beta", "gamma", "delta")
    decision = route(index, "zzz", unit(1, 0.99, 0.98, 0.97))
    assert decision.outcome is RoutingOutcome.AMBIGUOUS
    assert names(decision.candidates) == ["alpha", "beta", "gamma"]
    assert decision.margin == pytest.approx(0.005, abs=0.004)


def test_nothing_close_is_no_tool():
    decision = route(plain("alpha", "beta", "gamma"), "zzz", unit(-1, -1, -1))
    assert decision.outcome is RoutingOutcome.ABSTAINED
    assert decision.reason == "no tool is close to the request"


def test_the_gate_decides_not_the_ranking():
    index, query = plain("alpha", "beta", "gamma"), unit(1, 0.9, 0)
    assert route(index, "zzz", query, Gate(margin=0.01)).outcome is RoutingOutcome.ROUTED
    assert route(index, "zzz", query, Gate(margin=0.5)).outcome is RoutingOutcome.AMBIGUOUS
    assert route(index, "zzz", query, Gate(margin=0.01, floor=0.9)).outcome is RoutingOutcome.ABSTAINED


def test_words_decide_where_vectors_are_equal():
    one, other = compiled("s", "open_issue", "Open an issue"), compiled("s", "send_mail", "Send a mail")
    index = index_with((one, unit(1, 0, 0)), (other, unit(1, 0, 0)))
    assert names(route(index, "mail this to Ann", unit(1, 0, 0)).candidates)[0] == "send_mail"


def test_a_request_that_only_reads_prefers_a_tool_that_only_reads():
    reader = compiled("s", "list_notes", "Notes", annotations=READS)
    writer = compiled("s", "drop_notes", "Notes", annotations=DESTROYS)
    index, query = index_with((reader, unit(1, 0.05, 0)), (writer, unit(1, 0, 0))), unit(1, 0, 0)
    assert names(route(index, "could you show me the notes", query).candidates)[0] == "list_notes"
    assert names(route(index, "throw the notes away", query).candidates)[0] == "drop_notes"
    assert names(route(index, "show drop_notes", query).candidates)[0] == "drop_notes", "a name still wins"


def test_a_tool_the_caller_may_not_see_is_never_scored_not_even_by_name():
    index, visible = plain("secret_tool", "beta", "gamma"), np.array([False, True, True])
    decision = route(index, "run secret_tool", unit(1, 0.1, 0), visible=visible)
    assert names(decision.candidates) == ["beta", "gamma"]
    assert exact_names(index, "run secret_tool", visible) == []
    assert not any(candidate.exact for candidate in decision.candidates)
    assert route(index, "run secret_tool", visible=np.zeros(3, bool)).outcome is RoutingOutcome.ABSTAINED


def test_no_tools_are_no_candidates():
    decision = route(build_index(0, [], []), "anything")
    assert decision.outcome is RoutingOutcome.ABSTAINED
    assert decision.reason == "no tool is available"
    assert decision.candidates == ()


def test_one_tool_is_routed_when_it_is_close_and_not_otherwise():
    index = plain("alpha")
    assert route(index, "zzz", unit(1, 0, 0)).outcome is RoutingOutcome.ROUTED
    assert route(index, "zzz", unit(0, 1, 0)).outcome is RoutingOutcome.ABSTAINED


def test_ties_are_in_the_order_of_the_tools_every_time():
    tools = [(compiled("s", f"tool {place:02}"), unit(1, 0, 0)) for place in range(40)]
    ranked = [names(rank(index_with(*tools), "zzz", unit(1, 0, 0), limit=7)) for _ in range(3)]
    assert ranked == [[f"tool {place:02}" for place in range(7)]] * 3


def test_an_exact_name_wins_over_any_cosine():
    index = index_with((compiled("s", "say_hi"), unit(-1, 0.01, 0)), (compiled("s", "beta"), unit(1, 0, 0)))
    decision = route(index, "say_hi beta", unit(1, 0, 0))
    assert names(decision.candidates) == ["say_hi", "beta"]
    assert decision.outcome is RoutingOutcome.ROUTED


def test_a_server_and_tool_inside_a_longer_path_are_not_a_name():
    index = plain("read", "b", "c", server="files")
    for request in ("see files/reader", "see /home/files/read", "see files/read/me.txt", "see myfiles/read"):
        assert exact_names(index, request, None) == [], request
    assert exact_names(index, "use files/read, please", None) == [0]


def test_fused_scores_add_some_of_bm25_up_to_a_bound():
    dense, lexical = np.array([1.0, 0.5, -np.inf], np.float32), np.array([0.0, 10.0, 8.0], np.float32)
    assert fuse(dense, lexical).tolist() == pytest.approx([1.0, 0.66, -np.inf])
    assert fuse(dense, np.full(3, 1e6, np.float32))[0] == fuse(dense, np.full(3, 1e3, np.float32))[0]


def test_without_a_common_word_the_vectors_alone_decide():
    fused = fuse(np.array([0.5, 0.25, 0.0], np.float32), np.zeros(3, np.float32))
    assert fused[0] == 2 * fused[1] > fused[2] == 0
    assert fuse(np.full(2, -np.inf, np.float32), np.zeros(2, np.float32)).tolist() == [-np.inf, -np.inf]


def test_a_tool_that_is_named_stands_before_whatever_else_the_request_speaks_of():
    words = " ".join(f"word{n}" for n in range(40))
    index = index_with(
        (compiled("s", "create_directory"), unit(-1, 0, 0)),
        *((compiled("s", f"tool{n}", words), unit(1, 0, 0)) for n in range(2)),
        *((compiled("s", f"other{n}", "of something else"), unit(0, 1, 0)) for n in range(300)),
    )
    ranked = rank(index, f"{words} create_directory", unit(1, 0, 0))
    assert ranked[1].score > 1.5
    assert ranked[0].tool_id.name == "create_directory"


def test_a_word_weighs_among_few_tools_what_it_weighs_among_many():
    def best(others):
        index = index_with(
            (compiled("s", "send_invoice", "Sends an invoice."), unit(1, 0, 0)),
            *((compiled("s", f"tool{n}", "Does what it does."), unit(0, 1, 0)) for n in range(others)),
        )
        return rank(index, "the invoice", unit(0, 0, 1))[0]

    among = {best(others).among: best(others).lexical for others in (4, 30, 249, 400)}
    assert list(among) == [5, 31, 250, 401]
    assert max(among.values()) < 1.35 * min(among.values())


def test_a_calibration_is_told_among_how_many_visible_tools_the_choice_was():
    index, query = plain("a", "b", "c"), unit(1, 0, 0)
    assert evidence(rank(index, "zzz", query))["log_tools"] == pytest.approx(np.log(3))
    some = rank(index, "zzz", query, visible=np.array([True, True, False]))
    assert evidence(some)["log_tools"] == pytest.approx(np.log(2))
