"""What callers may see, as masks over an index: made once for each index and filter, so that a request pays nothing."""

from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nexus_gateway.access.caller import Caller
from nexus_gateway.access.visibility import NameFilter
from tool_registry.index import RoutingIndex

MOST_FILTERS = 256
"""Masks kept of one index, of a byte a tool each."""


class Masks:
    """Masks by index and filter; those of an index that is gone go with it."""

    def __init__(self) -> None:
        self._masks: WeakKeyDictionary[RoutingIndex, dict[NameFilter, NDArray[np.bool_]]] = (
            WeakKeyDictionary()
        )

    def mask(self, index: RoutingIndex, caller: Caller) -> NDArray[np.bool_] | None:
        """Which tools of the index the caller sees, shape (tools,); None where it sees all."""
        if caller.visible is None:
            return None
        masks = self._masks.setdefault(index, {})
        mask = masks.get(caller.visible)
        if mask is None:
            if len(masks) >= MOST_FILTERS:
                masks.clear()
            mask = np.array([caller.sees(compiled.id) for compiled in index.tools], np.bool_)
            mask.flags.writeable = False
            masks[caller.visible] = mask
        return mask
