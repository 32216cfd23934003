"""Which URLs a prompt and a key may be sent to, and where the key comes from. Sends nothing.

A key is never in a message, a `repr` or a log.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
import httpx

from adapters import loopback
from adapters.ports import ModelUnusable

KEYRING_SECONDS = 60.0
"""For the keyring to answer; a locked one asks its user first."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A secret, or none where it is empty."""

    secret: str = field(default="", repr=False)

    def headers(self) -> dict[str, str]:
        """What to send."""
        return {"Authorization": f"Bearer {self.secret}"} if self.secret else {}

    def hidden_in(self, text: str) -> str:
        """`text` without the key: a server may quote it."""
        return text.replace(self.secret, "***") if self.secret else text


def usable_url(written: str, *, plain_http: bool) -> httpx.URL:
    """The base URL of an API, without a slash at its end.

    Raises:
        ModelUnusable: no URL, one that holds a secret, or one that would send the prompt in the clear.
    """
    try:
        url = httpx.URL(written.rstrip("/"))
    except httpx.InvalidURL as error:
        raise ModelUnusable(f"[engine] url is not a URL: {error}") from error
    if url.userinfo or url.query or url.fragment:
        raise ModelUnusable(
            "[engine] url must have no user, password, query or fragment; a key belongs into the environment "
            "variable that api_key_env names, or into the keyring"
        )
    if url.scheme not in {"http", "https"} or not url.host:
        raise ModelUnusable(
            f"[engine] url {written!r} must begin with http:// or https:// and a host, "
            "such as http://127.0.0.1:8080/v1"
        )
    if url.scheme == "http" and not plain_http and not is_loopback(url):
        raise ModelUnusable(
            f"[engine] url {url} would send requests and key unencrypted to another machine; use https, "
            "or set plain_http = true if you trust the network"
        )
    return url


def is_loopback(url: httpx.URL) -> bool:
    """Whether the host is this machine, as written."""
    return loopback.is_loopback(url.host)


async def find_key(
    variable: str | None, keyring_entry: str | None, environ: Mapping[str, str] = os.environ
) -> ApiKey:
    """The key that the environment or the keyring holds; none where neither is named.

    Args:
        variable: name of an environment variable; comes first.
        keyring_entry: `service/user` of an entry.
        environ: the environment.

    Raises:
        ModelUnusable: what is named holds no key, or one that can't be sent.
    """
    if variable is not None:
        if not environ.get(variable):
            raise ModelUnusable(
                f"the environment variable {variable}, which [engine] api_key_env names, is not set; set it to the key"
            )
        return _sendable(environ[variable], f"the environment variable {variable}")
    if keyring_entry is None:
        return ApiKey()
    service, _, user = keyring_entry.rpartition("/")
    if not service or not user:
        raise ModelUnusable(
            f"[engine] api_key_keyring must be SERVICE/USER, as in `keyring set SERVICE USER`; got {keyring_entry!r}"
        )
    secret = await _from_keyring(service, user)
    if not secret:
        raise ModelUnusable(
            f"the keyring has no entry {keyring_entry}, which [engine] api_key_keyring names; "
            f"`keyring set {service} {user}` makes it"
        )
    return _sendable(secret, f"the keyring's entry {keyring_entry}")


async def _from_keyring(service: str, user: str) -> str | None:
    import keyring  # noqa: PLC0415 - its backends take a while to look for, and few need them
    import keyring.errors  # noqa: PLC0415

    try:
        with anyio.fail_after(KEYRING_SECONDS):
            return await anyio.to_thread.run_sync(keyring.get_password, service, user, abandon_on_cancel=True)
    except keyring.errors.KeyringError as error:
        raise ModelUnusable(
            f"the keyring can't be read ({type(error).__name__}); unlock it, or name an environment variable "
            "in [engine] api_key_env instead"
        ) from error
    except TimeoutError as error:
        raise ModelUnusable(f"the keyring did not answer within {KEYRING_SECONDS:g} s; unlock it") from error


def _sendable(secret: str, source: str) -> ApiKey:
    stripped = secret.strip()
    if not stripped or not stripped.isascii() or not stripped.isprintable() or " " in stripped:
        raise ModelUnusable(f"{source} holds no usable key: one line of ASCII characters without spaces")
    return ApiKey(stripped)
