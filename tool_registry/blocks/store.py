"""Blocks in a directory that several processes share, under a budget of bytes.

    <directory>/<2 hex>/<key>.block     a block; keys are keyed, so that a name tells nothing
    <directory>/secret                  makes keys, checksums and tenants' salts; of this user alone
    <directory>/worth.json, .lock       what each block is worth; the lock of those who write

Readers take no lock: files are whole or absent. It blocks on files: call it in a worker thread. A block is used only
if every byte of its file and every field of its descriptor is what was asked for; whatever fails costs a miss and is
told to `on_fault`. Knows no model, no engine and no logger.
"""

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tool_registry.blocks.block_file import (
    BlockDamaged,
    StateBlock,
    file_bytes,
    read_block,
    read_header,
    write_temporary,
)
from tool_registry.blocks.descriptor import BlockKey, StateDescriptor, block_key, mismatch
from tool_registry.blocks.housekeeping import (
    GcReport,
    Removed,
    Seen,
    cause_of,
    faulty_blocks,
    remove_leftovers,
)
from tool_registry.blocks.listing import Listing
from tool_registry.blocks.locking import locked
from tool_registry.blocks.secret_file import SECRET_BYTES, agreed_secret, kept_secret
from tool_registry.blocks.worth import Candidate, choose, make_room
from tool_registry.blocks.worth_file import WorthFile, candidates

OnFault: TypeAlias = Callable[[Path, str], None]
"""Told of a file or directory that can't be used, and why; from the thread that met it."""


@dataclass(frozen=True, slots=True)
class BlockEntry:
    """One stored block, as its file says, unchecked.

    Attributes:
        size_bytes: of its file.
        compute_seconds: what decoding its tokens took.
        made_at: seconds since the epoch, as is `last_used`.
        worth: seconds gained per byte; 0 where it is not known.
    """

    key: BlockKey
    path: Path
    label: str
    descriptor: StateDescriptor
    size_bytes: int
    compute_seconds: float
    made_at: float
    last_used: float
    worth: float

    @property
    def tokens(self) -> int:
        """Tokens in it."""
        return self.descriptor.end - self.descriptor.start


def _nobody(_done: int, _all: int) -> None:
    return


