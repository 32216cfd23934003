"""Tasks of upstreams: which server runs one (whose result named it first), and which requests about it are in order."""

from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

from adapters.ports import Era, JsonObject
from nexus_gateway.access.caller import Caller
from nexus_gateway.server.host_connection import Context

MAX_TASKS = 4096

EXTENSION: Final = "io.modelcontextprotocol/tasks"
_METHODS: Final[Mapping[Era, frozenset[str]]] = {
    Era.LEGACY: frozenset({"tasks/get", "tasks/result", "tasks/cancel"}),
    Era.MODERN: frozenset({"tasks/get", "tasks/update", "tasks/cancel"}),
}
TASK_METHODS = tuple(sorted(_METHODS[Era.LEGACY] | _METHODS[Era.MODERN]))
"""Of 2025-11-25 and of the extension. `tasks/list` names no task, so it has no server to go to."""


def check_request(ctx: Context, caller: Caller) -> None:
    """Whether a request about a task may be made. Raises MCPError as the extension wants it."""
    if ctx.method not in _METHODS[caller.era]:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
    if caller.era is Era.LEGACY:
        return
    declared = caller.host.capabilities.get("extensions") if caller.host else None
    if not isinstance(declared, Mapping) or EXTENSION not in declared:
        required: JsonObject = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", required)
    if ctx.request is None:  # not over HTTP
        return
    if decode_header_value(ctx.request.headers.get(MCP_NAME_HEADER)) != (ctx.params or {}).get("taskId"):
        raise MCPError(HEADER_MISMATCH, f"{MCP_NAME_HEADER} must repeat the task's id")


class TaskRoutes:
    """Servers by task id; the oldest are forgotten."""

    def __init__(self) -> None:
        self._servers: dict[str, str] = {}

    def learn(self, server: str, result: Mapping[str, Any]) -> None:
        """Remember the task that a call's result stands for, if it is one."""
        task = result.get("task")
        task_id = task.get("taskId") if isinstance(task, Mapping) else result.get("taskId")
        if not isinstance(task_id, str):
            return
        self._servers.setdefault(task_id, server)
        while len(self._servers) > MAX_TASKS:
            del self._servers[next(iter(self._servers))]

    def server(self, task_id: object) -> str | None:
        """Where a task runs."""
        return self._servers.get(task_id) if isinstance(task_id, str) else None
