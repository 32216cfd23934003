"""An optional argument is set to a listed value only where the text gives a reason."""

import pytest

from nexus_gateway.turn.hints import hinted
from tool_registry.question import leaves

SCHEMA = {
    "type": "object",
    "properties": {
        "available_for_pet": {"type": "boolean", "description": "Whether the place takes animals."},
        "sort_order": {"enum": ["asc", "desc"]},
        "units": {"enum": ["metric", "imperial"]},
        "is_on": {"type": "boolean"},
    },
}
LEAVES = {leaf.path[-1]: leaf for leaf in leaves(SCHEMA)}


@pytest.mark.parametrize(
    ("name", "value", "text", "reason"),
    [
        ("available_for_pet", True, "find a cleaner in Chiang Mai", False),
        ("available_for_pet", True, "a hotel that takes my two pets", True),
        ("available_for_pet", True, "somewhere for an animal", True),
        ("sort_order", "desc", "list the credentials of today", False),
        ("sort_order", "desc", "sorted by name, the last one first", True),
        ("units", "metric", "the weather in Oslo", False),
        ("units", "metric", "the weather in Oslo in METRIC units", True),
        ("is_on", True, "is the lamp on", False),
    ],
)
def test_a_shared_word_is_a_reason(name, value, text, reason):
    assert hinted(LEAVES[name], value, text) is reason
