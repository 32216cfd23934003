"""A legacy server over stdio that lists the tools of a JSON Lines file: `python listing_server.py FILE COUNT`."""

import json
import sys
from itertools import islice
from pathlib import Path

PARTS = ("name", "description", "inputSchema")


def tools(path, count):
    """The first `count` definitions; names are made different, since the file has several servers."""
    with Path(path).open(encoding="utf-8") as file:
        for place, line in enumerate(islice(file, count)):
            tool = json.loads(line)
            yield {part: tool[part] for part in PARTS if part in tool} | {"name": f"{tool['name']}_{place}"}


def results(request, listed):
    if request["method"] == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "listing", "version": "1"},
        }
    return {"tools": listed} if request["method"] == "tools/list" else None


def main():
    listed = list(tools(sys.argv[1], int(sys.argv[2])))
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = results(request, listed)
        answer = (
            {"error": {"code": -32601, "message": "Method not found"}}
            if result is None
            else {"result": result}
        )
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
