"""Taking a TCP address before anything is started, so that one in use is said at once and plainly."""

import errno
import os
import socket
from contextlib import ExitStack

from nexus_gateway.settings import HttpSettings

_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""`localhost` may stand for an IPv6 address too, on a machine that has none."""


class AddressUnusableError(Exception):
    """The address can't be listened on; the message says why and what to do."""


def bracketed(host: str) -> str:
    """The host as URLs and Host headers have it."""
    return f"[{host}]" if ":" in host else host


def listen(settings: HttpSettings) -> list[socket.socket]:
    """Listening sockets for every address that the host name stands for.

    Raises:
        AddressUnusableError: in use, unknown, not of this machine, or not allowed.
    """
    where = f"{bracketed(settings.host)}:{settings.port}"
    with ExitStack() as taken:
        try:
            found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
            sockets = [
                taken.enter_context(bound)
                for family, *_, address in dict.fromkeys(found)
                if (bound := _bind(family, address, last_resort=len(found) == 1))
            ]
        except OSError as error:
            cause = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise AddressUnusableError(
                f"can't serve on {where}: {cause}; stop what uses it, or choose another address or port"
            ) from error
        if not sockets:
            raise AddressUnusableError(f"can't serve on {where}: it is not an address of this machine")
        taken.pop_all()
        return sockets


def _bind(family: int, address: tuple[object, ...], *, last_resort: bool) -> socket.socket | None:
    try:
        bound = socket.create_server((str(address[0]), int(str(address[1]))), family=family)
    except OSError as error:
        if error.errno in _NOT_HERE and not last_resort:
            return None
        raise
    # Connections inherit it. asyncio sets it for sockets of its own making alone, and without it the second part
    # of an answer waits 40 ms for the host to acknowledge the first.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound
