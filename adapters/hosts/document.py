"""A host's file as a document: which servers it has, and the same file with the gateway in their place, and back.

Works on bytes and writes no file. What it returns has been read again: everything but the servers that were meant is
as it was, or nothing is returned.
"""

import codecs
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.hosts import json_edit, toml_edit
from adapters.hosts.json_text import JsonSyntaxError, dotted
from adapters.hosts.jsonc import decode_jsonc, value_at
from adapters.hosts.known import Dialect, Pointer

DEEPEST = 100
"""Levels of objects and lists in a file: far more than any host writes, and few enough for all that recurses."""


class HostFileError(ValueError):
    """A host's file that can't be read or changed; `str(error)` says why and what to do."""


@dataclass(frozen=True, slots=True)
class HostDocument:
    """One file's content.

    Attributes:
        bom: its byte order mark, or nothing.
        text: the rest.
        document: its value; an empty object for an empty file.
        servers: entries as they are written, by name, in order.
    """

    dialect: Dialect
    pointer: Pointer
    bom: bytes
    text: str = field(repr=False)  # as all that follows: may hold secrets
    document: Mapping[str, Any] = field(repr=False)
    servers: Mapping[str, Any] = field(repr=False)

    def written(self, name: str) -> str | None:
        """The text of a server's entry; None where it can't be moved by itself."""
        if self.dialect is Dialect.TOML:
            return toml_edit.table_text(self.text, (*self.pointer, name))
        return json_edit.member_text(self.text, self.pointer, name)

    def with_gateway(self, moved: Sequence[str], name: str, entry: Mapping[str, Any]) -> bytes:
        """The file with one entry in the place of the `moved` ones. Raises HostFileError."""
        kept = {one: self.servers[one] for one in self.servers if one not in moved}
        try:
            text = self._taken_over(moved, name, entry)
        except (KeyError, TypeError) as error:
            raise HostFileError(
                f"the file can't be changed by itself at {error}; change it by hand"
            ) from None
        return self._checked(text, kept | {name: dict(entry)})

    def without_gateway(self, name: str | None, back: Mapping[str, str], *, made_servers: bool) -> bytes:
        """The file with servers put back, as they were written, in the place of the gateway's entry.

        Args:
            name: of the gateway's entry; None where it is gone.
            back: texts of entries by name; those that are there already, and not the gateway, stay as they are now.
            made_servers: the object of servers was made for the gateway: it goes if it is left empty.

        Raises:
            HostFileError: the file can't be changed.
        """
        kept = {one: entry for one, entry in self.servers.items() if one != name}
        missing = {one: written for one, written in back.items() if one not in kept}
        values = {one: self._value(one, written) for one, written in missing.items()}
        try:
            text = self._given_back(name, missing)
            if made_servers and not kept and not missing and self.dialect is not Dialect.TOML:
                text = json_edit.remove_members(text, self.pointer[:-1], self.pointer[-1:])
        except (KeyError, TypeError) as error:
            raise HostFileError(
                f"the file can't be changed by itself at {error}; change it by hand"
            ) from None
        return self._checked(text, kept | values)

    def _taken_over(self, moved: Sequence[str], name: str, entry: Mapping[str, Any]) -> str:
        text = self.text
        if self.dialect is Dialect.TOML:
            newline = toml_edit.newline_of(text)
            table = toml_edit.render_table((*self.pointer, name), entry, newline)
            for position, one in enumerate(moved):
                text = toml_edit.remove_table(text, (*self.pointer, one), "" if position else table)
            return text if moved else toml_edit.append_table(text, table)
        if not moved:
            return json_edit.insert_member(json_edit.with_object(text), self.pointer, name, dict(entry))
        text = json_edit.remove_members(text, self.pointer, moved[1:])
        written = json_edit.render_in_place(text, self.pointer, moved[0], dict(entry))
        return json_edit.replace_member(text, self.pointer, moved[0], [(name, written)])

    def _given_back(self, name: str | None, missing: Mapping[str, str]) -> str:
        text = self.text
        if self.dialect is Dialect.TOML:
            newline = toml_edit.newline_of(text)
            tables = newline.join(_ended(one, newline) for one in missing.values())
            if name is not None:
                return toml_edit.remove_table(text, (*self.pointer, name), tables)
            return toml_edit.append_table(text, tables) if tables else text
        if name is not None and missing:
            return json_edit.replace_member(text, self.pointer, name, list(missing.items()))
        if name is not None:
            return json_edit.remove_members(text, self.pointer, [name])
        if missing:
            text = json_edit.with_object(text)
        for one, written in missing.items():
            text = json_edit.insert_member(text, self.pointer, one, self._value(one, written))
        return text

    def _value(self, name: str, written: str) -> Any:
        if self.dialect is Dialect.TOML:
            return value_at(tomllib.loads(written), (*self.pointer, name))
        return decode_jsonc(written, strict=False)

    def _checked(self, text: str, servers: Mapping[str, Any]) -> bytes:
        """The bytes of an edited text, if it says what it has to say and nothing else."""
        raw = self.bom + text.encode()
        try:
            found = read_document(raw, self.dialect, self.pointer)
        except HostFileError as error:
            raise HostFileError(
                f"the file is written in a way that can't be changed here ({error})"
            ) from None
        if _without(found.document, self.pointer) != _without(self.document, self.pointer) or (
            found.servers != servers
        ):
            raise HostFileError("the file is written in a way that can't be changed here; change it by hand")
        return raw


