"""A hand-written legacy server over stdio whose every answer says which process gave it. `python fleet_server.py`.

Tools: `pid`; `ask` asks the host for `text` and answers with what it said; `hang` makes the whole process deaf.
What a client can be asked decides whether `ask` is listed. It asks for roots when it is initialised, if there are any.
"""

import json
import os
import sys
import time

ASKED = {}
HELLO = {}
ROOTS = []


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request, **result):
    send({"id": request["id"], "result": result})


def tell(request, **facts):
    capabilities = HELLO.get("capabilities", {})
    answer(request, content=[], pid=os.getpid(), capabilities=capabilities, roots=ROOTS, **facts)


def ask(request, arguments):
    question = f"question {len(ASKED)}"
    ASKED[question] = request
    params = {"message": arguments["text"], "requestedSchema": {"type": "object", "properties": {}}}
    send({"id": question, "method": "elicitation/create", "params": params})


def hang(request, _):
    tell(request)
    time.sleep(600)


TOOLS = {"pid": lambda request, _: tell(request), "ask": ask, "hang": hang}


def answered(message):
    if message["id"] == "roots":
        ROOTS[:] = message.get("result", {}).get("roots", [])
    else:
        tell(ASKED[message["id"]], said=message.get("result"), refused=message.get("error"))


def handle(message):
    method, params = message.get("method"), message.get("params") or {}
    if method is None:
        answered(message)
    elif method == "initialize":
        HELLO.update(params)
        capabilities = {"tools": {}, "resources": {"subscribe": True}}
        named = {"name": "fleet", "version": "1"}
        answer(message, protocolVersion="2025-11-25", capabilities=capabilities, serverInfo=named)
    elif method == "notifications/initialized" and "roots" in HELLO["capabilities"]:
        send({"id": "roots", "method": "roots/list"})
    elif method == "tools/list":
        names = [name for name in TOOLS if name != "ask" or "elicitation" in HELLO["capabilities"]]
        answer(message, tools=[{"name": name, "inputSchema": {"type": "object"}} for name in names])
    elif method == "resources/list":
        answer(message, resources=[{"uri": f"pid:{os.getpid()}", "name": "pid"}])
    elif method == "tools/call":
        TOOLS[params["name"]](message, params.get("arguments") or {})
    elif "id" in message and method == "ping":
        answer(message)
    elif "id" in message:
        send({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


for line in sys.stdin:
    handle(json.loads(line))
