"""The upstream of the benchmarks: a server on the official SDK that echoes, in both eras, over stdio or HTTP.

    python -m nexus_gateway.bench.echo_server stdio|http [TOOLS]

Lists TOOLS tools (1 by default), the first of which is `echo`. Over HTTP it takes a free port on the loopback
interface and prints its URL on its first line.
"""

import socket
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

ECHO = "echo"
_PATH = "/mcp"
_TEXT = {"type": "string", "description": "What to say again."}
_FIELDS = ("project", "title", "status", "assignee")


def _filler(number: int) -> types.Tool:
    fields = {name: {"type": "string", "description": f"The {name} of record {number}."} for name in _FIELDS}
    return types.Tool(
        name=f"update_record_{number:03}",
        description=f"Update record {number}: its project, title, status or assignee. Fields left out stay.",
        input_schema={"type": "object", "properties": fields, "required": ["project"]},
    )


def tools_of(count: int) -> list[types.Tool]:
    """`echo`, and as many more of a common size as make `count`."""
    echo = types.Tool(
        name=ECHO,
        description="Say it again.",
        input_schema={"type": "object", "properties": {"text": _TEXT}, "required": ["text"]},
        annotations=types.ToolAnnotations(read_only_hint=True),
    )
    return [echo, *map(_filler, range(1, count))]


def build_server(count: int) -> Server[Any]:
    """The server, listing `count` tools; each of them echoes."""
    tools = tools_of(count)

    async def list_tools(_ctx: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text = (params.arguments or {}).get("text", "")
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server("bench-echo", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def _serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _serve_http(server: Server[Any]) -> None:
    import uvicorn  # noqa: PLC0415 - a stdio server starts without it

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
    sys.stdout.write(f"http://127.0.0.1:{listener.getsockname()[1]}{_PATH}\n")
    sys.stdout.flush()
    app = server.streamable_http_app(streamable_http_path=_PATH)
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


def main(arguments: list[str]) -> None:
    """Serve as the module's docstring says."""
    server = build_server(int(arguments[1]) if arguments[1:] else 1)
    if arguments[0] == "stdio":
        anyio.run(_serve_stdio, server)
    else:
        _serve_http(server)


if __name__ == "__main__":
    main(sys.argv[1:])
