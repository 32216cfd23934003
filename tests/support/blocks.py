"""Blocks with made-up states, for tests of files and stores."""

from dataclasses import replace

from tool_registry.blocks.block_file import StateBlock
from tool_registry.blocks.descriptor import RuntimeFacts, StateDescriptor, chain_of
from tool_registry.blocks.kind import StateKind

FACTS = RuntimeFacts(
    model="a" * 64,
    build="llama.cpp 1",
    backend="cpu",
    device="cpu avx2",
    key_type="f16",
    value_type="f16",
    transposed_values=False,
    unified=True,
    rope="neox base 100000 scale 1",
    window="",
    lora="",
    layers="30 layers of 192+192",
    kind=StateKind.DENSE,
)


def descriptor(number=0, **changes):
    """The descriptor of made-up tool `number`."""
    made = StateDescriptor(
        FACTS, chain_of([(1, 2), (3, number)]), start=2, end=2 + 1 + number % 50, tenant="salt"
    )
    return replace(made, **changes)


def payload(number=0, size=4_000):
    """Bytes that tell one state from another."""
    return (number.to_bytes(4, "little") * (size // 4 + 1))[:size]


def block(number=0, size=4_000, *, label=None, seconds=0.5, **changes):
    """A block of made-up tool `number`."""
    made = descriptor(number, **changes)
    return StateBlock(made, memoryview(payload(number, size)), label or f"server/tool_{number}", seconds)
