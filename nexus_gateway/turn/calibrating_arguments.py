"""Fitting the gate of arguments: drafts for requests whose right arguments are known, and what each threshold buys.

Knows drafts and calibrations; knows no file of requests, no model and no command.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nexus_gateway.turn.arguments import Draft
from nexus_gateway.turn.confidence import FEATURES, ArgumentCalibration
from nexus_gateway.turn.result import GroundKind
from nexus_gateway.turn.validation import accepts, problems
from tool_registry.index import CompiledTool
from tool_registry.logistic import Logistic, fit_logistic
from tool_registry.risk_coverage import RiskCoverage, RiskPoint, risk_coverage
from tool_registry.schema import properties

FOLDS = 5
_NOTHING = RiskPoint(1.0, 0, 0, 0.0)
"""Where no threshold is precise enough: nothing runs unasked."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """What the writer made of a request: its evidence, and whether all of it is right."""

    evidence: Mapping[str, float]
    right: bool


@dataclass(frozen=True, slots=True)
class ArgumentFit:
    """What was fitted, and what each threshold buys by probabilities of fits that had not seen the draft.

    Attributes:
        right: fitted on all drafts.
        curve: its coverage is of all requests, those whose draft could not run among them.
        chosen: the point of the least threshold that meets the wanted precision; None where none does.
        requests: how many there were.
        drafts: of these, those whose draft could run.
    """

    right: Logistic
    curve: RiskCoverage
    chosen: RiskPoint | None
    requests: int
    drafts: int

    def calibration(self, reader: str, figures: Mapping[str, Any]) -> ArgumentCalibration:
        """As a calibration for a reading model, with shares in percent; where nothing is chosen, nothing runs."""
        point = self.chosen or _NOTHING
        measured = {
            "requests": self.requests,
            "runs_unasked": round(100 * point.coverage, 1),
            "right": round(100 * point.precision, 1),
        }
        return ArgumentCalibration(self.right, point.threshold, reader, {**figures, **measured})


def could_run(draft: Draft, compiled: CompiledTool) -> bool:
    """Whether a draft is complete and valid; another is never called, however sure it is."""
    return not draft.missing and not problems(draft.arguments, compiled.tool.input_schema)


def says_the_same(draft: Draft, right: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Whether a draft's arguments are the right ones, as JSON: texts letter for letter, numbers by value.

    An argument that one side leaves out counts as its default; one that a binding gave may be left out of `right`.

    Args:
        draft: what was written.
        right: the arguments as a user would have them.
        schema: the tool's plain one.
    """
    known = properties(schema)
    bound = {name for name, ground in draft.grounds.items() if ground.kind is GroundKind.BINDING}
    for name in {*draft.arguments, *right} - (bound - set(right)):
        sides = [side[name] for side in (draft.arguments, right) if name in side]
        if len(sides) == 1 and "default" in known.get(name, {}):
            sides.append(known[name]["default"])
        # `const` is equality of JSON values: 5 is 5.0, true is not 1.
        if len(sides) == 1 or not accepts({"const": sides[0]}, sides[1]):
            return False
    return True


def fit_arguments(rows: Sequence[Drafted], *, requests: int, precision: float) -> ArgumentFit:
    """The logistic model over all drafts; its threshold from probabilities of models that had not seen the draft.

    Args:
        rows: drafts that could run; at least one more than a fold.
        requests: how many there were in all, of which these are the drafts.
        precision: wanted share of right calls among those that run unasked, in (0, 1).

    Raises:
        ValueError: too few rows to leave a fold out.
    """
    if len(rows) < FOLDS:
        raise ValueError(f"{len(rows)} drafts are too few to fit a calibration of arguments")
    labels = [row.right for row in rows]
    never = requests - len(rows)
    fair = np.concatenate([_cross_fitted(rows, labels), np.full(never, -np.inf)])
    curve = risk_coverage(fair, [*labels, *[False] * never])
    return ArgumentFit(_fitted(rows, labels), curve, curve.best(precision), requests, len(rows))


def _fitted(rows: Sequence[Drafted], labels: Sequence[bool]) -> Logistic:
    return fit_logistic([row.evidence for row in rows], labels, names=FEATURES)


def _cross_fitted(rows: Sequence[Drafted], labels: Sequence[bool]) -> NDArray[np.float64]:
    """P(right) of each row, from a fit without its fold. Folds are drawn: files list requests tool by tool."""
    fair = np.zeros(len(rows))
    folds = (np.random.default_rng(0).permutation(len(rows)) % FOLDS).tolist()
    for fold in range(FOLDS):
        others = [place for place, other in enumerate(folds) if other != fold]
        model = _fitted([rows[place] for place in others], [labels[place] for place in others])
        for place, own in enumerate(folds):
            if own == fold:
                fair[place] = model.probability(rows[place].evidence)
    return fair
