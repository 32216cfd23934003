"""What was compiled from tools, kept on disk: signature, text and vectors by content hash and model identity.

    store.read(hash, identity) -> CompiledRecord | None     a miss, or a damaged file, is None
    store.write(hash, identity, compiled)                 atomic; StoreError where the directory can't be written

One file an entry, `<2 hex>/<hash>-<key>.tool`: magic, BLAKE2b-128 of all that follows, length of the header,
header (JSON), vectors (float32, little endian, by rows). Several processes may share a directory: a file is
whole or absent. Knows files and bytes; knows no tools, no embedder and no logger.
"""

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tool_registry.atomic_file import replace_file
from tool_registry.tool import ContentHash

FORMAT_VERSION = 1
"""Of the layout; part of every key. What the texts are made with belongs in the identity."""
MAX_FILE_BYTES = 64 * 1024 * 1024

_MAGIC = b"NXTOOL\x00\x01"
_DIGEST_BYTES = 16
_PREFIX = struct.Struct(f"<{len(_MAGIC)}s{_DIGEST_BYTES}sI")  # magic, digest, length of the header

OnCorrupt: TypeAlias = Callable[[Path, str], None]
"""Told of a file that is not used, and why; from the thread that reads."""


class StoreError(OSError):
    """An entry can't be written. The message names the path and the cause."""


class _CorruptError(Exception):
    """A file that is not a whole entry for what was asked."""


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRecord:
    """What is computed once for a tool.

    Attributes:
        signature: the compressed signature.
        text: what was embedded.
        vectors: shape (rows, dimensions); read-only where it was read from disk.
    """

    signature: str
    text: str
    vectors: NDArray[np.float32]


class CompiledStore:
    """A directory of compiled tools. It blocks on files: call it in a worker thread."""

    def __init__(self, directory: Path, on_corrupt: OnCorrupt) -> None:
        """Use `directory`, which need not exist yet."""
        self._directory = directory
        self._on_corrupt = on_corrupt

    def path(self, content_hash: ContentHash, identity: str) -> Path:
        """Where an entry lives."""
        key = hashlib.blake2b(f"{FORMAT_VERSION}\n{identity}".encode(), digest_size=8).hexdigest()
        return self._directory / content_hash[:2] / f"{content_hash}-{key}.tool"

    def read(self, content_hash: ContentHash, identity: str) -> CompiledRecord | None:
        """An entry, or None where there is none. A file that can't be used is reported, and is None."""
        path = self.path(content_hash, identity)
        try:
            return _decode(_read_bytes(path), content_hash, identity)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._on_corrupt(path, f"can't be read: {error.strerror or error}")
        except _CorruptError as error:
            self._on_corrupt(path, str(error))
        return None

    def write(self, content_hash: ContentHash, identity: str, compiled: CompiledRecord) -> None:
        """Keep an entry. The last of several writers wins; readers see one or the other, whole.

        Raises:
            StoreError: the directory can't be written.
        """
        path = self.path(content_hash, identity)
        data = _encode(content_hash, identity, compiled)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
        except OSError as error:
            raise StoreError(f"{path} can't be written: {error.strerror or error}") from error


def _read_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise _CorruptError(f"is larger than {MAX_FILE_BYTES:,} bytes")
    return data


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _encode(content_hash: ContentHash, identity: str, compiled: CompiledRecord) -> bytes:
    rows, dimensions = compiled.vectors.shape
    fields = {
        "format": FORMAT_VERSION,
        "hash": content_hash,
        "identity": identity,
        "signature": compiled.signature,
        "text": compiled.text,
        "shape": [rows, dimensions],
    }
    header = json.dumps(fields).encode()
    length = struct.pack("<I", len(header))
    body = length + header + np.ascontiguousarray(compiled.vectors, "<f4").tobytes()
    return _MAGIC + _digest(body) + body


def _decode(data: bytes, content_hash: ContentHash, identity: str) -> CompiledRecord:
    if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
        raise _CorruptError("is not a compiled tool")
    _, digest, length = _PREFIX.unpack_from(data)
    if _digest(data[len(_MAGIC) + _DIGEST_BYTES :]) != digest:
        raise _CorruptError("is truncated or damaged: its checksum does not match")
    try:
        return _entry(data, length, content_hash, identity)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise _CorruptError(f"has a header that can't be read: {error!r}") from error


def _entry(data: bytes, length: int, content_hash: ContentHash, identity: str) -> CompiledRecord:
    fields: dict[str, Any] = json.loads(data[_PREFIX.size : _PREFIX.size + length])
    wanted = {"format": FORMAT_VERSION, "hash": content_hash, "identity": identity}
    for name, value in wanted.items():
        if fields.get(name) != value:
            raise _CorruptError(f"holds another entry: {name} {fields.get(name)!r} instead of {value!r}")
    vectors = np.frombuffer(data, "<f4", offset=_PREFIX.size + length).reshape(fields["shape"])
    return CompiledRecord(fields["signature"], fields["text"], vectors.astype(np.float32, copy=False))
