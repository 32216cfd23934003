"""From scores to a decision: fuse dense and lexical evidence, then route, offer a few, or abstain.

Knows scores and names; where the query vector comes from is the caller's business, as is a reranker: it
may replace the order of `rank`'s candidates before `decide`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tool_registry.calibration import Calibration
from tool_registry.evidence import evidence
from tool_registry.index import CompiledTool, RoutingIndex
from tool_registry.schema import properties, required
from tool_registry.text import split_words
from tool_registry.tool import ToolId


class RoutingOutcome(StrEnum):
    """The three outcomes of routing."""

    ROUTED = "routed"
    AMBIGUOUS = "ambiguous"
    ABSTAINED = "abstained"


@dataclass(frozen=True, slots=True)
class Gate:
    """When a ranking is trusted: by calibrated probabilities, or by two plain numbers where nothing is calibrated yet.

    Attributes:
        margin: least distance of the two best fused scores for a route.
        floor: least cosine of the best candidate; below it no tool fits.
        candidates: how many are kept for the host when the choice is close.
        calibration: decides by probabilities instead of `margin` and `floor`.
    """

    margin: float = 0.05
    floor: float = 0.25
    candidates: int = 5
    calibration: Calibration | None = None

    def fits(self, candidates: "Sequence[Candidate]") -> bool:
        """Whether any tool may fit."""
        if self.calibration is None:
            return candidates[0].dense >= self.floor
        return self.calibration.fit_probability(evidence(candidates)) >= self.calibration.floor

    def trusts(self, candidates: "Sequence[Candidate]", margin: float) -> bool:
        """Whether the first candidate may be called."""
        if self.calibration is None:
            return margin >= self.margin
        return self.calibration.probability(evidence(candidates)) >= self.calibration.threshold


@dataclass(frozen=True, slots=True)
class Candidate:
    """One tool with its evidence.

    Attributes:
        score: what candidates are ordered by; `NAMED` more for a tool that the request names.
        dense: cosine.
        lexical: BM25.
        exact: whether the request names the tool.
        reranked: the reranker's score, where it read this candidate.
        equivalents: the same tool on other servers.
        among: how many tools it was chosen from.
    """

    tool_id: ToolId
    score: float
    dense: float
    lexical: float
    exact: bool = False
    reranked: float | None = None
    equivalents: tuple[ToolId, ...] = ()
    among: int = 1


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """What routing concluded. `candidates[0]` is the tool when routed; `reason` is for people."""

    outcome: RoutingOutcome
    candidates: tuple[Candidate, ...]
    margin: float
    reason: str


def rank(
    index: RoutingIndex,
    request: str,
    query: NDArray[np.float32],
    *,
    visible: NDArray[np.bool_] | None = None,
    limit: int = 20,
    prefer: Sequence[str] = (),
) -> list[Candidate]:
    """The best tools for a request, best first; near-duplicates of one server and equivalents folded into one.

    Args:
        index: the compiled tools.
        request: its words are matched, and a tool's exact name in it wins.
        query: the request's vector, shape (dimensions,), norm 1.
        visible: which tools the caller may see, shape (tools,); the others are never scored.
        limit: at most this many.
        prefer: servers, of whose equivalent tools the first listed is taken; the best placed where none is.
    """
    if not index.tools:
        return []
    dense = index.lookaside.scan(query, visible)
    lexical = index.lexical.scores(_request_words(index, request)) * _lift(len(index.tools))
    fused = fuse(dense, lexical)
    if asks_to_read(request):
        fused[index.writing] -= READING_PENALTY
    exact = exact_names(index, request, visible)
    fused[exact] += NAMED
    order = np.argsort(-fused, kind="stable")[: limit * 2]
    among = len(index.tools) if visible is None else int(visible.sum())
    ranked = [
        Candidate(
            index.tools[place].id,
            float(fused[place]),
            float(dense[place]),
            float(lexical[place]),
            place in exact,
            among=among,
        )
        for place in order.tolist()
        if np.isfinite(fused[place])
    ]
    return fold_duplicates(index, ranked, prefer)[:limit]


NAMED = 3.0
"""Added to the score of a tool that the request names. Other scores span 2.7 (cosine, BM25, reading penalty), so it
stands before all others."""
READING_PENALTY = 0.1
"""Of tools that say they write, for a request that only reads: a wrong reader is a nuisance, a wrong writer harm."""

_READING = frozenset(
    """
    check compare count describe display find get how is list look read search show tell view what when where which
    who whose
    """.split()  # noqa: SIM905 - shorter to read than a column of strings
)
_POLITE = frozenset(["can", "could", "i", "me", "need", "please", "to", "want", "would", "you", "like"])


def asks_to_read(request: str) -> bool:
    """Whether the first word of a request, politeness aside, only looks something up."""
    first = next((word for word in split_words(request[:200]) if word not in _POLITE), "")
    return first in _READING


LEXICAL_WEIGHT = 0.016
"""Of a point of BM25 beside the cosine. Chosen on `calib`; not scaled to the best match, since then the words of a
request that no tool shares would count as much as those of one that names a tool's every part."""
MOST_LEXICAL = 40.0
"""Points of BM25 that count: a long request must not outweigh its meaning."""


