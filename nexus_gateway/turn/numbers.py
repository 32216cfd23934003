"""Numbers as people write them: `1,200`, `3.5k`, `two million`, `a dozen`, `1e-9`, `50%`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_DIGITS = 40

_UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_UNITS += ["eleven", "twelve"]
_UNITS += [f"{part}teen" for part in ("thir", "four", "fif", "six", "seven", "eigh", "nine")]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORDS = {word: value for value, word in enumerate(_UNITS)} | {
    word: 10 * value for value, word in enumerate(_TENS, start=2)
}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "dozen": 12}
_SUFFIXES = {"k": 10**3, "m": 10**6, "b": 10**9, "bn": 10**9}
_DIGITS = re.compile(
    r"(?:(?<![\w.])|(?<=\dx))[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,3})?"
    r"(?!\.\d)(?:(?P<suffix>[kKMB]|bn)(?![\w/^²³]))?(?:\s*(?P<scale>hundred|thousand|million|billion|dozen)\b)?"
)
_WRITTEN = re.compile(
    rf"\b(?:{'|'.join([*_WORDS, 'a'])})(?:[\s-]+(?:and[\s-]+)?(?:{'|'.join([*_WORDS, *_SCALES])}))*\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text, where it stands."""

    value: int | float
    start: int
    end: int


def numbers(text: str) -> list[Number]:
    """Every number of a text, in reading order; `1` where the text says "a dozen" is not one of them."""
    found = [*_in_digits(text), *_in_words(text)]
    return sorted(found, key=lambda number: number.start)


def _in_digits(text: str) -> Iterator[Number]:
    for match in _DIGITS.finditer(text):
        plain = match.group()
        if "," in plain and text[max(0, match.start() - 1) : match.start()] in _OPENERS:
            yield from _row(match.group(), match.start())
            continue
        for part in (match["scale"], match["suffix"]):
            plain = plain.strip().removesuffix(part) if part else plain
        value = _value(plain.replace(",", "").strip())
        if value is None:
            continue
        scale = _SCALES.get((match["scale"] or "").lower(), 1) * _SUFFIXES.get(
            (match["suffix"] or "").lower(), 1
        )
        yield Number(_scaled(value, scale), match.start(), match.end())


_OPENERS = ("[", "(", "{")
"""After these `200,300` is two numbers."""


def _row(text: str, start: int) -> Iterator[Number]:
    for match in re.finditer(r"[-+]?[\d.]+", text):
        value = _value(match.group())
        if value is not None:
            yield Number(value, start + match.start(), start + match.end())


def _in_words(text: str) -> Iterator[Number]:
    for match in _WRITTEN.finditer(text):
        words = re.split(r"[\s-]+", match.group().lower())
        tens = words[0] in _TENS and len(words) == 2  # noqa: PLR2004 - twenty five
        if len(words) == 1 or tens or any(word in _SCALES for word in words):
            if words != ["a"] and not text[: match.start()].lower().endswith("half "):
                yield Number(_spoken(words), match.start(), match.end())
            continue
        for word in re.finditer(r"\w+", match.group()):  # a row: one two three
            start = match.start() + word.start()
            if word.group().lower() in _WORDS:
                yield Number(_WORDS[word.group().lower()], start, start + len(word.group()))


def _spoken(words: Sequence[str]) -> int:
    total = current = 0
    for word in words:
        if word in _SCALES:
            current = max(current, 1) * _SCALES[word]
            if _SCALES[word] > 100:  # noqa: PLR2004 - hundreds stay open: two hundred thousand
                total, current = total + current, 0
        else:
            current += _WORDS.get(word, 0)
    return total + current


def _value(plain: str) -> int | float | None:
    if len(plain) > MAX_DIGITS:
        return None
    try:
        return int(plain) if re.fullmatch(r"[-+]?\d+", plain) else float(plain)
    except ValueError:
        return None


def _scaled(value: float, scale: int) -> int | float:
    product = value * scale
    return int(product) if scale > 1 and float(product).is_integer() else product
