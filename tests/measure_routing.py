"""Routing on the public data of ../shared, sampled as its bench/registry_sample.py does: a script, not a test.

    python tests/measure_routing.py [calib|test] [tools ...]

Prints R@1, R@5, how often the shipped gate routes, how often it is right then, and how often it routes although the
gold tool's server is absent. The last line is one JSON object.
"""

import importlib.util
import json
import sys
from pathlib import Path

import anyio
import numpy as np

from adapters.model_files import ModelFiles, parse_model_name
from adapters.sentence_models import open_embedder
from nexus_gateway.routing.routing_text import routing_text
from nexus_gateway.settings import Settings
from tool_registry.index import build_index, compile_tool
from tool_registry.routing import Gate, RoutingOutcome, decide, rank
from tool_registry.tool import tool_from_definition

SHARED = Path(__file__).parents[1].parent / "shared"


def sampling():
    spec = importlib.util.spec_from_file_location("registry_sample", SHARED / "bench" / "registry_sample.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def percent(flags):
    return round(100 * float(np.mean(flags)), 1)


class Measurement:
    def __init__(self, split):
        self.sample = sampling()
        self.registry, self.by_server = self.sample.load(SHARED / "data" / "registry.jsonl")
        lines = (SHARED / "data" / "routing_queries.jsonl").read_text(encoding="utf-8").splitlines()
        self.queries = [query for query in map(json.loads, lines) if query["split"] == split]
        self.compiled = {key: compile_tool(self._tool(entry)) for key, entry in self.registry.items()}

    @staticmethod
    def _tool(entry):
        definition = {name: value for name, value in entry.items() if name != "server"}
        return tool_from_definition(entry["server"], definition)

    async def embed(self):
        settings = Settings()
        files = ModelFiles(settings.cache_dir / "models")
        async with open_embedder(files.locate(parse_model_name(settings.models.embedder_model))) as embedder:
            keys = list(self.compiled)
            rows = await embedder.embed_tools([self.compiled[key].text for key in keys])
            self.vectors = {key: row[np.newaxis, :] for key, row in zip(keys, rows, strict=True)}
            self.requests = await embedder.embed_requests(
                [routing_text(query["query"]) for query in self.queries]
            )

    def ranked(self, keys, query, vector):
        index = build_index(1, [self.compiled[key] for key in keys], [self.vectors[key] for key in keys])
        return rank(index, routing_text(query["query"]), vector)

    def at(self, size):
        hits, routed_right, absent = [], [], []
        for query, vector in zip(self.queries, self.requests, strict=True):
            right = {*query["gold"], *(query.get("gold_equivalents") or [])}
            keys = self.sample.sample(query, size, self.registry, self.by_server)
            candidates = self.ranked(keys, query, vector)
            hits.append([str(candidate.tool_id) in right for candidate in candidates[:5]])
            decision = decide(candidates, Gate())
            if decision.outcome is RoutingOutcome.ROUTED:
                routed_right.append(str(decision.candidates[0].tool_id) in right)
            absent.append(self._routed_without_gold(keys, query, vector, right))
        return {
            "n": len(hits),
            "r1": percent([hit[0] for hit in hits]),
            "r5": percent([any(hit) for hit in hits]),
            "routed": percent([True] * len(routed_right) + [False] * (len(hits) - len(routed_right))),
            "right_when_routed": percent(routed_right),
            "routed_without_gold": percent(absent),
        }

    def _routed_without_gold(self, keys, query, vector, right):
        banned = {*right, *(query.get("gold_near") or [])}
        servers = {self.registry[key]["server"] for key in query["gold"] if key in self.registry}
        left = [key for key in keys if key not in banned and self.registry[key]["server"] not in servers]
        return decide(self.ranked(left, query, vector), Gate()).outcome is RoutingOutcome.ROUTED


def main():
    split = sys.argv[1] if len(sys.argv) > 1 else "test"
    sizes = [int(size) for size in sys.argv[2:]] or [10, 50, 250]
    measurement = Measurement(split)
    anyio.run(measurement.embed)
    results = {}
    for size in sizes:
        results[str(size)] = measurement.at(size)
        sys.stdout.write(f"{size:>6} tools  {results[str(size)]}\n")
    sys.stdout.write(json.dumps({"split": split, "sizes": results}) + "\n")


if __name__ == "__main__":
    main()
