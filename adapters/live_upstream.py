"""One live, negotiated connection to an MCP server, spoken to with raw JSON objects.

Implements `Upstream` of `adapters.ports` on the SDK's dispatcher. Knows requests, listings and watches; not how
the connection was opened or when to open another. Results never pass through typed models, which drop
unknown fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
from mcp.shared.dispatcher import Outbound
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND
from pydantic_core import to_json

from adapters.envelope import Envelope
from adapters.link_ending import Ending
from adapters.listen_stream import ListenStream, watches_resources
from adapters.negotiation import Agreement
from adapters.paging import Listing, every_page
from adapters.ports import Era, JsonObject, ProgressCallback, UpstreamRefused
from adapters.progress_relay import ProgressRelay
from adapters.upstream_failures import timed_out, translated


@dataclass(frozen=True, slots=True)
class Link:
    """The parts of a negotiated connection.

    Attributes:
        listening: a modern connection's stream of notices; None for a legacy one, which is told anyway.
        page_timeout_seconds: deadline of one page of a listing, and of a change of what is watched.
    """

    server: str
    peer: Outbound
    agreement: Agreement
    envelope: Envelope
    ending: Ending
    progress: ProgressRelay
    listening: ListenStream | None
    page_timeout_seconds: float


class McpUpstream:
    """One live connection; see `adapters.ports.Upstream`."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._server = link.server

    @property
    def server(self) -> str:
        """The configured name."""
        return self._server

    @property
    def era(self) -> Era:
        """The negotiated era."""
        return self._link.agreement.era

    @property
    def instructions(self) -> str | None:
        """What the server says about its use."""
        return self._link.agreement.instructions

    @property
    def capabilities(self) -> JsonObject:
        """The server's capabilities, raw."""
        return self._link.agreement.capabilities

    async def list_tools(self) -> list[Any]:
        """Every entry of every page of `tools/list`, raw; none from a server without tools.

        Raises:
            UpstreamError: any of the three.
        """
        if self.capabilities.get("tools") is None:
            return []
        entries = await self._every_page("tools/list", "tools")
        self._link.envelope.learn_tools(self._server, entries)
        return entries

    async def list_entries(self, method: str, key: str) -> list[Any]:
        """Every entry under `key` of every page of `method`, raw; none without the capability.

        Raises:
            UpstreamError: any of the three.
        """
        if self.capabilities.get(method.partition("/")[0]) is None:
            return []
        try:
            return await self._every_page(method, key)
        except UpstreamRefused as refusal:
            # Many servers with resources have no templates, and say so in this way.
            if refusal.code == METHOD_NOT_FOUND:
                return []
            raise

    async def _every_page(self, method: str, key: str) -> list[Any]:
        fetch = partial(self.request, method, timeout_seconds=self._link.page_timeout_seconds)
        return await every_page(Listing(self._server, method, key), fetch)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_seconds: float,
        on_progress: ProgressCallback | None = None,
        host_capabilities: JsonObject | None = None,
    ) -> JsonObject:
        """Send one request and return its raw result. Cancelling the call cancels it upstream.

        Raises:
            UpstreamRefused: the upstream answered with an error.
            UpstreamTimeout: no answer in `timeout_seconds`.
            UpstreamUnavailable: the connection closed before an answer.
        """
        send = partial(self._send, method, params, timeout_seconds, host_capabilities)
        if on_progress is None:
            return await send()
        with self._link.progress.open(on_progress) as progress:
            result = await send(progress.token)
            await progress.all_told()
            return result

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout_seconds: float,
        host_capabilities: JsonObject | None,
        progress_token: str | None = None,
    ) -> JsonObject:
        stamped, options = self._link.envelope.stamp(
            method, params, host_capabilities=host_capabilities, progress_token=progress_token
        )
        self._check_sendable(stamped)
        try:
            # Not the dispatcher's own timeout, whose clock starts only when the write has ended:
            # a server that doesn't read its stdin would hold the call for ever.
            with anyio.fail_after(timeout_seconds):
                return await self._link.peer.send_raw_request(method, stamped, options)
        except TimeoutError as error:
            raise timed_out(self._server, method, timeout_seconds) from error
        except MCPError as error:
            raise translated(self._server, error, self._link.ending) from error

    def _check_sendable(self, params: JsonObject) -> None:
        # A lone surrogate would fail in the transport's writer and take every other call down.
        try:
            to_json(params)
        except (ValueError, RecursionError) as error:
            message = f"the arguments can't be written as JSON: {error}"
            raise UpstreamRefused(self._server, INVALID_PARAMS, message) from error

    async def watch_resource(self, uri: str) -> None:
        """Hear `notifications/resources/updated` of `uri` from now on.

        Raises:
            UpstreamRefused: the server does not tell of changed resources, or not of this one.
            UpstreamError: the other two.
        """
        if not watches_resources(self.capabilities):
            message = f"{self._server} does not tell of changed resources"
            raise UpstreamRefused(self._server, METHOD_NOT_FOUND, message)
        self._check_sendable({"uri": uri})
        seconds, listening = self._link.page_timeout_seconds, self._link.listening
        if listening is None:
            await self.request("resources/subscribe", {"uri": uri}, timeout_seconds=seconds)
            return
        try:
            with anyio.fail_after(seconds):
                await listening.watch(uri)
        except TimeoutError as error:
            raise timed_out(self._server, "subscriptions/listen", seconds) from error

    async def unwatch_resource(self, uri: str) -> None:
        """Hear no more of `uri`. Raises UpstreamError."""
        if self._link.listening is not None:
            self._link.listening.unwatch(uri)
        elif watches_resources(self.capabilities):
            seconds = self._link.page_timeout_seconds
            await self.request("resources/unsubscribe", {"uri": uri}, timeout_seconds=seconds)

    async def wait_closed(self) -> str:
        """Return once the connection has ended, with the cause."""
        return await self._link.ending.wait()
