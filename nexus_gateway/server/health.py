"""What probes ask of an HTTP front: is the process up, and would a request find what it needs.

Knows two addresses and reasons in plain words. They are told to anybody, without a token, so that no name of a
server, no path and no cause is among them; the log has those.
"""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

ALIVE: Final = "/healthz"
READY: Final = "/readyz"

STOPPING: Final = "the gateway is stopping"
"""The reason of one that drains."""

Missing: TypeAlias = Callable[[], Sequence[str]]
"""What is not there yet, one reason each; empty once a turn finds all it needs."""


def _loading() -> Sequence[str]:
    return ("the application is loading",)


class Health:
    """The state of one process, as far as probes are told of it.

    Attributes:
        draining: it is about to stop, and takes no new requests.
    """

    def __init__(self) -> None:
        self.draining = False
        self._missing: Missing = _loading

    def follow(self, missing: Missing) -> None:
        """Ask this from now on."""
        self._missing = missing

    def reasons(self) -> list[str]:
        """Why no request should be sent here; empty when one may be."""
        return [STOPPING] if self.draining else list(self._missing())

    def routes(self) -> list[Route]:
        """`/healthz` and `/readyz`, for GET and HEAD."""
        return [Route(ALIVE, _alive), Route(READY, self._ready)]

    async def _ready(self, _request: Request) -> Response:
        reasons = self.reasons()
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return JSONResponse({"ready": not reasons, "reasons": reasons}, status, headers=_UNCACHED)


_UNCACHED = {"cache-control": "no-store"}


async def _alive(_request: Request) -> Response:
    return JSONResponse({"alive": True}, headers=_UNCACHED)
