"""Plain retrieval beside the gateway's: dense alone, BM25 alone, and the sum of both, in the same registries.

A tool's text is its name, split into words, and its whole description; no parameters, no server, nothing tuned.
BM25 has one field, k1 = 1.2 and b = 0.75; the sum adds both scores, each divided by its best in the registry.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from adapters.ports import Embedder
from nexus_gateway.bench.routing import DEPTH, Advance, Pool, actual_sizes
from nexus_gateway.bench.routing_data import RoutingQuery
from tool_registry.compiled_store import CompiledRecord, CompiledStore, StoreError
from tool_registry.index import CompiledTool, RoutingIndex
from tool_registry.lexical import Bm25Parameters, LexicalIndex
from tool_registry.text import identifier_words, split_words

WAYS = DENSE, BM25, SUM = "dense", "bm25", "sum"

_TEXT = "text"
_PLAIN = Bm25Parameters(k1=1.2, b=0.75, weights={_TEXT: 1.0})
_BATCH = 64
Scores = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a request's right tool, from 1; None where it is not among the first `DEPTH`."""

    source: str
    place: int | None


Places = dict[str, dict[int, list[Placed]]]
"""By way of retrieval and tools in a registry."""


async def baselines(
    embedder: Embedder,
    store: CompiledStore,
    index: RoutingIndex,
    queries: Sequence[RoutingQuery],
    sizes: Iterable[int | None],
    *,
    advance: Advance,
) -> Places:
    """Rank every request in the registries that `evaluate` uses, in three plain ways.

    Args:
        embedder: the base model.
        store: keeps the vectors of the plain texts.
        index: all tools; its vectors are not used.
        queries: requests; those without a right tool in `index` are skipped.
        sizes: as for `evaluate`.
        advance: told of progress.

    Raises:
        ModelError: the embedder failed.
    """
    pool = Pool(index)
    corpus = await _corpus(embedder, store, index.tools)
    known = [query for query in queries if pool.gold(query) is not None]
    vectors = [(await embedder.embed_requests([query.text]))[0] for query in known]
    places: Places = {way: {} for way in WAYS}
    for size in actual_sizes(sizes, len(pool)):
        for query, vector in zip(known, vectors, strict=True):
            keys = sorted(pool.sample(query, size))
            scores = await anyio.to_thread.run_sync(corpus.scores, keys, query.text, vector)
            for way in WAYS:
                placed = Placed(query.source, _place(scores[way], keys, query))
                places[way].setdefault(size, []).append(placed)
            advance(f"plain retrieval, {size:,} tools")
    return places


class _Corpus:
    """Words and vectors of all tools by key."""

    def __init__(self, words: Mapping[str, list[str]], vectors: Mapping[str, Scores]) -> None:
        self._words = words
        self._vectors = vectors
        self._last: tuple[list[str], LexicalIndex] = ([], LexicalIndex.build(()))

    def scores(self, keys: list[str], request: str, vector: Scores) -> Mapping[str, Scores]:
        """By way of retrieval, one score a key."""
        dense = np.stack([self._vectors[key] for key in keys]) @ vector
        lexical = self._lexical(keys).scores(split_words(request))
        return {DENSE: dense, BM25: lexical, SUM: _scaled(dense) + _scaled(lexical)}

    def _lexical(self, keys: list[str]) -> LexicalIndex:
        if self._last[0] != keys:
            self._last = keys, LexicalIndex.build([{_TEXT: self._words[key]} for key in keys], _PLAIN)
        return self._last[1]


def _scaled(scores: Scores) -> Scores:
    best = float(scores.max(initial=0.0))
    return scores / best if best > 0 else scores


def _place(scores: Scores, keys: Sequence[str], query: RoutingQuery) -> int | None:
    order = np.argsort(-scores, kind="stable")[:DEPTH].tolist()
    return next((place for place, at in enumerate(order, start=1) if keys[at] in query.right), None)


def _text(compiled: CompiledTool) -> str:
    return f"{' '.join(identifier_words(compiled.id.name))} {compiled.tool.description}"


async def _corpus(embedder: Embedder, store: CompiledStore, tools: Sequence[CompiledTool]) -> _Corpus:
    """All tools; vectors come from the store where it has them."""
    identity = f"{embedder.identity}:plain"
    vectors = await anyio.to_thread.run_sync(_stored, store, identity, tools)
    missing = [compiled for compiled in tools if str(compiled.id) not in vectors]
    for start in range(0, len(missing), _BATCH):
        batch = missing[start : start + _BATCH]
        rows = list(await embedder.embed_tools([_text(compiled) for compiled in batch]))
        vectors |= {str(compiled.id): row for compiled, row in zip(batch, rows, strict=True)}
        await anyio.to_thread.run_sync(_keep, store, identity, batch, rows)
    return _Corpus({str(compiled.id): split_words(_text(compiled)) for compiled in tools}, vectors)


def _stored(store: CompiledStore, identity: str, tools: Sequence[CompiledTool]) -> dict[str, Scores]:
    records = {str(compiled.id): store.read(compiled.tool.content_hash, identity) for compiled in tools}
    return {key: record.vectors[0] for key, record in records.items() if record is not None}


def _keep(store: CompiledStore, identity: str, tools: Sequence[CompiledTool], rows: Sequence[Scores]) -> None:
    with suppress(StoreError):  # the next run computes them again
        for compiled, row in zip(tools, rows, strict=True):
            store.write(compiled.tool.content_hash, identity, CompiledRecord("", "", row[np.newaxis, :]))
