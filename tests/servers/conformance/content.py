"""The resources, templates, prompts and completions that the conformance suite asks for by name."""

import re

import mcp_types as types
from mcp.shared.exceptions import MCPError

from conformance.calls import form
from conformance.world import PNG, WATCHED, world

RESOURCES = (
    ("test://static-text", "Static text", "text/plain", {"text": "This is the content of the static text resource."}),
    ("test://static-binary", "Static binary", "image/png", {"blob": PNG}),
    (WATCHED, "Watched resource", "text/plain", {"text": "Watched resource content."}),
)  # fmt: skip
_LISTED = [
    {"uri": uri, "name": name, "description": f"{name} for tests", "mimeType": mime}
    for uri, name, mime, _ in RESOURCES
]
_CONTENTS = {uri: {"uri": uri, "mimeType": mime, **body} for uri, _, mime, body in RESOURCES}
_TEMPLATE = re.compile(r"test://template/([^/]+)/data")
_TEMPLATES = [
    {
        "uriTemplate": "test://template/{id}/data",
        "name": "Template",
        "description": "Data by id",
        "mimeType": "application/json",
    }
]


async def list_resources(_ctx, _params):
    return {"resources": _LISTED}


async def list_templates(_ctx, _params):
    return {"resourceTemplates": _TEMPLATES}


async def read_resource(_ctx, params):
    if params.uri in _CONTENTS:
        return {"contents": [_CONTENTS[params.uri]]}
    if found := _TEMPLATE.fullmatch(params.uri):
        text = f'{{"id":"{found[1]}","templateTest":true,"data":"Data for ID: {found[1]}"}}'
        return {"contents": [{"uri": params.uri, "mimeType": "application/json", "text": text}]}
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": params.uri})


async def subscribe(_ctx, params):
    world.watched.add(params.uri)
    return {}


async def unsubscribe(_ctx, params):
    world.watched.discard(params.uri)
    return {}


def _argument(name, description):
    return {"name": name, "description": description, "required": True}


_PROMPTS = [
    {"name": "test_simple_prompt", "description": "A simple prompt"},
    {
        "name": "test_prompt_with_arguments",
        "description": "A prompt with arguments",
        "arguments": [_argument("arg1", "First test argument"), _argument("arg2", "Second test argument")],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "A prompt with an embedded resource",
        "arguments": [_argument("resourceUri", "URI of the resource to embed")],
    },
    {"name": "test_prompt_with_image", "description": "A prompt with an image"},
    {"name": "test_input_required_result_prompt", "description": "A prompt that asks first"},
]
_EXTRA_PROMPT = {"name": "test_extra_prompt", "description": "Comes and goes"}


async def list_prompts(_ctx, _params):
    return {"prompts": [*_PROMPTS, *([_EXTRA_PROMPT] if world.extra_prompt else [])]}


async def get_prompt(call):
    """A prompt's messages. May ask first."""
    arguments = call.arguments
    if call.name in ("test_simple_prompt", "test_extra_prompt"):
        return _messages({"type": "text", "text": "This is a simple prompt for testing."})
    if call.name == "test_prompt_with_arguments":
        said = f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'"
        return _messages({"type": "text", "text": said})
    if call.name == "test_prompt_with_embedded_resource":
        resource = {
            "uri": arguments.get("resourceUri"),
            "mimeType": "text/plain",
            "text": "Embedded resource content for testing.",
        }
        text = {"type": "text", "text": "Please process the embedded resource above."}
        return _messages({"type": "resource", "resource": resource}, text)
    if call.name == "test_prompt_with_image":
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        return _messages(image, {"type": "text", "text": "Please analyze the image above."})
    if call.name == "test_input_required_result_prompt":
        question = form("What context should the prompt use?", context={"type": "string"})
        answer = (await call.ask({"user_context": question}))["user_context"]
        return _messages({"type": "text", "text": f"Context: {answer['content']['context']}"})
    raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {call.name}")


def _messages(*blocks):
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


async def complete(_ctx, params):
    words = [word for word in ("paris", "park", "party", "test") if word.startswith(params.argument.value)]
    return {"completion": {"values": words, "total": len(words), "hasMore": False}}
