"""Measures completions at once against one after the other: how many of them a second, as a ratio.

    python tests/measure_concurrency.py [TURNS [EACH]]

Both arms run in turn, each request once in each, on an engine whose tools are live. Each pair of arms gives one ratio.
"""

import json
import sys
import time

import anyio
import numpy as np

from adapters.llama_cpp.engine import open_engine
from adapters.model_files import parse_model_name
from adapters.ports import Segment, SegmentKind
from nexus_gateway.app import model_files
from nexus_gateway.settings import Settings

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
    "required": ["city"],
}
CITIES = ("Paris", "Lima", "Cairo", "Perth", "Oslo", "Quito", "Rome", "Seoul")


def prompt(number):
    """A request for one of three tools."""
    return [
        Segment(SegmentKind.SYSTEM, "Write the arguments of the tool as JSON."),
        Segment(SegmentKind.TOOL, f"get_{('heat', 'rain', 'wind')[number % 3]}(city: string, unit?: C|F)"),
        Segment(SegmentKind.REQUEST, f"Request {number}: how is it in {CITIES[number % len(CITIES)]}?"),
    ]


async def complete(engine, numbers, texts):
    """Requests one after the other."""
    for number in numbers:
        texts[number] = (await engine.complete(prompt(number), SCHEMA, max_tokens=24)).text


async def measure(turns, each):
    """Seconds of both arms, a pair for each round."""
    settings = Settings()
    path = model_files(settings).locate(parse_model_name(settings.models.argument_model))
    seconds = []
    async with open_engine(path) as engine:
        await complete(engine, range(3), {})
        for first in range(0, turns * each, turns):
            numbers, alone, together = range(first, first + turns), {}, {}
            started = time.perf_counter()
            await complete(engine, numbers, alone)
            between = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for number in numbers:
                    tasks.start_soon(complete, engine, [number], together)
            seconds.append((between - started, time.perf_counter() - between))
            if alone != together:
                sys.exit(f"answers differ in requests {numbers}")
    return np.array(seconds)


def main():
    """One JSON object."""
    turns, each = (int(given) for given in [*sys.argv[1:], "8", "6"][:2])
    seconds = anyio.run(measure, turns, each)
    low, middle, high = np.percentile(seconds[:, 0] / seconds[:, 1], (10, 50, 90)).round(3).tolist()
    ratio = {"p10": low, "p50": middle, "p90": high}
    sys.stdout.write(json.dumps({"n": turns * each, "at_once": turns, "throughput_ratio": ratio}) + "\n")


if __name__ == "__main__":
    main()
