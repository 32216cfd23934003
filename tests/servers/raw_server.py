"""A hand-written legacy server over stdio: what typed servers can't do. `python raw_server.py [MODE]`.

Modes: plain, silent-probe, exit-on-probe, crash, rubbish, grandchild, no-tools, bad-listing, repeating, deaf.
"""

import json
import os
import subprocess
import sys
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "plain"
RECEIVED = []
ODD_RESULT = {
    "content": [
        {"type": "hologram", "depth": 3, "nested": {"a": [1, 2.5, None, True]}},
        {"type": "text", "text": "höhe\u2028", "unknownField": {"x": []}},
    ],
    "structuredContent": {"big": 12345678901234567890, "empty": {}},
    "futureField": [{"k": "v"}],
    "_meta": {"vendor.example/key": {"deep": [1]}},
}
ODD_TOOL = {"name": "odd", "inputSchema": None, "futureField": 1}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request, result):
    send({"id": request["id"], "result": result})


def refuse(request, code, message, data=None):
    send({"id": request["id"], "error": {"code": code, "message": message, "data": data}})


def initialize(request):
    capabilities = {} if MODE == "no-tools" else {"tools": {"listChanged": True}}
    answer(
        request,
        {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "serverInfo": {"name": "raw", "version": "1"},
            "instructions": "speak plainly",
        },
    )


def list_tools(request):
    cursor = (request.get("params") or {}).get("cursor")
    if MODE == "bad-listing":
        return answer(request, {"tools": "none"})
    if cursor is None:
        return answer(request, {"tools": [ODD_TOOL, {"name": "big"}], "nextCursor": "2"})
    if MODE == "repeating":
        return answer(request, {"tools": [{"name": f"again {cursor}"}], "nextCursor": cursor})
    if cursor == "2":
        return answer(request, {"tools": ["not an object", {"name": "die"}], "nextCursor": "3"})
    return answer(request, {"tools": [{"name": "never"}]})


def call_tool(request):
    name = request["params"]["name"]
    if name == "odd":
        answer(request, ODD_RESULT)
    elif name == "received":
        answer(request, {"content": [], "received": RECEIVED})
    elif name == "big":
        answer(request, {"content": [{"type": "text", "text": "x" * 10_000_000}]})
    elif name == "refuse":
        refuse(request, -32000, "Connection closed", {"mine": True})
    elif name == "surrogate":
        sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"text":"\\ud800"}}\n' % request["id"])
        sys.stdout.flush()
    elif name == "latin1":
        sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":{"text":"caf\xe9"}}\n' % request["id"])
        sys.stdout.flush()
    elif name == "change":
        send({"method": "notifications/tools/list_changed"})
        answer(request, {"content": []})
    elif name == "progress":
        token = request["params"]["_meta"]["progressToken"]
        send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 2}})
        answer(request, {"content": []})
    elif name == "die":
        print("out of cheese", file=sys.stderr, flush=True)
        os._exit(3)
    elif name == "killed":
        os.kill(os.getpid(), 9)


def grandchild():
    child = subprocess.Popen(["sleep", "600"])  # holds our stdout open
    print(f"grandchild {child.pid}", file=sys.stderr, flush=True)


def handle(request):
    RECEIVED.append(request)
    method = request.get("method")
    if method == "server/discover":
        if MODE == "exit-on-probe":
            sys.exit("expected initialize")
        if MODE != "silent-probe":
            refuse(request, -32601, "Method not found")
    elif method == "initialize":
        initialize(request)
    elif method == "tools/list":
        list_tools(request)
    elif method == "tools/call":
        call_tool(request)


if MODE == "crash":
    print("Traceback: no module named cheese", file=sys.stderr)
    sys.exit(7)
if MODE == "rubbish":
    print('Server started!\n\n{"level": "info"}\n[1, 2]\n\x00\x01', flush=True)
if MODE == "grandchild":
    grandchild()
for line in sys.stdin:
    handle(json.loads(line))
    if MODE == "deaf" and '"notifications/initialized"' in line:
        print("deaf now", file=sys.stderr, flush=True)
        time.sleep(600)
