"""A hand-written legacy server over stdio whose questions and notices no typed server would write.

Tools: `ask` sends the request in its arguments (`method`, `params`) and returns the whole answer; `withdraw` asks, and
takes the question back at the next request; `notify` sends the notification in its arguments; `progress` sends
notices that are odd; `hello` returns the params of the `initialize` request.
"""

import json
import sys

LATER = []
HELLO = {}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request, **result):
    send({"id": request["id"], "result": {"content": [], **result}})


def read():
    return json.loads(sys.stdin.readline() or sys.exit())


def ask(request, arguments):
    send({"id": "question", **arguments})
    while (message := read()).get("id") != "question":
        LATER.append(message)
    answer(request, answer=message)


def withdraw(request, arguments):
    send({"id": "question", **arguments})
    go = read()
    send({"method": "notifications/cancelled", "params": {"requestId": "question"}})
    answer(request)
    answer(go)


def notify(request, arguments):
    send(arguments)
    answer(request)


def progress(request, arguments):
    token = request["params"]["_meta"]["progressToken"]
    for rest in ({"progress": 1, "total": 2}, {"progress": True}, {"progress": 2.5, "message": "half"}, {}):
        send({"method": "notifications/progress", "params": {"progressToken": token, **rest}})
    send({"method": "notifications/progress", "params": {"progressToken": "another", "progress": 9}})
    answer(request, token=token)


TOOLS = {
    "ask": ask,
    "withdraw": withdraw,
    "notify": notify,
    "progress": progress,
    "hello": lambda request, _: answer(request, hello=HELLO),
}


def handle(request):
    method, params = request.get("method"), request.get("params") or {}
    if method == "initialize":
        HELLO.update(params)
        capabilities = {"tools": {}, "resources": {"subscribe": True}, "vendor": {"odd": 1.0}}
        named = {"name": "asking", "version": "1", "future": 1}
        answer(request, protocolVersion="2025-11-25", capabilities=capabilities, serverInfo=named)
    elif method == "tools/call":
        TOOLS[params["name"]](request, params.get("arguments") or {})
    elif method == "resources/list":
        after = params.get("cursor")
        page = (
            {"resources": [{"uri": "odd:2", "future": 1}]}
            if after
            else {"resources": ["odd"], "nextCursor": "2"}
        )
        answer(request, **page)
    elif "id" in request:
        send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})


while True:
    handle(LATER.pop(0) if LATER else read())
