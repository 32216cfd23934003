"""A number that is written alone ends where the model would go on with the answer it is part of."""

import json

import anyio
import pytest

from adapters.llama_cpp.engine import open_engine
from adapters.ports import Segment, SegmentKind

BUDGET = 24
TOOL = "f(city: string, days: integer, amount: number, level: number)"
INTEGER, NUMBER = {"type": "integer"}, {"type": "number"}
CASES = [
    ("weather in Paris for 3 days", '{"city":"Paris","days":', INTEGER, 3),
    ("weather in Paris for 12 days", '{"city":"Paris","days":', INTEGER, 12),
    ("weather in Paris for 12 days", '{"city":"Paris","days":', {"enum": [1, 12, 123]}, 12),
    ("pay 12500 to Ann", '{"to":"Ann","amount":', NUMBER, 12500),
    ("pay 12.75 to Ann", '{"to":"Ann","amount":', NUMBER, 12.75),
    ("set the level to -40", '{"level":', {"type": ["number", "null"]}, -40),
]


def prompt(request, begun):
    texts = {
        SegmentKind.SYSTEM: "Write the arguments of the tool as JSON.",
        SegmentKind.TOOL: f"\nFunction: {TOOL}",
        SegmentKind.REQUEST: request,
        SegmentKind.ANSWER: begun,
    }
    return [Segment(kind, text) for kind, text in texts.items()]


@pytest.mark.anyio
async def test_a_bare_number_is_the_one_of_the_request_and_does_not_run_on_to_the_budget(smollm):
    with anyio.fail_after(100):
        async with open_engine(smollm) as engine:
            for request, begun, schema, wanted in CASES:
                written = await engine.complete(prompt(request, begun), schema, max_tokens=BUDGET)
                assert (written.complete, json.loads(written.text)) == (True, wanted), request
                assert written.sampled_tokens + written.forced_tokens < BUDGET
            large = INTEGER | {"minimum": 100}
            written = await engine.complete(prompt(*CASES[1][:2]), large, max_tokens=BUDGET)
            assert written.complete, "it may not end before it is valid"
            assert 100 <= json.loads(written.text) < 10_000
