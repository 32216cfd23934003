"""Whether a text gives a reason to set an optional argument to a listed value that it does not spell out.

A reading model answers "yes" for `available_for_pet` to a request that speaks of no pet. So that optional arguments are
present only with evidence, the text has to share a word with the value or with the argument. Knows words alone.
"""

import re
from typing import Any

from tool_registry.question import Leaf
from tool_registry.text import split_words

_WORD = re.compile(r"[^\W_]+")
_ENDING = re.compile(r"(?:ing|ed|ies|es|s|e|ly|y)$")
_STEM_LETTERS = 6
_LEAST_LETTERS = 3
_EMPTY = frozenset(
    _WORD.findall(
        "allow and be default false for get has have if in include includes is mode name no of on or set should show the "
        "to true type use value want when whether with yes"
    )
)
"""Words that say nothing of what an argument is about."""


def hinted(leaf: Leaf, value: Any, text: str) -> bool:
    """Whether the text shares a word with a listed value, the argument's name or, for yes and no, its description."""
    described = str(leaf.schema.get("description", "")) if isinstance(value, bool) else str(value)
    about = _stems([*split_words(leaf.path[-1]), *_WORD.findall(described)])
    return not about.isdisjoint(_stems(_WORD.findall(text)))


def _stems(words: list[str]) -> set[str]:
    return {
        _ENDING.sub("", word)[:_STEM_LETTERS]
        for word in map(str.lower, words)
        if len(word) >= _LEAST_LETTERS and word not in _EMPTY
    }
