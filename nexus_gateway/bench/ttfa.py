"""`bench ttfa`: time to the first argument token of every arm, and whether a restored state says the same.

The arms of one request take turns in an order that is rotated from request to request, so that what else the machine
does meets all of them alike. The reference of fidelity is the "full" arm: the same batches without a restore.

Knows arms and cases; knows no model, no file and no screen.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nexus_gateway.bench.state_blocks import Compiled
from nexus_gateway.bench.state_cases import Case
from nexus_gateway.bench.ttfa_arms import Arm, Bench, Reading

ODD_OFFSETS = (1, 7, 19, 31)
"""Tokens of a neighbour: none is a multiple of what a kernel takes at once; any two have room in `NEIGHBOURS`."""

Advance = Callable[[], None]
"""Told after each case."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a distribution is from its reference.

    Attributes:
        kl: divergence from the reference, nats.
        top1: whether the most probable token is the same.
    """

    kl: float
    top1: bool


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """One request.

    Attributes:
        seconds: by arm, to the first argument token; an arm that did not fit is missing.
        restoring: by arm, until the block was read and in place.
        tokens: of the parts of its prompts, by name.
        block_bytes: of its block.
        alone: of restores into a cache with nobody else's tokens.
        crowded: of restores among neighbours.
    """

    label: str
    seconds: Mapping[Arm, float]
    restoring: Mapping[Arm, float]
    tokens: Mapping[str, int]
    block_bytes: int
    alone: Sequence[Agreement]
    crowded: Sequence[Agreement]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What was measured.

    Attributes:
        left_out: requests whose tool in full exceeds the context: no arm to compare with.
        overflows: requests at which ten tools in full exceed the context; the other arms ran.
    """

    timed: Sequence[Timed]
    left_out: int
    overflows: int


def measure(bench: Bench, cases: Sequence[Case], *, seed: int, concat: bool, advance: Advance) -> Run:
    """Run all arms on every case. `concat` False leaves the one of ten tools out. Raises BenchError."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    timed: list[Timed] = []
    left_out = overflows = 0
    for case in cases:
        if not bench.fits(case):
            left_out += 1
            advance()
            continue
        with_concat = concat and bench.fits_concatenated(case)
        overflows += concat and not with_concat
        arms = [arm for arm in Arm if arm is not Arm.CONCAT or with_concat]
        turn = len(timed) % len(arms)
        with bench.prepared(case) as compiled:
            timed.append(_timed(bench, case, compiled, [*arms[turn:], *arms[:turn]], rng))
        advance()
    return Run(timed, left_out, overflows)


def agreement(reference: NDArray[np.float32], other: NDArray[np.float32]) -> Agreement:
    """KL(reference || other) over the whole vocabulary in float64, and whether both choose the same token.

    Args:
        reference: logits, shape (vocabulary,).
        other: logits, shape (vocabulary,).
    """
    logs, other_logs = _log_softmax(reference), _log_softmax(other)
    divergence = float(np.sum(np.exp(logs) * (logs - other_logs)))
    return Agreement(max(divergence, 0.0), int(reference.argmax()) == int(other.argmax()))


def _timed(bench: Bench, case: Case, compiled: Compiled, arms: Sequence[Arm], rng: random.Random) -> Timed:
    readings: dict[Arm, Reading] = {arm: bench.run(arm, case, compiled) for arm in arms}
    reference = readings[Arm.FULL].logits
    crowded = bench.crowded(case, compiled, rng.choice(ODD_OFFSETS), rng.choice(ODD_OFFSETS))
    return Timed(
        label=case.label,
        seconds={arm: reading.seconds for arm, reading in readings.items()},
        restoring={arm: readings[arm].reading + readings[arm].placing for arm in (Arm.RESTORE, Arm.DISK)},
        tokens={
            "system": len(case.system),
            "schema": len(case.schema),
            "signature": len(case.signature),
            "request": len(case.request),
            "concat10": len(case.concatenated),
            "block": compiled.descriptor.end - compiled.descriptor.start,
        },
        block_bytes=len(compiled.payload),
        alone=[agreement(reference, readings[arm].logits) for arm in (Arm.RESTORE, Arm.DISK)],
        crowded=[agreement(reference, crowded)],
    )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - float(logits.max())
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return logs
