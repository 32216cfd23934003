"""Writes a tool's arguments: the gateway writes the skeleton, the model chooses the values, slot by slot.

Valid JSON by construction: keys and punctuation are ours, each value is an option or comes from under the
token mask. A slot with one option costs no model call.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from types import MappingProxyType
from typing import Any

from adapters.ports import ArgumentEngine, Completion, ModelError, SchemaNotCompilable, Segment, SegmentKind
from adapters.reading_port import ArgumentReader
from nexus_gateway.state.use import PlannedCompletion, StateUse
from nexus_gateway.turn.confidence import ArgumentCalibration, evidence
from nexus_gateway.turn.prompt import ToolText, segments
from nexus_gateway.turn.read_arguments import ReadArguments, read_arguments
from nexus_gateway.turn.result import Ground, GroundKind, MissingArgument, TokenCount
from nexus_gateway.turn.slots import Choice, Slot, choose, span_kinds, unstated
from nexus_gateway.turn.sources import Option, Source
from nexus_gateway.turn.stated import bound_choice
from nexus_gateway.turn.validation import accepts
from tool_registry.index import CompiledTool
from tool_registry.question import main_type
from tool_registry.schema import properties, required


@dataclass(eq=False)
class Draft:
    """The arguments found so far, the ground of each, and what a required one lacks.

    Attributes:
        evidence: what is known of how sure they are.
        confidence: probability that all of them are right; None where nothing says it.
        target: least confidence that runs unasked.
        state: what was done about state; None where no model was asked, or nothing is kept.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    grounds: dict[str, Ground] = field(default_factory=dict)
    missing: list[MissingArgument] = field(default_factory=list)
    tokens: TokenCount = field(default_factory=TokenCount)
    evidence: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None
    target: float = 0.0
    state: StateUse | None = None

    @property
    def unsure(self) -> bool:
        """Whether it is to be proposed, not run."""
        return self.confidence is not None and self.confidence < self.target


