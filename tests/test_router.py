"""The router: equivalents are one choice, close choices are read again, and a reranker that fails costs no answer."""

import anyio
import numpy as np
import pytest
from support.making_tools import STRING, catalog_of, definition, index_of

from adapters.embedder_double import HashingEmbedder
from adapters.ports import ModelUnusable
from nexus_gateway.routing.router import RERANKED, Router
from tool_registry.routing import RERANK_WEIGHT, Gate, RoutingOutcome, rank, rerank

pytestmark = pytest.mark.anyio

WEATHER = definition(
    "get_forecast", "Get the weather forecast of a city for some days.", {"city": STRING}, ["city"]
)
FILES = definition("read_file", "Read a file from disk.", {"path": STRING}, ["path"])
SURE = Gate(margin=0.0, floor=-1.0)
UNSURE = Gate(margin=9.0, floor=-1.0)


class ScriptedReranker:
    """Likes texts that hold a word."""

    identity = "scripted"

    def __init__(self, word="", error=None):
        self.word, self.error, self.read = word, error, []

    async def score(self, request, texts):
        if self.error:
            raise self.error
        self.read.append((request, list(texts)))
        return [10.0 if self.word in text else -10.0 for text in texts]


def given(model):
    async def get():
        return model

    return get


async def routed(request, *, gate=SURE, reranker=None, prefer=(), visible=None, **servers):
    index = await index_of(catalog_of(**servers))
    router = Router(
        given(HashingEmbedder()), gate, reranker=given(reranker) if reranker else None, prefer=prefer
    )
    with anyio.fail_after(30):
        return await router.route(index, request, visible=visible and visible(index))


async def test_the_same_tool_on_two_servers_is_one_choice_that_names_the_other():
    decision = await routed("weather forecast of Lisbon", north=[WEATHER], south=[WEATHER], disk=[FILES])
    assert [str(c.tool_id) for c in decision.candidates] == ["north/get_forecast", "disk/read_file"]
    assert [str(other) for other in decision.candidates[0].equivalents] == ["south/get_forecast"]
    assert decision.margin > 0.1, "its equal is no rival"


@pytest.mark.parametrize("prefer", [["south"], ["unknown", "south", "north"]])
async def test_of_equivalents_the_preferred_server_is_taken(prefer):
    servers = {"north": [WEATHER], "south": [WEATHER], "disk": [FILES]}
    decision = await routed("weather forecast of Lisbon", prefer=prefer, **servers)
    assert str(decision.candidates[0].tool_id) == "south/get_forecast"
    assert [str(other) for other in decision.candidates[0].equivalents] == ["north/get_forecast"]


async def test_a_request_that_names_a_server_gets_its_tool_whatever_is_preferred():
    servers = {"north": [WEATHER], "south": [WEATHER], "disk": [FILES]}
    decision = await routed("north/get_forecast for Lisbon", prefer=["south"], **servers)
    assert str(decision.candidates[0].tool_id) == "north/get_forecast"
    assert decision.outcome is RoutingOutcome.ROUTED


async def test_an_equivalent_that_the_caller_may_not_see_is_neither_taken_nor_named():
    decision = await routed(
        "weather forecast of Lisbon",
        prefer=["south"],
        visible=lambda index: np.array([tool.id.server != "south" for tool in index.tools]),
        north=[WEATHER],
        south=[WEATHER],
        disk=[FILES],
    )
    assert str(decision.candidates[0].tool_id) == "north/get_forecast"
    assert decision.candidates[0].equivalents == ()


MANY = [
    definition(f"list_{noun}", f"List the {noun} of a project.")
    for noun in ("abs", "cds", "efs", "ghs", "ijs", "kls", "mns", "ops")
]


async def test_a_close_choice_is_read_again_by_a_few_and_a_clear_one_is_not():
    plain = await routed("list the things of a project", gate=UNSURE, s=MANY)
    liked = plain.candidates[-1].tool_id.name
    assert liked != plain.candidates[0].tool_id.name
    reranker = ScriptedReranker(liked.replace("_", " "))
    decision = await routed("list the things of a project", gate=UNSURE, reranker=reranker, s=MANY)
    (request, texts), *more = reranker.read
    assert not more
    assert len(texts) == RERANKED < len(MANY)
    assert request == "list the things of a project"
    assert sum(candidate.reranked is not None for candidate in decision.candidates) == len(
        decision.candidates
    )
    assert decision.candidates[0].tool_id.name == liked
    clear = ScriptedReranker()
    await routed("list the abs of a project", gate=SURE, reranker=clear, s=MANY)
    assert clear.read == []
    tied = ScriptedReranker()
    await routed("list the things of a project", gate=SURE, reranker=tied, s=MANY)
    assert tied.read, "a tie is close, however sure the gate is"


async def test_a_reranker_that_fails_leaves_the_ranking_as_it_was():
    failing = ScriptedReranker(error=ModelUnusable("broken"))
    request = "list the things of a project"
    plain = await routed(request, gate=UNSURE, s=MANY)
    assert (await routed(request, gate=UNSURE, reranker=failing, s=MANY)).candidates == plain.candidates


async def test_a_named_tool_is_not_read_again():
    reranker = ScriptedReranker()
    both = {"a": [FILES], "b": [definition("read_file", "Another reader.", {"path": STRING}, ["path"])]}
    decision = await routed("use `read_file`", gate=UNSURE, reranker=reranker, **both)
    assert decision.outcome is RoutingOutcome.AMBIGUOUS
    assert reranker.read == []


async def test_reranking_weighs_scores_and_leaves_the_rest_behind():
    index = await index_of(catalog_of(s=MANY))
    vector = (await HashingEmbedder().embed_requests(["list the things"]))[0]
    ranked = rank(index, "list the things", vector)
    again = rerank(ranked, [0.0, 50.0, -50.0])
    assert [c.tool_id for c in again[:3]] == [ranked[1].tool_id, ranked[0].tool_id, ranked[2].tool_id]
    assert again[0].score == pytest.approx(ranked[1].score + 50 * RERANK_WEIGHT)
    assert again[3:] == ranked[3:]


async def test_words_that_tools_write_as_one_are_found_apart():
    hubs = definition("eventhubs_get", "Get them.")
    others = [definition(f"event_{noun}_get", "Get them.") for noun in ("grid", "log")]
    index = await index_of(catalog_of(s=[*others, hubs]))
    vector = (await HashingEmbedder().embed_requests(["zzz"]))[0] * 0
    assert rank(index, "my event hubs", vector)[0].tool_id.name == "eventhubs_get"
