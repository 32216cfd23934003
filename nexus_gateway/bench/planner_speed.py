"""How long one decision of the planner takes: each call is timed by itself, over blocks of many sizes and places.

Knows the planner and no engine; what it decides on is made up.
"""

import random
import time

from nexus_gateway.bench.figures import percentile
from nexus_gateway.state.costs import Costs
from nexus_gateway.state.planner import LIVE, MEMORY, Planner
from tool_registry.blocks.descriptor import RuntimeFacts, StateDescriptor
from tool_registry.blocks.kind import StateKind

CALLS = 20_000
_WARM_UP = 1_000
_TIERS = ("", MEMORY, "disk", LIVE)
_MOST_TOKENS = 2_000
_DESCRIPTORS = 64
_START = 40
_FACTS = RuntimeFacts(
    model="",
    build="",
    backend="",
    device="",
    key_type="",
    value_type="",
    transposed_values=False,
    unified=True,
    rope="",
    window="",
    lora="",
    layers="",
    kind=StateKind.DENSE,
)


def decision_us(bytes_per_token: float, *, seed: int, calls: int = CALLS) -> dict[str, float]:
    """Percentiles of a decision in µs, the clock's own cost included: {"p50":, "p99":}."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    planner = Planner(Costs())
    blocks = [
        StateDescriptor(_FACTS, chain="", start=_START, end=_START + rng.randint(1, _MOST_TOKENS), tenant="")
        for _ in range(_DESCRIPTORS)
    ]
    took: list[float] = []
    for _ in range(_WARM_UP + calls):
        block, tier = rng.choice(blocks), rng.choice(_TIERS)
        live = block.end if tier == LIVE else rng.choice((0, block.start))
        size = round(bytes_per_token * (block.end - block.start))
        started = time.perf_counter_ns()
        planner.plan(block, live, tier, size)
        took.append((time.perf_counter_ns() - started) / 1000)
    measured = took[_WARM_UP:]
    return {"p50": round(percentile(measured, 0.5), 2), "p99": round(percentile(measured, 0.99), 2)}
