"""The routing index: everything compiled from one catalogue snapshot, immutable and ready to search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tool_registry.lexical import LexicalIndex
from tool_registry.lookaside import LookasideBuffer
from tool_registry.schema import normalise, properties
from tool_registry.signature import signature
from tool_registry.text import split_words, tool_text, tool_words
from tool_registry.tool import Tool, ToolId

COMPILER_VERSION = "1"
"""Part of the store's key: a change of signature or tool text makes earlier records unusable."""


@dataclass(frozen=True, eq=False)
class CompiledTool:
    """A tool and what is compiled from its definition.

    Attributes:
        schema: the input schema, normalised (`tool_registry.schema`).
        signature: compressed call signature.
        text: what the embedder reads.
    """

    tool: Tool
    schema: Mapping[str, Any]
    signature: str
    text: str

    @property
    def id(self) -> ToolId:
        """The tool's identity."""
        return self.tool.id

    @cached_property
    def name_words(self) -> frozenset[str]:
        """The words of the tool's name."""
        return frozenset(split_words(self.tool.id.name))

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """Words that the tool uses of itself: name, description, parameter names."""
        return frozenset(
            [
                *self.name_words,
                *split_words(self.tool.description),
                *split_words(" ".join(properties(self.schema))),
            ]
        )

    @property
    def deprecated(self) -> bool:
        """Whether the tool calls itself deprecated, in its name, title or description."""
        title = self.tool.definition.get("title")
        return "deprecated" in f"{self.tool.id.name} {title or ''} {self.tool.description}".lower()


def compile_tool(tool: Tool) -> CompiledTool:
    """Compile one definition; never raises for a usable tool."""
    schema = normalise(tool.input_schema)
    return CompiledTool(tool, schema, signature(tool.id.name, schema), tool_text(tool, schema))


@dataclass(frozen=True, eq=False)
class RoutingIndex:
    """All compiled tools of one epoch. Position in `tools` is the row's tool in both indexes.

    Attributes:
        vectors: one array of shape (rows, dimensions) a tool; what `lookaside` was built from.
    """

    epoch: int = 0
    tools: tuple[CompiledTool, ...] = ()
    vectors: tuple[NDArray[np.float32], ...] = ()
    lookaside: LookasideBuffer = field(default_factory=lambda: LookasideBuffer.build(()))
    lexical: LexicalIndex = field(default_factory=lambda: LexicalIndex.build(()))

    @cached_property
    def position(self) -> Mapping[ToolId, int]:
        """Where each tool stands."""
        return {compiled.id: place for place, compiled in enumerate(self.tools)}

    def get(self, tool_id: ToolId) -> CompiledTool | None:
        """The compiled tool, or None."""
        place = self.position.get(tool_id)
        return None if place is None else self.tools[place]

    def find(self, reference: str) -> list[CompiledTool]:
        """Tools that `reference` names: `server/name` exactly, or a bare name on any server."""
        exact = [compiled for compiled in self.tools if str(compiled.id) == reference]
        return exact or [compiled for compiled in self.tools if compiled.id.name == reference]


def build_index(
    epoch: int, tools: Sequence[CompiledTool], vectors: Sequence[NDArray[np.float32]]
) -> RoutingIndex:
    """Put compiled tools and their vectors (same order) into a searchable snapshot."""
    return RoutingIndex(
        epoch=epoch,
        tools=tuple(tools),
        vectors=tuple(vectors),
        lookaside=LookasideBuffer.build(vectors),
        lexical=LexicalIndex.build([tool_words(compiled.tool, compiled.schema) for compiled in tools]),
    )
