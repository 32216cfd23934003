"""Models that remember: what was computed in a timed pass serves the untimed ones, so that these cost little."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from adapters.ports import Embedder, ModelError, Reranker, Vectors
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.routing.parts import RouterParts


class Memory:
    """Wraps the models of a router."""

    def __init__(self, parts: RouterParts) -> None:
        self._embedder = _RememberingEmbedder(parts.embedder)
        self._reranker = None if parts.reranker is None else _RememberingReranker(parts.reranker)
        self.parts = replace(parts, embedder=self._embedder, reranker=self._reranker)

    @contextmanager
    def computing(self, *, anew: bool) -> Iterator[None]:
        """Within, everything is computed anew, as a gateway would, or only what was never computed."""
        self._embedder.anew = anew
        if self._reranker is not None:
            self._reranker.anew = anew
        yield


class _RememberingEmbedder:
    """An `Embedder` that embeds a text once; a request anew where it is told to."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._requests: dict[str, NDArray[np.float32]] = {}
        self._tools: dict[str, NDArray[np.float32]] = {}
        self.anew = False

    @property
    def identity(self) -> str:
        return self._inner.identity

    @property
    def dimensions(self) -> int:
        return self._inner.dimensions

    @property
    def english_only(self) -> bool:
        return self._inner.english_only

    async def embed_requests(self, texts: Sequence[str]) -> Vectors:
        missing = [text for text in texts if self.anew or text not in self._requests]
        if missing:
            self._requests |= zip(missing, await self._inner.embed_requests(missing), strict=True)
        return np.stack([self._requests[text] for text in texts])

    async def embed_tools(self, texts: Sequence[str]) -> Vectors:
        missing = [text for text in dict.fromkeys(texts) if text not in self._tools]
        if missing:
            self._tools |= zip(missing, await self._inner.embed_tools(missing), strict=True)
        rows = [self._tools[text] for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.dimensions), np.float32)


class _RememberingReranker:
    """A `Reranker` that scores a pair once, unless told to do it anew.

    It raises BenchError where the model fails: a router would go on without it, and something else be measured.
    """

    def __init__(self, inner: Reranker) -> None:
        self._inner = inner
        self._known: dict[tuple[str, str], float] = {}
        self.anew = False

    @property
    def identity(self) -> str:
        return self._inner.identity

    async def score(self, request: str, texts: Sequence[str]) -> Sequence[float]:
        missing = [text for text in texts if self.anew or (request, text) not in self._known]
        if missing:
            try:
                scores = await self._inner.score(request, missing)
            except ModelError as error:
                raise BenchError(f"the reranker failed: {error}") from error
            self._known |= {(request, text): score for text, score in zip(missing, scores, strict=True)}
        return [self._known[request, text] for text in texts]
