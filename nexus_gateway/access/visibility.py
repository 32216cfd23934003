"""Which tools there are for somebody: names allowed and names denied, with `*` for any characters.

Knows names and patterns alone. The mask of an index is made of it in `nexus_gateway.routing.masks`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tool_registry.tool import ToolId


@dataclass(frozen=True, slots=True)
class NameFilter:
    """A name passes if an allowed pattern fits, or there are none, and no denied one does; case counts.

    Equal filters let the same names pass, so that a filter is its own key in a cache.

    Attributes:
        allowed: None allows every name.
        denied: counts before `allowed`.
    """

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()

    def passes(self, name: str) -> bool:
        """Whether there is such a name for whoever the filter is about."""
        if fits_any(name, self.denied):
            return False
        return self.allowed is None or fits_any(name, self.allowed)

    def sees(self, tool: ToolId) -> bool:
        """Whether the patterns, of the form `server/name`, let a tool pass."""
        return self.passes(str(tool))


def fits_any(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of the patterns as it is written, or fits one."""
    return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
