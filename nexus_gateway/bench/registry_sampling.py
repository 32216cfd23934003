"""The registry of N tools in which a request is routed: the same for everybody who measures with the same request id.

The right tool's server comes first, at most half of a small registry, then whole servers in an order seeded by the
request's id, as a gateway stands before whole servers. Other right tools are kept out. Knows keys (`server/name`) and
servers; knows no tool and no index.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain

SEED = "2026"
LEAST_OF_A_SERVER = 3


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws registries from all tools.

    Attributes:
        server_of: each key's server.
        keys_of: each server's keys.
    """

    server_of: Mapping[str, str]
    keys_of: Mapping[str, list[str]]

    @classmethod
    def of(cls, tools: Iterable[tuple[str, str]]) -> "Sampler":
        """From pairs of a key and its server."""
        server_of = dict(sorted(tools))
        keys_of: dict[str, list[str]] = {}
        for key, server in server_of.items():
            keys_of.setdefault(server, []).append(key)
        return cls(server_of, keys_of)

    def sample(self, request_id: str, gold: str, kept_out: AbstractSet[str], size: int) -> list[str]:
        """A registry for a request, its right tool first; every tool, sorted, where `size` reaches their number.

        Args:
            request_id: seeds the order.
            gold: the key of a right tool, one of the sampler's.
            kept_out: other right tools; not drawn, but there where every tool is.
            size: tools in the registry.
        """
        if size >= len(self.server_of):
            return list(self.server_of)
        draw = self._draw(request_id, self.server_of[gold], size)
        return _first(size, chain([gold], (key for key in draw if key not in kept_out)))

    def others(self, request_id: str, size: int) -> list[str]:
        """The same for a request that no tool fits: whole servers in the request's order."""
        if size >= len(self.server_of):
            return list(self.server_of)
        return _first(size, self._draw(request_id, None, size))

    def _draw(self, request_id: str, home: str | None, size: int) -> Iterator[str]:
        """The home server's share, each other server's, then whatever is left; a key may come twice."""
        if home is not None:
            yield from _shuffled(self.keys_of[home], request_id)[: max(1, size // 2)]
        for server in _shuffled((server for server in self.keys_of if server != home), request_id):
            yield from _shuffled(self.keys_of[server], request_id)[: max(LEAST_OF_A_SERVER, size // 4)]
        yield from _shuffled(self.server_of, f"{request_id}x")


def _first(size: int, keys: Iterable[str]) -> list[str]:
    """The first `size` different ones; no more are drawn than it takes."""
    chosen: dict[str, None] = {}
    for key in keys:
        if len(chosen) >= size:
            break
        chosen[key] = None
    return list(chosen)


def _shuffled(names: Iterable[str], request_id: str) -> list[str]:
    return sorted(names, key=lambda name: hashlib.sha256(f"{SEED}{request_id}{name}".encode()).hexdigest())
