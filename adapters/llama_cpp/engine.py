"""The argument engine on llama.cpp: an asynchronous face before worker threads that share a context.

Each completion runs in a thread of its own; they take turns at the context batch by batch. Cancelling a call stops
it before its next batch; the cache stays usable. Callers set deadlines. Knows no tools, servers or turns.
"""

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from anyio import CancelScope, CapacityLimiter, from_thread, to_thread

from adapters.llama_cpp import library
from adapters.llama_cpp.completing import complete_on, read_chunks
from adapters.llama_cpp.context import Context
from adapters.llama_cpp.desk import Desk
from adapters.llama_cpp.facts import bytes_per_token, runtime_facts
from adapters.llama_cpp.model import Model, load_model
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.prompt import Prompt, PromptEncoder
from adapters.llama_cpp.token_mask import MaskCompiler
from adapters.ports import Completion, ModelProgress, ModelUnusable, Segment
from adapters.schema_check import is_valid_text, value_validator
from adapters.state_port import Anchor, StatePayload
from tool_registry.blocks.descriptor import RuntimeFacts

_PROGRESS_STEP = 0.05
_TOKENISING = 4
"""Threads that make tokens beside those of completions."""

ResultT = TypeVar("ResultT")


class _StandBack(Exception):  # noqa: N818 - not an error: background work makes room and begins anew
    """A completion came."""


@dataclass(slots=True, eq=False)
class EngineParts:
    """What the worker threads share."""

    model: Model
    context: Context
    prompts: PromptEncoder
    masks: MaskCompiler

    def close(self) -> None:
        """Free context and model."""
        self.context.close()
        self.model.close()


