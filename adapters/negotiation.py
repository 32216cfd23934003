"""Settles the protocol era of a new connection: modern first, then the legacy handshake. Raw JSON both ways.

Knows the policy of the SDK's `mcp.client._probe` (which it follows: everything that is not evidence of
a modern server means legacy) but probes for 2 s, not 10, since silent legacy servers exist. Knows no
transport. The SDK's session is not used: it can only declare the capabilities that it has callbacks for.
"""

from dataclasses import dataclass
from typing import Any, Final

import anyio
from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_PROTOCOL_VERSION_HEADER
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    REQUEST_TIMEOUT,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from adapters.ports import Era, JsonObject

PROBE_SECONDS = 2.0
DISCOVER_SECONDS: Final = 10.0
_DISCOVER_ATTEMPTS: Final = 6
"""A server known to be modern may be slow to start."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What the gateway says of itself, raw."""

    info: JsonObject
    capabilities: JsonObject


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a server said in answer.

    Attributes:
        version: the protocol revision to speak.
        capabilities: the server's own, raw.
    """

    era: Era
    version: str
    capabilities: JsonObject
    instructions: str | None


class NoAgreementError(Exception):
    """The server's answer is not usable; the message says why."""


async def negotiate(peer: Outbound, era: Era | None, introduction: Introduction) -> Agreement:
    """Settle the era; None tries modern, then legacy.

    Raises:
        MCPError: the server refused, or the connection closed.
        NoAgreementError: no protocol revision in common, or the answer is not a valid result.
    """
    negotiation = _Negotiation(peer, introduction)
    if era is Era.LEGACY:
        return await negotiation.handshake()
    if era is Era.MODERN:
        return await negotiation.discover()
    return await negotiation.modern_first()


class _Negotiation:
    def __init__(self, peer: Outbound, introduction: Introduction) -> None:
        self._peer = peer
        self._us = introduction

    async def handshake(self) -> Agreement:
        raw = await self._peer.send_raw_request(
            "initialize",
            {
                "protocolVersion": LATEST_HANDSHAKE_VERSION,
                "capabilities": self._us.capabilities,
                "clientInfo": self._us.info,
            },
            {"cancel_on_abandon": False},
        )
        version = raw.get("protocolVersion")
        if version not in HANDSHAKE_PROTOCOL_VERSIONS:
            raise NoAgreementError(f"it speaks the protocol version {version!r}, which is not known")
        agreement = _agreement(Era.LEGACY, version, raw)
        await self._peer.notify(
            "notifications/initialized", None, {"headers": {MCP_PROTOCOL_VERSION_HEADER: version}}
        )
        return agreement

    async def discover(self) -> Agreement:
        for _ in range(_DISCOVER_ATTEMPTS - 1):
            try:
                return await self._discovered()
            except MCPError as error:
                if error.error.code != REQUEST_TIMEOUT:
                    raise
        return await self._discovered()

    async def _discovered(self) -> Agreement:
        try:
            raw = await self._ask(LATEST_MODERN_VERSION)
        except MCPError as refusal:
            mutual = _mutual_version(_supported(refusal))
            if mutual is None:
                raise
            raw = await self._ask(mutual)
        agreement = _discovery(raw)
        if agreement is None:
            raise NoAgreementError("its answer to server/discover names no protocol version that is known")
        return agreement

    async def modern_first(self) -> Agreement:
        try:
            found = await self._probe(LATEST_MODERN_VERSION)
        except MCPError as refusal:
            mutual = _mutual_version(_supported(refusal))
            if mutual is None:
                raise
            found = await self._probe(mutual)
        return found or await self._handshake_or_probe_again()

    async def _handshake_or_probe_again(self) -> Agreement:
        try:
            return await self.handshake()
        except MCPError as refusal:
            # A slow server may have seen our probe after we gave up on it, and turned modern by it.
            mutual = _mutual_version(_supported(refusal))
            found = await self._probe(mutual) if mutual else None
            if found is None:
                raise
            return found

    async def _probe(self, version: str) -> Agreement | None:
        """What a modern server says; None from any other. Raises MCPError if it refuses this version."""
        with anyio.move_on_after(PROBE_SECONDS):
            try:
                return _discovery(await self._ask(version))
            except MCPError as refusal:
                supported = _supported(refusal)
                modern_only = supported and not set(supported) & set(HANDSHAKE_PROTOCOL_VERSIONS)
                if modern_only or _mutual_version(supported):
                    raise
        return None

    async def _ask(self, version: str) -> JsonObject:
        meta = {
            PROTOCOL_VERSION_META_KEY: version,
            CLIENT_INFO_META_KEY: self._us.info,
            CLIENT_CAPABILITIES_META_KEY: self._us.capabilities,
        }
        options: CallOptions = {
            "timeout": DISCOVER_SECONDS,
            "cancel_on_abandon": False,
            "headers": {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: "server/discover"},
        }
        return await self._peer.send_raw_request("server/discover", {"_meta": meta}, options)


def _discovery(raw: JsonObject) -> Agreement | None:
    supported = raw.get("supportedVersions")
    mutual = _mutual_version(supported if isinstance(supported, list) else [])
    usable = mutual is not None and isinstance(raw.get("capabilities"), dict)
    return _agreement(Era.MODERN, mutual or "", raw) if usable else None


def _agreement(era: Era, version: str, raw: JsonObject) -> Agreement:
    capabilities = raw.get("capabilities")
    if not isinstance(capabilities, dict):
        raise NoAgreementError("it has no object `capabilities`")
    instructions = raw.get("instructions")
    return Agreement(era, version, capabilities, instructions if isinstance(instructions, str) else None)


def _supported(refusal: MCPError) -> list[Any]:
    """The versions that a refusal names; empty for any other error."""
    data = refusal.error.data
    if refusal.error.code != UNSUPPORTED_PROTOCOL_VERSION or not isinstance(data, dict):
        return []
    supported = data.get("supported")
    return (
        [version for version in supported if isinstance(version, str)] if isinstance(supported, list) else []
    )


def _mutual_version(supported: list[Any]) -> str | None:
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in supported), None)