def read_document(raw: bytes, dialect: Dialect, pointer: Pointer) -> HostDocument:
    """Read a file's content. Raises HostFileError, which names the line and the fix."""
    bom = codecs.BOM_UTF8 if raw.startswith(codecs.BOM_UTF8) else b""
    try:
        text = raw[len(bom) :].decode()
    except UnicodeDecodeError:
        raise HostFileError("the file is not UTF-8 text; save it as UTF-8") from None
    document = _parsed(text, dialect)
    if not isinstance(document, dict):
        raise HostFileError("expected an object at the top of the file")
    _require_shallow(document)
    servers = value_at(document, pointer)
    if servers is None:
        servers = {}
        _require_room(document, pointer)
    if not isinstance(servers, dict):
        raise HostFileError(f"{dotted(pointer)}: expected an object of servers")
    if dialect is not Dialect.TOML and (twice := json_edit.repeated(text, pointer)):
        raise HostFileError(f"{dotted(pointer)}: {', '.join(twice)} is there twice; remove one")
    return HostDocument(dialect, pointer, bom, text, document, servers)


def _parsed(text: str, dialect: Dialect) -> Any:
    if dialect is Dialect.TOML:
        try:
            return tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # a number of too many digits is a plain ValueError
            raise HostFileError(f"no valid TOML: {error}") from None
    if not text.strip() or (dialect is Dialect.JSONC and json_edit.is_blank(text)):
        return {}
    try:
        return decode_jsonc(text, strict=dialect is Dialect.JSON)
    except JsonSyntaxError as error:
        place = "" if error.line is None else f"line {error.line}, "
        raise HostFileError(f"{place}{error}") from None


def _ended(table: str, newline: str) -> str:
    """A table that may have stood at the end of its file, with the end of its last line."""
    return table if table.endswith("\n") else table + newline


def _require_shallow(document: Mapping[str, Any]) -> None:
    level: list[Any] = [document]
    for _ in range(DEEPEST):
        level = [one for value in level for one in _children(value)]
        if not level:
            return
    raise HostFileError(f"the document is nested more than {DEEPEST} levels deep; change it by hand")


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _require_room(document: Mapping[str, Any], pointer: Pointer) -> None:
    """Whether the objects on the way are objects, or absent; null is neither."""
    here: Any = document
    for depth, part in enumerate(pointer, 1):
        if part not in here:
            return
        here = here[part]
        if not isinstance(here, dict):
            raise HostFileError(f"{dotted(pointer[:depth])}: expected an object")


def _without(document: Mapping[str, Any], pointer: Pointer) -> Any:
    """A document without its servers; objects that only lead there are absent."""
    copy = dict(document)
    if pointer[1:] and pointer[0] in copy:
        copy[pointer[0]] = _without(copy[pointer[0]], pointer[1:])
    if not pointer[1:] or not copy.get(pointer[0]):
        copy.pop(pointer[0], None)
    return copy
