"""The sockets of the HTTP front."""

import socket
from contextlib import ExitStack

from nexus_gateway.server.listening import listen
from nexus_gateway.settings import HttpSettings


def test_answers_are_not_held_back_until_the_host_acknowledges_their_beginning():
    """Issue B, "buffering kills progress": Nagle's algorithm made each answer over HTTP 40 ms late."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as closing:
        (listening,) = map(closing.enter_context, listen(HttpSettings(host="127.0.0.1", port=port)))
        closing.enter_context(socket.create_connection(("127.0.0.1", port)))
        connection, _ = listening.accept()
        closing.enter_context(connection)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
