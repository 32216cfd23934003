"""Serving many hosts over streamable HTTP. Loopback only, unless a bearer token guards it."""

import hmac
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import Any

import anyio
import uvicorn
from mcp.server import Server
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from adapters.loopback import is_loopback
from nexus_gateway.server.draining import Draining
from nexus_gateway.server.health import Health
from nexus_gateway.server.listening import bracketed
from nexus_gateway.settings import HttpSettings

PATH = "/mcp"
LAST_SECONDS = 1
"""For answers on their way when the drain is over; what still runs then is cut off."""


class UnsafeAddressError(Exception):
    """A non-loopback address without a bearer token."""


class StaticToken:
    """Accepts one bearer token, compared in constant time (the SDK's `TokenVerifier`)."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """The access a token gives, or None."""
        if not hmac.compare_digest(token.encode(), self._token):
            return None
        return AccessToken(token=token, client_id="local", scopes=[])


def check_address(settings: HttpSettings, token: str | None) -> None:
    """Raises UnsafeAddressError where others could reach the gateway without a token."""
    if token is None and not is_loopback(settings.host):
        raise UnsafeAddressError(
            f"refusing to serve on {settings.host} without a bearer token: set {settings.token_env} or token_file in [http], "
            "or use 127.0.0.1"
        )


def build_app(
    server: Server[Any], settings: HttpSettings, *, token: str | None, health: Health | None = None
) -> Starlette:
    """The ASGI application: Host and Origin checked, the token where there is one; what probes ask is open to all.

    Raises:
        UnsafeAddressError: `settings.host` is not loopback and there is no token.
    """
    check_address(settings, token)
    auth = (
        AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None) if token else None
    )
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        host=settings.host,
        max_request_body_size=settings.max_body_bytes,
        transport_security=_checks(settings),
        auth=auth,
        token_verifier=StaticToken(token) if token else None,
        custom_starlette_routes=(health or Health()).routes(),
    )
    # Redirects of `/mcp/` would go wherever the Host header says, and to http where a proxy has TLS: with the token.
    app.router.redirect_slashes = False
    return app


async def serve_http(
    settings: HttpSettings,
    token: str | None,
    listening: list[socket.socket],
    server: Server[Any],
    stop: anyio.Event,
    *,
    health: Health | None = None,
) -> None:
    """Serve on `listening`, closed at the end, until `stop` is set and the drain is over.

    Running requests may finish for `settings.drain_seconds`; new ones are refused with 503 meanwhile.
    """
    health = health or Health()
    draining = Draining(PATH, health, max_body_bytes=settings.max_body_bytes)
    app = build_app(server, settings, token=token, health=health)
    config = uvicorn.Config(
        expecting_breaks(draining.around(app)),
        log_level="warning",
        timeout_graceful_shutdown=LAST_SECONDS,
        server_header=False,
    )
    listener = _Listener(config)
    with ExitStack() as closing:
        for taken in listening:
            closing.enter_context(taken)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_when, stop, listener, draining, settings.drain_seconds)
            await listener.serve(sockets=listening)
            tasks.cancel_scope.cancel()


async def _stop_when(
    stop: anyio.Event, listener: uvicorn.Server, draining: Draining, drain_seconds: float
) -> None:
    await stop.wait()
    await draining.drain(drain_seconds)
    listener.should_exit = True


def expecting_breaks(app: ASGIApp) -> ASGIApp:
    """What uvicorn would log as a crash: a host that hangs up, and requests that are cut off at the end of the drain.

    The latter get an answer.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, noted)
        except ClientDisconnect:
            return
        except anyio.get_cancelled_exc_class():
            if scope["type"] != "http":
                raise
            if not started:
                await send(
                    {"type": "http.response.start", "status": HTTPStatus.SERVICE_UNAVAILABLE, "headers": []}
                )
            await send({"type": "http.response.body", "body": b""})

    return guarded


class _Listener(uvicorn.Server):
    """Leaves signals to the process: uvicorn would raise them again before our children are stopped."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _checks(settings: HttpSettings) -> TransportSecuritySettings:
    names: Sequence[str] = ("127.0.0.1", "localhost", "[::1]", bracketed(settings.host))
    hosts = [f"{name}:*" for name in dict.fromkeys(names)]
    origins = [f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[*hosts, *settings.allowed_hosts],
        allowed_origins=[*origins, *settings.allowed_origins],
    )
