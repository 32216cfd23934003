"""A legacy server over stdio that misbehaves by a seeded plan: `python chaos_server.py NAME SEED [calm]`.

Its one honest promise: a right answer to `echo` holds the server's name and the call's own token, and what it
says under a wrong id, a second time or too late holds `FORGED`. `calm` leaves all the mischief out; tools
`die` and `leave` end the process in either case, `hold` never answers.
"""

import json
import os
import random
import sys
import threading

NAME, SEED, CALM = sys.argv[1], int(sys.argv[2]), "calm" in sys.argv[3:]
FORGED = "forged"
SLOW_SECONDS = (0.05, 0.5)
FLOOD_LINES, PAGE = 400, "x" * 1_000_000
READS = {"readOnlyHint": True}
TOKEN = {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]}
NOTHING = {"type": "object"}
TOOLS = [
    {"name": "echo", "description": "Say the token.", "inputSchema": TOKEN, "annotations": READS},
    {"name": "hold", "description": "Do not answer.", "inputSchema": NOTHING, "annotations": READS},
    {"name": "die", "description": "Exit at once.", "inputSchema": NOTHING, "annotations": READS},
    {"name": "leave", "description": "Answer, then exit.", "inputSchema": NOTHING, "annotations": READS},
]
RUBBISH = (
    b"Server listening on stdio\n",
    b"\x00\xff\xfe\x80 \xed\xa0\x80\n",
    b'{"jsonrpc":"2.0","result":{}}\n',
    b'[{"jsonrpc":"2.0","id":1,"result":{}}]\n',
    b'{"jsonrpc":"2.0","id":null,"result":{"content":[]}}\n',
    b'{"jsonrpc":"2.0","id":7,"method":"no/such/method"}\n',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":-1,"progress":1e999}}\n',
    b"[" * 5_000 + b"\n",
    b"\n\r\n  \n",
)
LOCK = threading.Lock()
CHANCE = random.Random(f"{NAME} {SEED}")
HUNG = set()


def write(*parts):
    with LOCK:
        for part in parts:
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()


def line(call, result):
    return json.dumps({"jsonrpc": "2.0", "id": call, "result": result}).encode() + b"\n"


def said(token, padding=""):
    structured = {"server": NAME, "token": token}
    return {
        "content": [{"type": "text", "text": f"{NAME} {token}{padding}"}],
        "structuredContent": structured,
    }


def honest(call, token):
    write(line(call, said(token)))


def slow(call, token):
    later = threading.Timer(CHANCE.uniform(*SLOW_SECONDS), honest, (call, token))
    later.daemon = True
    later.start()


def hang(call, token):
    HUNG.add(call)


def die(call, token):
    os._exit(3)


def answer_and_die(call, token):
    honest(call, token)
    os._exit(0)


def rubbish(call, token):
    write(*CHANCE.choices(RUBBISH, k=3), line(call, said(token)))


def wrong_ids(call, token):
    others = (call + 1, call - 1, call + 1_000_000, str(call + 2), -call)
    write(*(line(other, said(FORGED)) for other in others), line(call, said(token)))


def wrong_id_alone(call, token):
    write(line(call + 1, said(FORGED)))


def twice(call, token):
    write(line(call, said(token)), line(call, said(FORGED)), line(str(call), said(FORGED)))


def huge(call, token):
    write(line(call, said(token, padding=PAGE)))


def in_pieces(call, token):
    whole = line(call, said(token))
    write(*(whole[start : start + 7] for start in range(0, len(whole), 7)))


def flood(call, token):
    for number in range(FLOOD_LINES):
        sys.stderr.write(f"flood {number} {'!' * 200}\n")
    sys.stderr.flush()
    honest(call, token)


def broken(call, token):
    write(b'{"jsonrpc":"2.0","id":%d,"result":"not an object"}\n' % call)


MOODS = {
    honest: 800,
    slow: 60,
    rubbish: 30,
    wrong_ids: 30,
    twice: 30,
    in_pieces: 20,
    flood: 10,
    huge: 5,
    broken: 5,
    hang: 4,
    wrong_id_alone: 3,
    die: 2,
    answer_and_die: 2,
}
"""How often, of about a thousand calls."""


def call_tool(call, params):
    name, token = params["name"], (params.get("arguments") or {}).get("token", "")
    if name == "die":
        os._exit(3)
    if name == "leave":
        answer_and_die(call, token)
    if name == "hold":
        return
    mood = honest if CALM else CHANCE.choices(list(MOODS), weights=list(MOODS.values()))[0]
    mood(call, token)


def cancelled(params):
    """A hung call is answered after all, once its caller has given up."""
    if (call := params.get("requestId")) in HUNG:
        HUNG.remove(call)
        write(line(call, said(FORGED)))


def handle(message):
    method, call, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "notifications/cancelled":
        cancelled(params)
    if call is None or method is None:
        return
    if method == "initialize":
        named = {"name": NAME, "version": "1"}
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": named}
        write(line(call, answer))
    elif method == "tools/list":
        write(line(call, {"tools": TOOLS}))
    elif method == "tools/call":
        call_tool(call, params)
    else:
        refusal = {"jsonrpc": "2.0", "id": call, "error": {"code": -32601, "message": "Method not found"}}
        write(json.dumps(refusal).encode() + b"\n")


for received in sys.stdin.buffer:
    handle(json.loads(received))
