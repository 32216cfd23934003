"""When a call needs its user's yes, what was said before, and the token that carries one pending call.

A token binds tool, definition, arguments and tenant; it expires and works once. It is sealed with
AES-GCM (the SDK's codec), so a host can neither read nor alter it.
"""

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import structlog

from nexus_gateway.access.caller import Caller, Tenant
from nexus_gateway.files import write_atomically
from nexus_gateway.turn.result import Ground, GroundKind, PendingCall
from tool_registry.tool import ContentHash, Tool, ToolId

log = structlog.get_logger(__name__)

ConfirmPolicy: TypeAlias = Literal["auto", "always", "never"]
"""What the user configured for a tool, a server, or all. Auto: destructive tools each time, tools without
annotations once, others never."""


class Approvals:
    """Tools that a tenant approved once, by content hash: a changed definition is asked for again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: set[str] = self._load()

    def __contains__(self, key: tuple[Tenant, Tool]) -> bool:
        return _approval(*key) in self._known

    def add(self, tenant: Tenant, tool: Tool) -> None:
        """Remember a yes. A file that can't be written only costs another question."""
        self._known.add(_approval(tenant, tool))
        if self._path is not None:
            try:
                write_atomically(self._path, json.dumps(sorted(self._known), indent=1))
            except OSError as error:
                log.warning("approvals.unwritable", path=str(self._path), cause=str(error))

    def _load(self) -> set[str]:
        if self._path is None:
            return set()
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return set()
        return {entry for entry in entries if isinstance(entry, str)} if isinstance(entries, list) else set()


def _approval(tenant: Tenant, tool: Tool) -> str:
    return f"{tenant}:{tool.id}:{tool.content_hash}"


def needs_confirmation(tool: Tool, policy: ConfirmPolicy, *, approved_before: bool) -> bool:
    """Whether to ask before this call."""
    if policy != "auto":
        return policy == "always"
    hints = tool.annotations
    if hints.read_only:
        return False
    if hints.destructive is not None:
        return hints.destructive
    return not approved_before


class TokenError(ValueError):
    """A token that is not accepted; the message says why and what to do."""


class Codec(Protocol):
    """Authenticated encryption (the SDK's `AESGCMRequestStateCodec`)."""

    def seal(self, payload: bytes) -> str:
        """Encrypt."""
        ...

    def unseal(self, token: str) -> bytes:
        """Decrypt; raises for anything not sealed here."""
        ...


@dataclass(frozen=True, slots=True)
class _Used:
    nonce: str
    expires: float


class PendingTokens:
    """Seals pending calls into tokens and redeems each at most once."""

    def __init__(self, codec: Codec, *, ttl_seconds: float, now: Callable[[], float] = time.time) -> None:
        self._codec = codec
        self._ttl = ttl_seconds
        self._now = now
        self._used: list[_Used] = []  # in order of redemption; older ones expire out of it

    def seal(self, pending: PendingCall, caller: Caller) -> str:
        """A token for `pending`, good for `ttl_seconds`, for this caller alone."""
        payload = {
            "server": pending.tool_id.server,
            "tool": pending.tool_id.name,
            "hash": pending.content_hash,
            "arguments": pending.arguments,
            "missing": list(pending.missing),
            "grounds": {name: [one.kind, one.text, one.chosen] for name, one in pending.grounds.items()},
            "who": [caller.tenant, caller.principal],
            "expires": self._now() + self._ttl,
            "nonce": secrets.token_hex(8),
        }
        return self._codec.seal(json.dumps(payload).encode())

    def redeem(self, token: str, caller: Caller) -> PendingCall:
        """The pending call of a token. Raises TokenError: not ours, another caller's, expired or used."""
        payload = self._open(token)
        now = self._now()
        self._used = [used for used in self._used if used.expires > now]
        if payload["who"] != [caller.tenant, caller.principal]:
            raise TokenError("this confirmation was made for another caller")
        if payload["expires"] <= now:
            raise TokenError("this confirmation has expired; make the request again")
        if any(used.nonce == payload["nonce"] for used in self._used):
            raise TokenError("this confirmation was used already; each works once")
        self._used.append(_Used(payload["nonce"], payload["expires"]))
        return PendingCall(
            ToolId(payload["server"], payload["tool"]),
            ContentHash(payload["hash"]),
            payload["arguments"],
            tuple(payload["missing"]),
            {
                name: Ground(GroundKind(kind), text, chosen)
                for name, (kind, text, chosen) in payload["grounds"].items()
            },
        )

    def _open(self, token: str) -> dict[str, Any]:
        try:
            payload: dict[str, Any] = json.loads(self._codec.unseal(token))
        except Exception as error:  # the codec's own error type is the SDK's
            raise TokenError("this is not a confirmation of this gateway, or it was altered") from error
        return payload
