"""A small legacy server with one tool, `pass_gate`. `python gated_server.py FOLDER`.

A call adds a byte to the file `called` in FOLDER and is answered, and logged to the host, once there is a file `open`.
At the end of stdin it makes a file `ending`, and stays while there is a file `stay`, whatever the signal.
"""

import json
import signal
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
LOCK = threading.Lock()
TOOL = {
    "name": "pass_gate",
    "description": "Pass the gate.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(request, **outcome):
    send({"id": request["id"], **outcome})


def pass_gate(request):
    with LOCK, (FOLDER / "called").open("a") as file:
        file.write("x")
    while not (FOLDER / "open").exists():
        time.sleep(0.01)
    send({"method": "notifications/message", "params": {"level": "error", "data": "passed"}})
    answer(request, result={"content": [{"type": "text", "text": "through"}]})


def handle(request):
    method = request.get("method")
    if method == "initialize":
        capabilities = {"tools": {}, "logging": {}}
        info = {"name": "gated", "version": "1"}
        version = "2025-06-18"
        answer(request, result={"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
    elif method == "tools/list":
        answer(request, result={"tools": [TOOL]})
    elif method == "tools/call":
        threading.Thread(target=pass_gate, args=(request,), daemon=True).start()
    elif "id" in request:
        answer(request, error={"code": -32601, "message": "Method not found"})


signal.signal(signal.SIGTERM, lambda *_: None if (FOLDER / "stay").exists() else sys.exit(1))
for line in sys.stdin:
    handle(json.loads(line))
(FOLDER / "ending").touch()
while (FOLDER / "stay").exists():
    time.sleep(0.01)
