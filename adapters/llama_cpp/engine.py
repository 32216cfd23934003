"""The argument engine on llama.cpp: an asynchronous face before one worker that owns the context.

Every native call runs in a worker thread, one call at a time. Cancelling a call stops it before its next
batch; the cache stays usable. Callers set deadlines. Knows no tools, servers or turns.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from anyio import CancelScope, CapacityLimiter, from_thread, to_thread
from numpy.typing import NDArray

from adapters.llama_cpp import library
from adapters.llama_cpp.context import Context
from adapters.llama_cpp.model import Model, load_model
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.prompt import Prompt, PromptEncoder
from adapters.llama_cpp.token_mask import MaskCompiler, TokenMask
from adapters.llama_cpp.writer import Written, write_value
from adapters.ports import Completion, ModelProgress, ModelUnusable, Segment
from adapters.schema_check import is_valid_text, value_validator

_PROGRESS_STEP = 0.05

ResultT = TypeVar("ResultT")


@dataclass(slots=True, eq=False)
class EngineParts:
    """What the worker owns."""

    model: Model
    context: Context
    prompts: PromptEncoder
    masks: MaskCompiler

    def close(self) -> None:
        """Free context and model."""
        self.context.close()
        self.model.close()


class LlamaEngine:
    """One model, one context, one call at a time; further calls wait in order. Made by `open_engine`."""

    def __init__(self, parts: EngineParts, options: EngineOptions, worker: CapacityLimiter) -> None:
        self._parts: EngineParts | None = parts
        self._options = options
        self._worker = worker
        self._name = parts.model.path.name
        attention = "flash" if options.flash_attention else "plain"
        self._identity = f"{parts.model.identity} {library.build()} {attention}-attention"

    @property
    def identity(self) -> str:
        """Content hash of the model, build of llama.cpp, kind of attention."""
        return self._identity

    @property
    def holds_local_state(self) -> bool:
        """True: the cache keeps the last prompt."""
        return True

    async def complete(
        self, segments: Sequence[Segment], schema: Mapping[str, Any], *, max_tokens: int
    ) -> Completion:
        """Write a value under `schema` in at most `max_tokens` tokens.

        The value begins where the ANSWER segment, if any, ends; the text is the value alone. Where prompt and `max_tokens`
        together exceed the context, fewer tokens are written. An incomplete text is what fitted the budget; it
        may break off anywhere.

        Raises:
            SchemaNotCompilable: no mask, or no check, for this schema.
            ModelUnusable: the prompt leaves no room in the context, too many calls wait, the model failed, or the
                engine is closed.
        """
        return await self.run(partial(self._complete, tuple(segments), schema, max_tokens))

    async def run(self, work: Callable[[EngineParts], ResultT]) -> ResultT:
        """Do native work in the worker thread, in turn with all other calls.

        `work` calls `from_thread.check_cancelled` between decodes, and keeps nothing of what it is given.

        Raises:
            ModelUnusable: too many calls wait, or the engine is closed.
        """
        if self._worker.statistics().tasks_waiting >= self._options.max_waiting:
            raise ModelUnusable(
                f"{self._name} is busy: {self._options.max_waiting} calls wait; try again later"
            )
        return await to_thread.run_sync(self._with_parts, work, limiter=self._worker)

    async def aclose(self) -> None:
        """Wait for the running call, then free context and model. Calls after this are refused."""
        with CancelScope(shield=True):
            await to_thread.run_sync(self._close, limiter=self._worker)

    def _with_parts(self, work: Callable[[EngineParts], ResultT]) -> ResultT:
        if self._parts is None:
            raise ModelUnusable(f"{self._name} is closed")
        return work(self._parts)

    def _complete(
        self, segments: Sequence[Segment], schema: Mapping[str, Any], max_tokens: int, parts: EngineParts
    ) -> Completion:
        validator = value_validator(schema)
        mask = parts.masks.compile(schema)
        prompt = parts.prompts.encode(segments)
        budget = min(max_tokens, self._room(parts.context, prompt))
        reused, written = _write(parts, prompt, mask, budget)
        return Completion(
            text=written.text,
            complete=written.complete and is_valid_text(validator, written.text),
            prompt_tokens=len(prompt),
            reused_tokens=reused,
            sampled_tokens=written.sampled_tokens,
            forced_tokens=written.forced_tokens,
        )

    def _room(self, context: Context, prompt: Prompt) -> int:
        room = context.size - len(prompt)
        if room <= 0:
            raise ModelUnusable(
                f"the prompt has {len(prompt):,} tokens and {self._name} runs with a context of {context.size:,}; "
                "shorten the request or its context, or raise n_ctx"
            )
        return room

    def _close(self) -> None:
        if self._parts is not None:
            self._parts.close()
            self._parts = None


@asynccontextmanager
async def open_engine(
    path: Path, options: EngineOptions | None = None, on_progress: ModelProgress | None = None
) -> AsyncGenerator[LlamaEngine]:
    """Load a GGUF model in a worker thread; leaving frees it.

    Raises:
        ModelMissing: no such file.
        ModelUnusable: it can't be loaded or run with these options; the message names the file.
    """
    chosen, worker = options or EngineOptions(), CapacityLimiter(1)
    progress = _LoadProgress(f"loading {path.name}", on_progress)
    parts = await to_thread.run_sync(_load, path, chosen, progress, limiter=worker)
    engine = LlamaEngine(parts, chosen, worker)
    try:
        yield engine
    finally:
        await engine.aclose()


class _LoadProgress:
    """Hands llama.cpp's progress to the event loop, and cancellation back."""

    def __init__(self, what: str, tell: ModelProgress | None) -> None:
        self._what = what
        self._tell = tell
        self._told = -1.0
        self.failure: BaseException | None = None

    def __call__(self, share: float) -> bool:
        try:
            from_thread.check_cancelled()
            if share - self._told >= _PROGRESS_STEP:
                self._told = share
                from_thread.run(self._pass_on, share)
        except BaseException as error:  # noqa: BLE001 - nothing may unwind through C; raised again after it
            self.failure = error
        return self.failure is None

    async def _pass_on(self, share: float) -> None:
        if self._tell is not None:
            await self._tell(self._what, share)


def _load(path: Path, options: EngineOptions, progress: _LoadProgress) -> EngineParts:
    try:
        model = load_model(path, n_gpu_layers=options.n_gpu_layers, on_progress=progress)
    except ModelUnusable:
        if progress.failure is not None:
            raise progress.failure from None
        raise
    try:
        context = Context(model, options)
    except ModelUnusable:
        model.close()
        raise
    return EngineParts(
        model, context, PromptEncoder(model), MaskCompiler(library.mask_tokenizer(model.vocab))
    )


def _write(parts: EngineParts, prompt: Prompt, mask: TokenMask, budget: int) -> tuple[int, Written]:
    """Prefill and write. The last chunk of the prompt is decoded with the tokens forced after it."""
    reused = parts.context.prefill(prompt.chunks, from_thread.check_cancelled)
    pending = list(prompt.chunks[-1])

    def logits_after(tokens: Sequence[int]) -> NDArray[np.float32]:
        batch = [*pending, *tokens]
        pending.clear()
        return parts.context.decode(batch, from_thread.check_cancelled)

    return reused, write_value(mask, parts.masks.eos, logits_after, budget)
