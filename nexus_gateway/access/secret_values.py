"""Names and values that look like credentials: what is never kept on our own account, and masked where people look.

Judged by look alone, so it errs to the side of secrecy. Knows words; knows no file and no server.
"""

import re

from tool_registry.text import split_words

MASK = "••••"

_SECRETS = frozenset(
    [
        *("auth", "authorization", "bearer", "cookie", "credential", "credentials", "cvv", "dsn", "jwt", "otp"),
        *("pass", "passcode", "passphrase", "passwd", "password", "passwords", "pin", "pwd", "secret", "secrets"),
        *("token", "apikey", "accesskey", "secretkey", "privatekey"),
    ]
)  # fmt: skip
_ENDINGS = ("password", "passwd", "passphrase", "secret", "token", "apikey")
_OF_SECRET_KEYS = frozenset(
    [
        *("access", "account", "api", "encryption", "licence", "license", "master", "private", "service"),
        *("shared", "signing", "ssh", "storage", "subscription"),
    ]
)
_OF_SECRET_CONNECTIONS = frozenset({"string", "uri", "url"})
_SECRET_VALUE = re.compile(
    r"(?:sk|pk|rk)[-_][\w-]{8,}|gh[pousr]_\w+|github_pat_\w+|glpat-[\w-]+|xox[a-z]-[\w-]+|AKIA[0-9A-Z]{12,}"
    r"|eyJ[\w-]+\.[\w-]+\.[\w-]*|Bearer\s.+|-----BEGIN .+|[a-z][a-z0-9+.-]*://[^/\s:@]*:[^@/\s]+@.+",
    re.IGNORECASE | re.DOTALL,
)
_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[\w+/=.~-]{32,}")


def name_looks_secret(name: str) -> bool:
    """Whether a parameter of this name takes a credential: `password`, `apiKey`, `connection_string`."""
    words = split_words(name)
    if any(word in _SECRETS or word.endswith(_ENDINGS) for word in words):
        return True
    if words[-1:] in (["key"], ["keys"]):
        return not _OF_SECRET_KEYS.isdisjoint(words)
    return "connection" in words and not _OF_SECRET_CONNECTIONS.isdisjoint(words)


def value_looks_secret(value: object) -> bool:
    """Whether a value has the form of a credential, or is long and random as one; an id in hex digits is neither."""
    if not isinstance(value, str):
        return False
    text = value.strip()
    return _SECRET_VALUE.fullmatch(text) is not None or _MIXED.fullmatch(text) is not None


def shown(name: str, value: object) -> str:
    """A value as a person may see it on a screen."""
    return MASK if name_looks_secret(name) or value_looks_secret(value) else str(value)
