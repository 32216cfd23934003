"""A configuration file as a person may see it on a screen: values of variables and headers are hidden.

Works on the text, so that a diff of two masked texts is one of the files. Errs to the side of secrecy.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from nexus_gateway.access.secret_values import MASK, name_looks_secret, value_looks_secret

_HIDDEN_IN = frozenset({"env", "headers", "http_headers"})
_SHOWN = frozenset({"PATH"})
_TOKEN = re.compile(
    r'(?P<comment>//[^\r\n]*|/\*.*?\*/|\#[^\r\n]*)|"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'',
    re.DOTALL,
)
_QUOTED = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'')
_WORD = re.compile(r"[^\s\"',:=\[\]{}()]+")
_IN_URL = re.compile(r"([?&]([^=&#\s]+)=)[^&#\s]+")


def masked(text: str, document: Any) -> str:
    """`text`, which says `document`, with its secrets hidden; in comments everything quoted that may be one."""
    secrets = frozenset(_secrets(document, hidden=False))

    def shown(match: re.Match[str]) -> str:
        token = match[0]
        if match["comment"]:
            return _comment(token)
        value = _decoded(token)
        if value in secrets or value_looks_secret(value):
            return f'"{MASK}"'
        name, equals, rest = value.partition("=")
        if equals and name.startswith("-") and (name_looks_secret(name) or value_looks_secret(rest)):
            return f'"{name}={MASK}"'
        return _IN_URL.sub(lambda part: part[1] + MASK if name_looks_secret(part[2]) else part[0], token)

    return _TOKEN.sub(shown, text)


def _secrets(value: Any, *, hidden: bool) -> Iterator[str]:
    """The strings that a document gives as values of variables, headers and whatever is named like a secret."""
    if isinstance(value, str):
        if hidden and value:
            yield value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            hide = (hidden or name in _HIDDEN_IN or name_looks_secret(name)) and name not in _SHOWN
            yield from _secrets(one, hidden=hide)
    elif isinstance(value, list):
        before = ""
        for one in value:
            follows = before.startswith("-") and "=" not in before and name_looks_secret(before)
            yield from _secrets(one, hidden=hidden or follows)
            before = one if isinstance(one, str) else ""


def _decoded(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        pass
    try:
        return str(tomllib.loads(f"x = {token}")["x"])
    except ValueError:
        return token.strip("\"'")


def _comment(text: str) -> str:
    words = _WORD.findall(text)
    if not any(name_looks_secret(word) or value_looks_secret(word) for word in words):
        return text
    text = _QUOTED.sub(f'"{MASK}"', text)
    return _WORD.sub(lambda word: MASK if value_looks_secret(word[0]) else word[0], text)
