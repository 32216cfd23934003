"""From a ranking's evidence to a probability of being right, and what that probability was fitted for.

`Calibration` is a value with a JSON form. Knows evidence by name, and the identities of models and tools as
texts; knows no ranking, no file and no model.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tool_registry.logistic import Logistic, fit_logistic
from tool_registry.risk_coverage import (
    RiskCoverage,
    RiskPoint,
    choose_floor,
    choose_threshold,
    risk_coverage,
    wilson_low,
)

__all__ = [
    "RANKING_VERSION",
    "Calibration",
    "CalibrationError",
    "CalibrationIdentity",
    "Logistic",
    "RiskCoverage",
    "RiskPoint",
    "choose_floor",
    "choose_threshold",
    "fit_logistic",
    "margin_calibration",
    "risk_coverage",
    "wilson_low",
]

RANKING_VERSION = "1"
"""Raise it with any change of tool text, ranking or evidence that moves scores: earlier calibrations are stale then."""
FORMAT_VERSION = 1
SKETCH_SIZE = 256
"""Smallest hash prefixes kept of a fleet; an estimate of its likeness to another is good to about 3 points."""
FLEET_LIMIT = 0.3
"""Share of tools that may differ before a calibration counts as stale."""

_PREFIX_DIGITS = 16  # 64 bits of a content hash
_STEEPNESS = 200.0  # a margin of 0.01 beyond the step is P = 0.88


class CalibrationError(ValueError):
    """A text that is no calibration; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class CalibrationIdentity:
    """What a calibration was made for.

    Attributes:
        embedder: identity of the embedding model.
        reranker: identity of the reranker; None where there was none.
        ranking_version: `RANKING_VERSION` of the code.
        n_tools: distinct definitions in the fleet.
        fleet: the `SKETCH_SIZE` smallest 64-bit prefixes of their content hashes, ascending (bottom-k MinHash:
            Broder 1997); empty for a calibration that is for any fleet.
    """

    embedder: str
    reranker: str | None = None
    ranking_version: str = RANKING_VERSION
    n_tools: int = 0
    fleet: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, content_hashes: Iterable[str], embedder: str, reranker: str | None = None
    ) -> "CalibrationIdentity":
        """The identity of a fleet by its tools' content hashes (hex), with its models."""
        prefixes = sorted({int(content_hash[:_PREFIX_DIGITS], 16) for content_hash in content_hashes})
        return cls(embedder, reranker, RANKING_VERSION, len(prefixes), tuple(prefixes[:SKETCH_SIZE]))

    def usable(self, now: "CalibrationIdentity") -> bool:
        """Whether scores still mean what they meant: the same embedder and ranking."""
        return self.embedder == now.embedder and self.ranking_version == now.ranking_version

    def reranks_as(self, now: "CalibrationIdentity") -> bool:
        """Whether the reranker, where there is one now, is the same."""
        return now.reranker is None or self.reranker == now.reranker

    def changed_share(self, now: "CalibrationIdentity") -> float:
        """Share of the larger fleet that is not in both, in [0, 1]; estimated beyond `SKETCH_SIZE` tools."""
        if not self.fleet or not now.fleet:
            return 0.0
        smallest = sorted({*self.fleet, *now.fleet})[:SKETCH_SIZE]
        both = {*self.fleet} & {*now.fleet}
        likeness = sum(prefix in both for prefix in smallest) / len(smallest)
        shared = likeness * (self.n_tools + now.n_tools) / (1 + likeness)
        return min(1.0, max(0.0, 1 - shared / max(self.n_tools, now.n_tools)))

    def staleness(self, now: "CalibrationIdentity") -> str | None:
        """Why a calibration of this identity is stale for what is there now; None where it is not."""
        if self.embedder != now.embedder:
            return "it was made with another embedding model"
        if self.ranking_version != now.ranking_version:
            return "it was made for another version of the ranking"
        if not self.reranks_as(now):
            made = "another reranker" if self.reranker else "no reranker"
            return f"it was made with {made}"
        changed = self.changed_share(now)
        if changed > FLEET_LIMIT:
            return f"about {changed:.0%} of the tools differ from those it was made for"
        return None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Probabilities from evidence, and the two numbers that make decisions of them.

    Routed where `probability` is at least `threshold`; abstained where `fit_probability` is below `floor`;
    ambiguous otherwise.

    Attributes:
        right: P(the first candidate is right), of a ranking that was not reranked.
        right_reranked: the same of a reranked one; None where there was no reranker.
        fits: P(one of the first candidates is right).
        made_for: models, ranking and fleet.
        figures: for people, as JSON: what it was fitted on and how good it was then.
    """

    right: Logistic
    right_reranked: Logistic | None
    fits: Logistic
    threshold: float
    floor: float
    made_for: CalibrationIdentity
    figures: Mapping[str, Any] = field(default_factory=dict)

    def probability(self, evidence: Mapping[str, float]) -> float:
        """P(the first candidate is right).

        Evidence of a reranking that was never calibrated has the probability 0: better asked than guessed.
        """
        if "reranked" not in evidence:
            return self.right.probability(evidence)
        return self.right_reranked.probability(evidence) if self.right_reranked else 0.0

    def fit_probability(self, evidence: Mapping[str, float]) -> float:
        """P(one of the first candidates is right)."""
        return self.fits.probability(evidence)

    def without_reranking(self) -> "Calibration":
        """The same for a reranker that it was not made with."""
        return replace(self, right_reranked=None)

    def to_json(self) -> str:
        """One JSON object, indented, with a line break at its end."""
        fields = {
            "format": FORMAT_VERSION,
            "right": _logistic_fields(self.right),
            "right_reranked": self.right_reranked and _logistic_fields(self.right_reranked),
            "fits": _logistic_fields(self.fits),
            "threshold": self.threshold,
            "floor": self.floor,
            "made_for": {
                "embedder": self.made_for.embedder,
                "reranker": self.made_for.reranker,
                "ranking_version": self.made_for.ranking_version,
                "n_tools": self.made_for.n_tools,
                "fleet": [f"{prefix:016x}" for prefix in self.made_for.fleet],
            },
            "figures": dict(self.figures),
        }
        return json.dumps(fields, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """Read what `to_json` wrote.

        Raises:
            CalibrationError: not JSON, another format, or a part that is missing or has a wrong value.
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CalibrationError(f"not JSON: {error}") from None
        if not isinstance(fields, dict) or fields.get("format") != FORMAT_VERSION:
            raise CalibrationError(f"not a calibration of format {FORMAT_VERSION}")
        reranked = fields.get("right_reranked")
        return cls(
            right=_logistic(fields, "right"),
            right_reranked=None if reranked is None else _logistic(fields, "right_reranked"),
            fits=_logistic(fields, "fits"),
            threshold=_share(fields, "threshold"),
            floor=_share(fields, "floor"),
            made_for=_identity(fields),
            figures=_member(fields, "figures", dict),
        )


