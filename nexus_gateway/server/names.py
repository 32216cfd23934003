"""Safe names for upstream tools and prompts, and the way back.

Hosts want `^[A-Za-z0-9_-]+$`, short, and no two alike. A name is never parsed: the way back is a table.
Knows no server, no protocol; a name depends on the set of ids alone, not on their order.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Prefix: TypeAlias = Literal["always", "collisions", "never"]
Named: TypeAlias = tuple[str, str]
"""The configured server, and its own name of a tool or prompt."""

SEPARATOR = "__"
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_DIGEST_LENGTH = 8


@dataclass(frozen=True, slots=True)
class ExposedNames:
    """A two-way table of names."""

    _by_id: Mapping[Named, str]
    _by_name: Mapping[str, Named]

    @classmethod
    def build(
        cls, ids: Iterable[Named], *, prefix: Prefix, max_length: int, reserved: Iterable[str] = ()
    ) -> "ExposedNames":
        """Name every id.

        A name that had to be changed or cut ends in a hash of its id, so that no later arrival renames it.

        Args:
            ids: server and name pairs; repeated ones count once.
            prefix: when the server's name stands before: always, where several servers share a name, or never.
            max_length: of an exposed name, in characters.
            reserved: names that are taken.
        """
        known = sorted(set(ids))
        prefixes = _server_prefixes({server for server, _ in known})
        taken = set(reserved)
        shared = Counter(_clean(name) for _, name in known) + Counter(taken)
        by_id: dict[Named, str] = {}
        for one in sorted(known, key=lambda one: (_clean(_unprefixed(*one)) != one[1], one)):
            server, name = one
            own = _clean(name)
            if prefix == "always" or (prefix == "collisions" and shared[own] > 1):
                name = _unprefixed(server, name)
                own = f"{prefixes[server]}{SEPARATOR}{_clean(name)}"
            by_id[one] = _unique(own, one, taken, max_length, lossy=_clean(name) != name)
            taken.add(by_id[one])
        return cls(by_id, {exposed: one for one, exposed in by_id.items()})

    def expose(self, server: str, name: str) -> str:
        """The exposed name of an id that the table was built from. Raises KeyError for another."""
        return self._by_id[server, name]

    def resolve(self, exposed: str) -> Named | None:
        """Whose name it is; None where it is nobody's."""
        return self._by_name.get(exposed)


def _clean(text: str) -> str:
    return _ILLEGAL.sub("_", text).strip("_") or "unnamed" if _ILLEGAL.search(text) else text


def _unprefixed(server: str, name: str) -> str:
    """The name without its own server's name before it: servers like to put it there themselves."""
    for mark in (SEPARATOR, "_", "-", ".", "/", ":"):
        rest = name.removeprefix(server + mark)
        if rest not in (name, ""):
            return rest
    return name


def _server_prefixes(servers: Iterable[str]) -> dict[str, str]:
    """Each server's prefix: without the separator inside, so that no two pairs of server and name read alike."""
    prefixes: dict[str, str] = {}
    taken: set[str] = set()
    for server in sorted(servers, key=lambda server: (_prefix(server) != server, server)):
        wanted = _prefix(server)
        prefixes[server] = wanted if wanted not in taken else f"{wanted}_{_digest(server)}"
        taken.add(prefixes[server])
    return prefixes


def _prefix(server: str) -> str:
    return re.sub(r"_{2,}", "_", _clean(server)).strip("_") or "server"


def _unique(full: str, one: Named, taken: set[str], max_length: int, *, lossy: bool) -> str:
    exposed = full
    if lossy or len(full) > max_length or full in taken:
        exposed = _hashed(full, "\0".join(one), max_length)
    attempt = 0
    while exposed in taken:  # two hashes alike: next to impossible, but a name must be one tool's
        attempt += 1
        exposed = _hashed(full, "\0".join((*one, str(attempt))), max_length)
    return exposed


def _hashed(full: str, seed: str, max_length: int) -> str:
    tail = f"_{_digest(seed)}"
    return f"{full[: max(0, max_length - len(tail))]}{tail}"[-max_length:]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
