"""A disk whose reads wait, and by how much turns overrun the budget of a read then; run it for the figures."""

import sys
import tempfile
import time
from pathlib import Path

import anyio

from adapters.state_double import StatefulDouble


class StalledDisk:
    """In place of the disk of a layer: reads wait until `go` is set."""

    def __init__(self, parts):
        self.get, self.reached, self.go = parts.disk.get, anyio.Event(), anyio.Event()
        parts.lookup.tier("disk").get = self.stalled

    async def stalled(self, wanted):
        self.reached.set()
        await self.go.wait()
        return await anyio.to_thread.run_sync(self.get, wanted)


class Clocked(StatefulDouble):
    """Notes when it is asked."""

    def __init__(self, **how):
        super().__init__(**how)
        self.asked = []

    async def complete(self, segments, schema, *, max_tokens, state=None):
        self.asked.append(time.perf_counter())
        return await super().complete(segments, schema, max_tokens=max_tokens, state=state)


async def overruns(folder, turns):
    """Seconds from the end of the read's budget to the engine's being asked; `folder` has the block."""
    from support.state_layers import layer  # noqa: PLC0415 - it is found once this file is imported by a test

    taken = []
    async with layer(folder, Clocked(seconds_a_token=1e-4)) as state:
        StalledDisk(state.parts)
        for _ in range(turns):
            state.engine.forget()
            plan = state.parts.lookup.plan(await state.anchored())
            started = time.perf_counter()
            turn = await state.ask()
            assert turn.state.prefilled_tokens > 0
            taken.append(state.engine.asked[-1] - started - plan.budget_seconds)
    return taken


async def _main():
    from support.state_layers import layer  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        async with layer(Path(folder)) as state:
            await state.ask()
            await state.compiled()
        taken = sorted(await overruns(Path(folder), 200))
    plain = []
    for _ in taken:
        started = time.perf_counter()
        await anyio.sleep(0.005)
        plain.append(time.perf_counter() - started - 0.005)
    for name, spent in (("turn", taken), ("plain timer", sorted(plain))):
        p50, p90 = (spent[len(spent) * share // 100] * 1000 for share in (50, 90))
        sys.stdout.write(f"{name}: overrun ms p50 {p50:.2f} p90 {p90:.2f} n={len(spent)}\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    anyio.run(_main)
