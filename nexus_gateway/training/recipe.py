"""How the weights are made: every number that decides them. A recipe and the data give the weights."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """One model's training.

    Attributes:
        seed: of everything random; a step's batch and dropout depend on it and the step alone, so that a run
            that was interrupted ends as one that was not.
        steps: optimiser steps.
        requests: in a batch, all of one pool.
        negatives: wrong tools for each request.
        rank: of the low-rank deltas.
        learning_rate: after a linear warm-up.
        decays: whether it falls from there to a tenth, linearly. Not for the embedder: it then fits made requests more
            closely, and real ones less well.
        request_tokens: requests are cut to this.
        tool_tokens: tool texts are cut to this.
        shares: how often a batch comes from each pool.
    """

    seed: int
    steps: int
    requests: int
    negatives: int
    rank: int
    learning_rate: float
    request_tokens: int
    tool_tokens: int
    decays: bool = False
    shares: tuple[tuple[str, float], ...] = (("mcp", 0.76), ("bfcl", 0.08), ("toole", 0.07), ("seal", 0.09))


EMBEDDER = Recipe(
    seed=1,
    steps=600,
    requests=32,
    negatives=2,
    rank=32,
    learning_rate=5e-4,
    request_tokens=56,
    tool_tokens=72,
)
RERANKER = Recipe(
    seed=2,
    steps=150,
    requests=20,
    negatives=5,
    rank=32,
    learning_rate=5e-4,
    request_tokens=40,
    tool_tokens=64,
)
READER = Recipe(
    seed=3,
    steps=2_200,
    requests=40,
    negatives=0,
    rank=48,
    learning_rate=8e-4,
    decays=True,
    request_tokens=80,
    tool_tokens=48,
)
MADE_EACH = 2
"""Requests made from each MCP tool's definition."""
WARM_UP_STEPS = 50


def learning_rate(recipe: Recipe, step: int) -> float:
    """Of a step: linear warm-up, then all of it or less and less."""
    if step < WARM_UP_STEPS:
        return recipe.learning_rate * (step + 1) / WARM_UP_STEPS
    gone = (step - WARM_UP_STEPS) / max(1, recipe.steps - WARM_UP_STEPS)
    return recipe.learning_rate * (1 - 0.9 * gone if recipe.decays else 1.0)
