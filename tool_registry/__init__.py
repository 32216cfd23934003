"""What a tool is, and all that is compiled from it.

Below: numpy. Above: `adapters`, then `nexus_gateway`. This layer knows no network, no event loop and no
model runtime; it takes definitions and vectors as values and gives back immutable snapshots.
"""
