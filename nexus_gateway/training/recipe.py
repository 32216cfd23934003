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
    shares: tuple[tuple[str, float], ...] = (("mcp", 0.6), ("bfcl", 0.13), ("toole", 0.12), ("seal", 0.15))


EMBEDDER = Recipe(
    seed=1,
    steps=300,
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
MADE_EACH = 2
"""Requests made from each MCP tool's definition."""
WARM_UP_STEPS = 50


def learning_rate(recipe: Recipe, step: int) -> float:
    """Of a step: linear warm-up, then all of it. Decay fits made requests more closely, and real ones less well."""
    return recipe.learning_rate * min(1.0, (step + 1) / WARM_UP_STEPS)
