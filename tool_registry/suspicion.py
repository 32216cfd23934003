"""Text in a tool's definition that looks like an attack on the model that reads it.

Pure, and a hint to a person: it blocks nothing. Every string of a definition counts, since a model is shown
parameter descriptions, enums and defaults as well. The rules, each about what honest tools hardly ever say:

- ignore-instructions: tells the model to disregard what it was told.
- hide-from-user: tells the model to keep something from its user.
- secret-files: names files in which credentials live (`~/.ssh`, `id_rsa`, `.aws/credentials`, `/etc/shadow`, ...).
- prompt-tag: mimics the markup of a prompt (`<IMPORTANT>`, `<system>`, `[INST]`, `<|im_start|>`).
- other-tools: tells the model what to do before or whenever it uses other tools.
- invisible-text: zero-width, bidirectional-control, tag or escape characters, by which people and models read
  different texts. A zero-width joiner between emoji or non-Latin letters is ordinary writing and is left out.
- encoded-text: 200 or more characters in a row that look like base64.

Of 6,796 public tools, these rules flag one (a backup tool whose default is `/etc/passwd`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_MOST_CHARACTERS: Final = 200_000
"""Of one definition; what is beyond is not read."""
_EXCERPT_CHARACTERS: Final = 80
_MOST_DEPTH: Final = 64

_INVISIBLE: Final = (
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e007f"
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f"
)
_UNSEEN: Final = re.compile(f"[{_INVISIBLE}\u200c\u200d\ufeff\u2028\u2029\r\n\t]")

_WORDS: Final = re.IGNORECASE | re.DOTALL
_RULES: Final[Mapping[str, re.Pattern[str]]] = {
    "ignore-instructions": re.compile(
        r"\b(?:ignore|disregard|forget|override)\b.{0,30}?\b(?:previous|prior|above|earlier|preceding|system|safety)\b"
        r".{0,20}?\b(?:instruction|prompt|rule|message|guideline)",
        _WORDS,
    ),
    "hide-from-user": re.compile(
        r"\b(?:do not|don't|never|without|must not|avoid)\s+(?:\w+\s+){0,2}?"
        r"(?:tell|mention|inform|notify|reveal|show|alert|disclose)(?:ing|s)?\b.{0,30}?\b(?:the|your|to) (?:user|human)\b",
        _WORDS,
    ),
    "secret-files": re.compile(
        r"~/\.ssh\b|\bid_(?:rsa|ed25519|ecdsa)\b|\.aws/credentials|/etc/(?:passwd|shadow)\b|\.netrc\b"
        r"|\.git-credentials|\.kube/config|\.cursor/mcp\.json|claude_desktop_config|\.config/gcloud",
        _WORDS,
    ),
    "prompt-tag": re.compile(
        r"</?\s*(?:important|system|secret|hidden|critical|admin|instructions?)\s*>|\[/?INST\]|<\|im_(?:start|end)\|>",
        _WORDS,
    ),
    "other-tools": re.compile(
        r"\b(?:before|when|whenever|after|instead of) (?:you )?(?:us|call|invok|run)(?:e|ing)? "
        r"(?:any|all|every|other|another|any other) (?:other )?tools?\b",
        _WORDS,
    ),
    "invisible-text": re.compile(f"[{_INVISIBLE}]|(?<=[\\x20-\\x7e])[\u200c\u200d\ufeff]"),
    "encoded-text": re.compile(r"[A-Za-z0-9+/]{200}"),
}


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One rule that a definition meets.

    Attributes:
        rule: its name.
        where: the path of the string within the definition (`inputSchema.properties.note.description`).
        excerpt: what it says there; characters that can't be seen are escapes.
    """

    rule: str
    where: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.rule} in {self.where}: {self.excerpt}"


def suspicions(definition: Mapping[str, Any]) -> tuple[Suspicion, ...]:
    """What is suspicious in a definition; each rule at most once, at its first place."""
    found: dict[str, Suspicion] = {}
    budget = _MOST_CHARACTERS
    for where, text in _strings(definition, "", 0):
        for rule, match in _matches(text[:budget]):
            found.setdefault(rule, Suspicion(rule, visible(where)[:200], _excerpt(match)))
        budget -= len(text)
        if budget <= 0:
            break
    return tuple(found.values())


def visible(text: str) -> str:
    """The text with every character that can't be seen, or breaks the line, as an escape."""
    return _UNSEEN.sub(lambda match: f"\\u{{{ord(match[0]):x}}}", text)


def _matches(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    for rule, pattern in _RULES.items():
        match = pattern.search(text)
        if match:
            yield rule, match


def _excerpt(match: re.Match[str]) -> str:
    around = max(0, (_EXCERPT_CHARACTERS - len(match[0])) // 2)
    start = max(0, match.start() - around)
    return visible(match.string[start : match.end() + around])[: 2 * _EXCERPT_CHARACTERS]


def _strings(value: Any, where: str, depth: int) -> Iterator[tuple[str, str]]:
    """Every string of a JSON value with its path, keys of objects among them."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping) and depth < _MOST_DEPTH:
        for key, member in value.items():
            path = f"{where}.{key}" if where else key
            yield path, key
            yield from _strings(member, path, depth + 1)
    elif isinstance(value, list) and depth < _MOST_DEPTH:
        for position, member in enumerate(value):
            yield from _strings(member, f"{where}[{position}]", depth + 1)
