"""A server on the official SDK, both eras. `python sdk_server.py stdio` or `python sdk_server.py http [PORT]`.

Over HTTP it prints the port on its first line. `CANCEL_LOG` names a file that gets a line per cancelled call.
"""

import os
import socket
import sys
from pathlib import Path

import anyio
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server

TOOLS = [
    types.Tool(
        name="echo",
        description="Say it again.",
        input_schema={
            "type": "object",
            "properties": {"text": {"type": "string", "x-mcp-header": "Text"}},
            "required": ["text"],
        },
    ),
    types.Tool(name="wait", input_schema={"type": "object"}),
    types.Tool(name="count", input_schema={"type": "object"}),
]


async def list_tools(ctx, params):
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(ctx, params):
    if params.name == "wait":
        return await wait()
    if params.name == "count":
        await ctx.session.report_progress(1, 3, "one of three")
    text = (params.arguments or {}).get("text", "")
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def wait():
    record("started")
    try:
        await anyio.sleep(600)
    except anyio.get_cancelled_exc_class():
        record("cancelled")
        raise


def record(event):
    if path := os.environ.get("CANCEL_LOG"):
        with Path(path).open("a") as log:
            log.write(f"{event}\n")


server = Server("sdk", version="1", instructions="be kind", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_http(port):
    listener = socket.create_server(("127.0.0.1", port))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if sys.argv[1] == "stdio":
    anyio.run(serve_stdio)
else:
    serve_http(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
