"""A small legacy server that does several calls at once. `python holding_server.py [fork]`.

With `fork` it starts a `sleep 600` before it answers anything. Tools: `pause` answers after its `seconds`;
`hold` never answers, and starts a `sleep 600` to show that it was called.
"""

import json
import subprocess
import sys
import threading

TOOLS = [
    {
        "name": "pause",
        "description": "Wait a moment.",
        "inputSchema": {
            "type": "object",
            "properties": {"seconds": {"type": "number"}},
            "required": ["seconds"],
        },
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "hold",
        "description": "Do not answer.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
]
LOCK = threading.Lock()


def answer(request, result):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()


def refuse(request):
    error = {"code": -32601, "message": "Method not found"}
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}) + "\n")
        sys.stdout.flush()


def handle(request):
    method, params = request.get("method"), request.get("params") or {}
    if "id" not in request:
        return
    if method == "initialize":
        named = {"name": "holding", "version": "1"}
        answer(request, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": named})
    elif method == "tools/list":
        answer(request, {"tools": TOOLS})
    elif method == "tools/call" and params["name"] == "pause":
        done = {"content": [{"type": "text", "text": "paused"}]}
        timer = threading.Timer(params["arguments"]["seconds"], answer, (request, done))
        timer.daemon = True
        timer.start()
    elif method == "tools/call":
        subprocess.Popen(["sleep", "600"])
    else:
        refuse(request)


if "fork" in sys.argv:
    subprocess.Popen(["sleep", "600"])
for line in sys.stdin:
    handle(json.loads(line))
