"""The argument engine on an OpenAI-compatible server: vLLM, SGLang, llama-server, Ollama, LM Studio and others.

Asks for the whole answer under a schema that has its beginning as constants (adapters/openai/skeleton.py), in
the strongest form that the server takes, found by trying once. Whatever comes is checked against the schema
here. Nothing is sent before the first call, so a server that is down when the gateway starts may come later.
Knows no tools, servers or turns.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
from anyio import CapacityLimiter

from adapters.llama_cpp.decoding_schema import decoding_schema
from adapters.openai.address import find_key, usable_url
from adapters.openai.api import MAX_CALLS, Api, Patience, RefusedError, open_api, silence_text
from adapters.openai.forms import (
    Answer,
    Form,
    Message,
    NoAnswerError,
    answer_of,
    asked_in,
    messages,
    parsed,
    repair,
)
from adapters.openai.skeleton import Skeleton
from adapters.openai.spelling import UnspellableError
from adapters.ports import Completion, JsonObject, ModelUnusable, Segment, SegmentKind
from adapters.schema_check import value_validator

MAX_WAITING = 64
_SHOWN_MODELS = 5
_FAULT_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """Which server and model, and how to reach them.

    Attributes:
        url: base URL of the API, such as http://127.0.0.1:8080/v1.
        model: the server's name for it.
        api_key_env: name of the environment variable that holds the key.
        api_key_keyring: `service/user` of the keyring's entry that holds it.
        timeout_seconds: for one completion, retries included.
        retries: attempts after the first, for failures that may pass.
        pause_seconds: before the second attempt; doubled for each further one.
        plain_http: whether http may be used for another machine.
        extra_body: further members of each request.
    """

    url: str
    model: str
    api_key_env: str | None = None
    api_key_keyring: str | None = None
    timeout_seconds: float = 60.0
    retries: int = 2
    pause_seconds: float = 0.5
    plain_http: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class _Spent:
    """Tokens of all answers to one question."""

    prompt: int = 0
    reused: int = 0
    written: int = 0

    def add(self, answer: Answer) -> None:
        self.prompt += answer.prompt_tokens
        self.reused += answer.reused_tokens
        self.written += answer.written_tokens

    def completion(self, text: str, *, complete: bool) -> Completion:
        return Completion(text, complete, self.prompt, self.reused, self.written, 0)


@dataclass(frozen=True, slots=True)
class _Question:
    """One value to ask for."""

    messages: Sequence[Message]
    skeleton: Skeleton
    validator: Any
    max_tokens: int

    def read(self, form: Form, answer: Answer) -> tuple[str, str]:
        """The value as compact JSON, and what is wrong: the one or the other is empty."""
        try:
            value = self.skeleton.value_in(parsed(form, answer.text))
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            text.encode()
            error = next(self.validator.iter_errors(value), None)
        except (ValueError, RecursionError) as broken:  # NoValueError and UnicodeError are ValueErrors
            return "", str(broken)[:_FAULT_CHARACTERS] or type(broken).__name__
        return (
            (text, "")
            if error is None
            else ("", f"{self.skeleton.place}: {error.message}"[:_FAULT_CHARACTERS])
        )

    def has_form(self, form: Form, answer: Answer) -> bool:
        """Whether an answer is what a server that knows the form writes, valid or not, whole or cut."""
        if answer.cut:
            return answer.text.lstrip().startswith("{")
        try:
            self.skeleton.value_in(parsed(form, answer.text))
        except ValueError:  # NoValueError is one
            return False
        return True


class OpenAiEngine:
    """One model of one server. Made by `open_openai_engine`."""

    def __init__(self, api: Api, options: RemoteOptions) -> None:
        self._api = api
        self._options = options
        self._calls = CapacityLimiter(MAX_CALLS)
        self._known_form: Form | None = None

    @property
    def identity(self) -> str:
        """Model and URL, as configured: what the server runs under that name is its own affair."""
        return f"{self._options.model} at {self._api.url}"

    @property
    def holds_local_state(self) -> bool:
        """False: a prefix cache, if any, is the server's."""
        return False

    async def complete(
        self, segments: Sequence[Segment], schema: Mapping[str, Any], *, max_tokens: int
    ) -> Completion:
        """Write a value under `schema`. Cancellation closes the request.

        The server writes the ANSWER segment again, so `max_tokens` is raised by its length in bytes, the most
        tokens it can have. Tokens of a repair count too; `text` is empty unless it is complete.

        Raises:
            SchemaNotCompilable: no check for this schema.
            ModelUnusable: the server can't be reached, failed, or refused every form; too many calls wait; no
                answer within the deadline. The message names the URL and the fix.
        """
        begun = "".join(segment.text for segment in segments if segment.kind is SegmentKind.ANSWER)
        validator = value_validator(schema)
        skeleton = Skeleton.of(begun, decoding_schema(schema))
        budget = max_tokens + skeleton.known_bytes
        question = _Question(messages(segments, skeleton), skeleton, validator, budget)
        if self._calls.statistics().tasks_waiting >= MAX_WAITING:
            raise ModelUnusable(f"{self.identity} is busy: {MAX_WAITING} calls wait; try again later")
        try:
            with anyio.fail_after(self._options.timeout_seconds):
                async with self._calls:
                    return await self._answered(question)
        except TimeoutError as error:
            raise ModelUnusable(f"{self.identity} {silence_text(self._options.timeout_seconds)}") from error

    async def check(self) -> str:
        """Whether the server answers, in words; sends no prompt. Raises ModelUnusable."""
        try:
            with anyio.fail_after(self._options.timeout_seconds):
                listed = (await self._api.get("/models")).get("data")
        except RefusedError as error:
            raise ModelUnusable(str(error)) from error
        except TimeoutError as error:
            raise ModelUnusable(f"{self.identity} {silence_text(self._options.timeout_seconds)}") from error
        entries = listed if isinstance(listed, list) else []
        names = [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]
        if not names or self._options.model in names:
            return self.identity
        return f"{self.identity}, which lists other models: {', '.join(names[:_SHOWN_MODELS])}"

    async def _answered(self, question: _Question) -> Completion:
        spent, refusal = _Spent(), ""
        for form in self._forms():
            try:
                answer = await self._ask(form, question, question.messages, spent)
            except RefusedError as error:
                refusal = str(error)
                continue
            if form not in {self._known_form, Form.PLAIN} and not question.has_form(form, answer):
                continue  # it takes the form and ignores it
            return await self._checked(form, question, answer, spent)
        raise ModelUnusable(
            f"{refusal}; {self._options.model} refused every way of asking, plain ones too: check model and "
            "extra_body in [engine]"
        )

    async def _checked(self, form: Form, question: _Question, answer: Answer, spent: _Spent) -> Completion:
        """The value of an answer; one that is whole and wrong is repaired once."""
        text, fault = question.read(form, answer)
        if fault and not answer.cut:
            again = repair(question.messages, answer, fault)
            try:
                text, fault = question.read(form, await self._ask(form, question, again, spent))
            except RefusedError as error:
                text, fault = "", str(error)
        if not (fault and form is Form.PLAIN):
            self._known_form = self._known_form or form
        return spent.completion(text, complete=not fault)

    async def _ask(self, form: Form, question: _Question, asked: Sequence[Message], spent: _Spent) -> Answer:
        try:
            members = asked_in(form, asked, question.skeleton.schema)
        except UnspellableError as error:
            raise RefusedError(str(error)) from error
        body: JsonObject = {
            **self._options.extra_body,
            "model": self._options.model,
            "temperature": 0,
            "max_tokens": question.max_tokens,
            **members,
        }
        try:
            answer = answer_of(form, await self._api.post("/chat/completions", body))
        except NoAnswerError as error:
            raise ModelUnusable(
                f"{self._api.url} gave no chat completion: {error}; is it an OpenAI-compatible API?"
            ) from error
        spent.add(answer)
        return answer

    def _forms(self) -> Sequence[Form]:
        """The known form, then the weaker ones: a server may refuse a schema that its grammar can't say."""
        every = list(Form)
        return every[every.index(self._known_form or every[0]) :]


@asynccontextmanager
async def open_openai_engine(options: RemoteOptions) -> AsyncGenerator[OpenAiEngine]:
    """An engine on a server that need not run yet.

    Raises:
        ModelUnusable: the URL is not to be used, or the key is not where the options say.
    """
    url: httpx.URL = usable_url(options.url, plain_http=options.plain_http)
    key = await find_key(options.api_key_env, options.api_key_keyring)
    patience = Patience(options.timeout_seconds, options.retries, options.pause_seconds)
    async with open_api(url, key, patience) as api:
        yield OpenAiEngine(api, options)
