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


def send_bytes(request, result):
    line = (
        b'{"jsonrpc":"2.0","id":' + str(request["id"]).encode() + b',"result":{"text":"' + result + b'"}}\n'
    )
    sys.stdout.buffer.write(line)
    sys.stdout.flush()


def change(request):
    send({"method": "notifications/tools/list_changed"})
    answer(request, {"content": []})


def die(_):
    sys.stderr.write("out of cheese\n")
    sys.stderr.flush()
    os._exit(3)


TOOLS = {
    "odd": lambda request: answer(request, ODD_RESULT),
    "received": lambda request: answer(request, {"content": [], "received": RECEIVED}),
    "big": lambda request: answer(request, {"content": [{"type": "text", "text": "x" * 10_000_000}]}),
    "refuse": lambda request: refuse(request, -32000, "Connection closed", {"mine": True}),
    "surrogate": lambda request: send_bytes(request, b"\\ud800"),
    "latin1": lambda request: send_bytes(request, b"caf\xe9"),
    "change": change,
    "die": die,
    "killed": lambda _: os.kill(os.getpid(), 9),
    "never": lambda _: None,
}


def grandchild():
    child = subprocess.Popen(["sleep", "600"])  # holds our stdout open
    sys.stderr.write(f"grandchild {child.pid}\n")
    sys.stderr.flush()


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
        TOOLS[request["params"]["name"]](request)


def main():
    if MODE == "crash":
        sys.exit("Traceback: no module named cheese")
    if MODE == "rubbish":
        sys.stdout.write('Server started!\n\n{"level": "info"}\n[1, 2]\n\x00\x01\n')
    if MODE == "grandchild":
        grandchild()
    for line in sys.stdin:
        handle(json.loads(line))
        if MODE == "deaf" and '"notifications/initialized"' in line:
            time.sleep(600)


if __name__ == "__main__":
    main()
