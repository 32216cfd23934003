"""The stdio bridge: a host that speaks stdio alone, on a gateway that speaks HTTP.

Relays JSON-RPC messages as they are and keeps a host's session over restarts of the gateway. Knows nothing of tools.
"""
