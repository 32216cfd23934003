"""The gateway's side of a bridge: each message is delivered once, with the session it needs, over restarts too.

Knows which messages make a session (the legacy handshake, the log level, watched resources) and repeats them where
the gateway has forgotten it. Does not know where messages come from or go to.
"""

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from itertools import count
from typing import Any, Final, TypeAlias

import anyio
import structlog
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from adapters.envelope import Envelope
from adapters.ports import Era, JsonObject
from adapters.raw_endpoint import (
    SESSION_HEADER,
    BrokenOffError,
    NotTakenError,
    RawEndpoint,
    RefusedError,
    Reply,
    SessionLostError,
)
from nexus_gateway.bridge.messages import (
    INITIALIZED,
    answers,
    changed_lists,
    is_request,
    modern_version,
    notification,
    params_of,
)

FIRST_WAIT_SECONDS: Final = 0.2
LONGEST_WAIT_SECONDS: Final = 5.0
REPEAT_SECONDS: Final = 10.0
"""Beyond the patience, for the gateway to answer while a session is made again."""
MAX_LOSSES: Final = 3
"""Sessions in a row that are lost before a message gets through: the gateway keeps none."""

Heard: TypeAlias = Callable[[JsonObject], Awaitable[None]]

log = structlog.get_logger(__name__)


