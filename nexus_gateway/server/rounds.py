"""Interim results of modern upstreams, answered by asking a host and making the request again."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
from mcp_types import INTERNAL_ERROR

from adapters.ports import HostRefused, JsonObject
from nexus_gateway.access.host import Host

MAX_ROUNDS = 10
"""Interim results to one request; what the SDK's clients allow too."""
STATE_ONLY_SECONDS = 0.25
"""Before a retry that brings no answers: the upstream asked for time, not for the user."""

Send = Callable[[JsonObject], Awaitable[JsonObject]]
"""Makes the request with these params."""


def is_interim(result: Mapping[str, Any]) -> bool:
    """Whether the request has to be made again, with answers."""
    return result.get("resultType") == "input_required"


def with_state(params: Mapping[str, Any], state: object) -> JsonObject:
    """Params with this `requestState`, or none where it is no text."""
    rest = {key: value for key, value in params.items() if key != "requestState"}
    return {**rest, "requestState": state} if isinstance(state, str) else rest


async def until_complete(send: Send, params: JsonObject, host: Host | None) -> JsonObject:
    """Make a request until its result is final, asking `host` whatever the upstream wants to know.

    Raises what `send` raises, and HostRefused: the host's own, or where it can't be asked or is asked for ever.
    """
    result = await send(params)
    for _ in range(MAX_ROUNDS):
        if not is_interim(result):
            return result
        answers = await _answers(result.get("inputRequests"), host)
        retried = {key: value for key, value in params.items() if key != "inputResponses"} | answers
        result = await send(with_state(retried, result.get("requestState")))
    raise HostRefused(
        INTERNAL_ERROR, f"the upstream asked for input {MAX_ROUNDS} times; the call was given up"
    )


async def _answers(requests: object, host: Host | None) -> JsonObject:
    """The `inputResponses` of a retry; the questions are put at once, and the first refusal ends them all."""
    if not isinstance(requests, dict) or not requests:
        await anyio.sleep(STATE_ONLY_SECONDS)
        return {}
    answers: JsonObject = {}
    refused: list[HostRefused] = []

    async def ask(key: str, request: Any) -> None:
        try:
            answers[key] = await _ask(request, host)
        except HostRefused as error:
            refused.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for key, request in requests.items():
            tasks.start_soon(ask, key, request)
    if refused:
        raise refused[0]
    return {"inputResponses": answers}


async def _ask(request: object, host: Host | None) -> JsonObject:
    method = request.get("method") if isinstance(request, dict) else None
    if host is None or not isinstance(request, dict) or not isinstance(method, str):
        raise HostRefused(INTERNAL_ERROR, "the upstream asks for input, and there is no host to give it")
    params = request.get("params")
    return await host.ask(method, params if isinstance(params, dict) else {})
