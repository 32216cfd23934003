"""A reranker on the argument model: how much likelier a request is once the model has read a tool's text.

The score of a text is the mean over the request's tokens of

    log P(token | tool, tokens before) - log P(token | no tool, tokens before)

in nats: pointwise mutual information, by length. It asks for no skill at answering questions, only at language,
and the second term takes out how unusual the request's words are in themselves.

Rejected: the letter of a tool after a listing of them. A small model answers by the place in the list (SmolLM2-135M
on 60 `calib` requests: no weight of it beside the fused score raised R@1).

Knows the engine's threads and its context; knows no tools and no routing. Runs beside the writing of arguments, in
turn with it batch by batch, on a sequence of its own: what the engine keeps of earlier prompts stays.
"""

from collections.abc import Sequence
from functools import partial

from anyio import from_thread

from adapters.llama_cpp.aside import aside
from adapters.llama_cpp.engine import EngineParts, LlamaEngine

MAX_REQUEST_TOKENS = 64
"""A request is weighed by its beginning; each token costs one row of logits over the vocabulary."""

MAX_TEXT_TOKENS = 256

_BEFORE = "Tool: "
_AFTER = "\nUser request: "
_NO_TOOL = "any"


class LikelihoodReranker:
    """A `Reranker` over an engine that somebody else opened and closes."""

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine

    @property
    def identity(self) -> str:
        """The engine's, and how the score is made."""
        return f"likelihood:1 {self._engine.identity}"

    async def score(self, request: str, texts: Sequence[str]) -> Sequence[float]:
        """One score a text, higher is better. Cancellation stops between evaluations.

        Raises:
            ModelUnusable: the model failed, is busy or closed.
        """
        if not texts or not request.strip():
            return [0.0] * len(texts)
        return await self._engine.run(partial(_score, request, tuple(texts)))


def _score(request: str, texts: Sequence[str], parts: EngineParts) -> list[float]:
    prompts = parts.prompts
    target = prompts.text(request)[:MAX_REQUEST_TOKENS]
    start, end = prompts.text(_BEFORE), prompts.text(_AFTER)
    bodies = [[*prompts.text(text)[:MAX_TEXT_TOKENS], *end] for text in (_NO_TOOL, *texts)]
    room = len(start) + max(map(len, bodies)) + len(target)
    with aside(parts.context, room, from_thread.check_cancelled) as asked:
        alone, *given = (float(asked.log_likelihoods(start, body, target).mean()) for body in bodies)
    return [mean - alone for mean in given]
