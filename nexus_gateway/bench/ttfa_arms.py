"""The arms of `bench ttfa`: ways from a prompt's tokens to the logits of the first token of its arguments.

All share the system's part, which is in the context before any clock starts, and all end with the request decoded
as a batch of its own.
- "full": the tool in full is decoded, as a host does that has not seen it.
- "signature": the gateway's own short form is decoded.
- "restore": the block of the tool in full, held in memory, is put back.
- "disk": the same, but first looked up, read and checked in the store; the system may have the file in its cache.
- "limit": the block is in the context already: nothing but the request is decoded.
- "concat10": the tool and nine others in full are decoded.

Knows a context and blocks; draws nothing and reports nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from adapters.state_port import Chunk
from nexus_gateway.bench.state_blocks import Blocks, Compiled
from nexus_gateway.bench.state_cases import Case
from nexus_gateway.bench.state_lab import Lab, Place

NEIGHBOURS = 64
"""Cells that stay free for the neighbours of a crowded cache."""


class Arm(StrEnum):
    """A way to the first argument token."""

    FULL = "full"
    SIGNATURE = "signature"
    RESTORE = "restore"
    DISK = "disk"
    LIMIT = "limit"
    CONCAT = "concat10"


_DECODED: Mapping[Arm, Callable[[Case], Chunk]] = {
    Arm.FULL: lambda case: case.schema,
    Arm.SIGNATURE: lambda case: case.signature,
    Arm.CONCAT: lambda case: case.concatenated,
}


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What one arm did for one request.

    Attributes:
        seconds: from tokens to logits.
        reading: of these, looking the block up in the store, reading and checking it.
        placing: of these, putting or decoding the tool's state into the context.
        logits: after the request, shape (vocabulary,).
    """

    seconds: float
    reading: float
    placing: float
    logits: NDArray[np.float32]


class Bench:
    """Runs the arms on one case at a time."""

    def __init__(self, lab: Lab, blocks: Blocks) -> None:
        self._lab = lab
        self._blocks = blocks

    def fits(self, case: Case) -> bool:
        """Whether the prompt with the tool in full has room in the context, neighbours included."""
        return len(case.system) + len(case.schema) + len(case.request) + NEIGHBOURS <= self._lab.size

    def fits_concatenated(self, case: Case) -> bool:
        """Whether the prompt with all tools in full has room in the context."""
        return len(case.system) + len(case.concatenated) + len(case.request) <= self._lab.size

    @contextmanager
    def prepared(self, case: Case) -> Iterator[Compiled]:
        """A case's block, compiled and in the store for as long as it is used. Raises BenchError."""
        compiled = self._blocks.compile(case.label, case.system, case.schema)
        self._blocks.put(compiled)
        try:
            yield compiled
        finally:
            self._blocks.forget(compiled)

    def file_bytes(self, compiled: Compiled) -> int:
        """Of a prepared block's file."""
        return self._blocks.file_bytes(compiled)

    def run(self, arm: Arm, case: Case, compiled: Compiled) -> Reading:
        """One arm, from a context with the system's part alone. Raises BenchError."""
        lab, blocks = self._lab, self._blocks
        blocks.settle(case.system)
        if arm is Arm.LIMIT:
            blocks.put_back(compiled.payload)
        elif arm in _DECODED:
            lab.share(Place.SYSTEM, Place.WORK)
        started = time.perf_counter()
        payload = blocks.read(compiled) if arm is Arm.DISK else compiled.payload
        read = time.perf_counter()
        if arm in _DECODED:
            lab.decode(Place.WORK, _DECODED[arm](case))
        elif arm is not Arm.LIMIT:
            blocks.put_back(payload)
        placed = time.perf_counter()
        lab.decode(Place.WORK, case.request)
        logits = lab.logits()
        return Reading(time.perf_counter() - started, read - started, placed - read, logits)

    def crowded(self, case: Case, compiled: Compiled, before: int, between: int) -> NDArray[np.float32]:
        """The logits of a restore among others' tokens.

        The prompt's cells are scattered but lie in the order of their positions, as an engine has to keep them: where
        they don't, llama.cpp gives other numbers with and without a restore.

        Args:
            case: whose prompt it is.
            compiled: its block.
            before: tokens of a neighbour in the cells before the block's.
            between: tokens of another one in the cells between the block's and the request's.

        Returns:
            Shape (vocabulary,).
        """
        lab, blocks = self._lab, self._blocks
        blocks.settle(case.system)
        lab.decode(Place.NEIGHBOUR, case.concatenated[:before])
        blocks.put_back(compiled.payload)
        lab.decode(Place.NEXT_NEIGHBOUR, case.concatenated[:between])
        lab.decode(Place.WORK, case.request)
        return lab.logits()
