"""What a model's state can be used for, by the kind of its attention. Knows no runtime."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class StateKind(StrEnum):
    """How a model remembers what it has read."""

    DENSE = "dense"
    """Keys and values of every token in every layer."""
    LATENT = "latent"
    """One compressed row a token (MLA)."""
    WINDOWED = "windowed"
    """Some layers see a window of the last tokens alone."""
    RECURRENT = "recurrent"
    """A state of constant size that each token overwrites."""
    HYBRID = "hybrid"
    """Layers of attention and recurrent ones."""
    UNSUPPORTED = "unsupported"
    """Something else, such as several positions a token (M-RoPE): nothing is kept of it."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """What may be done with a state.

    Attributes:
        boundary: it can be restored, or copied, as a whole, where it ends.
        share: the part of a common beginning can be shared with any sequence that has it, and the rest stored alone.
        trim: tokens can be dropped from its end.
        shift: it can be moved to another position, where the runtime and the types of its keys allow it; not exact
            where keys are rotated again.
    """

    boundary: bool = False
    share: bool = False
    trim: bool = False
    shift: bool = False


REUSE: Mapping[StateKind, Reuse] = MappingProxyType(
    {
        StateKind.DENSE: Reuse(boundary=True, share=True, trim=True, shift=True),
        StateKind.LATENT: Reuse(boundary=True, share=True, trim=True, shift=True),
        # What has left the window of a sequence that reads on is overwritten, and nothing says so.
        StateKind.WINDOWED: Reuse(boundary=True, shift=True),
        StateKind.RECURRENT: Reuse(boundary=True, shift=True),
        # Its attention could be shared, but only if copied before the recurrent part: not worth the care.
        StateKind.HYBRID: Reuse(boundary=True, shift=True),
        StateKind.UNSUPPORTED: Reuse(),
    }
)
"""Each cell is tested on a model of its kind (tests/test_state_kinds.py)."""
