"""A server on the official SDK that asks its client back and tells of changes.

`python pushing_server.py stdio`, or `http [PORT]`, or `sse [PORT]`: over HTTP it prints the port on its first line.
Tools: `ask` puts all three questions inside a call and returns the answers; `change` tells of everything that can change;
`big` answers with 2 MB; `wait` never answers.
"""

import json
import socket
import sys
import warnings

import anyio
import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.lowlevel import NotificationOptions
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ToolsListChanged
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount, Route

warnings.simplefilter("ignore")
URI = "note:///one"
BIG = "é" * 1_000_000
CHANGES = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=False)
bus = InMemorySubscriptionBus()


def text(content):
    return types.CallToolResult(content=[types.TextContent(type="text", text=content)])


async def list_tools(ctx, params):
    return types.ListToolsResult(
        tools=[
            types.Tool(name=name, input_schema={"type": "object"})
            for name in ("ask", "change", "big", "wait")
        ]
    )


async def list_resources(ctx, params):
    return types.ListResourcesResult(resources=[types.Resource(uri=URI, name="one")])


async def call_tool(ctx, params):
    if params.name == "ask":
        return await ask(ctx)
    if params.name == "change":
        await change(ctx)
    if params.name == "wait":
        await anyio.sleep_forever()
    return text(BIG if params.name == "big" else "done")


async def ask(ctx):
    here = ctx.request_id
    elicited = await ctx.session.elicit_form("Who?", {"type": "object", "properties": {}}, here)
    hello = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="hi"))
    sampled = await ctx.session.create_message([hello], max_tokens=3, related_request_id=here)
    roots = await ctx.session.send_request(
        types.ListRootsRequest(),
        types.ListRootsResult,
        metadata=ServerMessageMetadata(related_request_id=here),
    )
    answers = [answer.model_dump(by_alias=True, mode="json") for answer in (elicited, sampled, roots)]
    return text(json.dumps(answers))


async def change(ctx):
    if ctx.protocol_version == "2026-07-28":
        for event in (ToolsListChanged(), ResourcesListChanged(), ResourceUpdated(URI)):
            await bus.publish(event)
        return
    await ctx.session.send_tool_list_changed()
    await ctx.session.send_resource_list_changed()
    await ctx.session.send_resource_updated(URI)
    await ctx.session.send_log_message("info", {"said": "hello"}, "pushing")


async def subscribe(ctx, params):
    return types.EmptyResult()


server = Server(
    "pushing",
    version="1",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_subscribe_resource=subscribe,
    on_unsubscribe_resource=subscribe,
    on_subscriptions_listen=ListenHandler(bus),
)


async def serve(read, write):
    await server.run(read, write, server.create_initialization_options(CHANGES))


async def serve_stdio():
    async with stdio_server() as (read, write):
        await serve(read, write)


def sse_app():
    transport = SseServerTransport("/messages/")

    async def events(request):
        async with transport.connect_sse(request.scope, request.receive, request._send) as streams:
            await serve(*streams)
        return Response()

    return Starlette(
        routes=[
            Route("/sse", endpoint=events, methods=["GET"]),
            Mount("/messages/", app=transport.handle_post_message),
        ]
    )


def serve_http(app, port):
    listener = socket.create_server(("127.0.0.1", port))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if sys.argv[1] == "stdio":
    anyio.run(serve_stdio)
else:
    app = sse_app() if sys.argv[1] == "sse" else server.streamable_http_app()
    serve_http(app, int(sys.argv[2]) if len(sys.argv) > 2 else 0)
