"""A table's rows at a committed batch, in a memory-mapped store on local disk (LMDB).

One process writes, any number of processes read. A reader's snapshot is that of one batch as a whole, also while later
batches are written (multi-version concurrency control); readers and the writer do not wait for each other.

The key of a row is the JSON text of its message key, in byte order, so that keys with the same leading columns are
neighbors. LMDB's keys have at most 511 bytes: a longer text is cut and followed by byte 1 and a hash of all of it. JSON
text has neither byte 0 nor byte 1. A table with a history also has earlier versions of its rows (``history``).

Rows are in one of two databases. A rebuild fills the hidden one in many small transactions, and makes it the visible
one in the last. Nothing is flushed to disk on commit: after a crash of the machine the store is built again.

Each row ends in a checksum of its key and text, by which ``check`` finds whether a store that an earlier run has left
is whole; no reader shows a row that is not.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import lmdb

from millrace_jobs.lookups.history import NO_TIMES, NO_VERSIONS, HistoryDatabases, HistoryTimes, Sweep, VersionChanges
from millrace_jobs.lookups.keys import BadRequestError
from millrace_jobs.lookups.mapped_file import MappedFile

if TYPE_CHECKING:
    from lmdb import _Database as Database

MAX_BYTES = 16 << 30
"""Largest size of a store in bytes; it also takes no more than half of the disk that is free when it is made."""

LONGEST_KEY = 448
"""Longest text of a key in bytes that is stored as it is, and longest prefix that can be asked for."""

CONTINUED = "continued"
"""File in the folder of a store that a run continues and has not changed yet: if the run dies, none continues it."""

_DATABASES = (b"rows", b"starts", b"versions")
_SIDES = (b"a", b"b")
_VISIBLE = b"visible"
_CLAIM = b"claim"
_CHECKSUM_BYTES = 4
_MAX_READERS = 64
_SMALLEST = 1 << 20
_TOUCHED_ROWS = 1_000
"""Rows that are written before memory for mapped pages is released: each of them may bring 64 KiB (``MappedFile``)."""

Item = tuple[bytes, bytes]
"""Text of a row's key, and text of the row."""


class StoreError(Exception):
    """The store cannot be written; the message says why. What was visible before stays visible."""


class NotReadyError(Exception):
    """No batch is visible yet."""


class DamagedError(Exception):
    """A row is not what was stored."""


class CopyClaim(NamedTuple):
    """What the visible rows are a copy of, for a later run; the text is not interpreted here.

    ``boot`` is the ``disk.boot_id`` of a machine that may have rows in memory alone; None after a flush.
    """

    identity: str
    ends: Mapping[str, int]
    boot: str | None


@dataclass(frozen=True)
class ClaimedBatch:
    """A claim with the batch that is visible, which has a number and a token."""

    claim: CopyClaim
    batch: tuple[int | None, int | None]


