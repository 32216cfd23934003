"""Candidate values for an argument: the parts of a text that could be one.

A value that no model can make up is a value that is copied. This module finds what there is to copy:
paths, addresses, numbers, quoted text, and runs of words that say something the tool does not say itself.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tool_registry.text import split_words

MAX_TEXT_CHARACTERS = 4000
"""Longer texts are searched for typed values whole, for word runs in this many first characters."""

MAX_RUN_WORDS = 8
MAX_CANDIDATES = 300


class SpanKind(StrEnum):
    """What a span looks like."""

    PATH = "path"
    URL = "url"
    EMAIL = "email"
    DATE = "date"
    TIME = "time"
    NUMBER = "number"
    QUOTED = "quoted"
    IDENTIFIER = "identifier"
    WORDS = "words"


@dataclass(frozen=True, slots=True)
class Span:
    """A candidate value: its text without quotes or trailing punctuation, and where it starts."""

    kind: SpanKind
    text: str
    start: int

    @property
    def end(self) -> int:
        """One past its last character."""
        return self.start + len(self.text)


_TRAILING = ".,;:!?)]}'\"»”\u2019"
_TYPED: tuple[tuple[SpanKind, re.Pattern[str]], ...] = (
    (SpanKind.URL, re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`]+", re.IGNORECASE)),
    (SpanKind.EMAIL, re.compile(r"\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")),
    (
        SpanKind.DATE,
        re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"),
    ),
    (SpanKind.DATE, re.compile(r"\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b")),
    (SpanKind.TIME, re.compile(r"\b\d{1,2}:\d{2}(?::\d{2})?\b")),
    (SpanKind.PATH, re.compile(r"(?<![\w/])(?:~|\.{1,2})?/[^\s\"'`<>|]+")),
    (SpanKind.PATH, re.compile(r"\b[A-Za-z]:\\[^\s\"'`<>|]+")),
    (SpanKind.PATH, re.compile(r"(?<![\w@/])[\w-]+(?:/[\w.-]+)+")),
    (SpanKind.PATH, re.compile(r"(?<![\w@/])[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,7}\b(?!/)")),
    (SpanKind.NUMBER, re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?![\w/]|\.\d)")),
    (SpanKind.IDENTIFIER, re.compile(r"(?<![\w/])#?(?=[\w-]*\d)(?=[\w-]*[A-Za-z_-])[A-Za-z0-9][\w-]{2,}\b")),
    (SpanKind.IDENTIFIER, re.compile(r"(?<![\w/])[A-Za-z]\w*(?:[_-]\w+)+\b")),
)
_QUOTED = re.compile(
    r"\"([^\"\n]{1,2000})\"|“([^”\n]{1,2000})”|«([^»\n]{1,2000})»|`([^`\n]{1,2000})`|(?<!\w)'([^'\n]{1,2000})'(?!\w)"
)
_WORD = re.compile(r"[^\s]+")
_SAYING = re.compile(
    r"(?:\b(?:saying|says|that says|with (?:the )?(?:text|content|contents|message|body|title|name|subject|comment)|"
    r"(?:called|named|titled|containing|reading))\b|:)\s+(.+)$",
    re.IGNORECASE | re.DOTALL,
)

STOPWORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "by",
        "can",
        "could",
        "do",
        "does",
        "for",
        "from",
        "get",
        "give",
        "had",
        "has",
        "have",
        "hello",
        "help",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "just",
        "let",
        "like",
        "list",
        "make",
        "may",
        "me",
        "might",
        "my",
        "need",
        "now",
        "of",
        "off",
        "on",
        "one",
        "or",
        "our",
        "out",
        "over",
        "please",
        "put",
        "run",
        "shall",
        "should",
        "show",
        "so",
        "some",
        "tell",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "to",
        "up",
        "use",
        "using",
        "want",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "who",
        "whose",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
        "all",
        "any",
        "about",
        "after",
        "before",
        "called",
        "named",
        "new",
        "also",
        "every",
        "each",
        "must",
        "not",
        "no",
        "yes",
        "go",
        "thanks",
        "thank",
        "find",
        "look",
        "search",
        "see",
        "know",
        "check",
    ]
)


def typed_spans(text: str) -> list[Span]:
    """Every typed and quoted span, by position; a stretch of text belongs to the first kind that claims it."""
    spans = list(_quoted(text))
    claimed = [(span.start - 1, span.end + 1) for span in spans]
    for kind, pattern in _TYPED:
        for match in pattern.finditer(text):
            value = match.group().rstrip(_TRAILING)
            start, end = match.start(), match.start() + len(value)
            inside_other_kind = any(
                start < taken_end and taken_start < end for taken_start, taken_end in claimed
            )
            if value and not inside_other_kind:
                spans.append(Span(kind, value, start))
                claimed.append((start, end))
    return sorted(spans, key=lambda span: span.start)


def _quoted(text: str) -> Iterator[Span]:
    for match in _QUOTED.finditer(text):
        group = next(number for number in range(1, 6) if match.group(number) is not None)
        yield Span(SpanKind.QUOTED, match.group(group), match.start(group))


def word_runs(text: str, known: Collection[str]) -> list[Span]:
    """Runs of words with at least one that is neither a stopword nor in `known` (the tool's own words).

    At most `MAX_CANDIDATES`, in reading order, longest first at each start.
    """
    window = text[:MAX_TEXT_CHARACTERS]
    words = [(match.start(), match.group()) for match in _WORD.finditer(window)]
    novel = [says_something(word, known) for _, word in words]
    runs: dict[str, Span] = {}
    for first, (start, word) in enumerate(words):
        if is_filler(word):
            continue
        for last in range(min(first + MAX_RUN_WORDS, len(words)) - 1, first - 1, -1):
            if not any(novel[first : last + 1]) or is_filler(words[last][1]):
                continue
            value = window[start : words[last][0] + len(words[last][1])].strip(_TRAILING + "([{“\u2018«`")
            if value and value not in runs:
                runs[value] = Span(SpanKind.WORDS, value, window.find(value, start))
            if len(runs) >= MAX_CANDIDATES:
                return list(runs.values())
    return list(runs.values())


def said_text(text: str) -> Span | None:
    """The text after "saying", "called", "with the title" or a colon, to the end: what prose arguments copy."""
    match = _SAYING.search(text[:MAX_TEXT_CHARACTERS])
    if match is None:
        return None
    value = match.group(1).strip().strip("\"'“”`").rstrip()
    return Span(SpanKind.WORDS, value, text.find(value, match.start(1))) if value else None


def says_something(word: str, known: Collection[str]) -> bool:
    """Whether a word adds to what the tool says of itself."""
    parts = [part for part in split_words(word) if part not in STOPWORDS]
    return any(not _is_known(part, known) for part in parts)


def _is_known(word: str, known: Collection[str]) -> bool:
    """Whether a word or its English singular or plural is in `known`."""
    return any(form in known for form in (word, f"{word}s", word.removesuffix("s"), word.removesuffix("es")))


def is_filler(word: str) -> bool:
    """Whether a word has nothing but stopwords and punctuation."""
    return all(part in STOPWORDS for part in split_words(word))
