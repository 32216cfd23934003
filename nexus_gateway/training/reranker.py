"""Trains the reranker: of a few close candidates the right one, or none of them, by reading request and tool together."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from adapters.low_rank import Deltas, merge
from nexus_gateway.routing.routing_text import routing_text
from nexus_gateway.training.batches import Batches, chosen_negatives
from nexus_gateway.training.data import Example, TrainingData
from nexus_gateway.training.loop import Run, train
from nexus_gateway.training.low_rank import add_low_rank, low_rank_deltas
from nexus_gateway.training.negatives import Negatives
from nexus_gateway.training.recipe import Recipe

_ABSENT_SHARE = 0.2
"""Of the requests, how many are shown without their tool: then the score of every candidate belongs below 0."""
_WHOLE = ("classifier.weight", "classifier.bias")


class PairScorer:
    """A cross-encoder in training: one logit for each request with a tool."""

    def __init__(self, directory: Path, rank: int, start: Deltas) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(str(directory))
        self.model = AutoModelForSequenceClassification.from_pretrained(str(directory), num_labels=1)
        self._start = start
        merge(start, self.model.bert)
        self.parameters = add_low_rank(self.model, rank)
        for name in _WHOLE:
            parameter = self.model.get_parameter(name)
            parameter.requires_grad_(True)
            self.parameters.append(parameter)

    def score(self, pairs: Sequence[tuple[str, str]], recipe: Recipe) -> Tensor:
        """Logits of shape (pairs,), with their graph."""
        batch = self.tokenizer(
            [request for request, _ in pairs],
            [tool for _, tool in pairs],
            padding=True,
            truncation=True,
            max_length=recipe.request_tokens + recipe.tool_tokens,
            return_tensors="pt",
        )
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits: Tensor = self.model(**batch).logits
        return logits.float()[:, 0]

    def weights(self) -> dict[str, Tensor]:
        """The deltas to the base, what the encoder had learned included, and the tensors that are new."""
        deltas = low_rank_deltas(self.model)
        for layer, (up, down) in self._start.layers.items():
            name = f"bert.{layer}"
            deltas[f"{name}.up"] = torch.cat([torch.from_numpy(up), deltas[f"{name}.up"]], dim=1)
            deltas[f"{name}.down"] = torch.cat([torch.from_numpy(down), deltas[f"{name}.down"]], dim=0)
        return deltas | {name: self.model.get_parameter(name).detach() for name in _WHOLE}


def train_reranker(
    data: TrainingData, negatives: Sequence[Negatives], scorer: PairScorer, recipe: Recipe, run: Run
) -> dict[str, Tensor]:
    """Listwise cross-entropy over the right tool, hard negatives of the trained encoder, and "none" at logit 0."""
    batches = Batches(data, recipe)

    def loss_at(step: int) -> Tensor:
        places, rng = batches.at(step), batches.random(-step - 1)
        return _loss(
            [(data.examples[place], negatives[place]) for place in places], data, scorer, recipe, rng
        )

    train(scorer.model, scorer.parameters, loss_at, recipe, run)
    return scorer.weights()


def _loss(
    batch: Sequence[tuple[Example, Negatives]],
    data: TrainingData,
    scorer: PairScorer,
    recipe: Recipe,
    rng: Random,
) -> Tensor:
    width = recipe.negatives + 1
    pairs: list[tuple[str, str]] = []
    padding = torch.zeros(len(batch), width + 1, dtype=torch.bool)
    right = []
    for row, (example, wrong) in enumerate(batch):
        keys = chosen_negatives(wrong, width, rng)
        absent = rng.random() < _ABSENT_SHARE and len(keys) == width
        if not absent:
            keys = [example.gold, *keys[: recipe.negatives]]
        right.append(width if absent else 0)
        padding[row, len(keys) : width] = True
        keys += [keys[0]] * (width - len(keys))
        tools = data.pools[example.pool]
        pairs += [(routing_text(example.request), tools[key].text) for key in keys]
    scores = scorer.score(pairs, recipe).view(len(batch), width)
    logits = torch.cat([scores, torch.zeros(len(batch), 1)], dim=1).masked_fill(padding, -1e4)
    return F.cross_entropy(logits, torch.tensor(right))
