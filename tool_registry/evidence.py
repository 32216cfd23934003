"""Named features of a ranking: what a calibration judges by whether its first candidate is right.

Knows candidates' scores; knows no request, no model and no tool.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

CLEAR = 0.15
"""A margin from which on more of it says little."""

if TYPE_CHECKING:
    from tool_registry.routing import Candidate


def evidence(candidates: "Sequence[Candidate]") -> Mapping[str, float]:
    """Features of the best candidates, best first; empty where there is none."""
    if not candidates:
        return {}
    best = candidates[0]
    second = candidates[1] if len(candidates) > 1 else None
    margin = min(best.score - second.score, 1.0) if second else 1.0
    features = {
        "margin": margin,
        "clear": min(margin, CLEAR),
        "score": best.score,
        "cosine": best.dense,
        "log_tools": math.log(max(best.among, 1)),
        "cosine_margin": best.dense - second.dense if second else 1.0,
    }
    if best.reranked is not None:
        features["reranked"] = best.reranked
        others = [c.reranked for c in candidates[1:] if c.reranked is not None]
        features["reranked_margin"] = best.reranked - max(others) if others else 1.0
    return features
