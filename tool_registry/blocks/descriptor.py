"""The identity of a piece of state: all that must agree before a byte of it is used.

Whatever is unknown or different means: not used. Knows no runtime; an adapter says the facts.
"""

from dataclasses import dataclass

from tool_registry.blocks.kind import StateKind

FORMAT_VERSION = 1


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