class RemoteSession:
    """What a host has said to the gateway so far, as far as a new process there must hear it again."""

    def __init__(self, endpoint: RawEndpoint, told: Heard, *, patience_seconds: float) -> None:
        """`told` hears what the bridge itself has to say to the host: lists that may have changed."""
        self._endpoint = endpoint
        self._told = told
        self._patience = patience_seconds
        self._handshake: JsonObject | None = None
        self._agreed: JsonObject = {}
        self._id: str | None = None
        self._life = 0
        self._lost = False
        self._level: JsonObject | None = None
        self._watched: dict[str, JsonObject] = {}
        self._tools: list[Any] = []
        self._envelope = Envelope(Era.MODERN, "", {}, {})
        self._making = anyio.Lock()
        self._made_again = anyio.Event()
        self._ids = count(1)

    async def exchange(self, message: JsonObject, heard: Heard) -> None:
        """Deliver a message and pass on what comes in answer.

        What did not arrive is sent again until `patience_seconds` are over.

        Raises:
            NotTakenError: it did not arrive in time.
            BrokenOffError: it did, and its answer will not come.
            RefusedError: the gateway won't have it.
        """
        deadline = anyio.current_time() + self._patience
        waits, losses = waiting(), 0
        while True:
            life = self._life
            try:
                await self._ready(message, deadline)
                life = self._life
                await self._once(message, heard)
            except SessionLostError:
                self._lose(life)
                losses += 1
                if losses >= MAX_LOSSES:
                    raise
            except NotTakenError:
                wait = next(waits)
                if anyio.current_time() + wait > deadline:
                    raise
                await anyio.sleep(wait)
            else:
                return

    async def listen(self, heard: Heard) -> None:
        """Pass on what the gateway says by itself to a legacy host, until cancelled or it offers no such stream."""
        waits = waiting()
        while True:
            life = self._life
            try:
                await self._ready({}, anyio.current_time() + self._patience)
                life = self._life
                async with (
                    self._endpoint.listen(self._session_headers()) as reply,
                    aclosing(reply.messages()) as said,
                ):
                    async for message in said:
                        waits = waiting()  # not before: a stream may be closed as soon as it is opened
                        if "method" in message:
                            await heard(message)
            except SessionLostError:
                self._lose(life)
            except (NotTakenError, BrokenOffError):
                pass
            except RefusedError as error:
                log.info("bridge.hears_no_notices", cause=str(error))
                return
            with anyio.move_on_after(next(waits)):
                await self._made_again.wait()  # a message got through meanwhile: the gateway is back

    async def end(self) -> None:
        """Tell the gateway that the host is gone."""
        if self._id is not None:
            await self._endpoint.end_session(self._session_headers())

    async def _once(self, message: JsonObject, heard: Heard) -> None:
        async with self._endpoint.post(message, self._headers(message)) as reply:
            self._begin(message, reply)
            async with aclosing(reply.messages()) as said:
                async for answer in said:
                    if "method" in answer:
                        await heard(answer)
                    elif is_request(message) and answers(answer, message):
                        self._learn(message, answer)
                        await heard(answer | {"id": message["id"]})
                        return
                    else:  # another request's, which has its own: a host takes one answer each
                        log.warning("bridge.stray_answer", method=message.get("method", "an answer"))
        if is_request(message):
            raise BrokenOffError(f"{self._endpoint.shown}: the connection was closed before the answer came")

    def _begin(self, message: JsonObject, reply: Reply) -> None:
        if message.get("method") == "initialize":
            self._handshake = message
            self._id = reply.session_id
            self._life += 1
            self._lost = False
            self._level, self._watched = None, {}

    def _learn(self, message: JsonObject, answer: JsonObject) -> None:
        result = answer.get("result")
        if not isinstance(result, dict):
            return
        match message.get("method"):
            case "initialize":
                self._agreed = result
            case "logging/setLevel":
                self._level = message
            case "resources/subscribe":
                self._watched[str(params_of(message).get("uri"))] = message
            case "resources/unsubscribe":
                self._watched.pop(str(params_of(message).get("uri")), None)
            case "tools/list" if modern_version(message) and isinstance(listed := result.get("tools"), list):
                if "cursor" not in params_of(message):
                    self._tools.clear()
                self._tools += listed
                self._envelope.learn_tools("gateway", self._tools)

    def _headers(self, message: JsonObject) -> dict[str, str]:
        version = modern_version(message)
        if version is None:
            return {} if message.get("method") == "initialize" else self._session_headers()
        _, options = self._envelope.stamp(str(message.get("method")), params_of(message))
        return {**options.get("headers", {}), MCP_PROTOCOL_VERSION_HEADER: version}

    def _session_headers(self) -> dict[str, str]:
        version = self._agreed.get("protocolVersion")
        headers = {MCP_PROTOCOL_VERSION_HEADER: version} if isinstance(version, str) else {}
        return headers | ({SESSION_HEADER: self._id} if self._id else {})

    def _lose(self, life: int) -> None:
        if life == self._life:  # else it has been made again meanwhile
            self._lost = True

    async def _ready(self, message: JsonObject, until: float) -> None:
        """Make a session anew if the gateway has forgotten it and the message needs one."""
        if not self._lost or modern_version(message) or message.get("method") == "initialize":
            return
        with anyio.CancelScope(deadline=until + REPEAT_SECONDS):
            async with self._making:
                if self._lost:
                    try:
                        await self._make_again()
                    except (
                        BrokenOffError
                    ) as error:  # what was sent is ours; the host's message is still to be sent
                        raise NotTakenError(str(error)) from error
            return
        raise NotTakenError(f"{self._endpoint.shown} does not answer")

    async def _make_again(self) -> None:
        if self._handshake is None:
            return
        greeting = self._handshake | {"id": self._own_id()}
        async with self._endpoint.post(greeting, {}) as reply:
            answer = await self._answer_of(greeting, reply)
            result = answer.get("result")
            version = result.get("protocolVersion") if isinstance(result, dict) else None
            if version != self._agreed.get("protocolVersion"):
                raise RefusedError("the gateway was changed; connect the host to it again", status=0)
            self._id = reply.session_id
        for message in [
            notification(INITIALIZED),
            *([self._level] if self._level else []),
            *self._watched.values(),
        ]:
            await self._repeat(message)
        self._lost = False  # not before all of it arrived
        self._life += 1
        log.info("bridge.session_made_again", url=self._endpoint.shown)
        self._made_again.set()
        self._made_again = anyio.Event()
        for notice in changed_lists(self._agreed.get("capabilities")):
            await self._told(notice)

    async def _repeat(self, message: JsonObject) -> None:
        """Say again what belongs to the session. A refusal is the host's loss of one watched resource, no more."""
        again = message | {"id": self._own_id()} if is_request(message) else message
        async with self._endpoint.post(again, self._session_headers()) as reply:
            if is_request(again):
                answer = await self._answer_of(again, reply)
                if "error" in answer:
                    log.warning("bridge.not_repeated", method=message["method"])

    async def _answer_of(self, request: JsonObject, reply: Reply) -> JsonObject:
        async with aclosing(reply.messages()) as said:
            async for message in said:
                if answers(message, request):
                    return message
        raise NotTakenError(f"{self._endpoint.shown} did not answer {request['method']}")

    def _own_id(self) -> str:
        return f"nexus-bridge-{next(self._ids)}"


def waiting() -> Iterator[float]:
    """How long to wait before each further attempt, in seconds: doubled each time, less a random part."""
    for attempt in count():
        full = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(attempt, 16))
        yield full / 2 + random.random() * full / 2  # noqa: S311 - jitter, not a secret
