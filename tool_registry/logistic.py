"""Logistic regression on a handful of named features: a probability from evidence.

Knows numbers by name; knows no ranking and no file.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ITERATIONS = 60
_CONVERGED = 1e-9
_SMALLEST_STEP = 1e-6
_LARGEST_LOGIT = 40.0  # beyond it a float64 probability is 0 or 1 anyway

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Logistic:
    """P = 1 / (1 + exp(-(bias + sum of weight * feature))).

    Attributes:
        names: the features it reads.
        weights: one a name.
    """

    names: tuple[str, ...]
    weights: tuple[float, ...]
    bias: float

    def __post_init__(self) -> None:
        """Check the parts.

        Raises:
            ValueError: not one weight a name, or a number that is not finite.
        """
        if len(self.names) != len(self.weights):
            raise ValueError(f"{len(self.weights)} weights for {len(self.names)} features")
        if not all(map(math.isfinite, (*self.weights, self.bias))):
            raise ValueError("a weight or the bias is not a finite number")

    def probability(self, evidence: Mapping[str, float]) -> float:
        """In (0, 1). A feature that the evidence lacks counts 0."""
        pairs = zip(self.names, self.weights, strict=True)
        logit = self.bias + sum(weight * evidence.get(name, 0.0) for name, weight in pairs)
        return 1.0 / (1.0 + math.exp(-min(max(logit, -_LARGEST_LOGIT), _LARGEST_LOGIT)))


def fit_logistic(
    examples: Sequence[Mapping[str, float]],
    labels: Sequence[bool],
    *,
    names: Sequence[str],
    ridge: float = 1.0,
    sample_weights: Sequence[float] | None = None,
) -> Logistic:
    """Fit by Newton's method (iteratively reweighted least squares) on standardised features.

    Two things keep separable data, and labels of one kind only, finite: the ridge, and the targets of Platt,
    "Probabilistic outputs for support vector machines" (1999): (n+ + 1)/(n+ + 2) and 1/(n- + 2), not 1 and 0.

    Args:
        examples: evidence; a missing feature counts 0.
        labels: one an example.
        names: the features to read.
        ridge: weight of the squared weights of standardised features; the bias is free.
        sample_weights: one an example; all 1 where None.

    Raises:
        ValueError: no example, or lengths that differ.
    """
    if not examples or len(labels) != len(examples):
        raise ValueError(f"{len(labels)} labels for {len(examples)} examples; at least one is needed")
    raw = np.array([[example.get(name, 0.0) for name in names] for example in examples], np.float64)
    raw = raw.reshape(len(examples), len(names))
    shares = np.ones(len(examples)) if sample_weights is None else np.asarray(sample_weights, np.float64)
    if shares.shape != (len(examples),):
        raise ValueError(f"{len(shares)} sample weights for {len(examples)} examples")
    mean = np.average(raw, axis=0, weights=shares)
    spread = np.sqrt(np.average((raw - mean) ** 2, axis=0, weights=shares))
    spread[spread < _CONVERGED] = 1.0  # a constant feature is 0 for every example, and so is its weight
    design = np.column_stack([(raw - mean) / spread, np.ones(len(examples))])
    found = _newton(design, _platt_targets(np.asarray(labels, bool), shares), shares, ridge)
    weights = found[:-1] / spread
    return Logistic(tuple(names), tuple(weights.tolist()), float(found[-1] - weights @ mean))


def _platt_targets(labels: NDArray[np.bool_], shares: Floats) -> Floats:
    yes, no = float(shares[labels].sum()), float(shares[~labels].sum())
    return np.where(labels, (yes + 1) / (yes + 2), 1 / (no + 2))


def _newton(design: Floats, targets: Floats, shares: Floats, ridge: float) -> Floats:
    penalty = np.full(design.shape[1], ridge)
    penalty[-1] = 0.0

    def loss(weights: Floats) -> float:
        logits = design @ weights
        fit = shares @ (np.logaddexp(0.0, logits) - targets * logits)
        return float(fit + 0.5 * penalty @ weights**2)

    weights = np.zeros(design.shape[1])
    best = loss(weights)
    for _ in range(_ITERATIONS):
        p = 1.0 / (1.0 + np.exp(-np.clip(design @ weights, -_LARGEST_LOGIT, _LARGEST_LOGIT)))
        gradient = design.T @ (shares * (p - targets)) + penalty * weights
        curvature = (design.T * (shares * p * (1 - p))) @ design + np.diag(penalty + _CONVERGED)
        step, length = np.linalg.solve(curvature, gradient), 1.0
        while (reached := loss(weights - length * step)) > best and length > _SMALLEST_STEP:
            length /= 2
        if best - reached < _CONVERGED:
            break
        weights, best = weights - length * step, reached
    return weights
