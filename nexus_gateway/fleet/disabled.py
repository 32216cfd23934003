"""Tools that the configuration disables: taken out of a server's listing before anything else knows of them."""

from collections.abc import Callable

from tool_registry.catalog import Listing, SetAside
from tool_registry.tool import ToolId

DISABLED_REASON = "disabled in the configuration (enabled_tools, disabled_tools)"


def without_disabled(listing: Listing, in_use: Callable[[ToolId], bool]) -> Listing:
    """The listing with the tools that are not in use set aside."""
    kept = tuple(tool for tool in listing.tools if in_use(tool.id))
    if len(kept) == len(listing.tools):
        return listing
    out = [tool.id for tool in listing.tools if not in_use(tool.id)]
    aside = tuple(SetAside(tool.server, tool.name, DISABLED_REASON) for tool in out)
    return Listing(kept, listing.set_aside + aside)
