"""Fitting a calibration: requests from files and tools, the same with their tool taken away, honest figures."""

import json
import random

import anyio
import numpy as np
import pytest
from support.making_tools import catalog_of, definition, index_of

from adapters.embedder_double import HashingEmbedder
from nexus_gateway.routing.calibrating import Judged, Row, fit, judge, without
from nexus_gateway.routing.labelled import LabelledRequest, made_from_tools, resolve
from nexus_gateway.routing.request_file import RequestFileError, WrittenRequest, read_requests
from nexus_gateway.routing.router import Router
from tool_registry.calibration import CalibrationIdentity
from tool_registry.routing import Gate
from tool_registry.tool import ToolId

COPY, DELETE = definition("copy_file", "Copy one file"), definition("delete_file", "Delete a file for ever")
WEATHER = definition("get_weather", "Weather forecast of a city")
FLEET = {"files": [COPY, DELETE], "disk": [COPY], "sky": [WEATHER]}
MADE_FOR = CalibrationIdentity("e")


def tool(reference):
    return ToolId(*reference.split("/"))


def tools(*references):
    return frozenset(map(tool, references))


async def fleet(**servers):
    return await index_of(catalog_of(**(servers or FLEET)))


def router():
    async def embedder():
        return HashingEmbedder()

    return Router(embedder, Gate())


def visible(index, mask):
    return {str(compiled.id) for compiled, seen in zip(index.tools, mask, strict=True) if seen}


def written(path, *lines):
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_file_has_a_query_and_its_tool_or_tools_a_line(tmp_path):
    rows = [
        {"query": "copy it", "tool": "files/copy_file"},
        {
            "query": "rain?",
            "gold": ["sky/a", "sky/b"],
            "gold_equivalents": ["o/a"],
            "gold_near": ["o/n"],
            "id": 7,
        },
    ]
    path = written(tmp_path / "requests.jsonl", json.dumps(rows[0]), "", json.dumps(rows[1]))
    assert read_requests(path) == [
        WrittenRequest(1, "copy it", ("files/copy_file",)),
        WrittenRequest(3, "rain?", ("sky/a", "sky/b"), ("o/a",), ("o/n",)),
    ]


def test_a_csv_has_these_columns_in_any_order_among_others(tmp_path):
    path = written(tmp_path / "r.CSV", "note,tool,query", 'x,files/copy_file,"copy, please"', "y,sky/w,rain?")
    assert [(row.request, row.tools) for row in read_requests(path)] == [
        ("copy, please", ("files/copy_file",)),
        ("rain?", ("sky/w",)),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "", "holds no request"),
        ("a.jsonl", "query,tool\nx,y", r"a.jsonl:1: not a line of JSON.*named \*.csv"),
        ("a.jsonl", '{"query": "x", "tool": "s/t"}\n{', "a.jsonl:2: not a line of JSON"),
        ("a.jsonl", "[1]", "a.jsonl:1: expected an object, got a list"),
        ("a.jsonl", '{"tool": "s/t"}', 'a.jsonl:1: "query" has no text'),
        ("a.jsonl", '{"query": " ", "tool": "s/t"}', 'a.jsonl:1: "query" has no text'),
        ("a.jsonl", '{"query": "x"}', 'a.jsonl:1: "tool" names no tool'),
        ("a.jsonl", '{"query": "x", "gold": 5}', 'a.jsonl:1: "gold" is neither a name nor a list'),
        ("a.csv", "query,name\nx,y", "a.csv:1: the header has no column tool"),
        ("a.csv", 'query,tool\n"x,y', "a.csv:.*not valid CSV"),
        ("a.csv", "query,tool\nx", 'a.csv:2: "tool" names no tool'),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(tmp_path, name, text, message):
    with pytest.raises(RequestFileError, match=message):
        read_requests(written(tmp_path / name, text))


def test_a_file_that_is_not_there_or_not_text_is_said(tmp_path):
    with pytest.raises(RequestFileError, match="no such file"):
        read_requests(tmp_path / "none.jsonl")
    with pytest.raises(RequestFileError, match="can't be read"):
        read_requests(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestFileError, match="UTF-8"):
        read_requests(tmp_path / "a.jsonl")


@pytest.mark.anyio
async def test_requests_are_resolved_in_the_fleet_and_strangers_are_kept_apart():
    index = await fleet()
    found = resolve(
        index,
        [
            WrittenRequest(1, "copy", ("files/copy_file",)),
            WrittenRequest(2, "rain", ("get_weather",)),
            WrittenRequest(3, "else", ("nobody/nothing",), near=("sky/get_weather",)),
        ],
    )
    assert [row.line for row in found.unknown] == [3]
    copy, rain = found.known
    assert copy.tools == tools("files/copy_file")
    assert copy.right == tools("files/copy_file", "disk/copy_file")  # the same definition on another server
    assert rain.tools == tools("sky/get_weather")


@pytest.mark.anyio
async def test_the_right_tool_its_equivalents_and_its_server_can_be_taken_away():
    index = await fleet()
    asked = LabelledRequest("copy", tools("files/copy_file"), tools("disk/copy_file"))
    assert visible(index, without(index, asked)) == {"sky/get_weather"}
    near = LabelledRequest(
        "copy", tools("files/copy_file"), tools("disk/copy_file"), tools("sky/get_weather")
    )
    assert visible(index, without(index, near)) == {"files/delete_file"}  # better than nothing at all
    alone = await fleet(files=[COPY])
    assert not without(alone, LabelledRequest("copy", tools("files/copy_file"))).any()