class TableStore:
    """The writer of a store.

    Args:
        folder: a folder on a local disk, empty or with a store that ``check`` has found whole.
        has_history: whether earlier versions of rows are kept.
        max_bytes: the largest size of the store.
        stays: whether a later run may continue the store.
    """

    def __init__(
        self, folder: Path, has_history: bool = False, max_bytes: int = MAX_BYTES, *, stays: bool = False
    ) -> None:
        own = sum(file.stat().st_size for file in folder.iterdir())
        size = max(min(max_bytes, shutil.disk_usage(folder).free // 2 + own), _SMALLEST)
        self._environment = lmdb.open(
            str(folder),
            map_size=size,
            max_dbs=len(_SIDES) * len(_DATABASES),
            max_readers=_MAX_READERS,
            sync=False,
            metasync=False,
            readahead=False,
        )
        self._sides = _open_sides(self._environment, create=True)
        self._has_history = has_history
        self._stays = stays
        self._continued = folder / CONTINUED
        self._sweep = Sweep()
        self._mapped = MappedFile(folder / "data.mdb")
        self._touched = 0
        self._environment.reader_check()  # readers that were killed would keep old rows
        with self._environment.begin() as transaction:
            visible = transaction.get(_VISIBLE)
        self._visible = 0 if visible is None else int(json.loads(visible)[0])

    def start_over(self) -> None:
        """Begin a rebuild with an empty hidden database. Raises StoreError."""
        with self._writing() as transaction:
            hidden = self._sides[1 - self._visible]
            transaction.drop(hidden.rows, delete=False)
            hidden.history.clear(transaction)

    def load(
        self, upserts: Sequence[Item], deletes: Sequence[bytes] = (), history: VersionChanges = NO_VERSIONS
    ) -> None:
        """Write rows to the hidden database. Raises StoreError."""
        with self._writing() as transaction:
            self._change(transaction, 1 - self._visible, upserts, deletes, history)

    def publish(
        self,
        batch: int | None,
        times: HistoryTimes = NO_TIMES,
        token: int | None = None,
        claim: CopyClaim | None = None,
    ) -> None:
        """Make the hidden database visible, with the rows of this batch; see ``VisibleBatch``.

        ``token`` identifies the attempt to write the batch. With a ``claim``, a later run may continue the store.
        Raises StoreError.
        """
        hidden = 1 - self._visible
        with self._writing() as transaction:
            self._show(transaction, hidden, batch, times, token)
            transaction.put(_CLAIM, json.dumps(claim).encode())
        self._visible = hidden
        self._continued.unlink(missing_ok=True)

    def claimed(self) -> ClaimedBatch | None:
        """Return what the visible rows are a copy of, and of which batch; None if they cannot be continued."""
        with self._environment.begin() as transaction:
            claim, visible = (json.loads(transaction.get(name) or b"null") for name in (_CLAIM, _VISIBLE))
        if claim is None or visible is None:
            return None
        return ClaimedBatch(CopyClaim(*claim), (visible[1], visible[3]))

    def claim(self, claim: CopyClaim) -> None:
        """Note what the visible rows are a copy of. Raises StoreError."""
        with self._writing() as transaction:
            transaction.put(_CLAIM, json.dumps(claim).encode())

    def apply(
        self,
        batch: int,
        upserts: Sequence[Item],
        deletes: Sequence[bytes],
        history: VersionChanges = NO_VERSIONS,
        times: HistoryTimes = NO_TIMES,
        token: int | None = None,
    ) -> None:
        """Apply a batch to the visible database in one transaction, the deletes last. Raises StoreError."""
        with self._writing() as transaction:
            self._change(transaction, self._visible, upserts, deletes, history)
            self._show(transaction, self._visible, batch, times, token)
            if times.since is not None:
                databases = self._sides[self._visible].history
                self._sweep.advance(transaction, databases, times.since, len(history.versions))
        self._continued.unlink(missing_ok=True)

    def reader(self) -> TableReader:
        """Return a reader in this process, which is valid until the store is closed."""
        return TableReader(self._environment, self._sides)

    def close(self) -> None:
        """Close the store; its files stay. One that a later run may continue is written to disk."""
        with suppress(lmdb.Error, StoreError):
            found = self.claimed() if self._stays else None
            if found is not None:
                self._environment.sync(True)
                self.claim(found.claim._replace(boot=None))
                self._environment.sync(True)
            self._continued.unlink(missing_ok=True)
        self._environment.close()

    @contextmanager
    def _writing(self) -> Iterator[lmdb.Transaction[bytes]]:
        try:
            with self._environment.begin(write=True) as transaction:
                yield transaction
        except lmdb.MapFullError:
            size = self._environment.info()["map_size"] / (1 << 30)
            raise StoreError(f"the table takes more than {size:.3g} GiB of disk") from None
        except (lmdb.Error, OSError) as error:
            raise StoreError(f"the store cannot be written: {error}") from None

    def _change(
        self,
        transaction: lmdb.Transaction[bytes],
        side: int,
        upserts: Sequence[Item],
        deletes: Sequence[bytes],
        history: VersionChanges,
    ) -> None:
        databases = self._sides[side]
        deleted = [store_key(key) for key in deletes]
        with transaction.cursor(databases.rows) as cursor:
            for begin in range(0, len(upserts), _TOUCHED_ROWS):
                some = upserts[begin : begin + _TOUCHED_ROWS]
                cursor.putmulti([_sealed(store_key(key), row) for key, row in some])
                self._touch(len(some))
            for key in deleted:
                cursor.pop(key)
                self._touch(1)
        if self._has_history:
            starts = [(store_key(key), start) for key, start in history.starts]
            versions = [version._replace(key=store_key(version.key)) for version in history.versions]
            databases.history.change(transaction, VersionChanges(starts, versions), deleted)

    def _touch(self, rows: int) -> None:
        """Count rows that were written, and release memory for the pages that this took now and then."""
        self._touched += rows
        if self._touched >= _TOUCHED_ROWS:
            self._touched = 0
            self._mapped.release()

    def _show(
        self,
        transaction: lmdb.Transaction[bytes],
        side: int,
        batch: int | None,
        times: HistoryTimes,
        token: int | None,
    ) -> None:
        visible = [side, batch, times if self._has_history else None, token]
        transaction.put(_VISIBLE, json.dumps(visible).encode())


class VisibleBatch(NamedTuple):
    """The batch that readers see.

    ``number`` is None before the first batch, and ``times`` are None if the table has no history.
    """

    number: int | None
    times: HistoryTimes | None


@dataclass(frozen=True)
class StoreDatabases:
    """The databases of one side of the store."""

    rows: Database
    history: HistoryDatabases


def _open_sides(environment: lmdb.Environment, *, create: bool) -> list[StoreDatabases]:
    sides = []
    for side in _SIDES:
        rows, *history = (environment.open_db(name + b"-" + side, create=create) for name in _DATABASES)
        sides.append(StoreDatabases(rows, HistoryDatabases(*history)))
    return sides


class TableReader:
    """A reader of a store; ``open`` returns one of a store that another process writes."""

    def __init__(self, environment: lmdb.Environment, sides: Sequence[StoreDatabases]) -> None:
        self._environment = environment
        self._sides = sides

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the store in a folder; in its writer's own process, use ``TableStore.reader`` instead."""
        environment = lmdb.open(
            str(folder),
            map_size=MAX_BYTES,  # with a smaller one, a reader fails once the store has outgrown it
            readonly=True,
            create=False,
            max_dbs=len(_SIDES) * len(_DATABASES),
            readahead=False,
            max_readers=_MAX_READERS,
        )
        return cls(environment, _open_sides(environment, create=False))

    @contextmanager
    def snapshot(self) -> Iterator[TableSnapshot]:
        """Yield the rows of the latest visible batch.

        Raises:
            NotReadyError: no batch is visible yet.
        """
        with self._environment.begin() as transaction:
            visible = transaction.get(_VISIBLE)
            if visible is None:
                raise NotReadyError
            side, batch, times, _ = json.loads(visible)
            about = VisibleBatch(batch, None if times is None else HistoryTimes(*times))
            yield TableSnapshot(about, transaction, self._sides[side])

    def close(self) -> None:
        """Close the store."""
        self._environment.close()


@dataclass(frozen=True)
class TableSnapshot:
    """The rows of a table at one batch; valid within ``TableReader.snapshot``."""

    visible: VisibleBatch
    _transaction: lmdb.Transaction[bytes]
    _databases: StoreDatabases

    @property
    def batch(self) -> int | None:
        """The number of the batch; None before the first."""
        return self.visible.number

    def get(self, key: bytes) -> bytes | None:
        """Return the row with this key, or None."""
        place = store_key(key)
        return opened(place, self._transaction.get(place, db=self._databases.rows))

    def get_at(self, key: bytes, time: int) -> bytes | None:
        """Return the row with this key that was valid at a time, in microseconds since 1970; None if there was none.

        It is right from ``visible.times.since`` on. A row whose start is unknown was there before the history.
        """
        place, history = store_key(key), self._databases.history
        row = opened(place, self._transaction.get(place, db=self._databases.rows))
        start = history.start(self._transaction, place)
        if start is not None and start <= time:
            return row
        return history.earlier(self._transaction, place, time)

    def scan(self, prefix: bytes, after: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield each row whose key begins with ``prefix``, in the order of keys, with a cursor for ``after``.

        Raises:
            BadRequestError: the prefix is too long, or ``after`` is no cursor.
        """
        if len(prefix) > LONGEST_KEY:
            raise BadRequestError(f"the prefix is longer than {LONGEST_KEY} bytes: look up whole keys instead")
        last = None if after is None else _place(after)
        start = max(last or b"", prefix)
        with self._transaction.cursor(self._databases.rows) as cursor:
            more = cursor.set_range(start) if start else cursor.first()
            if more and cursor.key() == last:
                more = cursor.next()
            while more and cursor.key().startswith(prefix):
                row = opened(cursor.key(), cursor.value())
                assert row is not None
                yield _cursor(cursor.key()), row
                more = cursor.next()


def store_key(text: bytes) -> bytes:
    """Return the key of a row in the store."""
    if len(text) <= LONGEST_KEY:
        return text
    return text[:LONGEST_KEY] + b"\x01" + hashlib.blake2b(text, digest_size=16).digest()


def _sealed(key: bytes, row: bytes) -> tuple[bytes, bytes]:
    """Return a row as it is stored."""
    return key, row + zlib.crc32(row, zlib.crc32(key)).to_bytes(_CHECKSUM_BYTES, "little")


def opened(key: bytes, stored: bytes | None) -> bytes | None:
    """Return a row that is stored, or None if there is none. Raises DamagedError."""
    if stored is None:
        return None
    row = stored[:-_CHECKSUM_BYTES]
    if stored != _sealed(key, row)[1]:
        raise DamagedError(f"the row of {key[:80]!r} is damaged")
    return row


def _cursor(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def _place(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except ValueError:
        message = f"{cursor[:80]!r} is not a cursor: write the value of next in the previous answer"
        raise BadRequestError(message) from None
