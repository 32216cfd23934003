"""Candidate values for an argument: the parts of a text that could be one.

A value that no model can make up is a value that is copied. This module finds what there is to copy:
paths, addresses, numbers, quoted text, and runs of words that say something the tool does not say itself.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tool_registry.text import split_words

MAX_TYPED_CHARACTERS = 20_000
"""Typed values are looked for in this much of a text."""

MAX_TEXT_CHARACTERS = 4_000
"""Runs of words are looked for in this much of a text."""

MAX_JOINED_PIECES = 6
MAX_CANDIDATES = 200


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
_START = r"(?<![\w@/.-])"
"""Where a word begins: tried once a word, so that a long dashed or dotted text costs one pass."""

_TYPED: tuple[tuple[SpanKind, re.Pattern[str]], ...] = (
    (SpanKind.URL, re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`]+", re.IGNORECASE)),
    (SpanKind.EMAIL, re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+")),
    (
        SpanKind.DATE,
        re.compile(r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"),
    ),
    (SpanKind.DATE, re.compile(r"\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b")),
    (SpanKind.TIME, re.compile(r"\b\d{1,2}:\d{2}(?::\d{2})?\b")),
    (SpanKind.PATH, re.compile(r"(?<![\w/])(?:~|\.{1,2})?/[^\s\"'`<>|]+")),
    (SpanKind.PATH, re.compile(r"\b[A-Za-z]:\\[^\s\"'`<>|]+")),
    (SpanKind.PATH, re.compile(_START + r"\.?[\w-]++(?:\.[\w-]++)*+(?:/[\w.-]++)+/?")),
    (SpanKind.PATH, re.compile(_START + r"[\w-]++/(?=\s|$)")),
    (SpanKind.IDENTIFIER, re.compile(_START + r"v?\d++(?:\.\d++){2,}\b")),
    (SpanKind.PATH, re.compile(_START + r"[\w-]++(?:\.[\w-]+)*\.[A-Za-z][A-Za-z0-9]{0,7}\b(?!/)")),
    (SpanKind.PATH, re.compile(_START + r"\.[A-Za-z][\w.-]*")),
    (SpanKind.IDENTIFIER, re.compile(_START + r"#?(?=[\w-]*\d)(?=[\w-]*[A-Za-z_])[A-Za-z0-9][\w-]{2,}\b")),
    (SpanKind.IDENTIFIER, re.compile(_START + r"(?=\w*[_-])[A-Za-z]\w*+(?:-\w++)*+\b")),
    (SpanKind.NUMBER, re.compile(r"(?<![\w.,])[-+]?(?:\d{1,3}(?:,\d{3})++|\d++)(?:\.\d+)?(?![\w/]|\.\d)")),
)
_NOT_VALUES = frozenset(
    ["and/or", "24/7", "e.g", "i.e", "n/a", "w/o", "either/or", "his/her", "he/she", "yes/no"]
)
_QUOTED = re.compile(
    r"\"([^\"\n]{1,2000})\"|“([^”\n]{1,2000})”|«([^»\n]{1,2000})»|`([^`\n]{1,2000})`|(?<!\w)'([^'\n]{1,2000})'(?!\w)"
)
_WORD = re.compile(r"[^\s]+")
_SENTENCE = re.compile(r"[^.!?;\n]+(?:[.!?;](?=\S)[^.!?;\n]*)*")
_AROUND = _TRAILING + "([{“\u2018«`"
_IN_QUOTES = r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|'([^']+)'"
_SAID = re.compile(
    r"(?:\b(?:saying|says|that says|reading|containing|with (?:the )?(?:text|contents?|message|body|comment))\b|:)\s+"
    rf"(?:{_IN_QUOTES}|(.+)$)",
    re.IGNORECASE | re.DOTALL,
)
_NAMED = re.compile(
    r"\b(?:called|named|titled|with (?:the )?(?:title|name|subject))\s+"
    rf"(?:{_IN_QUOTES}|(.+?)"
    r"(?=\s(?:saying|says|that|which|with|containing|on|at|and|in|into|to|for|from|of type)\s|[,.;:](?:\s|$)|$))",
    re.IGNORECASE | re.DOTALL,
)
_BREAK = re.compile(r"[\"“”«»`()\[\]{}:;]")
"""Between two stretches of words: they are no run together."""

STOPWORDS = frozenset(
    """
    a an and are as at be by can could do does for from get give had has have help how i if in into is it its
    just let like list make may me might my need now of off on one or our out over please put run shall should show
    so some tell than that the their them then there these they this those to up use using want was we were what
    when where which while who whose why will with would you your all any about after before called named titled new
    also every each must not no find look search see know check saying says first last next word words text phrase
    term string line lines value
    """.split()  # noqa: SIM905 - a column of quoted words says the same on two hundred lines
)


def typed_spans(text: str) -> list[Span]:
    """Every typed and quoted span, by position; a stretch of text belongs to the first kind that claims it."""
    window = text[:MAX_TYPED_CHARACTERS]
    spans = list(_quoted(window))
    claimed = bytearray(len(window) + 1)
    for span in spans:
        _claim(claimed, span.start - 1, span.end + 1)
    for kind, pattern in _TYPED:
        for match in pattern.finditer(window):
            value = match.group().rstrip(_TRAILING)
            start, end = match.start(), match.start() + len(value)
            if value and not any(claimed[start:end]):
                _claim(claimed, start, end)
                if value.lower() not in _NOT_VALUES:
                    spans.append(Span(kind, value, start))
    return sorted(spans, key=lambda span: span.start)


def _claim(claimed: bytearray, start: int, end: int) -> None:
    first = max(start, 0)
    claimed[first:end] = b"\x01" * (min(end, len(claimed)) - first)


def _quoted(text: str) -> Iterator[Span]:
    for match in _QUOTED.finditer(text):
        group = next(number for number in range(1, 6) if match.group(number) is not None)
        yield Span(SpanKind.QUOTED, match.group(group), match.start(group))


def word_runs(text: str, known: Collection[str], *, joined: bool = True) -> list[Span]:
    """Runs of words that say something; with `joined` also across words that don't, within one sentence.

    A run begins and ends with words that are neither stopwords nor in `known` (the tool's own words), and takes
    all of its kind around it: "hello world" is a run, "world" alone is not. At most `MAX_CANDIDATES`, in
    reading order.
    """
    runs: list[Span] = []
    for sentence in _SENTENCE.finditer(text[:MAX_TEXT_CHARACTERS]):
        pieces = list(_pieces(sentence.group(), sentence.start(), known))
        for first, (start, _) in enumerate(pieces):
            for last_start, end in pieces[first : first + (MAX_JOINED_PIECES if joined else 1)]:
                if _BREAK.search(text, start, last_start):
                    break
                runs.append(Span(SpanKind.WORDS, text[start:end], start))
    return runs[:MAX_CANDIDATES]


def _pieces(sentence: str, offset: int, known: Collection[str]) -> Iterator[tuple[int, int]]:
    """Start and end of each unbroken stretch of words that say something."""
    open_at: tuple[int, int] | None = None
    for match in _WORD.finditer(sentence):
        bare = match.group().strip(_AROUND).removesuffix("'s").removesuffix("\u2019s")
        start = offset + match.start() + match.group().find(bare)
        if bare and says_something(bare, known) and (open_at or not _is_number(bare)):
            open_at = (open_at[0] if open_at else start, start + len(bare))
            if match.group().endswith(bare):
                continue
        if open_at:
            yield open_at
        open_at = None
    if open_at:
        yield open_at


def _is_number(word: str) -> bool:
    """Whether a word is a number, which goes on with a run ("python 3") but begins none ("5 rows")."""
    return word.replace(".", "").replace(",", "").isdigit()


def said_text(text: str) -> Span | None:
    """The text after "saying", "with the message" or a colon, to the end: what prose arguments copy."""
    return _captured(_SAID, text)


def given_name(text: str) -> Span | None:
    """The text after "called", "named" or "with the title", up to what comes after a name."""
    return _captured(_NAMED, text)


def _captured(pattern: re.Pattern[str], text: str) -> Span | None:
    match = pattern.search(text[:MAX_TEXT_CHARACTERS])
    if match is None or match.lastindex is None:
        return None
    value = match.group(match.lastindex).strip()
    return Span(SpanKind.WORDS, value, text.find(value, match.start(match.lastindex))) if value else None


def says_something(word: str, known: Collection[str]) -> bool:
    """Whether a word adds to what the tool says of itself."""
    parts = [part for part in split_words(word) if part not in STOPWORDS]
    return any(not _is_known(part, known) for part in parts)


def _is_known(word: str, known: Collection[str]) -> bool:
    """Whether a word or its English singular or plural is in `known`."""
    return any(form in known for form in (word, f"{word}s", word.removesuffix("s"), word.removesuffix("es")))
