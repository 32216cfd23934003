"""An in-memory `Embedder` for tests of what is built on one. Loads no model; knows only letters and words."""

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import anyio.lowlevel
import numpy as np

from adapters.ports import Vectors

_WORD = re.compile(r"\w+")
_GRAM = 4


class HashingEmbedder:
    """Hashes words and their character 4-grams into buckets: texts that share words are near. Deterministic.

    Attributes:
        embedded_texts: number of texts embedded so far.
    """

    def __init__(
        self, dimensions: int = 256, *, identity: str = "hashing", english_only: bool = False
    ) -> None:
        self._dimensions = dimensions
        self._identity = f"{identity}:{dimensions}"
        self._english_only = english_only
        self.embedded_texts = 0

    @property
    def identity(self) -> str:
        """Changes with the constructor's `identity` and `dimensions`."""
        return self._identity

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self._dimensions

    @property
    def english_only(self) -> bool:
        """As the constructor was told."""
        return self._english_only

    async def embed_requests(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimensions), rows of L2 norm 1."""
        return await self._embed(texts)

    async def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimensions), rows of L2 norm 1."""
        return await self._embed(texts)

    async def _embed(self, texts: Sequence[str]) -> Vectors:
        await anyio.lowlevel.checkpoint()
        self.embedded_texts += len(texts)
        vectors = np.zeros((len(texts), self._dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            for feature in _features(text):
                bucket = int.from_bytes(blake2b(feature.encode(), digest_size=8).digest())
                vectors[row, bucket % self._dimensions] += 1.0
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors


def _features(text: str) -> Iterator[str]:
    yield ""  # a text without a word has a direction too
    for word in _WORD.findall(text.replace("_", " ").lower()):
        yield word
        yield from (word[start : start + _GRAM] for start in range(len(word) - _GRAM + 1))
