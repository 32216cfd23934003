"""Writes a tool's arguments: the gateway writes the skeleton, the model chooses the values, slot by slot.

Valid JSON by construction: keys and punctuation are ours, each value is an option or comes from under the
token mask. A slot with one option costs no model call.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from adapters.ports import ArgumentEngine, Completion, SchemaNotCompilable, Segment, SegmentKind
from nexus_gateway.turn.prompt import segments
from nexus_gateway.turn.result import Ground, GroundKind, MissingArgument, TokenCount
from nexus_gateway.turn.slots import Choice, Slot, choose, main_type, span_kinds
from nexus_gateway.turn.sources import Option, Source
from nexus_gateway.turn.validation import accepts
from tool_registry.index import CompiledTool
from tool_registry.schema import properties, required


@dataclass(eq=False)
class Draft:
    """The arguments found so far, the ground of each, and what a required one lacks."""

    arguments: dict[str, Any] = field(default_factory=dict)
    grounds: dict[str, Ground] = field(default_factory=dict)
    missing: list[MissingArgument] = field(default_factory=list)
    tokens: TokenCount = field(default_factory=TokenCount)


class ArgumentWriter:
    """Grounded arguments with a local engine for what is left to choose."""

    def __init__(self, engine: Callable[[], Awaitable[ArgumentEngine]], *, max_tokens: int) -> None:
        self._engine = engine
        self._max_tokens = max_tokens

    async def write(self, compiled: CompiledTool, request: str, context: str = "") -> Draft:
        """Draft the arguments of one call. Raises ModelError."""
        sources = [Source(request, GroundKind.SPAN, compiled.vocabulary)]
        if context:
            sources.append(Source(context, GroundKind.CONTEXT, compiled.vocabulary))
        draft = Draft()
        prompt = segments(compiled, request, context)
        for slot in with_rivals(slots(compiled.schema)):
            option = await self._fill(slot, choose(slot, sources), prompt, draft)
            if option is not None:
                draft.arguments[slot.name] = option.value
                draft.grounds[slot.name] = option.ground
                sources[option.ground.kind is GroundKind.CONTEXT and len(sources) > 1].take(option.span)
            elif slot.required:
                draft.missing.append(MissingArgument(slot.name, slot.schema))
        return draft

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
        answer = Segment(SegmentKind.ANSWER, _opening(draft.arguments, slot.name))
        try:
            completion = await engine.complete([*prompt, answer], schema, max_tokens=self._max_tokens)
        except SchemaNotCompilable:
            return None
        draft.tokens += _tokens(completion)
        return json.loads(completion.text) if completion.complete else None


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
