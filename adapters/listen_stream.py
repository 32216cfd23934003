"""Keeps a modern server's `subscriptions/listen` stream open, and opens another when it is lost or wants change.

Knows filters, acknowledgements and when to try again; hears no notices itself, they come like all others.
There is no replay in the protocol: after a loss the listener is told that everything may have changed.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup
from mcp.shared.dispatcher import Outbound
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from adapters.envelope import Envelope
from adapters.ports import JsonObject, UpstreamRefused

ACKNOWLEDGE_SECONDS = 10.0
"""For a server to say that it listens."""
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
HEALTHY_SECONDS = 10.0
"""A stream that lived this long starts the waits from the beginning."""
_HOPELESS: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, INVALID_REQUEST})
_LISTS: Final = {
    "tools": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources": ("resourcesListChanged", "notifications/resources/list_changed"),
}
_URIS: Final = "resourceSubscriptions"

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Stream:
    """One listen request."""

    id: str
    wanted: JsonObject
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Acknowledged, or ended without."""
    honored: JsonObject | None = None
    opened_at: float = field(default_factory=anyio.current_time)
    ended: bool = False
    refusal: MCPError | None = None


@dataclass(slots=True, eq=False)
class _Watch:
    """Somebody waits for the server to watch a resource."""

    settled: anyio.Event = field(default_factory=anyio.Event)
    error: UpstreamRefused | None = None


