"""A legacy server over stdio that talks nonsense: `python fuzz_server.py SEED`.

Tool `flood` writes `count` spoilt messages, some of them about the call itself, before its answer; `echo` answers
with its token.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from support.fuzzing import Fuzzer

READS = {"readOnlyHint": True}
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
TOKEN = {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]}
TOOLS = [
    {"name": "flood", "inputSchema": COUNT, "annotations": READS},
    {"name": "echo", "inputSchema": TOKEN, "annotations": READS},
]
FLOODS = 0


def write(message):
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def said(text):
    return {"content": [{"type": "text", "text": text}], "structuredContent": {"said": text}}


def messages(call, progress_token):
    """What a server may say during a call, valid so far. Answers are about the call itself or about nothing."""
    token = {"progressToken": progress_token, "progress": 1, "total": 2, "message": "half"}
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    about = [
        {"id": call, "result": said("flooded")},
        {"id": call, "error": {"code": -32000, "message": "no", "data": [1]}},
        {"method": "notifications/progress", "params": token},
        {"method": "notifications/cancelled", "params": {"requestId": call, "reason": "x"}},
    ]
    other = [
        {"id": -1, "result": said("nobody's")},
        {"method": "notifications/message", "params": {"level": "info", "data": {"a": 1}}},
        {"method": "notifications/resources/updated", "params": {"uri": "a:b"}},
        {"id": 1, "method": "elicitation/create", "params": form},
        {"id": 2, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
        {"id": 3, "method": "roots/list"},
        {"id": 4, "method": "ping"},
    ]
    return [{"jsonrpc": "2.0", **message} for message in (*about, *other, *other)]


def flood(call, count, progress_token):
    global FLOODS  # noqa: PLW0603 - one counter of one small process
    FLOODS += 1
    fuzzer = Fuzzer(f"{sys.argv[1]} {FLOODS}", messages(call, progress_token))
    for _ in range(count):
        sys.stdout.buffer.write(fuzzer.line() + b"\n")
    sys.stdout.buffer.flush()
    write({"id": call, "result": said("flooded")})


def handle(message):
    method, call, params = message.get("method"), message.get("id"), message.get("params") or {}
    if call is None or method is None:
        return
    if method == "initialize":
        named = {"name": "fuzz", "version": "1"}
        write(
            {
                "id": call,
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": named,
                },
            }
        )
    elif method == "tools/list":
        write({"id": call, "result": {"tools": TOOLS}})
    elif method == "tools/call" and params["name"] == "flood":
        flood(call, params["arguments"]["count"], params.get("_meta", {}).get("progressToken", call))
    elif method == "tools/call":
        write({"id": call, "result": said(params["arguments"]["token"])})
    else:
        write({"id": call, "error": {"code": -32601, "message": "Method not found"}})


for received in sys.stdin.buffer:
    handle(json.loads(received))
