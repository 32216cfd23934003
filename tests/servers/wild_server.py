"""A legacy server over stdio that lists every tool of JSON Lines files, 500 a page: `python wild_server.py MODE FILE...`.

Names are `server__name` (MODE `unique`) or the tools' own (MODE `own`), of which many come up more than once.
"""

import json
import sys
from pathlib import Path

PARTS = ("description", "inputSchema", "_meta")
PAGE = 500


def definitions(mode, files):
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            name = f"{row['server']}__{row['name']}" if mode == "unique" else row["name"]
            yield {"name": name} | {part: row[part] for part in PARTS if part in row}


def page(tools, cursor):
    start = int(cursor or 0)
    following = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {}
    return {"tools": tools[start : start + PAGE], **following}


def result(request, tools):
    if request["method"] == "initialize":
        named = {"name": "wild", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": named}
    if request["method"] == "tools/list":
        return page(tools, (request.get("params") or {}).get("cursor"))
    if request["method"] == "tools/call":
        return {"content": [{"type": "text", "text": f"called {request['params']['name']}"}]}
    return None


def main():
    tools = list(definitions(sys.argv[1], sys.argv[2:]))
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        said = result(request, tools)
        refused = {"error": {"code": -32601, "message": "Method not found"}}
        outcome = refused if said is None else {"result": said}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