def fuse(dense: NDArray[np.float32], lexical: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosine plus weighted BM25; -inf stays where dense is -inf."""
    return (dense + LEXICAL_WEIGHT * np.minimum(lexical, MOST_LEXICAL)).astype(np.float32)


_FULL_FLEET = 250
"""Tools from which on a rare word's weight is taken as BM25 gives it."""


def _lift(n_tools: int) -> float:
    """Makes BM25 of a few tools mean what it means among many, where the gate was calibrated.

    A word of one tool weighs log(1 + (N - 0.5) / 1.5): a third of what it weighs among 250 tools for N = 8.
    """
    rarest = math.log1p((min(n_tools, _FULL_FLEET) - 0.5) / 1.5)
    return math.log1p((_FULL_FLEET - 0.5) / 1.5) / rarest


def _request_words(index: RoutingIndex, request: str) -> list[str]:
    """The request's words, and neighbours written as one where tools write them so: `event hubs`, `eventhubs`."""
    words = split_words(request)
    joined = (one + other for one, other in pairwise(words))
    return [*words, *(word for word in joined if index.lexical.idf(word) > 0)]


RERANK_WEIGHT = 0.01
"""Of a reranker's logit beside the fused score. On `calib` no weight made a cross-encoder of ours a gain: 0.01 left
recall at 1 as it was, 0.05 cost a point among 250 tools and two among 2,684."""


def rerank(candidates: Sequence[Candidate], scores: Sequence[float]) -> list[Candidate]:
    """The first candidates ordered anew by what a reranker says of them; the others follow as they were.

    Args:
        candidates: a ranking, best first.
        scores: of the first candidates, in their order, higher is better.
    """
    read = [
        replace(candidate, score=candidate.score + RERANK_WEIGHT * score, reranked=score)
        for candidate, score in zip(candidates, scores, strict=False)
    ]
    return [*sorted(read, key=lambda candidate: -candidate.score), *candidates[len(read) :]]


TIE = 0.05
"""A margin below which no probability routes: of held-out requests that were sure but for it 70 % were right."""


def decide(candidates: Sequence[Candidate], gate: Gate) -> RoutingDecision:
    """Route above the margin, offer the few best below it, abstain where nothing fits."""
    if not candidates:
        return RoutingDecision(RoutingOutcome.ABSTAINED, (), 0.0, "no tool is available")
    best = candidates[0]
    kept = tuple(candidates[: gate.candidates])
    margin = best.score - candidates[1].score if len(candidates) > 1 else 1.0
    if best.exact and not (len(candidates) > 1 and candidates[1].exact):
        return RoutingDecision(RoutingOutcome.ROUTED, kept, margin, "the request names the tool")
    if best.exact:
        return RoutingDecision(RoutingOutcome.AMBIGUOUS, kept, margin, "the request names several tools")
    if not gate.fits(candidates):
        return RoutingDecision(RoutingOutcome.ABSTAINED, kept, margin, "no tool is close to the request")
    if margin < TIE or not gate.trusts(candidates, margin):
        return RoutingDecision(RoutingOutcome.AMBIGUOUS, kept, margin, "several tools are equally close")
    return RoutingDecision(RoutingOutcome.ROUTED, kept, margin, "one tool stands out")


def exact_names(index: RoutingIndex, request: str, visible: NDArray[np.bool_] | None) -> list[int]:
    """Positions of the tools that the request names: `server/name`, a name no prose has, or a name it marks as one."""
    lowered = request.lower()
    return [
        place
        for place in index.names_within(lowered)
        if (visible is None or visible[place]) and _names(lowered, index.tools[place].id)
    ]


def _names(lowered: str, tool_id: ToolId) -> bool:
    name = tool_id.name.lower()
    # A longer name that contains this one must not count, nor a path that happens to hold it.
    whole = _whole(name)
    if re.search(_whole(f"{tool_id.server.lower()}/{name}"), lowered):
        return True
    if re.search(r"[a-z0-9][_.-][a-z0-9]", name) or re.search(r"[a-z][A-Z]", tool_id.name):
        return re.search(whole, lowered) is not None
    marked = rf"[`\"']{re.escape(name)}[`\"']|\btool {re.escape(name)}\b|{whole} tool\b"
    return lowered.strip() == name or re.search(marked, lowered) is not None


def _whole(name: str) -> str:
    return rf"(?<![\w./-]){re.escape(name)}(?![\w/-])"


def fold_duplicates(
    index: RoutingIndex, ranked: Sequence[Candidate], prefer: Sequence[str] = ()
) -> list[Candidate]:
    """One candidate for near-duplicates of one server, and one for the same tool on several.

    Of near-duplicates the best placed stays that does not call itself deprecated; of equivalents the one that the
    request names, else the one of the server that is preferred most, else the best placed.
    """
    kept: list[Candidate] = []
    for candidate in ranked:
        same = next((place for place, other in enumerate(kept) if _same(index, candidate, other)), None)
        if same is not None:
            kept[same] = _one_of(kept[same], candidate, prefer)
            continue
        twin = next((place for place, other in enumerate(kept) if _twins(index, candidate, other)), None)
        if twin is None:
            kept.append(candidate)
        elif _deprecated(index, kept[twin]) and not _deprecated(index, candidate):
            kept[twin] = _in_place_of(kept[twin], candidate)
    return kept


def _same(index: RoutingIndex, one: Candidate, other: Candidate) -> bool:
    return one.tool_id in index.equivalents.group_of(other.tool_id)


def _one_of(kept: Candidate, other: Candidate, prefer: Sequence[str]) -> Candidate:
    """The one of two equivalents that is offered, at the better place; it names the other."""
    order = {server: place for place, server in enumerate(prefer)}

    def wanted(candidate: Candidate) -> tuple[bool, int]:
        return not candidate.exact, order.get(candidate.tool_id.server, len(order))

    first, second = (other, kept) if wanted(other) < wanted(kept) else (kept, other)
    return replace(
        _in_place_of(kept, first), equivalents=(*kept.equivalents, *other.equivalents, second.tool_id)
    )


def _in_place_of(kept: Candidate, candidate: Candidate) -> Candidate:
    return replace(candidate, score=kept.score, exact=kept.exact)


def _deprecated(index: RoutingIndex, candidate: Candidate) -> bool:
    return index.tools[index.position[candidate.tool_id]].deprecated


def _twins(index: RoutingIndex, one: Candidate, other: Candidate) -> bool:
    if one.tool_id.server != other.tool_id.server:
        return False
    places = index.position[one.tool_id], index.position[other.tool_id]
    a, b = (index.tools[place] for place in places)
    if not _same_use(a, b):
        return False
    if _replaces(a, b) or _replaces(b, a):
        return True
    # `get_dataset` and `get_dataset_schema` are alike too, and both wanted: alike is not enough.
    if a.deprecated == b.deprecated and a.tool.description != b.tool.description:
        return False
    return index.cosine(*places) >= TWIN_COSINE


TWIN_COSINE = 0.8
"""Descriptions this alike say the same; checked together with names, required parameters and annotations."""


def _replaces(new: CompiledTool, old: CompiledTool) -> bool:
    """Whether `old` calls itself deprecated and names `new` ("use read_text_file instead")."""
    return old.deprecated and re.search(_whole(new.id.name.lower()), old.tool.description.lower()) is not None


def _same_use(a: CompiledTool, b: CompiledTool) -> bool:
    """Whether one name's words hold the other's, and both require the same and do the same kind of thing."""
    if not (a.name_words <= b.name_words or b.name_words <= a.name_words):
        return False
    needs_a, needs_b = set(required(a.schema)), set(required(b.schema))
    if needs_a != needs_b or a.tool.annotations.destructive != b.tool.annotations.destructive:
        return False
    types_a, types_b = properties(a.schema), properties(b.schema)
    return all(types_a[name].get("type") == types_b[name].get("type") for name in needs_a)
