"""`bench routing`: its figures are what routing did, and odd tools and requests are no trouble."""

import json
from dataclasses import replace

import anyio
import numpy as np
import pytest
from support.gateways import run_command
from support.json_lines import lines
from support.making_tools import STRING, catalog_of, definition, index_of
from typer.testing import CliRunner

from adapters.embedder_double import HashingEmbedder
from adapters.ports import ModelUnusable
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.routing import (
    Evaluation,
    Judged,
    Pool,
    actual_sizes,
    evaluate,
    nearest,
    route_unfit,
)
from nexus_gateway.bench.routing_baselines import BM25, DENSE, SUM, Placed, baselines
from nexus_gateway.bench.routing_data import RoutingQuery, read_unfit
from nexus_gateway.bench.routing_index import compiled_index
from nexus_gateway.bench.routing_memory import Memory
from nexus_gateway.bench.routing_report import Report, times
from nexus_gateway.cli.main import app
from nexus_gateway.routing.parts import RouterParts
from tool_registry.compiled_store import CompiledStore
from tool_registry.index import RoutingIndex
from tool_registry.routing import Gate

MAIL = [
    definition("send_mail", "Send a mail to somebody", {"to": STRING}),
    definition("find_mail", "Find a mail by its words", {"words": STRING}),
]
FILES = [
    definition("read_file", "Read a text file from the disk", {"path": STRING}),
    definition("delete_file", "Delete a file from the disk", {"path": STRING}),
]
WEATHER = [definition("forecast", "Tell tomorrow's weather in a city", {"city": STRING})]
FLEET = catalog_of(mail=MAIL, files=FILES, weather=WEATHER)
FORECAST = RoutingQuery(
    "1", "tell me tomorrow's weather in the city of Bern", ("weather/forecast",), source="sky"
)
READ = RoutingQuery("2", "read the text file notes.txt from the disk", ("files/read_file",), source="disk")
LOST = RoutingQuery("3", "play some music", ("radio/play",))


def parts(embedder=None, reranker=None):
    return RouterParts(embedder or HashingEmbedder(), Gate(), reranker)


def judged(place, *, source="a", routed=True, reranked=False, total_ms=10.0, **stages_ms):
    return Judged(source, place, routed, reranked, total_ms, stages_ms)


def measured(by_size, *, absent=(), gate=None):
    sizes = list(by_size)
    return Evaluation(gate or Gate(), sizes[-1], 0, by_size, sizes[-1], nearest(sizes, 250), list(absent))


@pytest.mark.anyio
async def test_each_request_is_judged_by_the_place_of_its_right_tool_in_every_registry():
    told = []
    run = await evaluate(parts(), await index_of(FLEET), [FORECAST, READ], [2, None], told.append)
    assert {size: [one.place for one in of] for size, of in run.sizes.items()} == {2: [1, 1], 5: [1, 1]}
    assert (run.n_tools, run.skipped, run.timed, run.focus) == (5, 0, 5, 5)
    assert [one.source for one in run.sizes[2]] == ["sky", "disk"]
    assert all(one.total_ms >= one.stages_ms["embed"] > 0 for one in run.sizes[5])
    assert len(told) == 2 * 3


@pytest.mark.anyio
async def test_a_wrong_first_candidate_is_a_miss_and_an_equivalent_of_the_right_one_a_hit():
    wrong = replace(READ, gold=("mail/send_mail",))
    equivalent = replace(wrong, equivalents=frozenset({"files/read_file"}))
    run = await evaluate(parts(), await index_of(FLEET), [wrong, equivalent], [None])
    missed, hit = run.sizes[5]
    assert not missed.right
    assert hit.right


@pytest.mark.anyio
async def test_requests_whose_right_tool_is_not_there_are_skipped_and_counted():
    run = await evaluate(parts(), await index_of(FLEET), [FORECAST, LOST], [3])
    assert (len(run.sizes[3]), run.skipped) == (1, 1)


