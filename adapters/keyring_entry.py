"""One secret in the system's keyring, by `service/user`. Every step has a deadline: a locked keyring asks its user.

Blocks; knows nothing of what the secret is for.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

_ResultT = TypeVar("_ResultT")

KEYRING_SECONDS: Final = 5.0
"""For one step. A keyring that asks its user takes longer, and a service has nobody to answer."""


class KeyringUnusableError(Exception):
    """There is no keyring, it is locked, or it has no such entry; the message says which."""


def keyring_there() -> bool:
    """Whether this system has a keyring at all, locked or not; the library's stand-ins have a lower priority."""
    try:
        return _within_deadline(lambda: float(getattr(_keyring(), "priority", 0)) >= 1)
    except KeyringUnusableError:  # the one that PYTHON_KEYRING_BACKEND names can't be loaded, for example
        return False


def read_entry(entry: str) -> str:
    """The secret. Raises KeyringUnusableError."""
    service, user = _named(entry)
    secret = _within_deadline(lambda: _keyring().get_password(service, user))
    if not secret:
        raise KeyringUnusableError(
            f"the keyring has no entry {entry}; `keyring set {service} {user}` makes it"
        )
    return secret


def keep_entry(entry: str, secret: str) -> None:
    """Write the secret and read it again: some keyrings take everything and keep nothing.

    Raises:
        KeyringUnusableError: it was not kept.
    """
    service, user = _named(entry)
    _within_deadline(lambda: _keyring().set_password(service, user, secret))
    if read_entry(entry) != secret:
        raise KeyringUnusableError(f"the keyring did not keep the entry {entry}")


def drop_entry(entry: str) -> None:
    """Delete the secret, or raise KeyringUnusableError where there was none."""
    service, user = _named(entry)
    _within_deadline(lambda: _keyring().delete_password(service, user))


def _named(entry: str) -> tuple[str, str]:
    service, _, user = entry.rpartition("/")
    if not service or not user:
        raise KeyringUnusableError(f"a keyring entry is written SERVICE/USER, got {entry!r}")
    return service, user


def _keyring() -> "KeyringBackend":
    import keyring  # noqa: PLC0415 - its backends take a while to look for, and few need them

    return keyring.get_keyring()


def _within_deadline(step: Callable[[], _ResultT]) -> _ResultT:
    """In a daemon thread, since nothing else ends the wait for a prompt that nobody sees."""
    results: list[_ResultT] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            results.append(step())
        except Exception as error:  # noqa: BLE001 - backends raise what they like; reported below
            failures.append(error)

    thread = threading.Thread(target=run, name="keyring", daemon=True)
    thread.start()
    thread.join(KEYRING_SECONDS)
    if failures:
        raise KeyringUnusableError(f"the keyring can't be used ({type(failures[0]).__name__})") from failures[
            0
        ]
    if not results:
        raise KeyringUnusableError(f"the keyring did not answer within {KEYRING_SECONDS:g} s; unlock it")
    return results[0]
