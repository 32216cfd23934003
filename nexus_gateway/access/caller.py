"""The caller: made once at the server's border and passed everywhere, even while there is one tenant."""

from dataclasses import dataclass
from typing import NewType

from adapters.ports import Era
from nexus_gateway.access.host import Host

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
    """

    tenant: Tenant = LOCAL_TENANT
    principal: Principal = Principal("local")
    era: Era = Era.LEGACY
    can_elicit: bool = False
    host: Host | None = None
