"""Requests made from tool definitions, for training and calibration where nobody wrote any.

A request says what a tool does in a user's words: its verb as an order or a question, what it acts on from the
name or the first sentence, and values for a few parameters. Seeded; knows definitions, no model.
"""

import random
import re
from collections.abc import Mapping, Sequence
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
_WORDS = (
    "report",
    "invoice",
    "alpha",
    "budget",
    "sales",
    "hello world",
    "weekly sync",
    "login page",
    "Berlin",
    "Alice",
)


def made_requests(compiled: CompiledTool, count: int, rng: random.Random) -> list[str]:
    """Up to `count` different requests that this tool would serve; none for a tool that says nothing of itself."""
    makers = (_from_sentence, _from_sentence, _from_name, _from_both)
    made: dict[str, None] = {}
    for _ in range(count * 3):
        text = rng.choice(makers)(compiled, rng)
        if text and len(text.split()) > 1:
            made[_finished(text, rng)] = None
        if len(made) >= count:
            break
    return list(made)


def _from_sentence(compiled: CompiledTool, rng: random.Random) -> str:
    """The first sentence as an order, thinned out: users say less than a definition does."""
    sentence = _imperative(_first_sentence(compiled.tool.description))
    words = sentence.split()
    if not 2 <= len(words):  # noqa: SIM300 - reads as a bound
        return _from_name(compiled, rng)
    words = words[: rng.randint(7, 16)]
    verb, rest = words[0], words[1:]
    thinned = [word for word in rest if rng.random() > rng.choice((0.0, 0.15, 0.3))]
    order = _said(verb.lower(), rng) if rng.random() < 0.5 else verb  # noqa: PLR2004
    return f"{order} {' '.join(thinned)}{_values(compiled, rng)}"


def _from_name(compiled: CompiledTool, rng: random.Random) -> str:
    words = [word.lower() for word in identifier_words(compiled.tool.id.name)]
    at = next((place for place, word in enumerate(words) if word in _WAYS or word in _LIKE), None)
    if at is None:
        return f"{' '.join(words)}{_values(compiled, rng)}"
    verb, others = words[at], [*words[:at], *words[at + 1 :]]
    return f"{_said(verb, rng)} {' '.join(others)}{_values(compiled, rng)}"


def _from_both(compiled: CompiledTool, rng: random.Random) -> str:
    """The name's words, then a few from the rest of the first sentence."""
    start = _from_name(compiled, rng)
    words = _first_sentence(compiled.tool.description).split()
    if len(words) < 5:  # noqa: PLR2004
        return start
    at = rng.randint(2, max(2, len(words) - 4))
    return f"{start} {' '.join(words[at : at + rng.randint(2, 6)])}"


def _said(verb: str, rng: random.Random) -> str:
    kind = verb if verb in _WAYS else _LIKE.get(verb)
    return rng.choice(_WAYS[kind]) if kind else verb.capitalize()


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


def _values(compiled: CompiledTool, rng: random.Random) -> str:
    """` for user id 42 with status open`: some required parameters, fewer optional ones."""
    known = properties(compiled.schema)
    needed = [name for name in required(compiled.schema) if name in known]
    optional = [name for name in known if name not in needed]
    chosen = [name for name in needed[:3] if rng.random() < 0.5]  # noqa: PLR2004
    chosen += [name for name in optional[:8] if rng.random() < 0.08]  # noqa: PLR2004
    return "".join(f" {_with(name, known[name], rng)}" for name in chosen[:3])


def _with(name: str, schema: Schema, rng: random.Random) -> str:
    words = " ".join(identifier_words(name)).lower()
    value = _value(name, schema, rng)
    return rng.choice(
        (
            f"for {words} {value}",
            f"with {words} {value}",
            f"in {words} {value}",
            f"{value}",
            f"{words} {value}",
        )
    )


def _value(name: str, schema: Mapping[str, Any], rng: random.Random) -> str:
    options: Sequence[Any] = schema.get("enum") or schema.get("examples") or ()
    if options and isinstance(options[0], str):
        return str(rng.choice(options))[:40]
    if rng.random() < 0.3:  # noqa: PLR2004
        return f"<{name}>"
    if schema.get("type") in ("integer", "number"):
        return str(rng.choice((1, 2, 3, 5, 10, 25, 100, 2024)))
    if schema.get("type") == "boolean":
        return ""
    quote = rng.choice(("", "", "'", '"'))
    return f"{quote}{rng.choice(_IDS if 'id' in name.lower() or 'name' in name.lower() else (*_WORDS, *_IDS))}{quote}"


def _finished(text: str, rng: random.Random) -> str:
    text = " ".join(text.split())
    before = rng.choice(_BEFORE)
    if before:
        text = before + text[0].lower() + text[1:]
    asks = text.split()[0] in {"What", "Which", "How", "Is"}
    return text + ("?" if asks else rng.choice(("", "", ".")))