@pytest.mark.anyio
async def test_the_right_tools_place_in_the_file_of_a_registry_gives_it_no_advantage():
    pool = Pool(await index_of(FLEET))
    drawn = await pool.index(["weather/forecast", "mail/find_mail", "files/read_file"])
    assert [str(tool.id) for tool in drawn.tools] == ["files/read_file", "mail/find_mail", "weather/forecast"]


@pytest.mark.anyio
async def test_where_the_right_server_is_taken_away_equivalents_and_near_ones_go_too():
    pool = Pool(await index_of(FLEET))
    query = replace(READ, equivalents=frozenset({"mail/find_mail"}), near=frozenset({"weather/forecast"}))
    assert pool.without_gold(query, pool.sample(query, 5)) == ["mail/send_mail"]


@pytest.mark.anyio
async def test_what_is_routed_without_its_tool_is_counted_and_an_empty_registry_is_no_success():
    eager = replace(parts(), gate=Gate(margin=0.0, floor=-1.0))
    run = await evaluate(eager, await index_of(FLEET), [FORECAST, READ], [None])
    assert run.absent == [False, True], "what is left for the first is a tie"
    alone = await evaluate(eager, await index_of(catalog_of(weather=WEATHER)), [FORECAST], [None])
    assert (alone.absent, len(alone.sizes[1])) == ([], 1)
    assert Report(alone, {"all": 1}).as_json()["absent_gold"] == {"size": 1, "n": 0, "wrongly_routed": None}


@pytest.mark.anyio
async def test_requests_that_no_tool_fits_are_routed_among_their_own_candidates_and_among_others(tmp_path):
    index = await index_of(FLEET)
    rows = [{"id": "x", "query": "read the text file a.txt from the disk", "candidate_tools": WEATHER}]
    queries = read_unfit(lines(tmp_path / "unfit", *rows))
    routed = await route_unfit(replace(parts(), gate=Gate(floor=0.3)), index, queries, [0, 250])
    assert routed == {0: [False], 250: [True]}
    assert len(index.tools) == 5, "the others are left as they were"


def test_a_number_of_tools_above_all_of_them_is_all_of_them_and_is_measured_once():
    assert actual_sizes([250, 10, None, 1000], 179) == [10, 179]
    assert nearest([10, 179], 250) == 179
    assert nearest([200, 300], 250) == 200


class Counting:
    """A reranker that counts what it scores, or fails."""

    identity = "counting"

    def __init__(self, error=None):
        self.scored = 0
        self._error = error

    async def score(self, request, texts):
        await anyio.lowlevel.checkpoint()
        if self._error:
            raise self._error
        self.scored += len(texts)
        return [float(len(text)) for text in texts]


@pytest.mark.anyio
async def test_a_timed_pass_computes_everything_and_those_after_it_nothing_twice():
    embedder, reranker = HashingEmbedder(), Counting()
    memory = Memory(parts(embedder, reranker))
    with memory.computing(anew=True):
        first = await memory.parts.embedder.embed_requests(["a", "b"])
        assert await memory.parts.reranker.score("a", ["xx", "y"]) == [2.0, 1.0]
    with memory.computing(anew=False):
        assert (await memory.parts.embedder.embed_requests(["b", "a"]) == first[::-1]).all()
        assert await memory.parts.reranker.score("a", ["y", "zzz"]) == [1.0, 3.0]
    assert (embedder.embedded_texts, reranker.scored) == (2, 3)
    with memory.computing(anew=True):
        await memory.parts.embedder.embed_requests(["a"])
        await memory.parts.reranker.score("a", ["y"])
    assert (embedder.embedded_texts, reranker.scored) == (3, 4)


@pytest.mark.anyio
async def test_how_often_candidates_are_reranked_is_seen_and_what_it_takes():
    unsure = replace(parts(reranker=Counting()), gate=Gate(margin=3.0))
    run = await evaluate(unsure, await index_of(FLEET), [FORECAST, READ], [3, None])
    assert all(one.reranked for of in run.sizes.values() for one in of)
    assert all(one.stages_ms["rerank"] > 0 for one in run.sizes[5])
    document = Report(run, {"3": 3, "all": 5}).as_json()
    assert (document["rerank_rate"], document["ms"]["reranked"]["n"]) == (100.0, 2)
    sure = await evaluate(replace(unsure, gate=Gate(margin=0.0)), await index_of(FLEET), [FORECAST], [None])
    assert Report(sure, {"all": 5}).as_json()["rerank_rate"] == 0.0


