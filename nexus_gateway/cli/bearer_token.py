"""The bearer token of the HTTP front: where it is kept, read and made. It is shown to nobody and logged nowhere."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from adapters.keyring_entry import (
    KeyringUnusableError,
    drop_entry,
    keep_entry,
    keyring_there,
    read_entry,
)
from nexus_gateway.cli.exits import Exit
from nexus_gateway.files import write_atomically
from nexus_gateway.settings import HttpSettings, default_config_file

ENTRY = "nexus-gateway/http"
"""The keyring's entry that `service install` makes."""
_TOKEN_BYTES = 32

TokenFileOption = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="Read the bearer token from this file."),
]
TokenKeyringOption = Annotated[
    str | None,
    typer.Option(
        "--token-keyring", metavar="SERVICE/USER", help="Read the bearer token from the system's keyring."
    ),
]


class TokenUnusableError(Exception):
    """A place was named and holds no usable token; the message says what to do."""


@dataclass(frozen=True, slots=True)
class TokenPlace:
    """Where a token is kept; the first one that is named counts, a variable only if it is set.

    Attributes:
        keyring: `service/user` of an entry.
    """

    variable: str | None = None
    file: Path | None = None
    keyring: str | None = None

    def options(self) -> list[str]:
        """The options of `serve` and `connect` that name the place."""
        if self.file is not None:
            return ["--token-file", str(self.file)]
        return [] if self.keyring is None else ["--token-keyring", self.keyring]

    def described(self) -> str:
        """The place in words."""
        if self.file is not None:
            return f"the file {self.file}"
        return f"the keyring's entry {self.keyring}" if self.keyring else f"the variable {self.variable}"


def configured_place(http: HttpSettings, file: Path | None = None, keyring: str | None = None) -> TokenPlace:
    """What options and settings say; an option comes before all, the variable before the settings."""
    if file or keyring:
        return TokenPlace(None, file, keyring)
    configured = Path(http.token_file) if http.token_file else None
    return TokenPlace(http.token_env, configured, http.token_keyring)


def find_token(place: TokenPlace, environ: Mapping[str, str] = os.environ) -> str | None:
    """The token; None where no place is named. Raises TokenUnusableError."""
    if place.variable and environ.get(place.variable):
        return _checked(environ[place.variable], f"the variable {place.variable}")
    if place.file is not None:
        try:
            return _checked(place.file.read_text(encoding="utf-8"), f"the file {place.file}")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise TokenUnusableError(f"the token file {place.file} can't be read: {reason}") from error
    if place.keyring is not None:
        try:
            return _checked(read_entry(place.keyring), f"the keyring's entry {place.keyring}")
        except KeyringUnusableError as error:
            raise TokenUnusableError(f"{error}; or keep the token in a file: --token-file FILE") from error
    return None


def token_or_exit(place: TokenPlace) -> str | None:
    """As `find_token`; ends the command with what is wrong."""
    try:
        return find_token(place)
    except TokenUnusableError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Exit.USAGE) from None


def default_token_file() -> Path:
    """Where a token is kept if there is no keyring."""
    return default_config_file().with_name("http-token")


def planned_place(store: str) -> TokenPlace:
    """Where `make_token` would keep a token, if the keyring takes it."""
    file = default_token_file()
    if store == "keyring" or (store == "auto" and not file.exists() and keyring_there()):
        return TokenPlace(keyring=ENTRY)
    return TokenPlace(file=file)


def make_token(store: str) -> TokenPlace:
    """Keep a new token, or the one that is there, so that hosts that know it go on working.

    Args:
        store: "keyring", "file", or "auto": the keyring where there is one that keeps things.

    Raises:
        TokenUnusableError: "keyring", and there is none that works; or the file holds something else.
        OSError: the file can't be written.
    """
    place = planned_place(store)
    if place.file is not None:
        return _kept_in_file(place.file)
    try:
        try:
            read_entry(ENTRY)
        except KeyringUnusableError:
            keep_entry(ENTRY, secrets.token_urlsafe(_TOKEN_BYTES))
    except KeyringUnusableError as error:
        if store == "keyring":
            raise TokenUnusableError(f"{error}; or choose --token-store file") from error
        return _kept_in_file(default_token_file())
    return place


def forget_token(place: TokenPlace) -> None:
    """Delete a token that `make_token` made; one of somebody else's stays."""
    if place.file == default_token_file():
        place.file.unlink(missing_ok=True)
    elif place.keyring == ENTRY:
        try:
            drop_entry(ENTRY)
        except KeyringUnusableError as error:
            typer.echo(f"the token stays in the keyring: {error}", err=True)


def _kept_in_file(file: Path) -> TokenPlace:
    place = TokenPlace(file=file)
    if file.exists() and file.read_bytes().strip():
        find_token(place)
        file.chmod(0o600)
    else:
        write_atomically(file, secrets.token_urlsafe(_TOKEN_BYTES) + "\n", mode=0o600)
    return place


def _checked(token: str, place: str) -> str:
    stripped = token.strip()
    if not stripped or any(not "!" <= character <= "~" for character in stripped):  # what a header takes
        raise TokenUnusableError(f"{place} holds no usable token: one line of ASCII without spaces")
    return stripped
