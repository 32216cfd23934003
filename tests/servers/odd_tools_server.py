"""A small legacy server with tools that are odd: huge descriptions, names with spaces or 200 characters."""

import json
import sys

FILLER = "It handles idioms, registers, dialects and proper names with great care. "
READS = {"readOnlyHint": True}
SENTENCE = {"type": "object", "properties": {"sentence": {"type": "string"}}, "required": ["sentence"]}
NOTHING = {"type": "object", "properties": {}}
TRANSLATE = ("Translate a sentence into Klingon. " + FILLER * 300)[:20_000]
TOOLS = [
    {"name": "translate_sentence", "description": TRANSLATE, "inputSchema": SENTENCE, "annotations": READS},
    {"name": "two words", "description": "Say the name.", "inputSchema": NOTHING, "annotations": READS},
    {"name": "n" * 200, "description": "Say the long name.", "inputSchema": NOTHING, "annotations": READS},
]


def reply(method, params):
    if method == "initialize":
        named = {"name": "odd", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": named}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["name"]}]}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = reply(request["method"], request.get("params"))
    refused = {"error": {"code": -32601, "message": "Method not found"}}
    outcome = refused if result is None else {"result": result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}) + "\n")
    sys.stdout.flush()
