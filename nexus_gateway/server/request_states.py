"""The `requestState` of interim results: whose request it is, sealed, so that a retry comes back to it.

A host can neither read nor alter it; one of another caller, server or request is not accepted.
"""

import json
from dataclasses import asdict, dataclass

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import HostKey
from nexus_gateway.turn.confirmation import Codec


@dataclass(frozen=True, slots=True)
class RequestState:
    """What a retry of a request needs.

    Attributes:
        target: the tool, prompt or URI of the request.
        upstream: the upstream's own state.
        parked: the running call that waits for the answers, where there is one.
    """

    server: str
    method: str
    target: str
    upstream: str | None = None
    parked: HostKey | None = None


class RequestStates:
    """Seals states and opens them again."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def seal(self, state: RequestState, caller: Caller) -> str:
        """A token for this caller alone."""
        payload = {**asdict(state), "who": [caller.tenant, caller.principal]}
        return self._codec.seal(json.dumps(payload).encode())

    def open(self, token: str, caller: Caller, *, method: str, target: str) -> RequestState:
        """The state of a retried request. Raises MCPError where it is not this request's."""
        try:
            payload = json.loads(self._codec.unseal(token))
        except Exception as error:  # the codec's own error type is the SDK's
            raise MCPError(
                INVALID_PARAMS,
                "this requestState is not of this gateway, or was altered; make the request again",
            ) from error
        who = payload.pop("who")
        state = RequestState(**payload)
        if who != [caller.tenant, caller.principal] or (state.method, state.target) != (method, target):
            raise MCPError(INVALID_PARAMS, "this requestState was made for another request")
        return state
