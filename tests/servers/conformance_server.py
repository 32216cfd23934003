"""The everything-server of the official conformance suite, both eras.

`python conformance_server.py stdio` or `python conformance_server.py http [PORT]`; over HTTP it prints the port
on its first line.
"""

import socket
import sys
import warnings
from contextlib import asynccontextmanager

import anyio
import mcp_types as types
import uvicorn
from conformance.calls import Call, NeedsInput
from conformance.content import (
    complete,
    get_prompt,
    list_prompts,
    list_resources,
    list_templates,
    read_resource,
    subscribe,
    unsubscribe,
)
from conformance.events import Events
from conformance.tasks import add_tasks
from conformance.tools import TOOLS
from conformance.world import world
from mcp.server import NotificationOptions, Server
from mcp.server.caching import CacheHint
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

warnings.filterwarnings("ignore", category=MCPDeprecationWarning)

EXTRA_TOOL = {"name": "test_extra_tool", "description": "Comes and goes", "inputSchema": {"type": "object"}}
CACHED = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
CACHE_HINTS = {method: CacheHint(ttl_ms=5000, scope="public") for method in CACHED}
RETRY_MS = 50


class ConformanceServer(Server):
    """Tells legacy hosts too that its lists change."""

    def create_initialization_options(self, *_args, **_kwargs):
        changing = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(changing)


def complete_by_default(handler):
    """The SDK wants `resultType` of raw results; an older host never sees it."""

    async def handle(ctx, params):
        return {"resultType": "complete", **await handler(ctx, params)}

    return handle


async def list_tools(_ctx, _params):
    definitions = [definition for definition, _ in TOOLS.values()]
    return {"tools": [*definitions, *([EXTRA_TOOL] if world.extra_tool else [])]}


async def call_tool(ctx, params):
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    _, handler = TOOLS[params.name]
    return await asking(handler, ctx)


async def prompt(ctx, _params):
    return await asking(get_prompt, ctx)


async def asking(handler, ctx):
    try:
        return await handler(Call(ctx))
    except NeedsInput as needs:
        return needs.interim


async def set_level(_ctx, _params):
    return {}


@asynccontextmanager
async def background(_server):
    """The task group that tasks of the extension run in."""
    async with anyio.create_task_group() as tasks:
        yield tasks
        tasks.cancel_scope.cancel()


server = ConformanceServer(
    "conformance",
    version="1.0.0",
    instructions="Every fixture of the conformance suite.",
    lifespan=background,
    cache_hints=CACHE_HINTS,
    on_list_tools=complete_by_default(list_tools),
    on_call_tool=complete_by_default(call_tool),
    on_list_resources=complete_by_default(list_resources),
    on_list_resource_templates=complete_by_default(list_templates),
    on_read_resource=complete_by_default(read_resource),
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=unsubscribe,
    on_list_prompts=complete_by_default(list_prompts),
    on_get_prompt=complete_by_default(prompt),
    on_completion=complete_by_default(complete),
    on_set_logging_level=set_level,
    on_subscriptions_listen=ListenHandler(world.bus),
)
add_tasks(server)


async def serve_stdio():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_http(port):
    listener = socket.create_server(("127.0.0.1", port))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    app = server.streamable_http_app(event_store=Events(), retry_interval=RETRY_MS)
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(serve_stdio)
    else:
        serve_http(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
