"""`bench reuse`: what each tool's block costs and saves, measured once a tool; turns are then replayed with it.

Really measured, tool by tool, on the model: decoding the tool in full, reading and checking its block in a real
store, putting it back, and decoding a request behind it. Knows arms and cases; knows no policy and no screen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nexus_gateway.bench.state_cases import Case
from nexus_gateway.bench.ttfa_arms import Arm, Bench
from tool_registry.blocks.descriptor import StateDescriptor

Advance = Callable[[], None]
"""Told after each tool or turn."""


@dataclass(frozen=True, slots=True)
class ToolCost:
    """One tool, in seconds and bytes.

    Attributes:
        label: "server/tool".
        payload_bytes: of its state.
        file_bytes: of its block in the store.
        prefill: decoding the tool in full.
        reading: looking its block up in the store, reading and checking it.
        placing: putting its state into the context.
        request: decoding a request behind it.
    """

    label: str
    descriptor: StateDescriptor
    payload_bytes: int
    file_bytes: int
    prefill: float
    reading: float
    placing: float
    request: float

    @property
    def tokens(self) -> int:
        """Of its block."""
        return self.descriptor.end - self.descriptor.start

    @property
    def gain(self) -> float:
        """G = T_compute - T_cache as measured; of reading from disk."""
        return self.prefill - self.reading - self.placing

    def first_argument(self, *, reused: bool) -> float:
        """Time to the first argument token."""
        return self.request + (self.reading + self.placing if reused else self.prefill)


def measure_tools(bench: Bench, cases: Sequence[Case], advance: Advance) -> list[ToolCost]:
    """Measure every tool whose prompt fits the context, in order. Raises BenchError."""
    costs = []
    for case in cases:
        if bench.fits(case):
            costs.append(_measured(bench, case))
        advance()
    return costs


def execute(bench: Bench, case: Case, *, reused: bool) -> float:
    """One turn, really: seconds to the first argument token with or without a block. Raises BenchError."""
    with bench.prepared(case) as compiled:
        return bench.run(Arm.DISK if reused else Arm.FULL, case, compiled).seconds


def _measured(bench: Bench, case: Case) -> ToolCost:
    with bench.prepared(case) as compiled:
        reading = bench.run(Arm.DISK, case, compiled)
        return ToolCost(
            label=case.label,
            descriptor=compiled.descriptor,
            payload_bytes=len(compiled.payload),
            file_bytes=bench.file_bytes(compiled),
            prefill=compiled.seconds,
            reading=reading.reading,
            placing=reading.placing,
            request=reading.seconds - reading.reading - reading.placing,
        )
