"""One server of the fleet: its base connection, the further ones, and what is remembered of it.

The base connection lives, lists and serves everybody it can. A request of a host that a legacy server may ask
something goes over a connection that told the server so, while that host has it (`lease`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio
import structlog

from adapters.ports import (
    Connect,
    ConnectionKey,
    Era,
    HostSide,
    JsonObject,
    ProgressCallback,
    Upstream,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import Host, HostKey
from nexus_gateway.fleet import back_channel
from nexus_gateway.fleet.changes import Change, ChangeKind
from nexus_gateway.fleet.further import FurtherConnections
from nexus_gateway.fleet.health import PING_SECONDS, answers, is_silent
from nexus_gateway.fleet.host_calls import HostCalls
from nexus_gateway.fleet.kept import KeptListing, KeptListings, ServerMemory
from nexus_gateway.fleet.lease import Lease
from nexus_gateway.fleet.link import Link
from nexus_gateway.fleet.listings import Listings, ListKind
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.policy import RestartPolicy
from nexus_gateway.fleet.status import ServerState, ServerStatus
from nexus_gateway.fleet.supervisor import Supervisor
from nexus_gateway.fleet.watches import Watches
from tool_registry.catalog import Listing, read_listing

log = structlog.get_logger(__name__)

LIST_SECONDS = 20.0
"""For one list of one server: a slow server must not hold up everybody's."""
_SET_LEVEL: Final = "logging/setLevel"


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What all servers of a fleet have in common.

    Attributes:
        restart_patience_seconds: how long a request waits for a server that has failed to come back.
        on_listing: told of each listing of tools.
        kept: where listings are kept; None keeps none.
    """

    connect: Connect
    policy: RestartPolicy
    restart_patience_seconds: float
    on_listing: Callable[[str, Listing], None]
    on_change: Callable[[Change], None]
    kept: KeptListings | None


class ManagedServer:
    """Runs one server until it is stopped."""

    def __init__(
        self,
        member: Member,
        parts: ServerParts,
        *,
        first: Caller | None = None,
        watches: Watches | None = None,
    ) -> None:
        self.name = member.spec.server
        self._parts = parts
        self._first = first
        self._base: Link | None = None
        self._next_base: Link | None = None
        self._listings = Listings()
        self._watches = watches or Watches()
        self._memory = ServerMemory(self.name, parts.kept)
        self._tools: list[Any] = []
        self._log_level: Mapping[str, Any] | None = None
        self._probing = anyio.Lock()
        self._scope = anyio.CancelScope()
        self._ended: anyio.Event | None = None
        self._supervisor = Supervisor(member, parts.connect, self, policy=parts.policy)
        self._further = FurtherConnections(lambda: self.member, parts.connect, self._link, self._set_level)
        self._host_calls = HostCalls(self.name, self._usable_base, self._further)

    @property
    def member(self) -> Member:
        """What is configured."""
        return self._supervisor.member

    @property
    def status(self) -> ServerStatus:
        """The present status."""
        return self._supervisor.status

    @property
    def watches(self) -> Watches:
        """Who watches what."""
        return self._watches

    async def run(self) -> None:
        """Keep the server until cancelled or stopped."""
        self._ended = anyio.Event()
        try:
            with self._scope:
                asleep = self.member.lazy and await self._recall()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._further.run)
                    await self._supervisor.run(asleep=asleep)
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Stop it, its processes included."""
        self._scope.cancel()
        if self._ended is not None:
            await self._ended.wait()

    def reconfigure(self, member: Member) -> None:
        """Take other deadlines and options; the spec must be the same."""
        self._supervisor.reconfigure(member)

    async def first_verdict(self) -> ServerStatus:
        """Wait until the server is ready, is known without being started, or has failed once."""
        return await self._supervisor.first_verdict()

    def meet(self, first: Caller | None) -> None:
        """Whose host the base connection declares the capabilities of; None: no longer anybody's."""
        self._first = first
        if first is not None:
            self._align()

    async def forget(self, host: HostKey) -> None:
        """A host is gone: end its watches and the connections that only it could use."""
        self._further.forget(host)
        for uri in self._watches.of(host):
            try:
                await self.unwatch(uri, host)
            except UpstreamError as error:
                log.debug("resource.not_unwatched", server=self.name, cause=str(error))

    def host_side(self) -> HostSide:
        """See `Attendant`."""
        host, names = back_channel.of_caller(self._first)
        self._next_base = self._link(ConnectionKey(self.name, capabilities=names), host)
        return self._next_base.host_side

    def idle_seconds(self) -> float:
        """See `Attendant`. A watch needs the connection."""
        return 0.0 if self._base is None or self._watches else self._base.idle_seconds

    async def listed(self, definitions: Sequence[Any], upstream: Upstream) -> int:
        """See `Attendant`."""
        listing = read_listing(self.name, definitions)
        for aside in listing.set_aside:
            log.warning("tool.set_aside", server=aside.server, tool=aside.name, reason=aside.reason)
        self._parts.on_listing(self.name, listing)
        self._tools = list(definitions)
        await self._keep(upstream.instructions)
        return len(listing.tools)

    async def connected(self, upstream: Upstream) -> None:
        """See `Attendant`."""
        self._listings.expire(*ListKind)
        await self._set_level(upstream)
        await self._watches.restore(upstream)
        link = self._next_base
        if link is not None:
            link.open(upstream)
            self._base = link
        self._align()
        self._tell_lists()

    async def polled(self, upstream: Upstream) -> None:
        """See `Attendant`."""
        for kind in self._listings.asked:
            before = self._listings.last(kind)
            self._listings.expire(kind)
            if await self._listings.get(kind, self.name, upstream) != before:
                self._tell(_change_of(kind))

    def ended(self) -> None:
        """See `Attendant`."""
        if self._base is not None:
            self._base.close()
            self._base = None

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        caller: Caller | None,
        timeout_seconds: float,
        on_progress: ProgressCallback | None,
    ) -> JsonObject:
        """Send one request for a caller; see `Fleet.request`."""
        link, left = self._base, timeout_seconds
        if link is None or is_silent(link):
            began = time.monotonic()
            link = await self._rouse(timeout_seconds)
            left = max(0.001, timeout_seconds - (time.monotonic() - began))
        if method == _SET_LEVEL:
            await self._all_set_level(params)
            caller = None
        host, capabilities = back_channel.of_caller(caller)
        upstream = link.upstream
        if upstream is None:
            raise UpstreamUnavailable(self.name, f"server {self.name!r} has just gone away")
        modern = upstream.era is Era.MODERN
        if modern or caller is None or (link.lease is None and not capabilities):
            link.begin()
            try:
                return await upstream.request(
                    method,
                    params,
                    timeout_seconds=left,
                    on_progress=on_progress,
                    host_capabilities=host.capabilities if modern and host else None,
                )
            finally:
                link.end()
        return await self._host_calls.request(
            host, capabilities, method, params, timeout_seconds=left, on_progress=on_progress
        )

    async def _usable_base(self, timeout_seconds: float) -> Link:
        return self._base or await self._rouse(timeout_seconds)

    async def _rouse(self, timeout_seconds: float) -> Link:
        """The base connection of a server that isn't up, or was silent for long. Raises UpstreamUnavailable."""
        patience = min(
            timeout_seconds, self._parts.restart_patience_seconds if self.status.cause else timeout_seconds
        )
        await self._supervisor.upstream(patience)
        async with self._probing:  # one asks, the others wait for what comes of it
            link = self._base
            if link is not None and is_silent(link) and not await answers(link):
                self._supervisor.renew("it did not answer a ping")
        await self._supervisor.upstream(patience)
        if self._base is None:
            raise UpstreamUnavailable(self.name, f"server {self.name!r} has just gone away")
        return self._base

    async def entries(self, kind: ListKind) -> list[JsonObject]:
        """The server's entries; none while it is down. One that is not started says what it said last."""
        self._listings.asked.add(kind)
        upstream = self._live or await self._made_anew()
        if upstream is None:
            return self._listings.last(kind) if self.status.state is ServerState.IDLE else []
        try:
            with anyio.fail_after(LIST_SECONDS):
                before = self._listings.last(kind)
                entries = await self._listings.get(kind, self.name, upstream)
        except (UpstreamError, TimeoutError) as error:
            log.warning("upstream.not_listed", server=self.name, list=kind.key, cause=str(error) or "timeout")
            return []
        if entries is not before:
            await self._keep(upstream.instructions)
        return entries

    async def _made_anew(self) -> Upstream | None:
        """The connection that follows one which was given up on purpose: to list nothing meanwhile would be wrong."""
        status = self.status
        if status.era is None or status.cause or status.state is ServerState.IDLE:
            return None
        try:
            await self._supervisor.upstream(LIST_SECONDS)
        except UpstreamUnavailable:
            return None
        return self._live

    async def watch(self, uri: str, host: HostKey) -> None:
        """Have a host hear of a resource. Raises UpstreamError."""
        timeout = self.member.timeout_seconds
        try:
            with anyio.fail_after(timeout):
                await self._watches.add(uri, host, partial(self._supervisor.upstream, timeout))
        except TimeoutError as error:
            message = f"{self.name}: no answer to a subscription within {timeout:g} s"
            raise UpstreamTimeout(self.name, message) from error

    async def unwatch(self, uri: str, host: HostKey) -> None:
        """Have a host hear no more of a resource. Raises UpstreamError."""
        with anyio.move_on_after(self.member.timeout_seconds):
            await self._watches.remove(uri, host, self._live)

    @property
    def _live(self) -> Upstream | None:
        return None if self._base is None else self._base.upstream

    def _align(self) -> None:
        """Make the base connection anew where it tells a legacy server of another host than the first."""
        link, (host, names) = self._base, back_channel.of_caller(self._first)
        if link is None or host is None or link.upstream is None or link.in_use:
            return
        if link.upstream.era is Era.LEGACY and not link.serves(host.key, names):
            self._supervisor.renew("the first host came")

    def _link(self, key: ConnectionKey, host: Host | None) -> Link:
        lease = Lease(self.name, key.capabilities, host) if host and key.capabilities else None
        capabilities = back_channel.declared(host.capabilities, key.capabilities) if host else {}
        heard = partial(self._heard, lease)
        return Link(key, HostSide(capabilities, lease.ask if lease else None, heard), lease)

    def _heard(self, lease: Lease | None, method: str, params: JsonObject) -> None:
        match method:
            case "notifications/tools/list_changed":
                self._supervisor.relist()
            case "notifications/resources/list_changed":
                self._listings.expire(ListKind.RESOURCES, ListKind.TEMPLATES)
                self._tell("resources", params)
            case "notifications/prompts/list_changed":
                self._listings.expire(ListKind.PROMPTS)
                self._tell("prompts", params)
            case "notifications/resources/updated":
                self._tell("resource", params)
            case "notifications/message":
                self._tell("log", params, lease.holder if lease else None)

    def _tell(self, kind: ChangeKind, params: JsonObject | None = None, host: HostKey | None = None) -> None:
        self._parts.on_change(Change(kind, self.name, params or {}, host))

    def _tell_lists(self) -> None:
        """After a connect: what hosts were given without this server, or from its last life, may be out of date."""
        for kind in sorted({_change_of(kind) for kind in self._listings.asked}):
            self._tell(kind)

    async def _all_set_level(self, params: Mapping[str, Any]) -> None:
        """The level counts for all connections, those to come included; the base gets it by the request itself."""
        self._log_level = dict(params)
        for upstream in self._further.upstreams():
            await self._set_level(upstream)

    async def _set_level(self, upstream: Upstream) -> None:
        if self._log_level is None or upstream.era is Era.MODERN:
            return
        try:
            await upstream.request(_SET_LEVEL, self._log_level, timeout_seconds=PING_SECONDS)
        except UpstreamError as error:
            log.debug("upstream.log_level", server=self.name, cause=str(error))

    async def _recall(self) -> bool:
        """Take the listing that an earlier run kept; False where there is none."""
        kept = await self._memory.recall(self.member.spec.transport)
        if kept is None:
            return False
        self._tools = kept.tools
        self._listings.restore(kept.entries)
        listing = read_listing(self.name, kept.tools)
        self._parts.on_listing(self.name, listing)
        self._supervisor.known(tools=len(listing.tools), instructions=kept.instructions)
        return True

    async def _keep(self, instructions: str | None) -> None:
        if self.member.lazy:
            kept = KeptListing(self._tools, instructions, self._listings.kept())
            await self._memory.keep(self.member.spec.transport, kept)


def _change_of(kind: ListKind) -> ChangeKind:
    return "prompts" if kind is ListKind.PROMPTS else "resources"
