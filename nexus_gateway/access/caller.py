"""The caller: made once at the server's border and passed everywhere, even while there is one tenant."""

from dataclasses import dataclass
from typing import NewType

from adapters.ports import Era
from nexus_gateway.access.host import Host
from nexus_gateway.access.visibility import NameFilter
from tool_registry.tool import ToolId

Tenant = NewType("Tenant", str)
Principal = NewType("Principal", str)

LOCAL_TENANT = Tenant("local")


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever a request comes from.

    Attributes:
        tenant: whose data and approvals count; state is never shared across tenants.
        principal: the authenticated identity within the tenant.
        era: the protocol era of the caller's connection.
        can_elicit: whether its host can put a form before its user.
        host: the host's connection; None where there is no host (the command line).
        visible: which of the tools in use it may see, by patterns of `server/name`; None is every one.
    """

    tenant: Tenant = LOCAL_TENANT
    principal: Principal = Principal("local")
    era: Era = Era.LEGACY
    can_elicit: bool = False
    host: Host | None = None
    visible: NameFilter | None = None

    def sees(self, tool: ToolId) -> bool:
        """Whether the tool exists for this caller: what it doesn't see it neither finds nor calls."""
        return self.visible is None or self.visible.sees(tool)
