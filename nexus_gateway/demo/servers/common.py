"""What the demo servers share: start, registration, behaviour hints, files that stay whole.

Knows the SDK. Knows nothing of the gateway, nor of what any one server is about.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

# By the specification, all that is not purely additive is destructive.
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
SETS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
CHANGES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
REMOVES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
)
UNANNOTATED = None
"""For tools that say nothing about their behaviour, as many real ones do."""

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
Registration = tuple[Callable[..., Any], ToolAnnotations | None]


def make_server(name: str, instructions: str, tools: Iterable[Registration]) -> MCPServer:
    """A server of these functions: their docstrings become descriptions, their parameters the schema.

    A function that returns text declares no output schema; any other declares that of its return type.
    """
    server = MCPServer(name, instructions=instructions, version="1.0.0", log_level="WARNING")
    lock = Lock()
    for function, annotations in tools:
        server.add_tool(
            _one_at_a_time(function, lock),
            description=inspect.getdoc(function),
            annotations=annotations,
            structured_output=inspect.signature(function).return_annotation is not str,
        )
    return server


def _one_at_a_time(function: Callable[Parameters, Returned], lock: Lock) -> Callable[Parameters, Returned]:
    # The SDK calls tools in worker threads, and ours read, change and write whole files.
    @wraps(function)
    def tool(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        try:
            with lock:
                return function(*args, **kwargs)
        except OSError as error:
            named = f"{Path(error.filename).name}: " if isinstance(error.filename, str) else ""
            raise ToolError(f"{named}{error.strerror or error}") from error

    return tool


def serve(build: Callable[[Path], MCPServer]) -> None:
    """Serve the workspace named on the command line over stdio until the client closes the connection."""
    match sys.argv[1:]:
        case [directory] if Path(directory).is_dir():
            with suppress(KeyboardInterrupt):
                build(Path(directory).resolve()).run()
        case [directory]:
            sys.exit(f"{directory} is not a directory; pass a workspace made by `nexus-gateway demo`")
        case _:
            sys.exit("one argument is needed: the workspace directory")


def inside(root: Path, path: str) -> Path:
    """The absolute place of `path` under `root`, links followed.

    Raises:
        ToolError: it is outside of `root`, or not a path.
    """
    try:
        resolved = (root / path).resolve()
    except ValueError as error:
        raise ToolError(f"{path!r} is not a path: {error}") from error
    if not resolved.is_relative_to(root.resolve()):
        raise ToolError(f"{path} is outside of {root.name}/, and only paths inside it are allowed")
    return resolved


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        ToolError: the file is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(f"{path.name} is not a UTF-8 text file") from error


def write_text(path: Path, text: str) -> None:
    """Replace or create a file at once: a reader sees the old text or the new, never half."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8", newline="")
    draft.replace(path)


def read_records(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON array file; none where the file does not exist.

    Raises:
        ToolError: the file is not a JSON array of objects.
    """
    if not path.exists():
        return []
    try:
        records = json.loads(read_text(path))
    except ValueError as error:
        raise ToolError(f"{path.name} is not valid JSON: {error}") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise ToolError(f"{path.name} must be a JSON array of objects")
    return records


def write_records(path: Path, records: list[dict[str, Any]]) -> None:
    """Replace a JSON array file."""
    write_text(path, json.dumps(records, indent=2, ensure_ascii=False) + "\n")


def lines_or(lines: Iterable[str], otherwise: str) -> str:
    """One line each, or what to say where there is none."""
    return "\n".join(lines) or otherwise
