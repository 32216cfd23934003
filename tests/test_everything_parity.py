"""npm server-everything through the gateway and without it, as raw JSON: nothing may differ but time."""

import base64
import json
import re

import anyio
import pytest
from mcp.client.stdio import get_default_environment
from support.gateways import gateway_command
from support.processes import assert_none_is_left, new_mark
from support.raw_peer import peer_of

pytestmark = [pytest.mark.npm, pytest.mark.anyio, pytest.mark.slow]

DEADLINE = 100
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
FILLED = {
    "name": "Ada",
    "check": True,
    "firstLine": "höhe",
    "email": "ada@example.org",
    "integer": 7,
    "number": 2.5,
}
ANSWERS = {
    "elicitation/create": {"action": "accept", "content": FILLED, "vendorField": [None, 1.0]},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "a test answer"},
        "model": "test-model",
        "stopReason": "endTurn",
    },
    "roots/list": {"roots": [{"uri": "file:///home/ada", "name": "Home"}]},
}
RESEARCH_ANSWERS = {
    **ANSWERS,
    "elicitation/create": {"action": "accept", "content": {"interpretation": "snake"}},
}
TEXT = "data:text/plain;base64," + base64.b64encode(b"buy flour").decode()
CALLS = (
    ("echo", {"message": "höhe"}),
    ("echo", {"message": 7}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ("get-env", {}),
    ("get-resource-links", {"count": 3}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
    ("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}),
    ("get-roots-list", {}),
    ("get-structured-content", {"location": "Chicago"}),
    ("get-sum", {"a": 2.5, "b": 40}),
    ("get-sum", {"a": "two"}),
    ("get-tiny-image", {}),
    ("gzip-file-as-resource", {"name": "flour.gz", "data": TEXT}),
    ("gzip-file-as-resource", {"name": "more.gz", "data": TEXT, "outputType": "resource"}),
    ("trigger-long-running-operation", {"duration": 0.2, "steps": 4}),
    ("trigger-elicitation-request", {}),
    ("trigger-url-elicitation", {"url": "https://example.org", "elicitationId": "e-1"}),
    ("trigger-url-elicitation", {"url": "https://example.org", "elicitationId": "e-2", "errorPath": True}),
    ("trigger-sampling-request", {"prompt": "Say something", "maxTokens": 20}),
    ("simulate-research-query", {"topic": "python"}),
)
TOGGLES = {"toggle-simulated-logging", "toggle-subscriber-updates"}
STATIC = "demo://resource/static/document/"
READ = (
    "demo://resource/dynamic/text/3",
    "demo://resource/dynamic/blob/4",
    "demo://resource/session/flour.gz",
)
PROMPTS = (
    ("simple-prompt", {}),
    ("args-prompt", {"city": "Köln", "state": "NRW"}),
    ("args-prompt", {}),
    ("completable-prompt", {"department": "Sales", "name": "Eve"}),
    ("resource-prompt", {"resourceType": "Text", "resourceId": "5"}),
)
_PROMPT = {"type": "ref/prompt", "name": "completable-prompt"}
_TEMPLATE = {"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}
COMPLETIONS = (
    {"ref": _PROMPT, "argument": {"name": "department", "value": "S"}},
    {
        "ref": _PROMPT,
        "argument": {"name": "name", "value": ""},
        "context": {"arguments": {"department": "Sales"}},
    },
    {"ref": _TEMPLATE, "argument": {"name": "resourceId", "value": "6"}},
)
WATCHED = "demo://resource/dynamic/text/8"
LISTS = (
    ("tools/list", "tools", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ("prompts/list", "prompts", "name"),
)
PASS_THROUGH = """
[expose]
meta_tools = false
tools = "all"
prefix = "never"
pass_through = true
[servers.everything]
era = "legacy"
"""

_VARYING = (
    (re.compile(r"\d{4}-\d{2}-\d{2}T[0-9:.]+Z"), "<moment>"),
    (re.compile(r"\d{1,2}:\d{2}:\d{2}(\s?[AP]M)?"), "<time>"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
)


def steady(value, key=None):
    """The value without what differs from run to run: times of day and random identifiers."""
    if isinstance(value, dict):
        return {name: steady(member, name) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [steady(member) for member in value]
    if not isinstance(value, str):
        return value
    if key == "blob":
        value = base64.b64decode(value).decode("utf-8", errors="backslashreplace")
    for pattern, stands in _VARYING:
        value = pattern.sub(stands, value)
    return value


async def driven(command, env):
    """What a host sees of a server-everything at the end of `command`, step by step."""
    seen = {}
    async with peer_of(command, ANSWERS, env) as peer:
        await ready(peer)
        for method, key, name in LISTS:
            result = (await peer.request(method)).answer["result"]
            seen[method] = sorted(result[key], key=lambda entry: entry[name])
        for tool, arguments in CALLS:
            params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": f"p-{len(seen)}"}}
            seen[f"call {tool} {arguments}"] = outcome(await peer.request("tools/call", params))
        for uri in (*READ, *(entry["uri"] for entry in seen["resources/list"])):
            seen[f"read {uri}"] = outcome(await peer.request("resources/read", {"uri": uri}))
        for prompt, arguments in PROMPTS:
            params = {"name": prompt, "arguments": arguments}
            seen[f"prompt {prompt} {arguments}"] = outcome(await peer.request("prompts/get", params))
        for params in COMPLETIONS:
            seen[f"complete {params}"] = outcome(await peer.request("completion/complete", params))
        seen |= await toggled(peer)
    return steady(seen)


async def ready(peer):
    """The gateway answers `tools/list` before its server is there, and tells when that changes."""
    await peer.handshake(CAPABILITIES)
    while True:
        before = peer.heard_so_far()
        tools = (await peer.request("tools/list")).answer["result"]["tools"]
        if "trigger-sampling-request" in {tool["name"] for tool in tools}:
            return
        await peer.hear("notifications/tools/list_changed", before)


def outcome(exchange):
    """All of it but when the roots were asked for, which server-everything does in its own time."""
    asked = [(method, params) for method, params in exchange.asked if method != "roots/list"]
    return {"answer": exchange.answer, "asked": asked, "progress": exchange.progress}


async def toggled(peer):
    """What the server tells by itself: one log message and one update of a watched resource."""
    seen = {"level": outcome(await peer.request("logging/setLevel", {"level": "debug"}))}
    before = peer.heard_so_far()
    seen["logging on"] = outcome(await call(peer, "toggle-simulated-logging"))
    logged = await peer.hear("notifications/message", before)
    seen["logged"] = sorted(logged)  # its level is random
    seen["logging off"] = outcome(await call(peer, "toggle-simulated-logging"))
    seen["subscribe"] = outcome(await peer.request("resources/subscribe", {"uri": WATCHED}))
    before = peer.heard_so_far()
    seen["updates on"] = outcome(await call(peer, "toggle-subscriber-updates"))
    seen["updated"] = await peer.hear("notifications/resources/updated", before)
    seen["updates off"] = outcome(await call(peer, "toggle-subscriber-updates"))
    seen["unsubscribe"] = outcome(await peer.request("resources/unsubscribe", {"uri": WATCHED}))
    return seen


async def call(peer, tool):
    return await peer.request("tools/call", {"name": tool, "arguments": {}})


async def researched(command, env):
    """The one tool that has to run as a task, from its creation to its result; it asks on the way."""
    params = {
        "name": "simulate-research-query",
        "arguments": {"topic": "python", "ambiguous": True},
        "task": {"ttl": 60_000},
    }
    async with peer_of(command, RESEARCH_ANSWERS, env) as peer:
        await ready(peer)
        created = await peer.request("tools/call", params)
        task = {"taskId": created.answer["result"]["task"]["taskId"]}
        seen = {"created": outcome(created)}
        seen["result"] = outcome(await peer.request("tasks/result", task))
        seen["completed"] = outcome(await peer.request("tasks/get", task))
        seen["cancelled too late"] = outcome(await peer.request("tasks/cancel", task))
    return steady(seen)


def behind_gateway(folder, command):
    program, *args = command
    config = folder / "nexus.toml"
    started = f"command = {json.dumps(program)}\nargs = {json.dumps(args)}\n"
    config.write_text(f"cache_dir = {json.dumps(str(folder / 'cache'))}\n{PASS_THROUGH}{started}")
    return gateway_command("serve", "--config", str(config))


async def test_server_everything_answers_through_the_gateway_exactly_as_without_it(npm_servers, tmp_path):
    alone, through = await both(driven, npm_servers, tmp_path)
    covered = {tool for tool, _ in CALLS} | TOGGLES
    assert {tool["name"] for tool in alone["tools/list"]} == covered, "server-everything has other tools now"
    assert any(entry["uri"].startswith(STATIC) for entry in alone["resources/list"])
    assert_same(alone, through)


async def test_a_tool_of_server_everything_runs_as_a_task_through_the_gateway_as_without_it(
    npm_servers, tmp_path
):
    alone, through = await both(researched, npm_servers, tmp_path)
    assert alone["result"]["asked"], "the research does not ask on the way any more"
    assert_same(alone, through)


async def both(drive, npm_servers, folder):
    mark = new_mark()
    command = ["node", str(npm_servers["everything"]), "stdio"]
    env = get_default_environment()
    with anyio.fail_after(DEADLINE):
        alone = await drive(command, env)
        through = await drive(behind_gateway(folder, command), {**env, **mark})
    assert_none_is_left(mark)
    return alone, through


def assert_same(alone, through):
    different = {step: (alone[step], through.get(step)) for step in alone if alone[step] != through.get(step)}
    assert not different, json.dumps(different, indent=1, ensure_ascii=False)
    assert through.keys() == alone.keys()
