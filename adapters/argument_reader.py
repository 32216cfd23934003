"""The reading model: where in a request each argument of a tool is stated, with probabilities.

Knows model directories, transformers and the format of the trained weights. Does not know tools, nor what is done
with an answer. torch is imported lazily (see `adapters.sentence_runtime`).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from anyio import CapacityLimiter, to_thread
from numpy.typing import NDArray

from adapters.low_rank import merge, read_deltas
from adapters.ports import ModelUnusable
from adapters.reading_port import Reading, ReadingAnswer, ReadingQuestion
from adapters.sentence_runtime import RunOptions, content_identity, first_line, load_arguments, loading

LABELS = 5
"""Of each token: the answer starts here, ends here; it is outside of, begins, goes on with an item of a list."""
KIND = "reader"
MAX_TOKENS = 320
MAX_CHARACTERS = 1_200
"""Of a request that is read."""
LONGEST_ANSWER = 40
"""Tokens of an answer."""
_KEPT_ANSWERS = 12
_BATCH = 16
_SEPARATOR = " ; "
_HEAD = ("classifier.weight", "classifier.bias")
"""What the base lacks: without it answers would be random."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: Any
    tokenizer: Any
    identity: str


class SentenceArgumentReader:
    """An `ArgumentReader` over one loaded token classifier; see `open_reader`."""

    def __init__(self, loaded: _Loaded, directory: Path) -> None:
        self._loaded = loaded
        self._directory = directory
        self._limiter = CapacityLimiter(1)

    @property
    def identity(self) -> str:
        """Hash over weights, configuration and tokenizer."""
        return self._loaded.identity

    async def read(self, request: str, questions: Sequence[ReadingQuestion]) -> Sequence[Reading]:
        """Where the request answers each question, in their order. Raises ModelUnusable."""
        found: list[Reading] = []
        for start in range(0, len(questions), _BATCH):
            batch = questions[start : start + _BATCH]
            found += await to_thread.run_sync(self._read, request, batch, limiter=self._limiter)
        return found

    def _read(self, request: str, questions: Sequence[ReadingQuestion]) -> list[Reading]:
        request = _encodable(request[:MAX_CHARACTERS])
        pieces = [[request, *map(_encodable, question.options)] for question in questions]
        try:
            encoded, logits = self._logits(questions, [_SEPARATOR.join(parts) for parts in pieces])
        except (RuntimeError, ValueError) as error:
            raise ModelUnusable(f"the model in {self._directory} failed: {first_line(error)}") from error
        offsets = encoded["offset_mapping"].tolist()
        return [
            _reading(
                logits[row],
                [tuple(extent) for extent in offsets[row]],
                [part == 1 for part in encoded.sequence_ids(row)],
                pieces[row],
            )
            for row in range(len(questions))
        ]

    def _logits(self, questions: Sequence[ReadingQuestion], passages: Sequence[str]) -> tuple[Any, Floats]:
        import torch  # noqa: PLC0415 - see the module docstring

        encoded = self._loaded.tokenizer(
            [_encodable(question.text) for question in questions],
            list(passages),
            padding=True,
            truncation=True,
            max_length=MAX_TOKENS,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        inputs = {name: value for name, value in encoded.items() if name != "offset_mapping"}
        with torch.inference_mode():
            logits = self._loaded.model(**inputs).logits
        return encoded, logits.float().numpy()


@asynccontextmanager
async def open_reader(
    directory: Path, deltas: Path, options: RunOptions | None = None
) -> AsyncIterator[SentenceArgumentReader]:
    """Load the base model of a directory with the trained weights merged in.

    Raises:
        ModelMissing: there is no file `deltas`.
        ModelUnusable: names the directory or the file and what is wrong with it.
    """
    loaded = await to_thread.run_sync(
        _load, directory, deltas, options or RunOptions(), abandon_on_cancel=True
    )
    yield SentenceArgumentReader(loaded, directory)


def _load(directory: Path, deltas: Path, options: RunOptions) -> _Loaded:
    with loading(directory, options):
        from transformers import AutoModelForTokenClassification, AutoTokenizer  # noqa: PLC0415

        arguments: Mapping[str, Any] = {
            name: value for name, value in load_arguments(options).items() if name != "device"
        }
        trained = read_deltas(deltas, kind=KIND, base=directory)
        for name in _HEAD:
            if name not in trained.whole:
                raise ModelUnusable(f"the trained weights {deltas} have no {name}")
        model = AutoModelForTokenClassification.from_pretrained(
            str(directory), num_labels=LABELS, **arguments
        )
        merge(trained, model)
        tokenizer = AutoTokenizer.from_pretrained(str(directory), **arguments)
        return _Loaded(model.eval(), tokenizer, content_identity(directory, deltas, KIND))


def _reading(
    logits: Floats, offsets: Sequence[tuple[int, int]], inside: Sequence[bool], pieces: Sequence[str]
) -> Reading:
    """Probabilities over all spans within one piece, and "nothing"."""
    piece_of = _pieces_of(offsets, inside, pieces)
    pairs = _pairs(piece_of)
    starts, ends = logits[:, 0], logits[:, 1]
    scores = np.array([starts[0] + ends[0], *(starts[a] + ends[b] for a, b in pairs)])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    bounds = _bounds(pieces)
    best = np.argsort(-shares[1:], kind="stable")[:_KEPT_ANSWERS].tolist()
    answers = [_answer(pairs[at], offsets, piece_of, bounds, float(shares[1 + at])) for at in best]
    items = [_answer(pair, offsets, piece_of, bounds, share) for pair, share in _items(logits, piece_of)]
    return Reading(float(shares[0]), tuple(answers), tuple(items))


def _encodable(text: str) -> str:
    """The text with half surrogate pairs, which the tokenizer refuses, as question marks: each character keeps its place."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _bounds(pieces: Sequence[str]) -> list[int]:
    """Where each piece starts in the passage."""
    return [0, *accumulate(len(piece) + len(_SEPARATOR) for piece in pieces[:-1])]


def _pieces_of(
    offsets: Sequence[tuple[int, int]], inside: Sequence[bool], pieces: Sequence[str]
) -> list[int]:
    """The piece that each token lies in; -1 for the question and the separators."""
    bounds = _bounds(pieces)
    found = []
    for (start, end), within in zip(offsets, inside, strict=True):
        at = int(np.searchsorted(bounds, start, side="right")) - 1 if within else -1
        fits = at >= 0 and end <= bounds[at] + len(pieces[at])
        found.append(at if fits else -1)
    return found


def _pairs(piece_of: Sequence[int]) -> list[tuple[int, int]]:
    """First and last token of every span that lies in the request, or is a whole option."""
    count = len(piece_of)
    pairs = [
        (a, b)
        for a in range(count)
        if piece_of[a] == 0
        for b in range(a, min(a + LONGEST_ANSWER, count))
        if piece_of[b] == 0
    ]
    for option in range(1, max(piece_of, default=0) + 1):
        tokens = [place for place in range(count) if piece_of[place] == option]
        if tokens:
            pairs.append((tokens[0], tokens[-1]))
    return pairs


def _answer(
    pair: tuple[int, int],
    offsets: Sequence[tuple[int, int]],
    piece_of: Sequence[int],
    bounds: Sequence[int],
    probability: float,
) -> ReadingAnswer:
    piece = piece_of[pair[0]]
    start, end = offsets[pair[0]][0] - bounds[piece], offsets[pair[1]][1] - bounds[piece]
    return ReadingAnswer(start, end, probability, None if piece == 0 else piece - 1)


def _items(logits: Floats, piece_of: Sequence[int]) -> list[tuple[tuple[int, int], float]]:
    """Items of a list: each begins where "begins" is likelier than "outside", and goes on while "goes on" is."""
    found: list[list[int]] = []
    kinds = logits[:, 2:5].argmax(axis=1).tolist()
    for place, kind in enumerate(kinds):
        if piece_of[place] < 0:
            continue
        if kind == 1 or (kind == 2 and not (found and found[-1][-1] == place - 1)):  # noqa: PLR2004
            found.append([place])
        elif kind == 2:  # noqa: PLR2004 - goes on
            found[-1].append(place)
    shares = np.exp(logits[:, 2:5] - logits[:, 2:5].max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return [((item[0], item[-1]), float(1 - shares[item[0], 0])) for item in found]
