"""Ties each HTTP request of the SDK's streamable transport to the message that it carries, so that it can be given up.

Knows the order "message, then POST" and nothing of statuses or the protocol. The SDK leaves the POST of a
legacy call open after the call has been given up (its cancellation is a message of its own); a server that
never answers would keep it for as long as the connection lives.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self
from weakref import WeakValueDictionary

import anyio
import httpx2
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, RequestId


class Post:
    """One message under way over HTTP."""

    __slots__ = ("__weakref__", "_scope", "abandoned", "message")

    def __init__(self, message: JSONRPCMessage) -> None:
        self.message = message
        self.abandoned = False
        self._scope: anyio.CancelScope | None = None

    @property
    def keeps_its_place(self) -> bool:
        """Whether what follows must wait for it: requests, and the end of a handshake."""
        if isinstance(self.message, JSONRPCNotification):
            return self.message.method == "notifications/initialized"
        return isinstance(self.message, JSONRPCRequest)

    def abandon(self) -> None:
        """Nobody waits for the answer: stop receiving it."""
        self.abandoned = True
        if self._scope is not None:
            self._scope.cancel()

    @contextmanager
    def step(self) -> Iterator[anyio.CancelScope]:
        """A wait for the network that `abandon` ends; `cancelled_caught` tells."""
        with anyio.CancelScope() as scope:
            self._scope = scope
            if self.abandoned:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scope = None


POSTED: Final[ContextVar[Post | None]] = ContextVar("POSTED", default=None)
"""The message that the running HTTP request is for: the SDK's transport carries a sender's context along."""


class PostWriter:
    """The write stream of a transport, which notes what it sends and gives up what is cancelled."""

    def __init__(self, stream: WriteStream[SessionMessage]) -> None:
        self._stream = stream
        # A post lives as long as the context of the transport's task for it; no entry is left behind.
        self._posts: WeakValueDictionary[RequestId, Post] = WeakValueDictionary()

    async def send(self, item: SessionMessage, /) -> None:
        """Hand one message to the transport."""
        post = Post(item.message)
        if isinstance(item.message, JSONRPCRequest):
            self._posts[item.message.id] = post
        token = POSTED.set(post)
        try:
            await self._stream.send(item)
        finally:
            POSTED.reset(token)
        self._give_up_cancelled(item.message)

    def _give_up_cancelled(self, message: JSONRPCMessage) -> None:
        if not isinstance(message, JSONRPCNotification) or message.method != "notifications/cancelled":
            return
        request_id = cancelled_request_id_from_params(message.params)
        if request_id is not None and (post := self._posts.get(request_id)) is not None:
            post.abandon()

    async def aclose(self) -> None:
        """Close the transport's side."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class PostBody(httpx2.AsyncByteStream):
    """The body of an answer. Ends with an error once its post is abandoned, which the SDK takes as final.

    `quiet` ends a broken stream as if the server had closed it: the SDK reopens a stream of notices that
    was closed, but gives it up for good after two that broke.
    """

    def __init__(self, body: httpx2.AsyncByteStream, post: Post, *, quiet: bool) -> None:
        self._body = body
        self._post = post
        self._quiet = quiet

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._body)
        while True:
            chunk: bytes | None = None
            with self._post.step() as step:
                chunk = await self._following(chunks)
            if step.cancelled_caught:
                raise httpx2.SSEError("given up by the gateway")
            if chunk is None:
                return
            yield chunk

    async def _following(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        try:
            return await anext(chunks, None)
        except httpx2.TransportError:
            if self._quiet:
                return None
            raise

    async def aclose(self) -> None:
        """Free the network connection."""
        await self._body.aclose()
