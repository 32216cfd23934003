"""A tool as an upstream lists it: identity, whole definition, content hash, annotations."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NewType

ContentHash = NewType("ContentHash", str)
"""Hex BLAKE2b-128 over the canonical JSON of a *whole* definition: any changed part changes it."""

MAX_NAME_CHARACTERS = 1024


class UnusableToolError(ValueError):
    """A listed definition that can't become a tool; `str(error)` is the reason, for people."""


@dataclass(frozen=True, slots=True, order=True)
class ToolId:
    """A tool's identity: the configured server name and the tool's own name, verbatim."""

    server: str
    name: str

    def __str__(self) -> str:
        return f"{self.server}/{self.name}"


@dataclass(frozen=True, slots=True)
class Annotations:
    """The behaviour hints of a definition; None where the upstream is silent. They are claims, not facts."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """One usable tool.

    Attributes:
        id: server and name.
        definition: the listed JSON object, untouched; unknown fields are kept.
        content_hash: hash over the whole definition.
        description: the listed description, or an empty string.
        annotations: behaviour hints.
    """

    id: ToolId
    definition: Mapping[str, Any]
    content_hash: ContentHash
    description: str
    annotations: Annotations

    @property
    def input_schema(self) -> Any:
        """The schema as listed; `tool_registry.schema` normalises it."""
        return self.definition.get("inputSchema")


def content_hash(definition: Mapping[str, Any]) -> ContentHash:
    """Hash a definition; key order does not count, anything else does."""
    canonical = json.dumps(definition, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return ContentHash(hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest())


def tool_from_definition(server: str, definition: object) -> Tool:
    """Make a tool of one entry of `tools/list`.

    Raises:
        UnusableToolError: no usable name, or a schema that is neither object, boolean, null nor absent.
    """
    if not isinstance(definition, Mapping):
        raise UnusableToolError(f"the entry is a JSON {type(definition).__name__}, not an object")
    name = definition.get("name")
    if not isinstance(name, str) or not name.strip():
        raise UnusableToolError("the definition has no name")
    if len(name) > MAX_NAME_CHARACTERS:
        raise UnusableToolError(
            f"the name has {len(name):,} characters; at most {MAX_NAME_CHARACTERS:,} are usable"
        )
    schema = definition.get("inputSchema")
    if schema is not None and not isinstance(schema, bool | Mapping):
        raise UnusableToolError(f"inputSchema is a JSON {type(schema).__name__}, not an object")
    description = definition.get("description")
    return Tool(
        id=ToolId(server, name),
        definition=definition,
        content_hash=content_hash(definition),
        description=description if isinstance(description, str) else "",
        annotations=_annotations(definition.get("annotations")),
    )


def _annotations(raw: object) -> Annotations:
    if not isinstance(raw, Mapping):
        return Annotations()

    def hint(key: str) -> bool | None:
        value = raw.get(key)
        return value if isinstance(value, bool) else None

    return Annotations(
        read_only=hint("readOnlyHint"),
        destructive=hint("destructiveHint"),
        idempotent=hint("idempotentHint"),
        open_world=hint("openWorldHint"),
    )
