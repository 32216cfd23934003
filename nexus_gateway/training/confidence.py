"""Fits the shipped gate of arguments: BFCL `simple_python` and `multiple` rows, which the reading model has not seen."""

from collections.abc import Callable, Iterable, Sequence

from nexus_gateway.bench.arguments_data import ArgumentQuery
from nexus_gateway.turn.arguments import ArgumentWriter
from nexus_gateway.turn.calibrating_arguments import Drafted, could_run, fit_arguments
from nexus_gateway.turn.confidence import ArgumentCalibration
from tool_registry.index import compile_tool

PRECISION = 0.8
"""Of the drafts that run. On these rows no threshold has 95 %: what is wrong among the surest is a matter of form (a city
without its state, a year instead of ten), of which the reading model knows nothing."""
FITTED_ON = ("simple_python", "multiple")


async def drafted(
    writer: ArgumentWriter, queries: Iterable[ArgumentQuery], advance: Callable[[], None] = lambda: None
) -> list[Drafted]:
    """Write the arguments of every request; those that would not run in any case are left out. Raises ModelError."""
    found = []
    for query in queries:
        compiled = compile_tool(query.tool)
        draft = await writer.write(compiled, query.text, bindings=query.bindings)
        if could_run(draft, compiled):
            found.append(Drafted(draft.evidence, query.gold.accepts(draft.arguments, compiled.schema)))
        advance()
    return found


def fit_confidence(rows: Sequence[Drafted], asked: int, reader: str, source: str) -> ArgumentCalibration:
    """As `fit_arguments`, for the shipped precision.

    Args:
        rows: drafts that could run.
        asked: requests in all, of which these are the drafts.
        reader: identity of the reading model.
        source: where the requests are from, for people.
    """
    found = fit_arguments(rows, requests=asked, precision=PRECISION)
    return found.calibration(reader, {"source": source})
