"""Requests to an OpenAI-compatible API: retried while it makes sense, capped, and explained where they fail.

Knows HTTP and the form of such servers' errors; not what is asked or answered. The caller sets the deadline
of everything together (`anyio.fail_after`). No redirect is followed: prompt and key go to the configured
origin alone.
"""

import email.utils
import json
import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, stop_any
from tenacity.stop import stop_base
from tenacity.wait import wait_exponential, wait_random

from adapters.openai.address import ApiKey, is_loopback
from adapters.ports import JsonObject, ModelUnusable

CONNECT_SECONDS: Final = 10.0
MAX_CALLS: Final = 8
"""Connections at once; further calls wait in the engine."""
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
MAX_PAUSE_SECONDS: Final = 30.0
"""Between two attempts, whatever `Retry-After` says."""
_SHOWN_CHARACTERS: Final = 300
_AGAIN: Final = frozenset({429, 500, 502, 503})
_REFUSED: Final = frozenset({400, 415, 422, 501})
_ABOUT_THE_FORM: Final = re.compile(r"response_format|json_schema|json_object|tool_choice|tools\b|grammar")
_ABOUT_THE_CONTEXT: Final = re.compile(
    r"context.{0,40}(length|size|window|exceed)|exceed.{0,40}context|too long", re.DOTALL
)


class RefusedError(Exception):
    """The server does not take a request of this form; the message says what it said."""


class _AgainError(Exception):
    """A failure that may pass. `after`: seconds the server asks to wait."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try.

    Attributes:
        timeout_seconds: the longest silence within one attempt.
        retries: attempts after the first.
        pause_seconds: before the second attempt; doubled for each further one, with jitter.
    """

    timeout_seconds: float
    retries: int
    pause_seconds: float = 0.5


class Api:
    """One server. Made by `open_api`."""

    def __init__(self, client: httpx.AsyncClient, url: httpx.URL, key: ApiKey, patience: Patience) -> None:
        self._client = client
        self._key = key
        self._patience = patience
        self.url = url

    async def post(self, path: str, body: JsonObject) -> JsonObject:
        """The answer to one POST under the base URL.

        Raises:
            RefusedError: the server is well and does not take this body.
            ModelUnusable: it can't be reached, failed, or answered nonsense, the last time too.
        """
        return await self._answer(
            "POST", path, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        )

    async def get(self, path: str) -> JsonObject:
        """The answer to one GET; raises as `post`."""
        return await self._answer("GET", path, None)

    async def _answer(self, method: str, path: str, body: bytes | None) -> JsonObject:
        first = self._patience.pause_seconds
        pauses = wait_exponential(multiplier=first, max=MAX_PAUSE_SECONDS) + wait_random(0, first)

        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.after if isinstance(error, _AgainError) else None
            return pauses(state) if asked is None else min(asked, MAX_PAUSE_SECONDS)

        retrying = AsyncRetrying(
            sleep=anyio.sleep,
            wait=pause,
            stop=stop_any(stop_after_attempt(self._patience.retries + 1), _PausesPastTheDeadline()),
            retry=retry_if_exception_type(_AgainError),
            reraise=True,
        )
        try:
            return await retrying(self._once, method, path, body)
        except _AgainError as error:
            raise ModelUnusable(str(error)) from error

    async def _once(self, method: str, path: str, body: bytes | None) -> JsonObject:
        try:
            async with self._client.stream(method, f"{self.url}{path}", content=body) as response:
                content = await self._read(response)
        except (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout) as error:
            seconds = self._patience.timeout_seconds
            raise ModelUnusable(f"{self.url} {silence_text(seconds)}") from error
        except httpx.TransportError as error:
            raise _AgainError(f"{self.url}: {_network_text(error)}") from error
        if not response.is_success:
            raise self._failure(response, content, path)
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _AgainError(
                f"{self.url}{path} answered something that is not a JSON object; is it an OpenAI-compatible API? "
                "Check url in [engine] (it often ends in /v1)"
            )
        return answer

    async def _read(self, response: httpx.Response) -> bytes:
        content = bytearray()
        async for part in response.aiter_bytes():
            content += part
            if len(content) > MAX_ANSWER_BYTES:
                raise ModelUnusable(
                    f"{self.url} answered more than {MAX_ANSWER_BYTES:,} bytes, which no arguments need; "
                    "check url in [engine]"
                )
        return bytes(content)

    def _failure(self, response: httpx.Response, content: bytes, path: str) -> Exception:
        status, said = response.status_code, self._key.hidden_in(_said(content))
        where = f"{self.url} answered {status} {response.reason_phrase}".rstrip()
        told = f"{where}: {said}" if said else where
        if response.is_redirect:
            target = self._key.hidden_in(response.headers.get("location", "another place"))
            return ModelUnusable(
                f"{where} and points to {target[:_SHOWN_CHARACTERS]}; redirects are not followed: set url in [engine] "
                "to that place if you trust it"
            )
        if _ABOUT_THE_CONTEXT.search(said):
            return ModelUnusable(
                f"{told}; shorten the request or its context, or run the server with more context"
            )
        if status in _REFUSED or (status in _AGAIN and _ABOUT_THE_FORM.search(said)):
            return RefusedError(told)
        if status in _AGAIN:
            return _AgainError(told + _again_fix(status), _seconds(response.headers.get("retry-after")))
        return ModelUnusable(told + _fix(status, path))