class ListenStream:
    """What one modern connection listens to: changes of its lists, and of watched resources."""

    def __init__(
        self,
        server: str,
        peer: Outbound,
        envelope: Envelope,
        capabilities: Mapping[str, Any],
        heard: Callable[[str, JsonObject], None],
    ) -> None:
        self._server = server
        self._peer = peer
        self._envelope = envelope
        self._lists = [name for name in _LISTS if _declares(capabilities, name, "listChanged")]
        self._heard = heard
        self._ids = count(1)
        self._uris: dict[str, _Watch] = {}
        self._streams: dict[str, _Stream] = {}
        self._current: _Stream | None = None
        self._news = anyio.Event()
        self._missed = False
        self._failures = 0

    async def watch(self, uri: str) -> None:
        """Return once the server watches `uri`; the caller bounds it. Raises UpstreamRefused."""
        watch = self._uris.setdefault(uri, _Watch())
        self._news.set()
        try:
            await watch.settled.wait()
        except anyio.get_cancelled_exc_class():
            self.unwatch(uri)
            raise
        if watch.error is not None:
            raise watch.error

    def unwatch(self, uri: str) -> None:
        """Listen no more to `uri`."""
        self._uris.pop(uri, None)
        self._news.set()

    def acknowledged(self, params: JsonObject) -> None:
        """Take a `notifications/subscriptions/acknowledged`."""
        meta, honored = params.get("_meta"), params.get("notifications")
        stream = (
            self._streams.get(str(meta.get(SUBSCRIPTION_ID_META_KEY))) if isinstance(meta, dict) else None
        )
        if stream is not None and isinstance(honored, dict):
            stream.honored = honored
            stream.settled.set()

    def cancelled(self, params: JsonObject) -> None:
        """Take a `notifications/cancelled`: a server may end a stream by it."""
        stream = self._streams.get(str(cancelled_request_id_from_params(params)))
        if stream is not None:
            stream.scope.cancel()

    async def run(self) -> None:
        """Keep listening until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._news = anyio.Event()  # before the wants are read: a change meanwhile counts again
                wanted = self._wanted()
                current = self._current
                if current is not None and current.ended:
                    await self._after_loss(current)
                elif current is not None and not wanted:
                    self._current = None
                    current.scope.cancel()
                elif not wanted or (current is not None and current.wanted == wanted):
                    await self._news.wait()
                else:
                    await self._renew(tasks, wanted)

    async def _after_loss(self, lost: _Stream) -> None:
        self._current = None
        self._missed = True
        if anyio.current_time() - lost.opened_at >= HEALTHY_SECONDS:
            self._failures = 0
        await self._pause()

    async def _renew(self, tasks: TaskGroup, wanted: JsonObject) -> None:
        following = await self._open(tasks, wanted)
        if following.honored is not None:
            self._replace(following, following.honored)
            return
        following.scope.cancel()
        refusal = following.refusal
        if refusal is not None and refusal.error.code in _HOPELESS:
            self._want_less(refusal)
        else:
            await self._pause()

    def _wanted(self) -> JsonObject:
        wanted: JsonObject = {_LISTS[name][0]: True for name in self._lists}
        return wanted | ({_URIS: sorted(self._uris)} if self._uris else {})

    async def _open(self, tasks: TaskGroup, wanted: JsonObject) -> _Stream:
        stream = _Stream(f"listen-{next(self._ids)}", wanted)
        self._streams[stream.id] = stream
        tasks.start_soon(self._listen, stream)
        with anyio.move_on_after(ACKNOWLEDGE_SECONDS):
            await stream.settled.wait()
        return stream

    async def _listen(self, stream: _Stream) -> None:
        params, options = self._envelope.stamp("subscriptions/listen", {"notifications": stream.wanted})
        options["request_id"] = stream.id
        try:
            with stream.scope:
                await self._peer.send_raw_request("subscriptions/listen", params, options)
        except MCPError as error:
            stream.refusal = error
        finally:
            stream.ended = True
            self._streams.pop(stream.id, None)
            stream.settled.set()
            self._news.set()

    def _replace(self, following: _Stream, honored: JsonObject) -> None:
        # The next stream is open before the last is closed: a change in between may be told twice, never lost.
        if self._current is not None:
            self._current.scope.cancel()
        self._current = following
        asked = following.wanted.get(_URIS, [])
        watched = [uri for uri in asked if uri in (honored.get(_URIS) or [])]
        # What the server does not honour counts as not wanted: asking again would change nothing.
        lists = {flag: value for flag, value in following.wanted.items() if flag != _URIS}
        following.wanted = lists | ({_URIS: watched} if watched else {})
        for uri in asked:
            refusal = None if uri in watched else self._refused(INVALID_PARAMS, f"it does not watch {uri}")
            self._settle(uri, refusal)
        if self._missed:
            self._missed = False
            self._tell_missed(honored)

    def _want_less(self, refusal: MCPError) -> None:
        """Asking for the same again would be refused again."""
        log.warning("upstream.does_not_listen", server=self._server, cause=refusal.error.message)
        pending = [uri for uri, watch in self._uris.items() if not watch.settled.is_set()]
        for uri in pending:
            self._settle(uri, self._refused(refusal.error.code, refusal.error.message))
        if not pending:
            self._lists = []
            self._uris.clear()

    def _settle(self, uri: str, error: UpstreamRefused | None) -> None:
        watch = self._uris.get(uri)
        if watch is None:
            return
        watch.error = error
        watch.settled.set()
        if error is not None:
            del self._uris[uri]

    def _refused(self, code: int, message: str) -> UpstreamRefused:
        return UpstreamRefused(self._server, code, message)

    def _tell_missed(self, honored: JsonObject) -> None:
        for flag, method in _LISTS.values():
            if honored.get(flag):
                self._heard(method, {})
        for uri in honored.get(_URIS) or []:
            self._heard("notifications/resources/updated", {"uri": uri})

    async def _pause(self) -> None:
        self._failures += 1
        full = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(self._failures - 1, 16))
        await anyio.sleep(full / 2 + random.random() * full / 2)  # noqa: S311 - jitter, not a secret


def watches_resources(capabilities: Mapping[str, Any]) -> bool:
    """Whether a server offers to tell of changed resources."""
    return _declares(capabilities, "resources", "subscribe")


def _declares(capabilities: Mapping[str, Any], name: str, flag: str) -> bool:
    declared = capabilities.get(name)
    return isinstance(declared, Mapping) and declared.get(flag) is True
