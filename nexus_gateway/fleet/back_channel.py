"""Which of a host's capabilities let a legacy server ask it something; hosts that differ in them share no connection.

Modern servers are told the capabilities with each request and ask in their results, so one connection serves all.
"""

from typing import Final

from adapters.ports import Era, JsonObject
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import Host

NONE: Final[frozenset[str]] = frozenset()
ROOTS: Final = "roots"
_ASKING: Final = ("elicitation", "sampling", ROOTS)
_TOLD: Final = ("extensions", "experimental")
"""Declared too, as servers may offer more to hosts that have them; no reason for another connection."""


def asking(capabilities: JsonObject, *, roots: bool = True) -> frozenset[str]:
    """The names of what a server may ask for, details included (`elicitation`, `elicitation.url`)."""
    names: set[str] = set()
    for name in _ASKING:
        detail = capabilities.get(name)
        if detail is None or (name == ROOTS and not roots):
            continue
        names.add(name)
        if isinstance(detail, dict) and name != ROOTS:
            names |= {f"{name}.{part}" for part, value in detail.items() if value is not None}
    return frozenset(names) if names else NONE


def of_caller(caller: Caller | None) -> tuple[Host | None, frozenset[str]]:
    """Who may be asked during a caller's request, and for what.

    A modern host has no roots for a legacy server: the server keeps them for the life of a connection, and such a
    host's connection is no longer than a request.
    """
    if caller is None or caller.host is None:
        return None, NONE
    return caller.host, asking(caller.host.capabilities, roots=caller.era is Era.LEGACY)


def declared(capabilities: JsonObject, names: frozenset[str]) -> JsonObject:
    """The raw client capabilities of a connection for `names`."""
    keys = [key for key in _TOLD if key in capabilities] + [key for key in _ASKING if key in names]
    told: JsonObject = {key: capabilities[key] for key in keys}
    if ROOTS in told:
        told[ROOTS] = {}  # a host's own notice of changed roots is not passed on
    return told
