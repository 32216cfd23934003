"""Flaky: a server that dies in every call. It is there to show what the gateway does when one does.

Its only tool stands for a driver that takes its whole process down, as native code can; there is no printer.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import Field

from nexus_gateway.demo.servers.common import ADDS, make_server, serve

EXIT_CODE = 70


def print_label(
    address: Annotated[str, Field(description="Address to print on the label", min_length=1)],
) -> str:
    """Print an address label on the office label printer."""
    sys.stderr.write(f"label printer driver: fatal error while printing {len(address)} characters\n")
    sys.stderr.flush()
    # Not sys.exit: nothing is to be flushed, answered or cleaned up, as in a crash.
    os._exit(EXIT_CODE)


def build(_workspace: Path) -> MCPServer:
    """The server; it needs nothing of the workspace."""
    return make_server("flaky", "The office label printer.", [(print_label, ADDS)])


if __name__ == "__main__":
    serve(build)
