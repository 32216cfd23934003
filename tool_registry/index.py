"""The routing index: everything compiled from one catalogue snapshot, immutable and ready to search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tool_registry.equivalents import Equivalents
from tool_registry.lexical import LexicalIndex
from tool_registry.lookaside import LookasideBuffer
from tool_registry.schema import normalise, properties
from tool_registry.signature import signature
from tool_registry.text import split_words, tool_text, tool_words
from tool_registry.tool import Tool, ToolId

COMPILER_VERSION = "2"
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
    def lowered_name(self) -> str:
        """The tool's name in lower case."""
        return self.tool.id.name.lower()

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
    """All compiled tools of one epoch. Position in `tools` is the tool's place in all else.

    Attributes:
        position: where each tool stands.
        names: of the tools, in lower case.
        writing: which tools say that they write, shape (tools,).
    """

    epoch: int = 0
    tools: tuple[CompiledTool, ...] = ()
    lookaside: LookasideBuffer = field(default_factory=LookasideBuffer)
    lexical: LexicalIndex = field(default_factory=LexicalIndex)
    equivalents: Equivalents = field(default_factory=Equivalents)
    position: Mapping[ToolId, int] = field(default_factory=dict)
    names: Sequence[str] = ()
    writing: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    @property
    def memory_bytes(self) -> int:
        """Of both indexes; the definitions of the tools are not among it."""
        return self.lookaside.memory_bytes + self.lexical.memory_bytes

    def get(self, tool_id: ToolId) -> CompiledTool | None:
        """The compiled tool, or None."""
        place = self.position.get(tool_id)
        return None if place is None else self.tools[place]

    def find(self, reference: str) -> list[CompiledTool]:
        """Tools that `reference` names: `server/name` exactly, or a bare name on any server."""
        exact = [compiled for compiled in self.tools if str(compiled.id) == reference]
        return exact or [compiled for compiled in self.tools if compiled.id.name == reference]

    def names_within(self, lowered: str) -> list[int]:
        """Places of the tools whose lower-cased name is somewhere in a lower-cased text."""
        return [place for place, name in enumerate(self.names) if name in lowered]

    def cosine(self, place: int, other: int) -> float:
        """How alike the first vectors of two tools are, within 0.01; 0 where one has none."""
        rows = self.lookaside.vectors(place)[:1], self.lookaside.vectors(other)[:1]
        return float(rows[0][0] @ rows[1][0]) if all(map(len, rows)) else 0.0

    def moved(
        self, epoch: int, tools: Sequence[CompiledTool], vectors: Sequence[NDArray[np.float32]]
    ) -> "RoutingIndex":
        """The index of the next catalogue, in time of what changed; this one stays as it is.

        Args:
            epoch: of the next catalogue.
            tools: all of it. Those that are this index's very objects are kept, in the order they are in here.
            vectors: of the other tools, in their order, each of shape (rows, dimensions).

        Raises:
            ValueError: the kept tools are in another order, or vectors have different dimensions.
        """
        move = _Move.of(self.tools, tools)
        return RoutingIndex(
            epoch=epoch,
            tools=tuple(tools),
            lookaside=self.lookaside.edited(move.source, vectors),
            lexical=self._lexical(tools, move),
            equivalents=self.equivalents.edited(
                [one.tool for one in move.added], [one.tool for one in move.removed]
            ),
            position=self.position
            if move.in_place
            else {compiled.tool.id: place for place, compiled in enumerate(tools)},
            names=[compiled.lowered_name for compiled in tools],
            writing=_spread(move, self.writing, [_writes(one) for one in move.added]),
        )

    def _lexical(self, tools: Sequence[CompiledTool], move: "_Move") -> LexicalIndex:
        """Forgetting takes the words of what is gone: where little stays, to start anew is less work."""
        if len(move.removed) > len(self.tools) // 2:
            return LexicalIndex.build([_words(one) for one in tools], self.lexical.parameters)
        added, removed = map(_words, move.added), map(_words, move.removed)
        return self.lexical.edited(move.source, list(added), list(removed))


def build_index(
    epoch: int, tools: Sequence[CompiledTool], vectors: Sequence[NDArray[np.float32]]
) -> RoutingIndex:
    """Put compiled tools and their vectors (same order) into a searchable snapshot."""
    return RoutingIndex().moved(epoch, tools, vectors)


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """From one list of tools to the next.

    Attributes:
        source: shape (tools of the next,): where each was, -1 for a new one.
        added: the new ones, in order.
        removed: those that are gone, in order.
        in_place: every new tool stands where one of the same id stood, and nothing else moved.
    """

    source: NDArray[np.intp]
    added: Sequence[CompiledTool]
    removed: Sequence[CompiledTool]
    in_place: bool

    @classmethod
    def of(cls, last: Sequence[CompiledTool], tools: Sequence[CompiledTool]) -> "_Move":
        """Compare by identity. What the lists begin with in common, most of them often, is passed over."""
        start = next(
            (at for at, (one, other) in enumerate(zip(last, tools, strict=False)) if one is not other),
            min(len(last), len(tools)),
        )
        places = {id(compiled): place for place, compiled in enumerate(last[start:], start)}
        source = np.arange(len(tools))
        source[start:] = [places.get(id(compiled), -1) for compiled in tools[start:]]
        left = np.ones(len(last), np.bool_)
        left[source[source >= 0]] = False
        new, old = np.flatnonzero(source < 0), np.flatnonzero(left)
        added, removed = [tools[at] for at in new.tolist()], [last[at] for at in old.tolist()]
        ids = [one.tool.id for one in added] == [one.tool.id for one in removed]
        return cls(source, added, removed, ids and bool(np.array_equal(new, old)))


def _spread(move: _Move, kept: NDArray[np.bool_], added: Sequence[bool]) -> NDArray[np.bool_]:
    """What is known of the kept tools and of the added ones, at their places."""
    stays = move.source >= 0
    spread = np.empty(len(move.source), np.bool_)
    spread[stays], spread[~stays] = kept[move.source[stays]], added
    return spread


def _writes(compiled: CompiledTool) -> bool:
    return compiled.tool.annotations.read_only is False


def _words(compiled: CompiledTool) -> dict[str, list[str]]:
    return tool_words(compiled.tool, compiled.schema)
