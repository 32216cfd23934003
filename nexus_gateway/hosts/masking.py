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
_CARRIERS = frozenset({"-e", "--env", "-H", "--header"})
"""Options that are followed by `NAME=value` or `Name: value`."""
_LONGEST = 300
"""Characters of a string that anyone reads in a diff."""
_PATH_PARTS = 3
"""Of an absolute path that is taken for one; fewer are as likely in a key in base 64."""
_TOKEN = re.compile(
    r"(?P<comment>//[^\r\n]*|/\*.*?\*/|\#[^\r\n]*)"
    r'|"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|\'[^\'\n]*\''
    r"|(?P<number>(?<![\w.-])-?\d[\w.+-]*)",
    re.DOTALL,
)
_QUOTED = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'')
_WORD = re.compile(r"[^\s\"',:=\[\]{}()]+")
_NAMED = re.compile(r"(?<![\w.-])(?P<name>[\w.-]{1,100})\s*[=:]\s*")
_IN_URL = re.compile(r"(?<=[/=])(?=[\w~-]*\d)(?=[\w~-]*[A-Za-z])[\w~-]{16,}(?=[/?&#]|$)")
"""A long part of a path or a query with digits in it: some servers have their key there."""


def masked(text: str, document: Any) -> str:
    """`text`, which says `document`, with its secrets hidden, and all that is quoted in its comments."""
    secrets = frozenset(_secrets(document))

    def shown(match: re.Match[str]) -> str:
        token = match[0]
        if match["comment"]:
            return _comment(token)
        if match["number"]:
            return f'"{MASK}"' if token in secrets else token
        value = _decoded(token)
        if value in secrets or len(value) > _LONGEST:
            return f'"{MASK}"'
        hidden = _hidden(value)
        return token if hidden == value else json.dumps(hidden, ensure_ascii=False)

    return _TOKEN.sub(shown, text)


def has_secrets(document: Any) -> bool:
    """Whether something in a document is hidden."""
    text = json.dumps(document, default=str)
    return masked(text, document) != text


def _secrets(document: Any) -> Iterator[str]:
    """What a document gives as values of variables, headers and whatever is named like a secret, as text."""
    waiting: list[tuple[Any, bool]] = [(document, False)]
    while waiting:
        value, hidden = waiting.pop()
        if isinstance(value, Mapping):
            for name, one in value.items():
                hide = (hidden or name in _HIDDEN_IN or name_looks_secret(name)) and name not in _SHOWN
                waiting.append((one, hide))
        elif isinstance(value, list) and value:
            before = ["", *value[:-1]]
            waiting += [
                (one, hidden or _carries(option, one)) for option, one in zip(before, value, strict=True)
            ]
        elif hidden and value not in ("", None, []):
            yield str(value)


def _carries(option: object, value: object) -> bool:
    """Whether an argument is a secret by the option before it."""
    if not isinstance(option, str) or not isinstance(value, str):
        return False
    if option in _CARRIERS:
        return "=" in value or ":" in value
    return option.startswith("-") and "=" not in option and name_looks_secret(option)


def _hidden(value: str) -> str:
    """A string without its secret parts: `--api-key=…`, `Authorization: …`, `https://…/?token=…&page=2`."""
    if value_looks_secret(value) and not _is_path(value):
        return MASK
    is_url = "://" in value
    for match in _NAMED.finditer(value):
        rest = value[match.end() :]
        part, ampersand, further = rest.partition("&") if is_url else (rest, "", "")
        if part and (name_looks_secret(match["name"]) or value_looks_secret(part)):
            return value[: match.end()] + MASK + ampersand + (_hidden(further) if further else "")
    return _IN_URL.sub(MASK, value) if is_url else value


def _is_path(value: str) -> bool:
    """Whether what looks random is an absolute path: capitals, digits and slashes, no part of it random."""
    parts = value.split("/")
    return (
        len(parts) > _PATH_PARTS
        and not parts[0]
        and not set("+=") & set(value)
        and not any(value_looks_secret(part) for part in parts)
    )


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
    if any(name_looks_secret(word) or value_looks_secret(word) for word in _WORD.findall(text)):
        return f"/* {MASK} */" if text.startswith("/*") else f"{text[0] if text[0] == '#' else '//'} {MASK}"
    return _QUOTED.sub(f'"{MASK}"', text)
