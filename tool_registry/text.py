"""What is searched in a tool: words for the lexical index, one short text for an embedder.

Knows the parts of a definition and how identifiers are written; knows no index, no embedder and no tokenizer.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from tool_registry.schema import Schema, properties
from tool_registry.tool import Tool

DESCRIPTION_CHARACTERS = 300
MAX_PARAMETERS = 10
MAX_ENUM_WORDS = 12
TEXT_CHARACTERS = 560
"""About 140 tokens of English, before the server's name."""
INDEXED_CHARACTERS = 4_000
"""Of a description, for the lexical index."""

_WORD = re.compile(r"\d+|[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|[\u3002\uff01\uff1f]")
# Scripts written without spaces between words, or (Hangul) with endings attached.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def split_words(text: str) -> list[str]:
    """Lower-cased words of prose or of an identifier (`snake_case`, `kebab-case`, `camelCase`, `a.b`, `v2`).

    Accents are folded. Runs of scripts that don't put spaces between words become overlapping pairs of
    characters. Plurals stay: `list_issues` and `get_issue` differ by little else, and stemming them cost BM25
    9 points of recall at 1 among 250 tools.
    """
    return [
        word
        for run in _WORD.findall(_folded(text))
        for part in _CAMEL.split(run)
        for word in _split_run(part)
    ]


def tool_words(tool: Tool, schema: Mapping[str, Any]) -> dict[str, list[str]]:
    """The words of a tool by field, for `tool_registry.lexical`: name, description, parameters, server.

    Args:
        tool: the tool.
        schema: its plain schema.
    """
    title = tool.definition.get("title")
    return {
        "name": split_words(f"{tool.id.name} {title if isinstance(title, str) else ''}"),
        "description": split_words(tool.description[:INDEXED_CHARACTERS]),
        "parameters": split_words(" ".join([*properties(schema), *_enum_words(properties(schema).values())])),
        "server": split_words(tool.id.server),
    }


def tool_text(tool: Tool, schema: Mapping[str, Any]) -> str:
    """One short text for an embedder, what identifies the tool first and the server, weak evidence, last.

    Parameters are named, not described: their descriptions cost all-MiniLM-L6-v2 recall, and tokens.

    Args:
        tool: the tool.
        schema: its plain schema.
    """
    parts = [
        " ".join(identifier_words(tool.id.name)),
        _opening(tool.description, DESCRIPTION_CHARACTERS),
        _listed("Parameters", _parameters(properties(schema))),
        _listed("Values", _enum_words(properties(schema).values())),
    ]
    text = _cut(" ".join(_sentence(part) for part in parts if part), TEXT_CHARACTERS)
    return f"{text} Server: {' '.join(identifier_words(tool.id.server))[:60]}."


def _folded(text: str) -> str:
    """Without accents and compatibility forms; plain ASCII is as it was."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize(
        "NFKC", "".join(c for c in apart if not unicodedata.category(c).startswith("M"))
    )


def _split_run(run: str) -> Iterable[str]:
    if run.isascii():
        return (run.lower(),)
    return [word for part in _pieces(run) for word in part]


def _pieces(run: str) -> Iterable[list[str]]:
    """Spaced and unspaced stretches of a run of letters, in order."""
    at = 0
    for match in _UNSPACED.finditer(run):
        if before := run[at : match.start()]:
            yield [before.lower()]
        yield _pairs(match.group())
        at = match.end()
    if after := run[at:]:
        yield [after.lower()]


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def identifier_words(name: str) -> list[str]:
    """The words of an identifier, as they are written."""
    return [part for run in re.findall(r"[^\W_]+", name) for part in _CAMEL.split(run)]


def _opening(text: str, limit: int) -> str:
    """The first sentences that fit; the first words of a first sentence that doesn't."""
    flat = " ".join(text[: 4 * limit].split())
    if len(flat) <= limit:
        return flat
    ends = [match.end() for match in _SENTENCE_END.finditer(flat[:limit])]
    return flat[: ends[-1]] if ends and ends[-1] > limit // 5 else _cut(flat, limit)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head, space, _ = text[:limit].rpartition(" ")
    return f"{head if space else text[:limit]}…"


def _sentence(part: str) -> str:
    return part if part.endswith((".", "!", "?", "…", "。")) else f"{part}."


def _listed(label: str, items: list[str]) -> str:
    return f"{label}: {', '.join(items)}" if items else ""


def _parameters(known: Mapping[str, Schema]) -> list[str]:
    return [" ".join(identifier_words(name)) or name[:40] for name in list(known)[:MAX_PARAMETERS]]


def _enum_words(schemas: Iterable[Schema]) -> list[str]:
    """The textual values a few parameters may take, those of an array's items included."""
    values = [value for schema in schemas for value in _enum(schema)]
    return list(dict.fromkeys(value for value in values if isinstance(value, str)))[:MAX_ENUM_WORDS]


def _enum(schema: Schema) -> list[Any]:
    items = schema.get("items")
    inner = items.get("enum", []) if isinstance(items, dict) else []
    return [*schema.get("enum", []), *inner]