class ArgumentWriter:
    """Grounded arguments: what a reading model finds in the texts, and an engine for what is left to choose."""

    def __init__(
        self,
        engine: Callable[[], Awaitable[ArgumentEngine]],
        *,
        max_tokens: int,
        reader: Callable[[], Awaitable[ArgumentReader]] | None = None,
        calibration: ArgumentCalibration | None = None,
        tool_text: ToolText = "signature",
        today: Callable[[], date] = lambda: datetime.now().astimezone().date(),
    ) -> None:
        self._engine = engine
        self._max_tokens = max_tokens
        self._reader = reader
        self._calibration = calibration
        self._today = today
        self._tool_text: ToolText = tool_text

    async def reader_identity(self) -> str:
        """Identity of the reading model; empty where there is none. Raises ModelError."""
        return "" if self._reader is None else (await self._reader()).identity

    async def write(
        self,
        compiled: CompiledTool,
        request: str,
        context: str = "",
        bindings: Mapping[str, Any] = MappingProxyType({}),
    ) -> Draft:
        """Draft the arguments of one call; `bindings` are for what neither text states. Raises ModelError."""
        sources = [Source(request, GroundKind.SPAN, compiled.vocabulary)]
        if context:
            sources.append(Source(context, GroundKind.CONTEXT, compiled.vocabulary))
        draft = Draft()
        prompt = segments(compiled, request, context, self._tool_text)
        reader = await self._reading_model()
        read = (
            await read_arguments(reader, compiled, request, context, self._today())
            if reader
            else ReadArguments()
        )
        for slot in with_rivals(slots(compiled.schema)):
            if slot.name in bindings:
                choice = bound_choice(slot, sources, bindings[slot.name])
            else:
                choice = _choice(slot, read, sources)
            option = await self._fill(slot, choice, prompt, draft)
            if option is not None:
                draft.arguments[slot.name] = option.value
                draft.grounds[slot.name] = option.ground
                sources[option.ground.kind is GroundKind.CONTEXT and len(sources) > 1].take(option.span)
            elif slot.required:
                draft.missing.append(MissingArgument(slot.name, slot.schema))
        if reader is not None:
            self._judge(draft, read, reader)
        return draft

    async def _reading_model(self) -> ArgumentReader | None:
        """None where it is off, or can't be loaded: rules find arguments too, if fewer. `doctor` names the fault."""
        try:
            return None if self._reader is None else await self._reader()
        except ModelError:
            return None

    def _judge(self, draft: Draft, read: ReadArguments, reader: ArgumentReader) -> None:
        draft.evidence = evidence(read.evidence(), draft.grounds.values())
        if self._calibration is not None and self._calibration.reader == reader.identity:
            draft.confidence = self._calibration.right.probability(draft.evidence)
            draft.target = self._calibration.threshold

    async def _fill(
        self, slot: Slot, choice: Choice, prompt: Sequence[Segment], draft: Draft
    ) -> Option | None:
        if len(choice.options) == 1:
            return choice.options[0]
        if choice.free is not None:
            return await self._written(slot, choice.free, prompt, draft)
        if choice.options:
            return await self._chosen(slot, choice.options, prompt, draft)
        return None

    async def _chosen(
        self, slot: Slot, options: Sequence[Option], prompt: Sequence[Segment], draft: Draft
    ) -> Option | None:
        by_text = {json.dumps(option.value, ensure_ascii=False, sort_keys=True): option for option in options}
        value = await self._complete(slot, {"enum": [option.value for option in options]}, prompt, draft)
        option = by_text.get(json.dumps(value, ensure_ascii=False, sort_keys=True))
        return None if option is None else option.chosen()

    async def _written(
        self, slot: Slot, schema: Mapping[str, Any], prompt: Sequence[Segment], draft: Draft
    ) -> Option | None:
        value = await self._complete(slot, schema, prompt, draft)
        if value is None or not accepts(slot.schema, value):
            return None
        return Option(
            value, Ground(GroundKind.SPAN, json.dumps(value, ensure_ascii=False)[:200], chosen=True)
        )

    async def _complete(
        self, slot: Slot, schema: Mapping[str, Any], prompt: Sequence[Segment], draft: Draft
    ) -> Any:
        """One value under `schema`; None where the mask or the budget allows none."""
        engine = await self._engine()
        # Bound values say nothing to the model, and it may be on another machine.
        bound = {name for name, ground in draft.grounds.items() if ground.kind is GroundKind.BINDING}
        shown = {name: value for name, value in draft.arguments.items() if name not in bound}
        answer = Segment(SegmentKind.ANSWER, _opening(shown, slot.name))
        try:
            completion = await engine.complete([*prompt, answer], schema, max_tokens=self._max_tokens)
        except SchemaNotCompilable:
            return None
        draft.tokens += _tokens(completion)
        if isinstance(completion, PlannedCompletion) and completion.state is not None:
            draft.state = completion.state if draft.state is None else draft.state.with_more(completion.state)
        return json.loads(completion.text) if completion.complete else None


def _choice(slot: Slot, read: ReadArguments, sources: Sequence[Source]) -> Choice:
    return read_choice(slot, read) if read.covers(slot.name, slot.schema) else choose(slot, sources)


def read_choice(slot: Slot, read: ReadArguments) -> Choice:
    """What the texts state; else a required argument's default, or a choice among all its values."""
    stated = read.option(slot.name, slot.schema)
    if stated is not None and accepts(slot.schema, stated.value):
        return Choice((stated,))
    return unstated(slot) if slot.required else Choice()


def slots(schema: Mapping[str, Any]) -> list[Slot]:
    """The arguments of a normalised schema, required ones first, otherwise in its order."""
    needed = required(schema)
    every = [Slot(name, sub, name in needed) for name, sub in properties(schema).items()]
    return sorted(every, key=lambda slot: not slot.required)


def with_rivals(every: Sequence[Slot]) -> list[Slot]:
    """The slots, each with how many required ones from it on take the same kind of text."""

    def kind(slot: Slot) -> tuple[object, ...]:
        return (slot.required, main_type(slot.schema), "enum" in slot.schema, span_kinds(slot))

    return [
        replace(slot, rivals=sum(kind(other) == kind(slot) for other in every[place:]))
        if slot.required
        else slot
        for place, slot in enumerate(every)
    ]


def _opening(arguments: Mapping[str, Any], name: str) -> str:
    """The answer up to the value that is to be written: `{"a":1,"b":`."""
    done = "".join(
        f"{json.dumps(key, ensure_ascii=False)}:{json.dumps(value, ensure_ascii=False)},"
        for key, value in arguments.items()
    )
    return "{" + done + json.dumps(name, ensure_ascii=False) + ":"


def _tokens(completion: Completion) -> TokenCount:
    return TokenCount(
        completion.prompt_tokens,
        completion.reused_tokens,
        completion.sampled_tokens,
        completion.forced_tokens,
    )
