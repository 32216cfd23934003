"""For whom and for which tool the argument model is asked, along the flow of a call.

A context variable and no argument: the `ArgumentEngine` that everybody calls knows neither tenants nor tools.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from nexus_gateway.access.caller import LOCAL_TENANT, Tenant


@dataclass(frozen=True, slots=True)
class Purpose:
    """Whose state may be used, and whose tool it is of; empty where nobody said."""

    tenant: Tenant = LOCAL_TENANT
    tool: str = ""


_PURPOSE: ContextVar[Purpose] = ContextVar("purpose")
_NOBODYS = Purpose()


@contextmanager
def asked_for(tenant: Tenant, tool: str) -> Iterator[None]:
    """What is asked of the model in this block is for `tenant` and of `tool` ("server/name")."""
    token = _PURPOSE.set(Purpose(tenant, tool))
    try:
        yield
    finally:
        _PURPOSE.reset(token)


def purpose() -> Purpose:
    """What the present call is for."""
    return _PURPOSE.get(_NOBODYS)
