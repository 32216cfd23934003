"""Trains the reading model: where in a request an argument is stated, or that it is not.

Extractive question answering with a "nothing" answer, as in SQuAD 2.0 (Rajpurkar et al., arXiv 1806.03822): for each
token whether the answer starts or ends there, the first token meaning "nothing"; and for lists, whether it begins or
goes on with an item.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor
from transformers import AutoModelForTokenClassification, AutoTokenizer

from adapters.argument_reader import LABELS
from nexus_gateway.training.loop import Run, train
from nexus_gateway.training.low_rank import add_low_rank, low_rank_deltas
from nexus_gateway.training.reading_data import Extent, ReadingExample
from nexus_gateway.training.recipe import Recipe

_HEAD = ("classifier.weight", "classifier.bias")
_SILENT_SHARE = 0.35
"""Of a batch: questions that the request does not answer."""
_START, _END, _ITEMS = 0, 1, slice(2, 5)
_OUTSIDE, _BEGINS, _GOES_ON = 0, 1, 2


@dataclass(frozen=True, slots=True, eq=False)
class _Targets:
    """Of a batch: start and end as distributions, items as classes, each of shape (examples, tokens)."""

    starts: Tensor
    ends: Tensor
    items: Tensor


class ReadingModel:
    """A token classifier in training."""

    def __init__(self, directory: Path, rank: int) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(str(directory))
        self.model = AutoModelForTokenClassification.from_pretrained(str(directory), num_labels=LABELS)
        self.parameters = add_low_rank(self.model, rank)
        for name in _HEAD:
            parameter = self.model.get_parameter(name)
            parameter.requires_grad_(True)
            self.parameters.append(parameter)

    def loss(self, batch: Sequence[ReadingExample], recipe: Recipe) -> Tensor:
        """Mean cross-entropies of starts, ends and items; short and long examples apart, to pad less."""
        ordered = sorted(batch, key=lambda example: len(example.question) + len(example.passage))
        parts = [ordered[: len(ordered) // 2], ordered[len(ordered) // 2 :]]
        losses = [self._loss(part, recipe) * (len(part) / len(batch)) for part in parts if part]
        return torch.stack(losses).sum()

    def _loss(self, batch: Sequence[ReadingExample], recipe: Recipe) -> Tensor:
        encoded = self.tokenizer(
            [example.question for example in batch],
            [example.passage for example in batch],
            padding=True,
            truncation=True,
            max_length=recipe.request_tokens + recipe.tool_tokens,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        offsets = encoded.pop("offset_mapping").tolist()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits: Tensor = self.model(**encoded).logits
        inside = torch.tensor(
            [[part == 1 for part in encoded.sequence_ids(row)] for row in range(len(batch))]
        )
        targets = _targets(batch, offsets, inside)
        allowed = inside.clone()
        allowed[:, 0] = True
        places = logits.float().masked_fill(~allowed[..., None], -1e4)
        whole = F.cross_entropy(places[..., _START], targets.starts)
        whole = whole + F.cross_entropy(places[..., _END], targets.ends)
        items = logits.float()[..., _ITEMS].reshape(-1, 3)
        return whole + F.cross_entropy(items, targets.items.reshape(-1), ignore_index=-1)

    def weights(self) -> dict[str, Tensor]:
        """The deltas to the base, and the head."""
        return low_rank_deltas(self.model) | {name: self.model.get_parameter(name).detach() for name in _HEAD}


def train_reader(
    examples: Sequence[ReadingExample], model: ReadingModel, recipe: Recipe, run: Run
) -> dict[str, Tensor]:
    """Run the recipe; a step's examples depend on its number and the seed."""
    answered = [example for example in examples if example.found]
    silent = [example for example in examples if not example.found]

    def loss_at(step: int) -> Tensor:
        rng = Random(f"{recipe.seed}:{step}")  # noqa: S311 - not for secrets
        quiet = round(recipe.requests * _SILENT_SHARE)
        batch = rng.sample(answered, recipe.requests - quiet) + rng.sample(silent, quiet)
        return model.loss(batch, recipe)

    train(model.model, model.parameters, loss_at, recipe, run)
    return model.weights()


def _targets(
    batch: Sequence[ReadingExample], offsets: Sequence[Sequence[Extent]], inside: Tensor
) -> _Targets:
    shape = tuple(inside.shape)
    starts, ends = torch.zeros(shape), torch.zeros(shape)
    items = torch.where(inside, _OUTSIDE, -1)
    for row, example in enumerate(batch):
        places = [place for place, within in enumerate(inside[row].tolist()) if within]
        found = [span for extent in example.found if (span := _tokens(extent, offsets[row], places))]
        for first, last in found or [(0, 0)]:
            starts[row, first] += 1 / max(1, len(found))
            ends[row, last] += 1 / max(1, len(found))
        for first, last in found:
            items[row, first] = _BEGINS
            items[row, first + 1 : last + 1] = _GOES_ON
    return _Targets(starts, ends, items)


def _tokens(extent: Extent, offsets: Sequence[Extent], places: Sequence[int]) -> Extent | None:
    """First and last token of a part of the passage; None where the passage was cut before it."""
    within = [place for place in places if offsets[place][0] < extent[1] and offsets[place][1] > extent[0]]
    return (within[0], within[-1]) if within and offsets[within[-1]][1] >= extent[1] else None
