"""Getting an answer from the host's user: by elicitation (legacy), by `InputRequiredResult` (modern), or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import anyio
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError

from adapters.ports import Era, JsonObject
from nexus_gateway.access.caller import Caller
from nexus_gateway.server.questions import CONFIRM_FIELD

RESPONSE_KEY = "nexus"
"""The one key of our `inputRequests`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the user said: `accepted` is False for a no and for a dismissed form."""

    accepted: bool
    values: Mapping[str, Any]

    @property
    def confirmed(self) -> bool:
        """Whether this is a yes to a call."""
        return self.accepted and self.values.get(CONFIRM_FIELD) is True


async def elicit(
    ctx: ServerRequestContext[Any, Any], caller: Caller, form: JsonObject, *, timeout_seconds: float
) -> Answer | None:
    """Ask over a legacy back-channel; None where there is none or nobody answers in time."""
    if caller.era is not Era.LEGACY or not caller.can_elicit or not ctx.session.can_send_request:
        return None
    with anyio.move_on_after(timeout_seconds):
        try:
            result = await ctx.session.elicit_form(
                form["message"], form["requestedSchema"], related_request_id=ctx.request_id
            )
        except MCPError:
            return None
        return Answer(result.action == "accept", dict(result.content or {}))
    return None


def input_required(form: JsonObject, token: str) -> JsonObject:
    """A modern interim result that carries the form; the host retries the same request with answer and token."""
    return {
        "resultType": "input_required",
        "inputRequests": {RESPONSE_KEY: {"method": "elicitation/create", "params": form}},
        "requestState": token,
    }


def answer_from(params: Mapping[str, Any]) -> Answer:
    """The answer in a retried request's `inputResponses`; none given counts as a no."""
    responses = params.get("inputResponses")
    response = responses.get(RESPONSE_KEY) if isinstance(responses, Mapping) else None
    if not isinstance(response, Mapping):
        return Answer(accepted=False, values={})
    content = response.get("content")
    return Answer(response.get("action") == "accept", content if isinstance(content, Mapping) else {})