@pytest.mark.anyio
async def test_a_reranker_that_fails_stops_the_run_since_something_else_would_be_measured():
    broken = replace(parts(reranker=Counting(ModelUnusable("out of memory"))), gate=Gate(margin=3.0))
    with pytest.raises(BenchError, match="the reranker failed: out of memory"):
        await evaluate(broken, await index_of(FLEET), [FORECAST], [None])


@pytest.mark.anyio
async def test_tools_are_compiled_once_and_come_from_the_store_the_next_time(tmp_path):
    store, embedder, done = CompiledStore(tmp_path, lambda *_: None), HashingEmbedder(), []
    with anyio.fail_after(30):
        first = await compiled_index(FLEET, embedder, store, done.append)
        second = await compiled_index(FLEET, HashingEmbedder(), store)
    assert embedder.embedded_texts == done[-1] == len(first.tools) == 5
    vector = (await embedder.embed_requests(["a file"]))[0]
    assert np.array_equal(first.lookaside.scan(vector), second.lookaside.scan(vector))


@pytest.mark.anyio
async def test_plain_retrieval_ranks_the_same_registries_in_three_ways_and_keeps_its_vectors(tmp_path):
    store, index, again = CompiledStore(tmp_path, lambda *_: None), await index_of(FLEET), HashingEmbedder()
    for embedder in (HashingEmbedder(), again):
        places = await baselines(embedder, store, index, [FORECAST, LOST], [3, None], advance=lambda _: None)
        assert places == {way: {3: [Placed("sky", 1)], 5: [Placed("sky", 1)]} for way in (DENSE, BM25, SUM)}
    assert again.embedded_texts == 1, "the request alone"


def test_the_object_has_the_promised_keys_and_its_figures_are_percentages():
    small = [judged(1), judged(1, source="b")]
    large = [
        judged(1, total_ms=10, embed=8.0, scan=1.0),
        judged(1, total_ms=12, embed=10.0, scan=2.0),
        judged(6, total_ms=100, embed=12.0, scan=3.0, rerank=80.0, reranked=True, routed=False),
        judged(None, source="b", total_ms=14, embed=10.0, scan=2.0),
    ]
    run = measured({10: small, 250: large}, absent=[True, False, False, False])
    document = json.loads(json.dumps(Report(run, {"10": 10, "250": 250, "all": 250}).as_json()))
    assert document["sizes"]["250"] == document["sizes"]["all"]
    assert document["sizes"]["250"].items() >= {"n": 4, "r1": 50.0, "r5": 50.0, "r10": 75.0}.items()
    assert document["by_source"]["b"]["250"] == {"n": 1, "r1": 0.0, "r5": 0.0, "r10": 0.0}
    assert document["selective"] == {
        "size": 250,
        "n": 4,
        "threshold": Gate().margin,
        "precision": 66.67,
        "precision_wilson_low": 20.77,
        "coverage": 75.0,
    }
    assert document["absent_gold"] == {"size": 250, "n": 4, "wrongly_routed": 25.0}
    assert document["rerank_rate"] == 25.0
    ms = document["ms"]
    assert (ms["embed"], ms["scan"], ms["rerank"]) == (10.0, 2.0, 80.0)
    assert (ms["total_p50"], ms["total_p90"]) == (12.0, 100.0)
    assert (ms["not_reranked"]["n"], ms["not_reranked"]["p50_embeddings"]) == (3, 1.2)
    assert (ms["reranked"]["n"], ms["reranked"]["p90_embeddings"]) == (1, 10.0)


