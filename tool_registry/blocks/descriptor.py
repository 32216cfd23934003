"""The identity of a piece of state: all that must agree before a byte of it is used.

Whatever is unknown or different means: not used. Knows no runtime; an adapter says the facts.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NewType

import numpy as np

from tool_registry.blocks.kind import StateKind

FORMAT_VERSION = 1
"""Of the descriptor and of the block file."""

BlockKey = NewType("BlockKey", str)
"""Lower-case hex; a file's name. Nothing about the state can be read from it without the store's secret."""

_KEY_BYTES = 16
_HASH_BYTES = 32
_MOST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """What a runtime says of itself and its model; equal for all states of one engine.

    Attributes:
        model: content hash of the weights' file.
        build: runtime and binding, with their versions.
        backend: the library that computes ("cpu", "metal", ...).
        device: the device, and for a CPU the set of kernels in use.
        key_type: of the cache's keys, such as "f16".
        value_type: of the cache's values.
        transposed_values: V by columns (flash attention off) instead of rows.
        unified: one stream of cells for all sequences.
        rope: type, base, scale and scaling of positions, in words.
        window: size and pattern of a sliding window, in words; empty where there is none.
        lora: adapters and their scales, in words; empty where there is none.
        layers: number of layers and the sizes of their rows, in words.
        kind: how the model remembers.
        positions: the convention of positions in a state.
    """

    model: str
    build: str
    backend: str
    device: str
    key_type: str
    value_type: str
    transposed_values: bool
    unified: bool
    rope: str
    window: str
    lora: str
    layers: str
    kind: StateKind
    positions: str = "absolute"


@dataclass(frozen=True, slots=True)
class StateDescriptor:
    """One state.

    Attributes:
        facts: of the engine that made it.
        chain: hash over the tokens from position 0 to the end, cuts between batches included.
        start: the first position that the state holds; what is before it is in `chain` alone.
        end: the position after its last.
        tenant: salt of whoever may use it.
    """

    facts: RuntimeFacts
    chain: str
    start: int
    end: int
    tenant: str
    format: int = FORMAT_VERSION


def chain_of(chunks: Sequence[Sequence[int]]) -> str:
    """A hash over tokens and the cuts between batches, which move a quantised model's results.

    An empty chunk is none.
    """
    digest = hashlib.blake2b(digest_size=_HASH_BYTES, person=b"nexus-chain")
    for chunk in filter(len, chunks):
        digest.update(len(chunk).to_bytes(8, "little"))
        digest.update(np.asarray(chunk, dtype="<i8").tobytes())
    return digest.hexdigest()


def mismatch(found: StateDescriptor, wanted: StateDescriptor) -> str:
    """The first field in which a state differs from the wanted one, in words; empty where all agree."""
    for name in _FACTS:
        if difference := _difference(name, getattr(found.facts, name), getattr(wanted.facts, name)):
            return difference
    for name in _OWN:
        if difference := _difference(name, getattr(found, name), getattr(wanted, name)):
            return difference
    return ""


def _difference(name: str, found: object, wanted: object) -> str:
    if found == wanted:
        return ""
    return f"{name.replace('_', ' ')} is {_short(found)} instead of {_short(wanted)}"


def _short(value: object) -> str:
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def block_key(secret: bytes, wanted: StateDescriptor) -> BlockKey:
    """Keyed BLAKE2b of every field: the name of a state's file. `secret` is 1 to 64 bytes."""
    text = json.dumps(as_json(wanted), sort_keys=True, separators=(",", ":"))
    digest = hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES, key=secret, person=b"nexus-block-key")
    return BlockKey(digest.hexdigest())


def tenant_salt(secret: bytes, tenant: str) -> str:
    """What stands for a tenant in a descriptor. `secret` is 1 to 64 bytes."""
    name = tenant.encode(errors="surrogatepass")
    return hashlib.blake2b(name, digest_size=_HASH_BYTES, key=secret, person=b"nexus-tenant").hexdigest()


def as_json(descriptor: StateDescriptor) -> dict[str, Any]:
    """Every field, the runtime's under `facts`."""
    return dataclasses.asdict(descriptor)


def from_json(value: object) -> StateDescriptor:
    """The descriptor that `as_json` wrote. Raises ValueError: a field is missing, unknown or of another type."""
    own = _checked(value, _OWN | {"facts": dict})
    facts = _checked(own["facts"], _FACTS)
    if not 0 <= own["start"] < own["end"]:
        raise ValueError(f"no tokens from {own['start']} to {own['end']}")
    return StateDescriptor(**own | {"facts": RuntimeFacts(**facts | {"kind": StateKind(facts["kind"])})})


def _checked(value: object, wanted: Mapping[str, type]) -> dict[str, Any]:
    if not isinstance(value, dict) or value.keys() != wanted.keys():
        raise ValueError(f"expected {', '.join(wanted)}")
    for name, kind in wanted.items():
        if type(value[name]) is not kind:  # `isinstance` takes True for a number
            raise ValueError(f"{name} is no {kind.__name__}")
    return value


def _types(holder: type) -> dict[str, type]:
    """Fields and how JSON has them."""
    types = {field.name: field.type for field in dataclasses.fields(holder) if field.name != "facts"}
    return {name: kind if kind in (int, bool) else str for name, kind in types.items()}


_FACTS = _types(RuntimeFacts)
_OWN = _types(StateDescriptor)