def margin_calibration(
    margin: float,
    cosine: float | None,
    made_for: CalibrationIdentity,
    figures: Mapping[str, Any] | None = None,
) -> Calibration:
    """Not fitted: a step at a margin of fused scores, and one at the best candidate's cosine.

    Args:
        margin: least one that is routed.
        cosine: least one that some tool fits; None never abstains, for a model whose cosines are unknown.
        made_for: models and fleet.
        figures: for people.
    """
    return Calibration(
        right=Logistic(("margin",), (_STEEPNESS,), -_STEEPNESS * margin),
        right_reranked=None,
        fits=Logistic(("cosine",), (_STEEPNESS,), -_STEEPNESS * (cosine or 0.0)),
        threshold=0.5,
        floor=0.0 if cosine is None else 0.5,
        made_for=made_for,
        figures=figures or {},
    )


def _logistic_fields(logistic: Logistic) -> dict[str, Any]:
    return {"weights": dict(zip(logistic.names, logistic.weights, strict=True)), "bias": logistic.bias}


def _member(fields: Mapping[str, Any], name: str, kind: type | tuple[type, ...]) -> Any:
    value = fields.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CalibrationError(f"`{name}` is missing or has a wrong value")
    return value


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = float(_member(fields, name, (int, float)))
    if not math.isfinite(value):
        raise CalibrationError(f"`{name}` is not a finite number")
    return value


def _share(fields: Mapping[str, Any], name: str) -> float:
    value = _number(fields, name)
    if not 0 <= value <= 1:
        raise CalibrationError(f"`{name}` is {value}; a probability from 0 to 1 is expected")
    return value


def _logistic(fields: Mapping[str, Any], name: str) -> Logistic:
    part = _member(fields, name, dict)
    weights = _member(part, "weights", dict)
    return Logistic(tuple(weights), tuple(_number(weights, key) for key in weights), _number(part, "bias"))


def _identity(fields: Mapping[str, Any]) -> CalibrationIdentity:
    part = _member(fields, "made_for", dict)
    reranker = part.get("reranker")
    try:
        fleet = tuple(sorted(int(prefix, 16) for prefix in _member(part, "fleet", list)))
    except (TypeError, ValueError) as error:
        raise CalibrationError(f"`fleet` holds something else than hexadecimal hashes: {error}") from None
    return CalibrationIdentity(
        embedder=_member(part, "embedder", str),
        reranker=None if reranker is None else _member(part, "reranker", str),
        ranking_version=_member(part, "ranking_version", str),
        n_tools=_member(part, "n_tools", int),
        fleet=fleet[:SKETCH_SIZE],
    )
