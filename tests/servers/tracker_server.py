"""A hand-written legacy server over stdio whose tools want a project that people rarely name. `python tracker_server.py`.

Every call answers with the arguments that it got; `list_bugs` fails for the project "broken".
"""

import json
import sys

TEXT = {"type": "string"}
READS = {"readOnlyHint": True}
TOOLS = [
    {
        "name": "list_bugs",
        "description": "List the open bugs.",
        "inputSchema": {
            "type": "object",
            "properties": {"projectId": TEXT | {"description": "Where the bugs are."}},
            "required": ["projectId"],
        },
        "annotations": READS,
    }
]


def answer(request, **result):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
    sys.stdout.flush()


def handle(message):
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        named = {"name": "tracker", "version": "1"}
        answer(message, protocolVersion="2025-11-25", capabilities={"tools": {}}, serverInfo=named)
    elif method == "tools/list":
        answer(message, tools=TOOLS)
    elif method == "tools/call":
        got = params.get("arguments")
        text = [{"type": "text", "text": json.dumps(got)}]
        answer(message, content=text, isError=got == {"projectId": "broken"})
    elif "id" in message:
        answer(message)


for line in sys.stdin:
    handle(json.loads(line))
