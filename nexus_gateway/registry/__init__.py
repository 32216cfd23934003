"""Keeps the routing index in step with the catalogue: compiles what changed, embeds what is new.

Below: `tool_registry` for the compiling, an `Embedder` for vectors, a store for both.
"""
