"""Joins the running application to the server's handlers."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp.server.request_state import AESGCMRequestStateCodec

from nexus_gateway.app import open_gateway
from nexus_gateway.server.handlers import HandlerParts, Handlers
from nexus_gateway.settings import Settings
from nexus_gateway.telemetry.logs import set_up_logs
from nexus_gateway.turn.confirmation import PendingTokens


@asynccontextmanager
async def open_handlers(settings: Settings) -> AsyncIterator[Handlers]:
    """Run the application and give its handlers. Confirmations are sealed under a key of this process."""
    set_up_logs(settings.log.level, settings.log.format)
    codec = AESGCMRequestStateCodec([secrets.token_bytes(32)])
    async with open_gateway(settings) as gateway:
        yield Handlers(
            HandlerParts(
                turns=gateway.turns,
                calls=gateway.fleet,
                tokens=PendingTokens(codec, ttl_seconds=settings.turn.confirm_ttl_seconds),
                explain=settings.turn.explain,
                answer_timeout_seconds=settings.turn.confirm_ttl_seconds,
            )
        )
