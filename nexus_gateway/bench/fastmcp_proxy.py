"""FastMCP's proxy over stdio, as its documentation sets one up; runs in FastMCP's own virtual environment.

    python fastmcp_proxy.py CONFIG      where CONFIG is an mcpServers document

Imports nothing of this project, which is not installed there.
"""

import json
import sys

from fastmcp.server import create_proxy  # type: ignore[import-not-found]

if __name__ == "__main__":
    create_proxy(json.loads(sys.argv[1]), name="proxy").run(transport="stdio", show_banner=False)
