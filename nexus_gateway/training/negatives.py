"""Hard negatives: the wrong tools that retrieval places near each request, and the right tool's neighbours."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nexus_gateway.routing.routing_text import routing_text
from nexus_gateway.training.data import MCP, Example, TrainingData
from nexus_gateway.training.encoder import Encoder
from tool_registry.index import CompiledTool
from tool_registry.lexical import LexicalIndex
from tool_registry.text import split_words, tool_words

SAME_TOOL_COSINE = 0.85
"""Tools of two servers this alike are likely the same tool: not called wrong."""
_LEXICAL_SHARE = 0.5
"""Of BM25 scaled to its best: a made request shares so many words with its tool that plain BM25 would decide alone."""
_KEPT = 12
_NEIGHBOURS = 6


@dataclass(frozen=True, slots=True)
class Negatives:
    """Keys of wrong tools, hardest first: of the right tool's own server (MCP tools only), and of the pool."""

    own_server: tuple[str, ...]
    pool: tuple[str, ...]


def hard_negatives(data: TrainingData, encoder: Encoder) -> list[Negatives]:
    """For each example, in their order, by the encoder as it is and BM25."""
    found: dict[int, Negatives] = {}
    for pool, tools in data.pools.items():
        places = [place for place, example in enumerate(data.examples) if example.pool == pool]
        mined = _mine(tools, [data.examples[place] for place in places], encoder)
        found |= dict(zip(places, mined, strict=True))
    return [found[place] for place in range(len(data.examples))]


def plain_name(key: str) -> str:
    """A tool's name without case and punctuation; equal ones count as equivalent in training."""
    return re.sub(r"[\W_]", "", key.partition("/")[2].lower())


def _mine(
    tools: Mapping[str, CompiledTool], examples: Sequence[Example], encoder: Encoder
) -> list[Negatives]:
    pool = _Pool.of(tools, encoder)
    texts = [routing_text(example.request) for example in examples]
    requests = encoder.vectors(texts, 64)
    return [pool.nearest(*one) for one in zip(examples, texts, requests, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _Pool:
    """The tools that wrong ones are taken from, searchable."""

    keys: Sequence[str]
    place: Mapping[str, int]
    servers: Mapping[str, Sequence[int]]
    server: Sequence[str]
    vectors: NDArray[np.float32]
    lexical: LexicalIndex

    @classmethod
    def of(cls, tools: Mapping[str, CompiledTool], encoder: Encoder) -> "_Pool":
        keys, compiled = list(tools), list(tools.values())
        server = [one.id.server for one in compiled]
        servers: dict[str, list[int]] = defaultdict(list)
        for at, name in enumerate(server):
            servers[name].append(at)
        return cls(
            keys,
            {key: at for at, key in enumerate(keys)},
            servers,
            server,
            encoder.vectors([one.text for one in compiled]),
            LexicalIndex.build([tool_words(one.tool, one.schema) for one in compiled]),
        )

    def nearest(self, example: Example, text: str, request: NDArray[np.float32]) -> Negatives:
        words = self.lexical.scores(split_words(text))
        scores = self.vectors @ request + _LEXICAL_SHARE * words / max(float(words.max()), 1e-6)
        gold, count = self.place[example.gold], min(30, len(self.keys) - 1)
        near = [int(at) for at in np.argpartition(-scores, count)[:count]]
        own = self.servers[self.server[gold]] if example.pool == MCP else ()

        def hardest(places: Sequence[int], kept: int) -> tuple[str, ...]:
            wrong = (at for at in places if self._wrong(at, gold))
            return tuple(self.keys[at] for at in sorted(wrong, key=lambda at: -scores[at])[:kept])

        return Negatives(hardest(own, _NEIGHBOURS), hardest(near, _KEPT))

    def _wrong(self, at: int, gold: int) -> bool:
        if at == gold or plain_name(self.keys[at]) == plain_name(self.keys[gold]):
            return False
        if self.server[at] == self.server[gold]:
            return True
        return float(self.vectors[at] @ self.vectors[gold]) < SAME_TOOL_COSINE
