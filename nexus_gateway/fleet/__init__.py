"""The upstream servers as one fleet: connect, keep alive, list, call.

Below: the `Connect` and `Upstream` Protocols of `adapters.ports`. Knows nothing of routing or models.
"""