@pytest.mark.anyio
async def test_a_request_is_ranked_with_its_tool_and_without():
    with anyio.fail_after(20):
        index = await fleet()
        asked = LabelledRequest("delete that file for ever", tools("files/delete_file"))
        present, absent = await judge(router(), index, asked)
    assert (present.absent, present.ranked.right, present.ranked.fits) == (False, True, True)
    assert (absent.absent, absent.ranked.right, absent.ranked.fits) == (True, False, False)
    assert present.group == absent.group == "files/delete_file"
    assert present.ranked.evidence["cosine"] > absent.ranked.evidence["cosine"]
    assert present.reranked is None


@pytest.mark.anyio
async def test_a_request_that_names_its_tool_is_no_matter_for_a_gate():
    index = await fleet()
    rows = await judge(router(), index, LabelledRequest("run delete_file", tools("files/delete_file")))
    assert [row.absent for row in rows] == [True]


@pytest.mark.anyio
async def test_an_equivalent_in_first_place_is_right():
    index = await fleet()
    asked = LabelledRequest("copy one file", tools("disk/copy_file"), tools("files/copy_file"))
    present, _ = await judge(router(), index, asked)
    assert present.ranked.right


@pytest.mark.anyio
async def test_made_requests_are_the_same_each_time_and_spread_over_the_tools():
    index = await fleet()
    made = made_from_tools(index, 8)
    assert made == made_from_tools(index, 8)
    assert made != made_from_tools(index, 8, seed=1)
    assert len(made) == 8
    assert len({asked.tools for asked in made}) == 4
    assert len(made_from_tools(index, 2)) == 2
    assert made_from_tools(index, 0) == []


def judged(strength, right, fits=True, **more):
    return Judged({"margin": strength, **more}, right, fits)


def drawn(n=400, groups=20, rerank=False, seed=3):
    """Rows of a world where a wide margin means a right tool, and a reranker mends most of what is close."""
    rng = random.Random(seed)
    rows = []
    for number in range(n):
        margin = rng.random()
        right = rng.random() < min(1.0, 0.3 + 1.2 * margin)
        mended = right or rng.random() < 0.8
        score = rng.gauss(3 if mended else -3, 1)
        again = judged(margin, mended, reranked=score) if rerank else None
        rows.append(Row(f"s/{number % groups}", False, judged(margin, right), again))
        nothing = 0.3 * rng.random()
        again = judged(nothing, False, False, reranked=rng.gauss(-4, 1)) if rerank else None
        rows.append(Row(f"s/{number % groups}", True, judged(nothing, False, False), again))
    return rows


def test_the_fit_meets_the_wanted_precision_on_rows_it_has_not_seen():
    found = fit(drawn(), precision=0.95)
    assert (found.requests, found.absent, found.tools) == (400, 400, 20)
    assert found.chosen.precision >= 0.95
    assert found.chosen.absent <= 0.15
    calibration = found.calibration(MADE_FOR, {"source": "a file"})
    fresh = [row for row in drawn(seed=4) if not row.absent]
    routed = [row for row in fresh if calibration.probability(row.ranked.evidence) >= calibration.threshold]
    assert len(routed) / len(fresh) == pytest.approx(found.chosen.coverage, abs=0.1)
    assert np.mean([row.ranked.right for row in routed]) >= 0.91
    assert calibration.figures["precision"] >= 95
    assert calibration.figures["source"] == "a file"


def test_a_reranker_lets_more_be_routed():
    plain, reranked = fit(drawn(), precision=0.95), fit(drawn(rerank=True), precision=0.95)
    assert plain.right_reranked is None
    assert "reranked" in reranked.right_reranked.names
    assert "reranked" not in (*reranked.right.names, *reranked.fits.names)
    assert reranked.chosen.coverage > plain.chosen.coverage + 0.1


def test_a_fit_that_only_knows_the_tools_by_heart_is_found_out():
    """One feature a tool: perfect on its own rows, worthless for a tool it has not seen."""
    rng = random.Random(1)
    rows = []
    for number in range(200):
        group = number % 10
        right = group < 5 or rng.random() < 0.1
        rows.append(Row(f"s/{group}", False, Judged({f"is_{group}": 1.0}, right, True)))
    assert fit(rows, precision=0.9).chosen is None


def test_the_threshold_is_never_below_the_least_one():
    free = fit(drawn(), precision=0.9)
    held = fit(drawn(), precision=0.9, least_threshold=0.97)
    assert free.chosen.threshold < 0.97
    assert held.chosen.threshold == 0.97
    assert held.chosen.coverage < free.chosen.coverage
    assert fit(drawn(), precision=0.9, least_threshold=1.0).chosen is None


def test_requests_for_one_tool_alone_fit_nothing():
    with pytest.raises(ValueError, match="two tools"):
        fit(drawn(groups=1), precision=0.9)


def test_without_a_threshold_there_is_no_calibration():
    hopeless = [Row(f"s/{n % 9}", False, judged(n / 100, n % 2 == 0)) for n in range(100)]
    found = fit(hopeless, precision=0.95)
    assert found.chosen is None
    with pytest.raises(ValueError, match="no threshold"):
        found.calibration(MADE_FOR, {})
