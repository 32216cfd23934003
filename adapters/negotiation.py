"""Settles the protocol era of a new connection: modern first, then the legacy handshake.

Knows the policy of the SDK's `mcp.client._probe` (which it follows: everything that is not evidence of
a modern server means legacy) but probes for 2 s, not 10, since silent legacy servers exist. Knows no
transport.
"""

from typing import Any

import anyio
from mcp import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    REQUEST_TIMEOUT,
    UNSUPPORTED_PROTOCOL_VERSION,
    DiscoverResult,
    UnsupportedProtocolVersionErrorData,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from adapters.ports import Era

PROBE_SECONDS = 2.0
_DISCOVER_ATTEMPTS = 6
"""Of 10 s each: a known-modern server may be slow to start, and the SDK's discover gives up early."""


async def negotiate(session: ClientSession, era: Era | None) -> Era:
    """Settle the era and leave `session` negotiated; None tries modern, then legacy.

    Raises:
        MCPError: the server refused, or the connection closed.
        RuntimeError: no protocol revision in common.
        ValidationError: the answer is not a valid result.
    """
    if era is Era.LEGACY:
        return await _handshake(session)
    if era is Era.MODERN:
        return await _discover(session)
    try:
        modern = await _probe(session, LATEST_MODERN_VERSION)
    except MCPError as refusal:
        mutual = _mutual_version(refusal)
        if mutual is None:
            raise
        modern = await _probe(session, mutual)
    return Era.MODERN if modern else await _handshake_or_probe_again(session)


async def _handshake(session: ClientSession) -> Era:
    await session.initialize()
    return Era.LEGACY


async def _discover(session: ClientSession) -> Era:
    for attempt in range(1, _DISCOVER_ATTEMPTS + 1):
        try:
            await session.discover()
        except MCPError as error:
            if error.error.code != REQUEST_TIMEOUT or attempt == _DISCOVER_ATTEMPTS:
                raise
        else:
            break
    return Era.MODERN


async def _handshake_or_probe_again(session: ClientSession) -> Era:
    try:
        return await _handshake(session)
    except MCPError as refusal:
        # A slow server may have seen our probe after we gave up on it, and turned modern by it.
        mutual = _mutual_version(refusal)
        if mutual is None or not await _probe(session, mutual):
            raise
        return Era.MODERN


async def _probe(session: ClientSession, version: str) -> bool:
    """Whether the server is modern; the session has adopted its answer then.

    Raises:
        MCPError: it is modern and refuses this version.
    """
    with anyio.move_on_after(PROBE_SECONDS):
        try:
            return _adopt(session, await session.send_discover(version))
        except MCPError as refusal:
            supported = _supported(refusal)
            modern_only = supported and not set(supported) & set(HANDSHAKE_PROTOCOL_VERSIONS)
            if modern_only or _mutual_version(refusal):
                raise
    return False


def _adopt(session: ClientSession, raw: dict[str, Any]) -> bool:
    try:
        result = DiscoverResult.model_validate(raw)
    except ValidationError:
        return False
    if not set(result.supported_versions) & set(MODERN_PROTOCOL_VERSIONS):
        return False
    session.adopt(result)
    return True


def _supported(refusal: MCPError) -> list[str]:
    """The versions that a refusal names; empty for any other error."""
    if refusal.error.code != UNSUPPORTED_PROTOCOL_VERSION:
        return []
    try:
        return UnsupportedProtocolVersionErrorData.model_validate(refusal.error.data).supported
    except ValidationError:
        return []


def _mutual_version(refusal: MCPError) -> str | None:
    supported = _supported(refusal)
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in supported), None)
