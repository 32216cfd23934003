"""The ways to ask a chat server for JSON under a schema, strongest first, and what an answer of each looks like.

Servers differ in what they know: vLLM, SGLang, llama-server, Ollama and LM Studio take `json_schema`;
llama-cpp-python's own server takes a `schema` beside `json_object`, and some know tool calling alone. Sends
nothing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from adapters.openai.skeleton import Skeleton
from adapters.openai.spelling import spellable
from adapters.ports import JsonObject, Segment, SegmentKind

Message: TypeAlias = dict[str, str]

NAME: Final = "arguments"
_FENCE: Final = re.compile(r"```(?:json)?\s*(.*?)\s*(?:```|$)", re.DOTALL | re.IGNORECASE)


class Form(StrEnum):
    """How to ask, in the order in which it is tried."""

    JSON_SCHEMA = "response_format json_schema"
    JSON_OBJECT = "response_format json_object with a schema"
    TOOL = "tool calling"
    PLAIN = "plain prompting"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server wrote, and what it counted.

    Attributes:
        cut: whether it ended at the token limit.
        reused_tokens: of the prompt's, taken from the server's own cache, where it says so.
    """

    text: str
    cut: bool
    prompt_tokens: int = 0
    reused_tokens: int = 0
    written_tokens: int = 0


class NoAnswerError(ValueError):
    """A body that is no chat completion; the message says what it lacks."""


def messages(segments: Sequence[Segment], skeleton: Skeleton) -> list[Message]:
    """System and user message. What stands before the request depends on the tool and the context alone."""
    system = _joined(segments, SegmentKind.SYSTEM, SegmentKind.TOOL)
    user = _joined(segments, SegmentKind.CONTEXT, SegmentKind.REQUEST)
    if skeleton.unused:
        user += (
            f"\n\nThe answer so far, which {'.'.join(map(str, skeleton.path))} continues: {skeleton.unused}"
        )
    return [*([_message("system", system)] if system else []), _message("user", user)]


def asked_in(form: Form, asked: Sequence[Message], schema: Mapping[str, Any]) -> JsonObject:
    """The members of a request body that say what to answer.

    Raises:
        UnspellableError: the form must not be used for this schema.
    """
    match form:
        case Form.JSON_SCHEMA:
            described = {"name": NAME, "strict": True, "schema": schema}
            return {
                "messages": asked,
                "response_format": {"type": "json_schema", "json_schema": described},
            }
        case Form.JSON_OBJECT:
            return {
                "messages": asked,
                "response_format": {"type": "json_object", "schema": spellable(schema)},
            }
        case Form.TOOL:
            function = {"name": NAME, "description": "Give the arguments.", "parameters": spellable(schema)}
            return {
                "messages": asked,
                "tools": [{"type": "function", "function": function}],
                "tool_choice": {"type": "function", "function": {"name": NAME}},
            }
        case Form.PLAIN:
            return {"messages": _with_schema(asked, schema)}


def repair(asked: Sequence[Message], answer: Answer, fault: str) -> list[Message]:
    """The conversation, gone on with what is wrong with its answer."""
    wish = (
        f"That answer can't be used: {fault}. Give the whole JSON object again, corrected, and nothing else."
    )
    return [*asked, _message("assistant", answer.text), _message("user", wish)]


def answer_of(form: Form, body: JsonObject) -> Answer:
    """Read a chat completion. Raises NoAnswerError."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise NoAnswerError("it has no choices[0].message")
    usage = body.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    return Answer(
        text=_called_with(message) if form is Form.TOOL else _text(message.get("content")),
        cut=choice.get("finish_reason") == "length",
        prompt_tokens=_count(usage.get("prompt_tokens")),
        reused_tokens=_count(details.get("cached_tokens")) if isinstance(details, dict) else 0,
        written_tokens=_count(usage.get("completion_tokens")),
    )


def parsed(form: Form, text: str) -> Any:
    """The JSON value of an answer; plainly prompted models put words and fences around it. Raises ValueError."""
    if form is not Form.PLAIN:
        return _strict(text)
    fenced = _FENCE.search(text)
    bare = fenced[1] if fenced else text
    start = bare.find("{")
    if start < 0:
        raise ValueError("it holds no JSON object")
    _, end = json.JSONDecoder().raw_decode(bare, start)
    return _strict(bare[start:end])


def _strict(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _joined(segments: Sequence[Segment], *kinds: SegmentKind) -> str:
    """Texts on lines of their own, as the local engine joins them."""
    text = ""
    for segment in segments:
        if segment.kind in kinds and segment.text:
            text += ("\n" if text and not text.endswith("\n") else "") + segment.text
    return text


def _with_schema(asked: Sequence[Message], schema: Mapping[str, Any]) -> list[Message]:
    """The schema after the request, which is the last message unless an answer is being repaired."""
    place = next(at for at, message in enumerate(asked) if message["role"] == "user")
    text = json.dumps(schema, ensure_ascii=False)
    wish = f"{asked[place]['content']}\n\nAnswer with one JSON object and nothing else, valid under this JSON Schema:\n{text}"
    return [*asked[:place], _message("user", wish), *asked[place + 1 :]]


def _called_with(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls")
    call = calls[0] if isinstance(calls, list) and calls else None
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    return json.dumps(arguments) if isinstance(arguments, dict) else _text(arguments)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
