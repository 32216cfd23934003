"""Serving one host over this process's stdin and stdout."""

from typing import Any

from mcp.server import Server
from mcp.server.stdio import stdio_server


async def serve_stdio(server: Server[Any]) -> None:
    """Serve until the host closes stdin."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
