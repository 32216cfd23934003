"""BM25F over the fields of tools: an immutable index that scores all of them for a request.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3.6: word
counts are normalised by length in each field, weighted, summed, and saturated once. Knows lists of words;
knows no tools and no way of splitting text.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray


def _default_weights() -> Mapping[str, float]:
    return MappingProxyType({"name": 3.0, "description": 1.0, "parameters": 0.7, "server": 0.4})


@dataclass(frozen=True, slots=True)
class Bm25Parameters:
    """The knobs of the score.

    Attributes:
        k1: saturation of repeated words; 0 counts a word once.
        b: length normalisation within each field, 0 (none) to 1 (full).
        weights: of each field.
    """

    k1: float = 1.2
    b: float = 0.6
    weights: Mapping[str, float] = field(default_factory=_default_weights)


@dataclass(frozen=True, slots=True, eq=False)
class LexicalIndex:
    """Postings in one block: word `i` of `vocabulary` has those from `starts[i]` to `starts[i + 1]`.

    Attributes:
        vocabulary: the position of each word.
        starts: shape (words + 1,).
        documents: shape (postings,): document indices.
        impacts: shape (postings,): what the word adds to the document's score, idf included.
        n_documents: documents, those without words included.
    """

    vocabulary: Mapping[str, int]
    starts: NDArray[np.int64]
    documents: NDArray[np.int32]
    impacts: NDArray[np.float32]
    n_documents: int

    @classmethod
    def build(
        cls, documents: Sequence[Mapping[str, Sequence[str]]], parameters: Bm25Parameters | None = None
    ) -> "LexicalIndex":
        """Index documents, each the words of its fields.

        Raises:
            ValueError: a field has no weight.
        """
        parameters = parameters or Bm25Parameters()
        postings: dict[str, list[tuple[int, float]]] = {}
        means = _mean_lengths(documents)
        for index, document in enumerate(documents):
            for word, weight in _weighted_counts(document, means, parameters).items():
                postings.setdefault(word, []).append((index, weight))
        sizes = [len(entries) for entries in postings.values()]
        flat = [entry for entries in postings.values() for entry in entries]
        weights = np.array([weight for _, weight in flat], np.float64)
        idf = np.repeat([_idf(size, len(documents)) for size in sizes], sizes)
        return cls(
            vocabulary={word: position for position, word in enumerate(postings)},
            starts=np.cumsum([0, *sizes], dtype=np.int64),
            documents=np.array([index for index, _ in flat], np.int32),
            impacts=(idf * weights * (parameters.k1 + 1) / (parameters.k1 + weights)).astype(np.float32),
            n_documents=len(documents),
        )

    def scores(self, query_words: Iterable[str]) -> NDArray[np.float32]:
        """Score all documents; a repeated word counts once, an unknown one adds nothing.

        Returns:
            Shape (n_documents,), 0 where no word occurs.
        """
        total = np.zeros(self.n_documents, np.float32)
        for word in dict.fromkeys(query_words):
            position = self.vocabulary.get(word)
            if position is not None:
                part = slice(self.starts[position], self.starts[position + 1])
                total[self.documents[part]] += self.impacts[part]
        return total


def _mean_lengths(documents: Sequence[Mapping[str, Sequence[str]]]) -> dict[str, float]:
    """Mean words of each field, over all documents; never 0."""
    totals: Counter[str] = Counter()
    for document in documents:
        for name, words in document.items():
            totals[name] += len(words)
    return {name: max(total, 1) / len(documents) for name, total in totals.items()}


def _weighted_counts(
    document: Mapping[str, Sequence[str]], means: Mapping[str, float], parameters: Bm25Parameters
) -> dict[str, float]:
    """Each word's count, normalised by the length of its field and weighted, summed over fields."""
    found: dict[str, float] = {}
    for name, words in document.items():
        if name not in parameters.weights:
            raise ValueError(f"field {name!r} has no weight; those with one: {', '.join(parameters.weights)}")
        length = 1 - parameters.b + parameters.b * len(words) / means[name]
        for word, count in Counter(words).items():
            found[word] = found.get(word, 0.0) + parameters.weights[name] * count / length
    return {word: weight for word, weight in found.items() if weight > 0}


def _idf(containing: int, n_documents: int) -> float:
    return math.log1p((n_documents - containing + 0.5) / (containing + 0.5))
