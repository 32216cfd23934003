"""Trains the embedder: each request beside its tool, away from hard negatives and the other tools of its batch."""

from collections.abc import Sequence
from random import Random

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from nexus_gateway.routing.routing_text import routing_text
from nexus_gateway.training.batches import Batches, chosen_negatives
from nexus_gateway.training.data import Example, TrainingData
from nexus_gateway.training.encoder import Encoder
from nexus_gateway.training.loop import Run, train
from nexus_gateway.training.low_rank import add_low_rank, low_rank_deltas
from nexus_gateway.training.negatives import Negatives, hard_negatives, plain_name
from nexus_gateway.training.recipe import Recipe

_SCALE = 20.0
"""Cosines times this are the logits: the usual inverse temperature of sentence embedders."""


def train_embedder(data: TrainingData, encoder: Encoder, recipe: Recipe, run: Run) -> dict[str, Tensor]:
    """Fine-tune by cross-entropy over in-batch and hard negatives (van den Oord et al., arXiv 1807.03748).

    Returns:
        The deltas; the encoder has them too.
    """
    torch.manual_seed(recipe.seed)
    negatives = hard_negatives(data, encoder)
    parameters = add_low_rank(encoder.model, recipe.rank)
    batches = Batches(data, recipe)

    def loss_at(step: int) -> Tensor:
        places, rng = batches.at(step), batches.random(-step - 1)
        return _loss(
            [(data.examples[place], negatives[place]) for place in places], data, encoder, recipe, rng
        )

    train(encoder.model, parameters, loss_at, recipe, run)
    return low_rank_deltas(encoder.model)


def _loss(
    batch: Sequence[tuple[Example, Negatives]],
    data: TrainingData,
    encoder: Encoder,
    recipe: Recipe,
    rng: Random,
) -> Tensor:
    examples = [example for example, _ in batch]
    tools = data.pools[examples[0].pool]
    keys = [example.gold for example in examples]
    for _, wrong in batch:
        keys += chosen_negatives(wrong, recipe.negatives, rng)
    columns = list(dict.fromkeys(keys))
    logits = _SCALE * (
        encoder.encode([routing_text(example.request) for example in examples], recipe.request_tokens)
        @ encoder.encode([tools[key].text for key in columns], recipe.tool_tokens).T
    )
    names = [plain_name(key) for key in columns]
    equal = torch.tensor(
        [
            [key != e.gold and name == plain_name(e.gold) for key, name in zip(columns, names, strict=True)]
            for e in examples
        ]
    )
    right = torch.tensor([columns.index(example.gold) for example in examples])
    return F.cross_entropy(logits.masked_fill(equal, -1e4), right)
