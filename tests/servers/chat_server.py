"""An OpenAI-compatible chat server in this process that answers as a test says, in order."""

import http.server
import json
import threading
from contextlib import contextmanager

SECONDS = 20


class Chat:
    """Attributes: `asked`, the (path, headers, body) of each request; `answers`, functions of a handler, in order."""

    def __init__(self, answers):
        self.asked = []
        self.answers = list(answers)
        self.hung_up = threading.Event()
        self.port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self):
        return [body for _, _, body in self.asked]


def status(code, body=None, **headers):
    """Answer a JSON body, or any text."""
    text = body if isinstance(body, str) else json.dumps(body or {})

    def answer(handler):
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(text.encode())))
        handler.end_headers()
        handler.wfile.write(text.encode())

    return answer


def failing(code, message, **headers):
    return status(code, {"error": {"message": message}}, **headers)


def says(text, finish="stop", usage=None):
    """A completion whose message is `text`, or a call of the tool with it."""
    usage = usage or {"prompt_tokens": 20, "completion_tokens": 5}

    def answer(handler):
        called = "tools" in handler.body
        message = {"tool_calls": [{"function": {"arguments": text}}]} if called else {"content": text}
        status(200, {"choices": [{"message": message, "finish_reason": finish}], "usage": usage})(handler)

    return answer


def cut_in_the_middle(handler):
    """Begin an answer, and close the connection."""
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b'a\r\n{"choices"\r\n')
    handler.close_connection = True


def endless(handler):
    """An answer that does not end before the client hangs up."""
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b" " * 65_536)
    except OSError:
        handler.server.chat.hung_up.set()


def never(handler):
    """Answer nothing until the client hangs up."""
    handler.connection.settimeout(SECONDS)
    if handler.connection.recv(1) == b"":
        handler.server.chat.hung_up.set()
    handler.close_connection = True


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._answer()

    def do_GET(self):
        self.body = {}
        self._answer()

    def _answer(self):
        chat = self.server.chat
        chat.asked.append((self.path, dict(self.headers), self.body))
        answer = chat.answers.pop(0) if chat.answers else failing(418, "the script has ended")
        answer(self)

    def log_message(self, *args):
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, *args):
        pass  # the client hung up, which is what tests are about


@contextmanager
def chat_server(*answers):
    chat = Chat(answers)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.chat = chat
        chat.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield chat
        finally:
            server.shutdown()
            thread.join()
