"""BM25F over the fields of tools: an immutable index that scores all of them for a request.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3.6: word
counts are normalised by length in each field, weighted, summed, and saturated once. Postings hold plain counts
of words; idf and mean lengths, which any change moves, enter when a word is asked for. So a changed document
touches the postings of its own words alone, and snapshots share the others. Knows lists of words; knows no
tools and no way of splitting text.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Document: TypeAlias = Mapping[str, Sequence[str]]
"""The words of each field."""

_MOST_COUNTED = 65_535
_EMPTY_BYTES = 33
"""Of a bytes object, beside its content."""


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
    """An immutable snapshot. Scores may be asked for in several threads at once.

    Attributes:
        parameters: of the score.
        postings: for each word a packed array of (slot, count in each field), 12 bytes with four fields; bytes,
            since most words have one posting, and an array would cost its header.
        lengths: shape (slots, fields): words of each field; 0 where a slot is free. A document keeps its slot
            from snapshot to snapshot, while its position moves.
        slots: shape (documents,): where each document's numbers are.
    """

    parameters: Bm25Parameters = field(default_factory=Bm25Parameters)
    postings: Mapping[str, bytes] = field(default_factory=dict)
    lengths: NDArray[np.int32] | None = None
    slots: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    _norms: NDArray[np.float64] = field(
        init=False, repr=False
    )  # (slots, fields): weight / length, normalised
    # Filled as words are asked for. Threads may race to fill one: they write the same.
    _impacts: dict[str, tuple[NDArray[np.intp], NDArray[np.float32]]] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        lengths = np.zeros((0, len(self._fields)), np.int32) if self.lengths is None else self.lengths
        means = np.maximum(lengths.sum(axis=0), 1) / max(len(self.slots), 1)
        weights = np.array([self.parameters.weights[name] for name in self._fields])
        object.__setattr__(self, "lengths", lengths)
        # An empty field has no word to be weighed: its length, which may not be 0, does not matter.
        shares = np.maximum(lengths, 1) / means
        object.__setattr__(self, "_norms", weights / (1 - self.parameters.b + self.parameters.b * shares))

    @classmethod
    def build(cls, documents: Sequence[Document], parameters: Bm25Parameters | None = None) -> "LexicalIndex":
        """Index documents, each the words of its fields.

        Raises:
            ValueError: a field has no weight.
        """
        nothing = cls(parameters or Bm25Parameters())
        return nothing.edited(np.full(len(documents), -1), documents, ())

    @property
    def n_documents(self) -> int:
        """Documents, those without words included."""
        return len(self.slots)

    @property
    def memory_bytes(self) -> int:
        """Of postings, words, lengths, and what was computed for words asked for so far."""
        words = sum(
            len(word) + len(posted) + 2 * _EMPTY_BYTES for word, posted in list(self.postings.items())
        )
        cached = sum(where.nbytes + impacts.nbytes for where, impacts in list(self._impacts.values()))
        return int(words + cached + self._lengths.nbytes + self._norms.nbytes + self.slots.nbytes)

    def idf(self, word: str) -> float:
        """How telling a word is: ln(1 + (N - n + 0.5) / (n + 0.5)), n of N documents having it; 0 if none has."""
        containing = len(self.postings.get(word, b"")) // self._posting.itemsize
        return math.log1p((self.n_documents - containing + 0.5) / (containing + 0.5)) if containing else 0.0

    def scores(self, query_words: Iterable[str]) -> NDArray[np.float32]:
        """Score all documents; a repeated word counts once, an unknown one adds nothing.

        Returns:
            Shape (n_documents,), 0 where no word occurs.
        """
        total = np.zeros(len(self._lengths), np.float32)
        for word in dict.fromkeys(query_words):
            if word in self.postings:
                where, impacts = self._impacts.get(word) or self._weighed(word)
                total[where] += impacts
        return total[self.slots]

    def edited(
        self, source: NDArray[np.intp], added: Sequence[Document], removed: Sequence[Document]
    ) -> "LexicalIndex":
        """The next snapshot: some documents kept, others gone, new ones in between. This one stays as it is.

        Args:
            source: shape (documents of the next,): where each was in this one; -1 for the next of `added`.
            added: the new documents.
            removed: those that are in no place of `source`, as they were added, in this one's order.

        Raises:
            ValueError: a field has no weight.
        """
        kept = source >= 0
        stay = np.zeros(self.n_documents, np.bool_)
        stay[source[kept]] = True
        lengths, postings = self._lengths.copy(), dict(self.postings)
        self._forget(postings, removed, self.slots[~stay])
        lengths[self.slots[~stay]] = 0
        fresh = self._free_slots(self.slots[stay], len(added))
        missing = max(int(fresh.max(initial=-1)) + 1 - len(lengths), 0)
        lengths = np.concatenate([lengths, np.zeros((missing, lengths.shape[1]), np.int32)])
        for slot, document in zip(fresh, added, strict=True):
            lengths[slot] = [len(document.get(name, ())) for name in self._fields]
        for word, posted in self._posted(added, fresh).items():
            postings[word] = postings.get(word, b"") + posted
        slots = np.empty(len(source), np.int32)
        slots[kept], slots[~kept] = self.slots[source[kept]], fresh
        return LexicalIndex(self.parameters, postings, lengths, slots)

    @property
    def _lengths(self) -> NDArray[np.int32]:
        assert self.lengths is not None  # noqa: S101 - set in __post_init__
        return self.lengths

    @property
    def _fields(self) -> list[str]:
        """Those that count."""
        return [name for name, weight in self.parameters.weights.items() if weight > 0]

    @property
    def _posting(self) -> np.dtype[Any]:
        return np.dtype([("slot", "<i4"), ("counts", "<u2", (len(self._fields),))])

    def _weighed(self, word: str) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """The slots that have a word, and what it adds to the score of each."""
        entries = np.frombuffer(self.postings[word], self._posting)
        where = entries["slot"].astype(np.intp)
        weights = np.einsum("ij,ij->i", entries["counts"], self._norms[where])
        k1 = self.parameters.k1
        impacts = (self.idf(word) * weights * (k1 + 1) / (k1 + weights)).astype(np.float32)
        self._impacts[word] = where, impacts
        return where, impacts

    def _forget(
        self, postings: dict[str, bytes], documents: Sequence[Document], slots: NDArray[np.int32]
    ) -> None:
        """Take the slots of documents out of the postings of their words."""
        if len(documents) != len(slots):
            raise ValueError(f"{len(slots)} documents are gone, and the words of {len(documents)} are given")
        gone = np.zeros(len(self._lengths), np.bool_)
        gone[slots] = True
        for word in {word for document in documents for words in document.values() for word in words}:
            entries = np.frombuffer(postings.get(word, b""), self._posting)
            left = entries[~gone[entries["slot"]]]
            if len(left):
                postings[word] = left.tobytes()
            else:
                postings.pop(word, None)

    def _free_slots(self, used: NDArray[np.int32], count: int) -> NDArray[np.int32]:
        free = np.ones(len(self._lengths) + count, np.bool_)
        free[used] = False
        return np.flatnonzero(free)[:count].astype(np.int32)

    def _posted(self, documents: Sequence[Document], slots: NDArray[np.int32]) -> dict[str, bytes]:
        """The postings of documents by word."""
        ids: dict[str, int] = {}
        numbers, places, fields = self._flattened(documents, ids)
        n_fields = max(len(self._fields), 1)
        keys, counts = np.unique((numbers * len(slots) + places) * n_fields + fields, return_counts=True)
        pairs, row = np.unique(keys // n_fields, return_inverse=True)
        entries = np.zeros(len(pairs), self._posting)
        entries["slot"] = slots[pairs % max(len(slots), 1)]
        entries["counts"][row, keys % n_fields] = np.minimum(counts, _MOST_COUNTED)
        size, data = self._posting.itemsize, entries.tobytes()
        edges = (np.searchsorted(pairs // max(len(slots), 1), np.arange(len(ids) + 1)) * size).tolist()
        return {word: data[edges[number] : edges[number + 1]] for word, number in ids.items()}

    def _flattened(
        self, documents: Sequence[Document], ids: dict[str, int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Each occurrence of a word: its number, which `ids` gives out, its document and its field."""
        numbers: list[int] = []
        lengths: list[tuple[int, int, int]] = []
        known, counted = self.parameters.weights, {name: at for at, name in enumerate(self._fields)}
        for place, document in enumerate(documents):
            for name, words in document.items():
                if name not in known:
                    raise ValueError(f"field {name!r} has no weight; those with one: {', '.join(known)}")
                if name in counted:
                    numbers += [ids.setdefault(word, len(ids)) for word in words]
                    lengths.append((len(words), place, counted[name]))
        repeats, places, fields = np.array(lengths, np.int64).reshape(-1, 3).T
        return np.array(numbers, np.int64), np.repeat(places, repeats), np.repeat(fields, repeats)
