r"""One block's file: a state, what it is of, and a checksum that only the owner of the store's secret can make.

    prefix   magic "NXBLOCK\0" | u32 format | u32 length of the header | u64 offset and u64 length of the payload
             | BLAKE2b-256, keyed, of every other byte of the file            (little endian)
    header   JSON: descriptor, label, compute_seconds, made_at
    zeros    up to the payload's offset, a multiple of 16 KiB: whole pages everywhere, so that it could be mapped
    payload  the runtime's own bytes

A file is written beside its place and renamed: it is whole or absent, and never changed. Knows files and bytes; knows
no store, no runtime and no logger.
"""

import hashlib
import json
import math
import os
import stat
import struct
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tool_registry.blocks.descriptor import FORMAT_VERSION, StateDescriptor, as_json, from_json

SUFFIX = ".block"
TEMPORARY_SUFFIX = ".tmp"
PAGE_BYTES = 16_384
"""Of the largest page in common use; a multiple of the usual 4,096."""
MAX_HEADER_BYTES = 64 * 1024
MAX_FILE_BYTES = 4 * 1024**3

_MAGIC = b"NXBLOCK\x00"
_DIGEST_BYTES = 32
_FIXED = struct.Struct(f"<{len(_MAGIC)}sIIQQ")
_DIGEST_END = _FIXED.size + _DIGEST_BYTES


class BlockDamaged(Exception):  # noqa: N818 - reads as a state
    """A file that is no whole block of this format and this secret; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class StateBlock:
    """A state and what it is of.

    Attributes:
        payload: the runtime's own bytes; read-only where it was read from a file.
        label: "server/tool".
        compute_seconds: what decoding its tokens took.
    """

    descriptor: StateDescriptor
    payload: memoryview
    label: str
    compute_seconds: float


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """What a file says about its payload.

    Attributes:
        made_at: seconds since the epoch.
        payload_bytes: length of the payload.
    """

    descriptor: StateDescriptor
    label: str
    compute_seconds: float
    made_at: float
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class _Prefix:
    header_end: int
    offset: int
    length: int
    digest: bytes


def file_bytes(block: StateBlock) -> int:
    """The size of a block's file."""
    return _offset(len(_header(block, made_at=0.0))) + block.payload.nbytes


def write_block(path: Path, block: StateBlock, secret: bytes) -> None:
    """Write a block to `path`, whole or not at all. Raises OSError."""
    temporary = write_temporary(path.parent, block, secret)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_temporary(directory: Path, block: StateBlock, secret: bytes) -> Path:
    """Write a block to a file of this user alone in `directory`, to be renamed to its place. Raises OSError."""
    header = _header(block, time.time())
    offset = _offset(len(header))
    payload = block.payload.cast("B") if block.payload.nbytes else memoryview(b"")
    fixed = _FIXED.pack(_MAGIC, FORMAT_VERSION, len(header), offset, payload.nbytes)
    padding = bytes(offset - _DIGEST_END - len(header))
    digest = hashlib.blake2b(fixed, digest_size=_DIGEST_BYTES, key=secret)
    for part in (header, padding, payload):
        digest.update(part)
    handle, name = tempfile.mkstemp(prefix=".", suffix=TEMPORARY_SUFFIX, dir=directory)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in (fixed, digest.digest(), header, padding, payload):
                file.write(part)
            file.flush()
            # The file, not its directory: after a power cut a block may be absent, and is made again.
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    return Path(name)


def read_block(path: Path, secret: bytes) -> StateBlock:
    """Read a block and check every byte of its file.

    Raises:
        BlockDamaged: it is not whole, of another format, or made without this secret.
        OSError: the file can't be read.
    """
    # All of it into memory, though it could be mapped: what was checked could still change under a mapping, and one
    # of a file that is cut short ends the process with SIGBUS.
    data = _read_all(path)
    prefix = _prefix(data[:_DIGEST_END], len(data))
    view = memoryview(data)
    digest = hashlib.blake2b(view[: _FIXED.size], digest_size=_DIGEST_BYTES, key=secret)
    digest.update(view[_DIGEST_END:])
    if digest.digest() != prefix.digest:
        raise BlockDamaged("is damaged, or another gateway's: its checksum does not match")
    header = _parsed(data[_DIGEST_END : prefix.header_end], prefix.length)
    return StateBlock(header.descriptor, view[prefix.offset :], header.label, header.compute_seconds)


def read_header(path: Path) -> BlockHeader:
    """What a file says about itself, unchecked: for listings, never for use.

    Raises:
        BlockDamaged: it is no block of this format.
        OSError: the file can't be read.
    """
    size = _regular_size(path)
    with path.open("rb") as file:
        prefix = _prefix(file.read(_DIGEST_END), size)
        return _parsed(file.read(prefix.header_end - _DIGEST_END), prefix.length)


def _read_all(path: Path) -> bytes:
    size = _regular_size(path)
    with path.open("rb") as file:
        data = file.read(size + 1)  # a byte more than there should be: a file that grows shows
    if len(data) != size:
        raise BlockDamaged("changed its length while it was read")
    return data


def _regular_size(path: Path) -> int:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise BlockDamaged("is no regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise BlockDamaged(f"is larger than {MAX_FILE_BYTES:,} bytes")
    return status.st_size


def _prefix(data: bytes, size: int) -> _Prefix:
    """The prefix of a file of `size` bytes; its numbers agree with each other and with the size."""
    if len(data) < _DIGEST_END or not data.startswith(_MAGIC):
        raise BlockDamaged("is no block")
    _, version, header, offset, length = _FIXED.unpack_from(data)
    if version != FORMAT_VERSION:
        raise BlockDamaged(f"is of format {version}; this version reads format {FORMAT_VERSION}")
    if header > MAX_HEADER_BYTES or offset != _offset(header) or offset + length != size:
        raise BlockDamaged("is cut, longer than it says, or its prefix is damaged")
    return _Prefix(_DIGEST_END + header, offset, length, data[_FIXED.size : _DIGEST_END])


def _offset(header: int) -> int:
    return -(-(_DIGEST_END + header) // PAGE_BYTES) * PAGE_BYTES


def _header(block: StateBlock, made_at: float) -> bytes:
    fields = {
        "descriptor": as_json(block.descriptor),
        "label": block.label,
        "compute_seconds": float(block.compute_seconds) if math.isfinite(block.compute_seconds) else 0.0,
        "made_at": made_at,
    }
    data = json.dumps(fields).encode()
    if len(data) > MAX_HEADER_BYTES:
        raise OSError(f"a header of {len(data):,} bytes is longer than {MAX_HEADER_BYTES:,}")
    return data


def _parsed(data: bytes, payload_bytes: int) -> BlockHeader:
    try:
        fields: dict[str, Any] = json.loads(data)
        descriptor = from_json(fields["descriptor"])
        label, seconds, made_at = fields["label"], float(fields["compute_seconds"]), float(fields["made_at"])
    except (LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise BlockDamaged(f"has a header that can't be read: {error}") from error
    if not isinstance(label, str) or not (math.isfinite(seconds) and math.isfinite(made_at)):
        raise BlockDamaged("has a header that can't be read: its label or its times are none")
    return BlockHeader(descriptor, label, seconds, made_at, payload_bytes)