class LlamaEngine:
    """One model and one context; a `StatefulEngine`. Made by `open_engine`."""

    def __init__(self, parts: EngineParts, options: EngineOptions) -> None:
        self._parts = parts
        self._name = parts.model.path.name
        self._facts = runtime_facts(parts.model, parts.context.handle, options)
        self._desk = Desk(self._name, options.concurrency, options.max_waiting)
        self._workers = CapacityLimiter(options.concurrency)
        self._tokenisers = CapacityLimiter(_TOKENISING)
        self._saver = CapacityLimiter(1)
        attention = "flash" if options.flash_attention else "plain"
        self._identity = f"{parts.model.identity} {library.build()} {attention}-attention"

    @property
    def identity(self) -> str:
        """Content hash of the model, build of llama.cpp, kind of attention."""
        return self._identity

    @property
    def holds_local_state(self) -> bool:
        """True: the context keeps prompts until it needs their room."""
        return True

    @property
    def facts(self) -> RuntimeFacts:
        """What must agree before a saved state is put back."""
        return self._facts

    @property
    def bytes_per_token(self) -> float:
        """Of a saved state; 0 where nothing can be kept."""
        context = self._parts.context
        if context.shape is None or not context.reuse.boundary:
            return 0.0
        return bytes_per_token(self._parts.model)

    @property
    def busy(self) -> bool:
        """Whether a completion runs or waits."""
        return self._desk.calls > 0

    async def anchor(self, segments: Sequence[Segment]) -> Anchor:
        """The chunks of system and tool as `complete` decodes them. Raises ModelUnusable."""
        with self._desk.background():
            return await to_thread.run_sync(
                self._parts.prompts.anchor, tuple(segments), limiter=self._tokenisers
            )

    def live_tokens(self, anchor: Anchor) -> int:
        """How many of the anchor's leading tokens are in the context."""
        return 0 if self._desk.closed else self._parts.context.live_tokens(anchor.chunks)

    async def complete(
        self,
        segments: Sequence[Segment],
        schema: Mapping[str, Any],
        *,
        max_tokens: int,
        state: StatePayload | None = None,
    ) -> Completion:
        """Write a value under `schema` in at most `max_tokens` tokens.

        The value begins where the ANSWER segment, if any, ends; the text is the value alone. Where prompt and `max_tokens`
        together exceed the context, fewer tokens are written. An incomplete text is what fitted the budget; it
        may break off anywhere. `state` is used where the context has less of the prompt's beginning.

        Raises:
            SchemaNotCompilable: no mask, or no check, for this schema.
            ModelUnusable: the prompt leaves no room in the context, too many calls wait, the model failed, or the
                engine is closed.
        """
        return await self.run(partial(self._complete, tuple(segments), schema, max_tokens, state))

    async def save(self, anchor: Anchor) -> StatePayload:
        """Decode an anchor, or find it live, and copy its state out: of its last chunk alone where a model's state can be shared.

        Stands back for completions before each batch, and begins anew after them.

        Raises:
            ModelUnusable: the anchor does not fit the context, nothing of this model can be kept, or the engine
                is closed.
        """
        with self._desk.background():
            while not self._desk.closed:
                await self._desk.no_calls()
                try:
                    return await to_thread.run_sync(self._save, anchor, limiter=self._saver)
                except _StandBack:
                    continue
        raise ModelUnusable(f"{self._name} is closed")

    async def run(self, work: Callable[[EngineParts], ResultT]) -> ResultT:
        """Do work in a thread, beside that of other calls.

        `work` calls `from_thread.check_cancelled` between decodes, and keeps nothing of what it is given.

        Raises:
            ModelUnusable: too many calls wait, or the engine is closed.
        """
        with self._desk.call():
            return await to_thread.run_sync(work, self._parts, limiter=self._workers)

    async def aclose(self) -> None:
        """Wait for what runs, then free context and model. Calls after this are refused."""
        with CancelScope(shield=True):
            first = not self._desk.closed
            await self._desk.close()
            if first:
                await to_thread.run_sync(self._parts.close, limiter=self._saver)

    def _complete(
        self,
        segments: Sequence[Segment],
        schema: Mapping[str, Any],
        max_tokens: int,
        state: StatePayload | None,
        parts: EngineParts,
    ) -> Completion:
        validator = value_validator(schema)
        mask = parts.masks.compile(schema)
        prompt = parts.prompts.encode(segments)
        budget = min(max_tokens, self._room(parts.context, prompt))
        effort, written = complete_on(
            parts.context,
            prompt,
            mask,
            eos=parts.masks.eos,
            budget=budget,
            state=state,
            between=from_thread.check_cancelled,
        )
        return Completion(
            text=written.text,
            complete=written.complete and is_valid_text(validator, written.text),
            prompt_tokens=len(prompt),
            reused_tokens=effort.live_tokens + effort.restored_tokens,
            sampled_tokens=written.sampled_tokens,
            forced_tokens=written.forced_tokens,
            restored_tokens=effort.restored_tokens,
            restore_seconds=effort.restore_seconds,
            prefill_seconds=effort.prefill_seconds,
        )

    def _room(self, context: Context, prompt: Prompt) -> int:
        room = context.limit - len(prompt)
        if room <= 0:
            raise ModelUnusable(
                f"the prompt has {len(prompt):,} tokens and {self._name} runs with a context of {context.limit:,}; "
                "shorten the request or its context, or raise n_ctx"
            )
        return room

    def _save(self, anchor: Anchor) -> StatePayload:
        context, chunks = self._parts.context, anchor.chunks
        if not context.reuse.boundary or not chunks:
            raise ModelUnusable(f"{self._name}: the state of this model can't be kept")
        if anchor.tokens > context.limit:
            raise ModelUnusable(
                f"{anchor.tokens:,} tokens of a tool don't fit the context of {context.limit:,}; raise n_ctx"
            )
        self._stand_back()
        with context.leased(
            chunks, self._stand_back, anchored=len(chunks), tokens=anchor.tokens, take=False
        ) as sequence:
            live = len(sequence.parts)
            read_chunks(context, sequence, chunks, self._stand_back)
            first = len(chunks) - 1 if context.reuse.share else 0
            start = sequence.parts[first].start
            data, seconds = context.saved(sequence, first)
            if context.reuse.trim and live < len(chunks):
                # What is compiled for later turns is not to push out what the last ones used.
                context.trim(sequence, max(live, first))
        return StatePayload(start, anchor.tokens, data, seconds)

    def _stand_back(self) -> None:
        from_thread.check_cancelled()
        if self._desk.calls or self._desk.closed:
            raise _StandBack


@asynccontextmanager
async def open_engine(
    path: Path, options: EngineOptions | None = None, on_progress: ModelProgress | None = None
) -> AsyncGenerator[LlamaEngine]:
    """Load a GGUF model in a worker thread; leaving frees it.

    Raises:
        ModelMissing: no such file.
        ModelUnusable: it can't be loaded or run with these options; the message names the file.
    """
    chosen = options or EngineOptions()
    progress = _LoadProgress(f"loading {path.name}", on_progress)
    parts = await to_thread.run_sync(_load, path, chosen, progress, limiter=CapacityLimiter(1))
    engine = LlamaEngine(parts, chosen)
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
    if options.resident_bytes is not None:
        tokens = int(options.resident_bytes / (bytes_per_token(model) or math.inf))
        options = replace(options, resident_tokens=tokens)
    try:
        context = Context(model, options)
    except ModelUnusable:
        model.close()
        raise
    return EngineParts(
        model, context, PromptEncoder(model), MaskCompiler(library.mask_tokenizer(model.vocab))
    )
