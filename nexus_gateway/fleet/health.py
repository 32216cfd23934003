"""Whether a connection that was silent for long still answers: asked before its next request, off the hot path."""

import time

from adapters.ports import Era, UpstreamError, UpstreamRefused
from nexus_gateway.fleet.link import Link

SILENT_SECONDS = 60.0
"""A legacy connection unused for longer is asked for a `ping` first; modern ones have neither session nor `ping`."""
PING_SECONDS = 5.0


def is_silent(link: Link) -> bool:
    """Whether to ask. Most requests end at the first comparisons."""
    if link.in_use or time.monotonic() - link.last_used < SILENT_SECONDS:
        return False
    return link.upstream is not None and link.upstream.era is Era.LEGACY


async def answers(link: Link) -> bool:
    """Whether the server answers in `PING_SECONDS`; an error is an answer too."""
    if link.upstream is None:
        return False
    try:
        await link.upstream.request("ping", {}, timeout_seconds=PING_SECONDS)
    except UpstreamRefused:
        pass
    except UpstreamError:
        return False
    link.last_used = time.monotonic()
    return True