def test_tables_have_a_cell_for_each_column_and_say_what_was_not_measured():
    run = measured({10: [judged(1)], 250: [judged(2, routed=False)]})
    report = Report(run, {"10": 10, "250": 250}, {DENSE: {10: [Placed("a", 1)]}}, {0: [True]})
    from nexus_gateway.bench import routing_report as columns  # noqa: PLC0415 - four names of one kind

    assert {len(row) for row in report.size_rows()} == {len(columns.SIZE_COLUMNS)}
    assert {len(row) for row in report.source_rows()} == {len(report.source_columns())}
    assert {len(row) for row in report.gate_rows()} == {len(columns.GATE_COLUMNS)}
    assert {len(row) for row in report.time_rows()} == {len(columns.TIME_COLUMNS)}
    assert times(run.sizes[250])["reranked"] == {
        "n": 0,
        "p50": None,
        "p50_embeddings": None,
        "p90": None,
        "p90_embeddings": None,
    }


LONG = "Reads a file. " * 1_500
ODD = {
    "one": [definition("read_file", LONG)],
    "bare": [{"name": "x"}, {"name": "read_file", "inputSchema": None}],
    "many": [
        definition("lesen", "Liest eine Datei"),
        definition("読む", "ファイルを読む"),
        definition("читать", "Читает файл"),
    ],
}
PAGE = "Dear all, please find the minutes below. " * 400


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["read_file", "?", PAGE, "ファイルを読む", "Lies die Datei, bitte"])
async def test_odd_tools_and_requests_are_measured_like_any_other(text):
    queries = [RoutingQuery("odd", text, ("one/read_file",))]
    run = await evaluate(parts(), await index_of(catalog_of(**ODD)), queries, [1, 3, None])
    assert {size: len(of) for size, of in run.sizes.items()} == {1: 1, 3: 1, 6: 1}
    assert Report(run, {"all": 6}).as_json()["sizes"]["all"]["n"] == 1
    assert run.sizes[1][0].right


@pytest.mark.anyio
async def test_without_a_tool_or_a_request_there_are_no_figures_and_no_failure():
    for index, queries in ((RoutingIndex(), [READ]), (await index_of(FLEET), [])):
        run = await evaluate(parts(), index, queries, [10, None])
        figures = Report(run, {"all": run.timed}).as_json()
        assert figures["sizes"]["all"]["r1"] is None
        assert figures["selective"]["precision"] is None
        assert figures["ms"]["total_p50"] is None


@pytest.fixture
def files(tmp_path):
    """Options for a small fleet with real models, and a cache of its own."""
    tools = [{"server": tool.id.server, **tool.definition} for tool in FLEET]
    (tmp_path / "nexus.toml").write_text('cache_dir = "cache"\n')
    return {
        "--config": tmp_path / "nexus.toml",
        "--tools": lines(tmp_path / "tools.jsonl", *tools),
        "--queries": lines(
            tmp_path / "queries.jsonl",
            *(
                {"id": q.id, "query": q.text, "gold": q.gold, "source": q.source}
                for q in (FORECAST, READ, LOST)
            ),
        ),
        "--irrelevance": lines(tmp_path / "unfit.jsonl", {"query": "bake a cake", "candidate_tools": MAIL}),
    }


def words(files, *more):
    return "bench", "routing", *(str(word) for option in files.items() for word in option), *more


def test_a_whole_run_with_real_models_prints_tables_and_last_the_object(files):
    ran = run_command(*words(files, "--sizes", "2,all", "--baselines"))
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout.splitlines()[-1])
    assert document["sizes"]["all"].items() >= {"n": 2, "r1": 100.0, "r5": 100.0}.items()
    assert (document["tools"], document["skipped"], set(document["by_source"])) == (5, 1, {"sky", "disk"})
    assert document["irrelevance"]["others_0"]["n"] == document["irrelevance"]["others_250"]["n"] == 1
    assert document["baselines"]["sum"]["sizes"]["2"] == {"n": 2, "r1": 100.0, "r5": 100.0, "r10": 100.0}
    assert document["ms"]["not_reranked"]["n"] == 2
    assert "is among the tools: 1." in ran.stdout
    assert "R@10" in ran.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "10,none"], "'none' is neither a number of tools above 0 nor 'all'"),
        (["--own-server", "post"], "no tool is of a server 'post'"),
        (["--split", "test"], "no request of split 'test'; there is: none"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_and_ends_with_1(files, options, message):
    ran = CliRunner().invoke(app, words(files, *options))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert message in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
