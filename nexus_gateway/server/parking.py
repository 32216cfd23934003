"""Calls of modern hosts that a legacy server interrupts with a question.

A modern host can't be asked in the middle of a call: the call goes on by itself, parked, while the host gets an
interim result with the question; its retry brings the answer and waits on. Parked calls are capped and expire.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

import anyio
import anyio.abc
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

from adapters.ports import AdapterError, HostRefused, JsonObject, ProgressCallback
from nexus_gateway.access.host import Host, HostKey
from nexus_gateway.server.host_connection import CAPABILITY_OF, without_owned_meta

MAX_PARKED = 64
PATIENCE_SECONDS = 300.0
"""How long a parked call waits for the host's next retry."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What a parked call waits for: raw input requests by key; `parked` names the call."""

    parked: HostKey
    requests: JsonObject


Send: TypeAlias = Callable[[Host, ProgressCallback], Awaitable[JsonObject]]
"""Makes the call for a host that can be asked, and returns its raw result."""


@dataclass(slots=True, eq=False)
class _Question:
    request: JsonObject
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: JsonObject = field(default_factory=dict)


class _ParkedCall:
    """One call, and the `Host` its server may ask. Questions wait in `open` until a retry answers them."""

    def __init__(self, host: Host, admit: Callable[[], bool]) -> None:
        self.key = host.key  # of the request that began it, which no other request has
        self.capabilities = host.capabilities
        self.scope = anyio.CancelScope()
        self.open: dict[str, _Question] = {}
        self.on_progress: ProgressCallback | None = None
        self.news = anyio.Event()  # replaced when its news is taken
        self.result: JsonObject | None = None
        self.failure: AdapterError | MCPError | None = None
        self.ended = False
        self._admit = admit
        self._keys = count(1)

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        if CAPABILITY_OF.get(method) not in self.capabilities:
            raise HostRefused(METHOD_NOT_FOUND, f"the host does not offer {method}")
        if not self._admit():
            raise HostRefused(INTERNAL_ERROR, f"{MAX_PARKED} calls wait for answers of their hosts already")
        key = f"question-{next(self._keys)}"
        question = _Question({"method": method, "params": without_owned_meta(params)})
        self.open[key] = question
        self.news.set()
        try:
            await question.answered.wait()  # bounded by the call's own deadline and by PATIENCE_SECONDS
        finally:
            self.open.pop(key, None)
        return question.answer

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self.on_progress is not None:
            await self.on_progress(progress, total, message)

    async def run(self, send: Send) -> None:
        with self.scope:
            try:
                self.result = await send(self, self.progress)
            except (AdapterError, MCPError) as error:
                self.failure = error
        self.ended = True
        self.news.set()


class Parking:
    """Runs the calls that may have to be parked."""

    def __init__(self, *, capacity: int = MAX_PARKED, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._capacity = capacity
        self._patience = patience_seconds
        self._parked: dict[HostKey, _ParkedCall] = {}
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> None:
        """Own the calls until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                await anyio.sleep_forever()
            finally:
                self._tasks = None

    async def begin(
        self, host: Host, send: Send, on_progress: ProgressCallback | None
    ) -> JsonObject | Questions:
        """Make a call for a modern host; its raw result, or what its server asks. Raises what `send` raises."""
        call = _ParkedCall(host, self._has_room)
        call.on_progress = on_progress
        if self._tasks is None:
            raise MCPError(INTERNAL_ERROR, "the gateway is not running")
        self._tasks.start_soon(call.run, send)
        return await self._next(call)

    async def resume(
        self, parked: HostKey, responses: JsonObject, on_progress: ProgressCallback | None
    ) -> JsonObject | Questions:
        """Answer a parked call's questions and wait on. Raises MCPError where it is not there any more."""
        call = self._parked.pop(parked, None)
        if call is None:
            raise MCPError(INVALID_PARAMS, "the call has ended, or waited too long; make the request again")
        call.scope.deadline = float("inf")
        call.on_progress = on_progress
        for key, response in responses.items():
            question = call.open.pop(key, None)
            if question is not None and isinstance(response, dict):
                question.answer = response
                question.answered.set()
        return await self._next(call)

    def _has_room(self) -> bool:
        return len(self._parked) < self._capacity

    async def _next(self, call: _ParkedCall) -> JsonObject | Questions:
        try:
            while not call.ended and not call.open:
                call.news = anyio.Event()
                await call.news.wait()
        except anyio.get_cancelled_exc_class():
            call.scope.cancel()  # nobody waits any more: cancelled upstream too
            raise
        if call.ended:
            if call.failure is not None:
                raise call.failure
            return call.result if call.result is not None else _expired()
        call.on_progress = None
        call.scope.deadline = anyio.current_time() + self._patience
        self._forget_ended()
        self._parked[call.key] = call
        return Questions(call.key, {key: question.request for key, question in call.open.items()})

    def _forget_ended(self) -> None:
        self._parked = {key: call for key, call in self._parked.items() if not call.ended}


def _expired() -> JsonObject:
    raise MCPError(INVALID_PARAMS, "the call was ended; make the request again")
