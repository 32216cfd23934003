"""From a prompt's segments to the state that its beginning needs. Tokens and hashes are made once and kept.

Knows the engine's tokens and its facts; knows no tier and no cost.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from adapters.ports import Segment, SegmentKind
from adapters.state_port import Anchor, StatefulEngine
from tool_registry.blocks.descriptor import BlockKey, StateDescriptor, block_key, chain_of, tenant_salt
from tool_registry.blocks.kind import REUSE

MOST_KEPT = 4096
"""Anchors in memory: a few hundred numbers each."""

_ANCHORED = (SegmentKind.SYSTEM, SegmentKind.TOOL)
_Texts: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Anchored:
    """The beginning of a prompt, what a state of it has to be, and what such a state is kept under."""

    anchor: Anchor
    wanted: StateDescriptor
    key: BlockKey


class Anchors:
    """Makes and keeps them, for each tenant apart. `secret` is of the store of blocks."""

    def __init__(self, engine: StatefulEngine, secret: bytes) -> None:
        self._engine = engine
        self._secret = secret
        self._kept: OrderedDict[_Texts, Anchored] = OrderedDict()

    def known(self, segments: Sequence[Segment], tenant: str) -> Anchored | None:
        """What was made of such segments before; microseconds."""
        return self._kept.get(_texts(segments, tenant))

    async def of(self, segments: Sequence[Segment], tenant: str) -> Anchored:
        """The anchor of a prompt for a tenant. Raises ModelError."""
        return self.known(segments, tenant) or self.made(
            segments, tenant, await self._engine.anchor(segments)
        )

    def made(self, segments: Sequence[Segment], tenant: str, anchor: Anchor) -> Anchored:
        """Make and keep what belongs to an anchor of these segments."""
        wanted = self._descriptor(anchor, tenant)
        made = self._kept[_texts(segments, tenant)] = Anchored(
            anchor, wanted, block_key(self._secret, wanted)
        )
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return made

    def _descriptor(self, anchor: Anchor, tenant: str) -> StateDescriptor:
        """Of the tool's tokens alone where the model's state can be shared in parts, else of all from the start."""
        facts = self._engine.facts
        shared = REUSE[facts.kind].share and len(anchor.chunks) > 1
        start = sum(map(len, anchor.chunks[:-1])) if shared else 0
        return StateDescriptor(
            facts, chain_of(anchor.chunks), start, anchor.tokens, tenant_salt(self._secret, tenant)
        )


def _texts(segments: Sequence[Segment], tenant: str) -> _Texts:
    """One flat tuple, which is hashed in microseconds."""
    parts = [tenant]
    for segment in segments:
        if segment.kind in _ANCHORED:
            parts += (segment.kind, segment.text)
    return tuple(parts)