@asynccontextmanager
async def open_api(url: httpx.URL, key: ApiKey, patience: Patience) -> AsyncGenerator[Api]:
    """Prepare requests; the first one dials. Proxies of the environment are used, but not for this machine."""
    seconds = patience.timeout_seconds
    async with httpx.AsyncClient(
        headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **key.headers()},
        timeout=httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds)),
        limits=httpx.Limits(max_connections=MAX_CALLS),
        follow_redirects=False,
        trust_env=not is_loopback(url),
    ) as client:
        yield Api(client, url, key, patience)


def silence_text(seconds: float) -> str:
    """What a missed deadline means and what to do."""
    return (
        f"did not answer within {seconds:g} s; raise timeout_seconds in [engine], "
        "or see whether the server is overloaded"
    )


class _PausesPastTheDeadline(stop_base):
    """Gives up at once where the next attempt could not come in time: the failure says more than the deadline."""

    def __call__(self, retry_state: RetryCallState) -> bool:
        return anyio.current_time() + retry_state.upcoming_sleep >= anyio.current_effective_deadline()


def _network_text(error: httpx.TransportError) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectTimeout):
        return "no connection in time; check url in [engine] and the network"
    if isinstance(error, httpx.ConnectError):
        return f"no connection ({text}); is the server running, and is url in [engine] right?"
    return f"the connection broke ({text}); see the server's own log"


def _again_fix(status: int) -> str:
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return "; it takes no more requests for now: wait, or ask for a higher limit"
    return "; see the server's own log"


def _fix(status: int, path: str) -> str:
    if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
        return "; name a valid key with api_key_env or api_key_keyring in [engine]"
    if status in {httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED}:
        return (
            f"; it has no {path}, or not this model: check url (it often ends in /v1) and model in [engine]"
        )
    return "; see the server's own log"


def _said(content: bytes) -> str:
    """The server's own words: OpenAI's form, FastAPI's, or plain text."""
    text = content[:MAX_ANSWER_BYTES].decode("utf-8", "replace").strip()
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    found: Any = body
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    told = found if isinstance(found, str) else text
    return " ".join(told.split())[:_SHOWN_CHARACTERS]


def _seconds(retry_after: str | None) -> float | None:
    """Seconds of a `Retry-After`, which is a number or a date (RFC 9110, 10.2.3)."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None
