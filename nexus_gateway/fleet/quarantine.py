"""Trust in definitions: a tool is approved as it was first seen; a changed one waits until a person approves it.

Applied where the fleet takes a listing. Without `[pins] quarantine_changes` a change is only logged. Definitions
that look like an attack are logged either way and never set aside: it is a person who decides.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import anyio
import structlog

from nexus_gateway.fleet.pin_file import PinFile
from tool_registry.catalog import Listing, SetAside
from tool_registry.pins import Pins, PinsError, difference
from tool_registry.suspicion import Suspicion, suspicions
from tool_registry.tool import ContentHash, Tool, ToolId

log = structlog.get_logger(__name__)

CHANGED_REASON = "changed since it was approved; see `nexus-gateway tools diff`"
FOLLOW_SECONDS = 2.0
"""How often the file is looked at for approvals of other processes."""


@dataclass(frozen=True, slots=True)
class ChangedTool:
    """A listed tool whose definition is not the approved one.

    Attributes:
        tool: as it is listed now.
        lines: what is different, for people.
        suspicious: what looks like an attack in the definition of now.
    """

    tool: Tool
    lines: tuple[str, ...]
    suspicious: tuple[Suspicion, ...]

    @property
    def id(self) -> ToolId:
        """Server and name."""
        return self.tool.id


class Quarantine:
    """Reviews listings against the approved definitions."""

    def __init__(self, pins: PinFile, *, set_aside_changes: bool) -> None:
        self._pins = pins
        self._set_aside_changes = set_aside_changes
        self._listed: dict[str, Listing] = {}
        self._logged: dict[str, set[tuple[ToolId, ContentHash]]] = {}

    def review(self, server: str, listing: Listing) -> Listing:
        """The listing with what may not be used set aside. What is listed for the first time becomes approved."""
        self._listed[server] = listing
        try:
            pins = self._pins.update(lambda known: known.with_new(listing.tools))
        except PinsError as error:
            log.warning("pins.unreadable", server=server, cause=str(error))
            return _with_set_aside(listing, listing.tools, str(error)) if self._set_aside_changes else listing
        changed = [tool for tool in listing.tools if pins.changed(tool)]
        self._log(server, listing.tools, changed)
        if not changed or not self._set_aside_changes:
            return listing
        return _with_set_aside(listing, changed, CHANGED_REASON)

    def changes(self) -> list[ChangedTool]:
        """Every listed tool that differs from what was approved, by server and name. Raises PinsError."""
        pins = self._pins.read()
        tools = [tool for listing in self._listed.values() for tool in listing.tools if pins.changed(tool)]
        return [_compared(pins, tool) for tool in sorted(tools, key=lambda tool: tool.id)]

    def approve(self, tools: Iterable[Tool]) -> None:
        """Approve these definitions. They are in use from the next listing on. Raises PinsError."""
        approved = tuple(tools)
        self._pins.update(lambda known: known.with_approved(approved))

    def forget(self, server: str) -> None:
        """A server is no longer configured; what was approved of it stays approved."""
        self._listed.pop(server, None)
        self._logged.pop(server, None)

    async def run(self, again: Callable[[str, Listing], None]) -> None:
        """Have every listing reviewed `again` once another process approved something, until cancelled."""
        while True:
            await anyio.sleep(FOLLOW_SECONDS)
            if self._pins.is_stale():
                self.review_again(again)

    def review_again(self, again: Callable[[str, Listing], None]) -> None:
        """Have every listing taken `again`, as it was listed last: the rules have changed."""
        for server, listing in list(self._listed.items()):
            again(server, listing)

    def _log(self, server: str, tools: Iterable[Tool], changed: Iterable[Tool]) -> None:
        """Log what the last listing of the server did not have already."""
        before = self._logged.get(server, set())
        self._logged[server] = {(tool.id, tool.content_hash) for tool in tools}
        for tool in changed:
            # What is set aside is logged by the fleet, as everything that is.
            if not self._set_aside_changes and (tool.id, tool.content_hash) not in before:
                log.warning("tool.changed", tool=str(tool.id), see="nexus-gateway tools diff")
        for tool in tools:
            if (tool.id, tool.content_hash) not in before:
                for suspicion in suspicions(tool.definition):
                    log.warning(
                        "tool.suspicious", tool=str(tool.id), rule=suspicion.rule, where=suspicion.where
                    )


def _compared(pins: Pins, tool: Tool) -> ChangedTool:
    lines = difference(pins.approved[tool.id].definition, tool.definition)
    return ChangedTool(tool, tuple(lines), suspicions(tool.definition))


def _with_set_aside(listing: Listing, tools: Iterable[Tool], reason: str) -> Listing:
    out = {tool.id: SetAside(tool.id.server, tool.id.name, reason) for tool in tools}
    kept = tuple(tool for tool in listing.tools if tool.id not in out)
    return Listing(kept, (*listing.set_aside, *out.values()))
