"""Requests made from tool definitions, for training and calibration where nobody wrote any.

A request says what a tool does in a user's words: its verb as an order or a question, what it acts on from the
name or the first sentence, and values for a few parameters. Seeded; knows definitions, no model.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tool_registry.index import CompiledTool
from tool_registry.schema import Schema, properties, required
from tool_registry.text import identifier_words

_READ_ONE = (
    "Get",
    "Show me",
    "Show",
    "Fetch",
    "Tell me about",
    "What is",
    "Give me",
    "Look up",
    "Display",
    "Retrieve",
)
_READ_MANY = (
    "List",
    "List all",
    "Show me all",
    "Show me the",
    "What are the",
    "Get all",
    "Which",
    "Give me the",
)
_WAYS = {
    "list": _READ_MANY,
    "get": _READ_ONE,
    "search": ("Search", "Search for", "Find", "Look for", "Find me", "Which", "Query"),
    "create": ("Create", "Create a new", "Add", "Add a", "Make", "Make a new", "Set up", "I need a new"),
    "delete": ("Delete", "Remove", "Delete the", "Remove the", "Get rid of", "Drop"),
    "update": ("Update", "Change", "Modify", "Edit", "Set", "Update the"),
    "send": ("Send", "Send a", "Post", "Write"),
    "run": ("Run", "Execute", "Start", "Launch"),
    "check": ("Check", "Is there", "Verify", "Check the", "Validate"),
    "count": ("How many", "Count", "Count the"),
    "analyze": ("Analyze", "Review", "Examine"),
    "convert": ("Convert", "Turn", "Transform"),
    "calculate": ("Calculate", "Compute", "Work out", "What is"),
}
_LIKE = {
    "fetch": "get", "retrieve": "get", "return": "get", "show": "get", "read": "get", "view": "get", "describe": "get",
    "display": "get", "lookup": "get", "find": "search", "query": "search", "lists": "list", "add": "create",
    "make": "create", "new": "create", "insert": "create", "generate": "create", "build": "create", "remove": "delete",
    "drop": "delete", "clear": "delete", "destroy": "delete", "set": "update", "edit": "update", "modify": "update",
    "change": "update", "patch": "update", "post": "send", "write": "send", "execute": "run", "start": "run",
    "invoke": "run", "launch": "run", "verify": "check", "validate": "check", "test": "check", "analyse": "analyze",
    "compute": "calculate", "transform": "convert",
}  # fmt: skip
_BEFORE = (
    "",
    "",
    "",
    "",
    "",
    "Please ",
    "Can you ",
    "I want to ",
    "Could you ",
    "I need to ",
    "Help me ",
    "please ",
)
_THIRD = re.compile(r"^([A-Z]?[a-z]+?)(?:es|s)$")
_KEEPS_ES = (
    "creat",
    "updat",
    "delet",
    "retriev",
    "generat",
    "calculat",
    "execut",
    "validat",
    "analyz",
    "remov",
    "mov",
)
_LEAD = re.compile(
    r"^(?:this (?:tool|function|endpoint|api|method)|(?:a |the )?tool|use this(?: tool)?|used|useful|allows? you|"
    r"enables? you|helps?(?: you)?|provides? (?:a way|the ability)|function|api)\b[\s:,]*"
    r"(?:(?:is used|can be used|allows?|lets?|to|for|will|you|users?|when you want)\s+)*",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n|(?:\s-\s)|[;:]\s")
_IDS = (
    "ABC123",
    "42",
    "PX7Q2",
    "1001",
    "a1b2c3",
    "7f3d",
    "SRV-9",
    "main",
    "prod",
    "demo",
    "team-alpha",
    "acme",
)
_THINGS = (
    "report",
    "invoice",
    "budget",
    "sales",
    "hello world",
    "weekly sync",
    "login page",
    "Berlin",
    "Alice",
)


@dataclass(frozen=True, slots=True)
class RequestMaker:
    """Makes requests for tools, drawing with `rng`."""

    rng: random.Random

    def make(self, compiled: CompiledTool, count: int) -> list[str]:
        """Up to `count` different requests that this tool would serve; none for one that says nothing of itself."""
        makers = (self._from_sentence, self._from_sentence, self._from_name, self._from_both)
        made: dict[str, None] = {}
        for _ in range(count * 3):
            text = self.rng.choice(makers)(compiled)
            if text and len(text.split()) > 1:
                made[self._finished(text)] = None
            if len(made) >= count:
                break
        return list(made)

    def _from_sentence(self, compiled: CompiledTool) -> str:
        """The first sentence as an order, thinned out: users say less than a definition does."""
        rng = self.rng
        words = _imperative(_first_sentence(compiled.tool.description)).split()
        if len(words) < 2:  # noqa: PLR2004
            return self._from_name(compiled)
        words = words[: rng.randint(7, 16)]
        verb, rest = words[0], words[1:]
        thinned = [word for word in rest if rng.random() > rng.choice((0.0, 0.15, 0.3))]
        order = self._said(verb.lower()) if rng.random() < 0.5 else verb  # noqa: PLR2004
        return f"{order} {' '.join(thinned)}{self._values(compiled)}"

    def _from_name(self, compiled: CompiledTool) -> str:
        words = [word.lower() for word in identifier_words(compiled.tool.id.name)]
        at = next((place for place, word in enumerate(words) if word in _WAYS or word in _LIKE), None)
        if at is None:
            return f"{' '.join(words)}{self._values(compiled)}"
        others = [*words[:at], *words[at + 1 :]]
        return f"{self._said(words[at])} {' '.join(others)}{self._values(compiled)}"

    def _from_both(self, compiled: CompiledTool) -> str:
        """The name's words, then a few from the rest of the first sentence."""
        start = self._from_name(compiled)
        words = _first_sentence(compiled.tool.description).split()
        if len(words) < 5:  # noqa: PLR2004
            return start
        at = self.rng.randint(2, max(2, len(words) - 4))
        return f"{start} {' '.join(words[at : at + self.rng.randint(2, 6)])}"

    def _said(self, verb: str) -> str:
        kind = verb if verb in _WAYS else _LIKE.get(verb)
        return self.rng.choice(_WAYS[kind]) if kind else verb.capitalize()

    def _values(self, compiled: CompiledTool) -> str:
        """` for user id 42 with status open`: some required parameters, fewer optional ones."""
        known = properties(compiled.schema)
        needed = [name for name in required(compiled.schema) if name in known]
        optional = [name for name in known if name not in needed]
        chosen = [name for name in needed[:3] if self.rng.random() < 0.5]  # noqa: PLR2004
        chosen += [name for name in optional[:8] if self.rng.random() < 0.08]  # noqa: PLR2004
        return "".join(f" {self._with(name, known[name])}" for name in chosen[:3])

    def _with(self, name: str, schema: Schema) -> str:
        words = " ".join(identifier_words(name)).lower()
        value = self._value(name, schema)
        ways = ("for {0} {1}", "with {0} {1}", "in {0} {1}", "{1}", "{0} {1}")
        return self.rng.choice(ways).format(words, value)

    def _value(self, name: str, schema: Mapping[str, Any]) -> str:
        rng = self.rng
        options: Sequence[Any] = schema.get("enum") or schema.get("examples") or ()
        if options and isinstance(options[0], str):
            return str(rng.choice(options))[:40]
        if rng.random() < 0.3:  # noqa: PLR2004
            return f"<{name}>"
        if schema.get("type") in ("integer", "number"):
            return str(rng.choice((1, 2, 3, 5, 10, 25, 100, 2024)))
        if schema.get("type") == "boolean":
            return ""
        named = "id" in name.lower() or "name" in name.lower()
        return self._quoted(rng.choice(_IDS if named else (*_THINGS, *_IDS)))

    def _quoted(self, text: str) -> str:
        quote = self.rng.choice(("", "", "'", '"'))
        return f"{quote}{text}{quote}"

    def _finished(self, text: str) -> str:
        text = " ".join(text.split())
        before = self.rng.choice(_BEFORE)
        if before:
            text = before + text[0].lower() + text[1:]
        asks = text.split()[0] in {"What", "Which", "How", "Is"}
        return text + ("?" if asks else self.rng.choice(("", "", ".")))


def _first_sentence(description: str) -> str:
    flat = " ".join(description[:600].split())
    sentence = next((part for part in _SENTENCE.split(flat) if len(part.split()) > 2), flat)  # noqa: PLR2004
    return _LEAD.sub("", sentence.strip(" -*#`\"'")).rstrip(".!:,; ")[:200]


def _imperative(sentence: str) -> str:
    """`Lists all files` -> `List all files`."""
    first, _, rest = sentence.partition(" ")
    match = _THIRD.match(first)
    if match and not first.lower().endswith(("ss", "ous", "is")):
        stem = match[1]
        if first.endswith("es") and (
            f"{stem}e".lower().startswith(_KEEPS_ES) or not stem.endswith(("ch", "sh", "ss", "x"))
        ):
            stem += "e"
        first = stem
    return f"{first} {rest}"
