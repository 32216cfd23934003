"""Whether an address is this machine alone. Knows spellings; resolves nothing."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant by `host`, a name or an address without brackets."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
