"""A legacy server over streamable HTTP, in this process, that does with each request what a test says.

Knows one session. What a test does not script is answered as a server without tools would.
"""

import http.server
import json
import threading
from contextlib import contextmanager

SESSION = "session-1"
SECONDS = 20


class Handmade:
    """Attributes: `messages` as received; `answers` by method, each a function of (handler, message)."""

    def __init__(self):
        self.messages = []
        self.answers = {}
        self.on_get = refuse_get
        self.hung_up = threading.Event()
        self.ended = threading.Event()
        self.port = 0


def reply(handler, message, result=None, *, status=200, body=None):
    body = json.dumps(body or {"jsonrpc": "2.0", "id": message.get("id"), "result": result or {}}).encode()
    handler.send_response(status)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", str(len(body)))
    if message.get("method") == "initialize":
        handler.send_header("mcp-session-id", SESSION)
    handler.end_headers()
    handler.wfile.write(body)


def accept(handler, _message):
    handler.send_response(202)
    handler.send_header("content-length", "0")
    handler.end_headers()


def initialize(handler, message):
    named = {"name": "handmade", "version": "1"}
    reply(handler, message, {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": named})


def start_stream(handler):
    """Begin an answer of events; its end is the end of the network connection."""
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.send_header("connection", "close")
    handler.end_headers()


def never(handler, _message):
    """Answer nothing until the client hangs up."""
    handler.connection.settimeout(SECONDS)
    if handler.connection.recv(1) == b"":
        handler.server.handmade.hung_up.set()
    handler.close_connection = True


def refuse_get(handler):
    handler.send_response(405)
    handler.send_header("content-length", "0")
    handler.end_headers()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        handmade = self.server.handmade
        handmade.messages.append(message)
        known = {"initialize": initialize, **handmade.answers}
        known.get(message.get("method"), reply if "id" in message else accept)(self, message)

    def do_GET(self):
        self.server.handmade.on_get(self)

    def do_DELETE(self):
        refuse_get(self)

    def log_message(self, *args):
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, *args):
        pass  # the client hung up, which is what tests are about


@contextmanager
def handmade_server():
    handmade = Handmade()
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.handmade = handmade
        handmade.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield handmade
        finally:
            handmade.ended.set()
            server.shutdown()
            thread.join()