class BlockStore:
    """The blocks of one directory, for any number of threads."""

    def __init__(self, directory: Path, budget_bytes: int, on_fault: OnFault) -> None:
        """Use `directory`, which need not exist yet, and list it."""
        self.directory = directory
        self.budget_bytes = budget_bytes
        self._on_fault = on_fault
        self._worth_file = WorthFile(directory)
        self._listing = Listing(directory)
        self._secret: bytes | None = None
        self._secret_guard = threading.Lock()
        self.refresh()

    @property
    def secret(self) -> bytes:
        """Of the directory, made at its first use; where it can't be kept, one of this object alone."""
        with self._secret_guard:
            if self._secret is None:
                self._secret = self._find_secret(secrets.token_bytes(SECRET_BYTES))
            return self._secret

    def _find_secret(self, offer: bytes) -> bytes:
        try:
            if (found := kept_secret(self.directory)) is not None:
                return found
            with locked(self.directory):
                return agreed_secret(self.directory, offer)
        except OSError as error:
            self._on_fault(self.directory, f"has no secret, so that nothing is kept in it: {cause_of(error)}")
            return offer

    def has(self, key: BlockKey) -> bool:
        """Whether a block is there, as far as was last seen: no file is touched, and it may be wrong."""
        return self._listing.has(key)

    def size(self, key: BlockKey) -> int:
        """Bytes of its file, as far as was last seen; 0 where there is none."""
        return self._listing.size(key)

    def refresh(self) -> None:
        """See what other processes added and removed."""
        try:
            self._listing.refresh()
        except OSError as error:
            self._on_fault(self.directory, f"can't be listed: {cause_of(error)}")

    def get(self, wanted: StateDescriptor) -> StateBlock | None:
        """A block, or None: absent, damaged, or different in any field."""
        key = block_key(self.secret, wanted)
        path = self._listing.path(key)
        try:
            block = self._read(path, wanted)
        except FileNotFoundError:
            self._missed(key)
        except (OSError, MemoryError) as error:  # it may pass
            self._on_fault(path, f"can't be read: {cause_of(error)}")
        except BlockDamaged as error:
            self._listing.distrust(key)
            self._on_fault(path, str(error))
        else:
            if not self._listing.has(key):  # another process's
                self._listing.add(key, file_bytes(block))
            with suppress(OSError):  # a hint to whoever evicts
                os.utime(path)
            return block
        return None

    def _read(self, path: Path, wanted: StateDescriptor) -> StateBlock:
        block = read_block(path, self.secret)
        if difference := mismatch(block.descriptor, wanted):
            raise BlockDamaged(f"holds another state: {difference}")
        return block

    def _missed(self, key: BlockKey) -> None:
        if self._listing.has(key) and not self.directory.is_dir():
            self._on_fault(self.directory, "is gone, and all blocks with it")
        self._listing.discard(key)

    def put(self, block: StateBlock, worth: float) -> bool:
        """Keep a block; what is worth less a byte makes room. False: it is not worth its room, or can't be written.

        `worth` is in seconds a byte (`blocks.worth.worth`). A block that is there already is worth this from now on.
        """
        try:
            return self._put(block, worth)
        except OSError as error:
            self._on_fault(self.directory, f"can't keep a block: {cause_of(error)} ({block.label})")
            return False

    def _put(self, block: StateBlock, worth: float) -> bool:
        key = block_key(self.secret, block.descriptor)
        path = self._listing.path(key)
        newcomer = Candidate(key, file_bytes(block), worth)
        if self._listing.trusts(key) and path.is_file():
            self._listing.add(key, newcomer.size_bytes)
            self.revalue({key: worth})
            return True
        if self._victims(newcomer) is None:  # before anything is written
            return False
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = write_temporary(
            path.parent, block, self.secret
        )  # before the lock: it takes a disk's time
        try:
            with locked(self.directory):
                return self._place(temporary, newcomer)
        finally:
            temporary.unlink(missing_ok=True)

    def _place(self, temporary: Path, newcomer: Candidate) -> bool:
        """Give a written file its name, under the lock."""
        if agreed_secret(self.directory, self.secret) != self.secret:
            raise OSError("the directory was made anew since; start again to use it")
        self._listing.refresh()
        victims = self._victims(newcomer)
        if victims is None:
            return False
        for victim in victims:
            self.remove(BlockKey(victim.name))
        key = BlockKey(newcomer.name)
        temporary.replace(self._listing.path(key))
        self._listing.add(key, newcomer.size_bytes)
        self._say_worth({key: newcomer.worth})
        return True

    def _victims(self, newcomer: Candidate) -> list[Candidate] | None:
        """What has to go for it, what is over the budget anyway included; None: it is not worth that."""
        present = candidates(self._listing, self._worth_file.read())
        present = [one for one in present if one.name != newcomer.name]  # a damaged one is replaced
        kept = choose(present, self.budget_bytes)
        victims = make_room(newcomer, kept, self.budget_bytes)
        names = {one.name for one in kept}
        return None if victims is None else [*victims, *(one for one in present if one.name not in names)]

    def revalue(self, worth: Mapping[BlockKey, float]) -> None:
        """Say what blocks are worth from now on, in seconds a byte. Raises OSError."""
        with locked(self.directory):
            self._listing.refresh()  # what is not listed is forgotten: other processes' blocks are to be
            self._say_worth(worth)

    def _say_worth(self, worth: Mapping[BlockKey, float]) -> None:
        self._worth_file.update(worth, (key for key, _ in self._listing.items()))

    def remove(self, key: BlockKey) -> bool:
        """Remove a block; False where there was none. Raises OSError."""
        try:
            self._listing.path(key).unlink()
        except FileNotFoundError:
            return False
        finally:
            self._listing.discard(key)
        return True

    def entries(self) -> list[BlockEntry]:
        """Every block by its file's own words, by label; those that can't be read are left to `verify`."""
        self.refresh()
        worths = self._worth_file.read()
        found: list[BlockEntry] = []
        for key, size in self._listing.items():
            path = self._listing.path(key)
            with suppress(OSError, BlockDamaged):
                header, used = read_header(path), path.stat().st_mtime
                said = header.label, header.descriptor
                times = header.compute_seconds, header.made_at, used
                found.append(BlockEntry(key, path, *said, size, *times, worths.of(key, used)))
        return sorted(found, key=lambda one: (one.label, one.key))

    def verify(self, seen: Seen = _nobody) -> list[tuple[Path, str]]:
        """Read every block whole: those that can't be used, and why."""
        self.refresh()
        if not self._listing.items():
            return []  # and no secret is made
        return [(one.path, one.reason) for one in faulty_blocks(self._listing, self.secret, seen)]

    def gc(self, seen: Seen = _nobody) -> GcReport:
        """Remove what can't be used, what killed processes left behind, and what is over the budget.

        Raises:
            OSError: the directory's secret, lock or files can't be used.
        """
        if not self.directory.is_dir():
            return GcReport()
        if self.secret != kept_secret(self.directory):  # all of it would look damaged
            raise OSError(f"the secret of {self.directory} can't be kept, or is another one by now")
        self._listing.refresh()
        faulty = list(faulty_blocks(self._listing, self.secret, seen))  # before the lock: it reads everything
        with locked(self.directory):
            # A writer may have mended a block since it was read.
            removed = [self._removed(one.key, one.size_bytes, one.reason) for one in faulty if one.is_there()]
            removed += remove_leftovers(self.directory)
            self._listing.refresh()
            present = candidates(self._listing, self._worth_file.read())
            kept = {one.name: one.size_bytes for one in choose(present, self.budget_bytes)}
            for one in present:
                if one.name not in kept:
                    removed.append(self._removed(BlockKey(one.name), one.size_bytes, "over the budget"))
            self._say_worth({})
        return GcReport(tuple(removed), len(kept), sum(kept.values()))

    def _removed(self, key: BlockKey, size_bytes: int, reason: str) -> Removed:
        self.remove(key)
        return Removed(self._listing.path(key), reason, size_bytes)
