"""A table's rows at a committed batch, in a memory-mapped store on local disk (LMDB).

One process writes, any number of processes read. A reader's snapshot is that of one batch as a whole, also while later
batches are written (multi-version concurrency control); readers and the writer do not wait for each other.

The key of a row is the JSON text of its message key, in byte order, so that keys with the same leading columns are
neighbors. LMDB's keys have at most 511 bytes: a longer text is cut and followed by byte 1 and a hash of all of it. JSON
text has neither byte 0 nor byte 1. So versions of a row by event time can be added as text, byte 0 and the start of the
version in eight bytes: they stay beside each other, and the order of keys stays as it is.

Rows are in one of two databases. A rebuild fills the hidden one in many small transactions, and makes it the visible
one in the last. Nothing is flushed to disk on commit: after a crash of the machine the store is built again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import lmdb

from millrace_jobs.lookups.keys import BadRequestError

if TYPE_CHECKING:
    from lmdb import _Database as Database

MAX_BYTES = 16 << 30
"""Largest size of a store in bytes; it also takes no more than half of the disk that is free when it is made."""

LONGEST_KEY = 448
"""Longest text of a key in bytes that is stored as it is, and longest prefix that can be asked for."""

_DATABASES = (b"rows-a", b"rows-b")
_VISIBLE = b"visible"
_MAX_READERS = 64
_SMALLEST = 1 << 20

Item = tuple[bytes, bytes]
"""Text of a row's key, and text of the row."""


class StoreError(Exception):
    """The store cannot be written; the message says why. What was visible before stays visible."""


class NotReadyError(Exception):
    """No batch is visible yet."""


class TableStore:
    """The writer of a store.

    Args:
        folder: an empty folder on a local disk.
        max_bytes: the largest size of the store.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        size = max(min(max_bytes, shutil.disk_usage(folder).free // 2), _SMALLEST)
        self._environment = lmdb.open(
            str(folder),
            map_size=size,
            max_dbs=len(_DATABASES),
            max_readers=_MAX_READERS,
            sync=False,
            metasync=False,
            readahead=False,
        )
        self._databases = [self._environment.open_db(name) for name in _DATABASES]
        self._visible = 0

    def start_over(self) -> None:
        """Begin a rebuild with an empty hidden database. Raises StoreError."""
        with self._writing() as transaction:
            transaction.drop(self._databases[1 - self._visible], delete=False)

    def load(self, upserts: Sequence[Item], deletes: Iterable[bytes] = ()) -> None:
        """Write rows to the hidden database. Raises StoreError."""
        with self._writing() as transaction:
            _change(transaction, self._databases[1 - self._visible], upserts, deletes)

    def publish(self, batch: int | None) -> None:
        """Make the hidden database visible, with the rows of this batch; None before the first. Raises StoreError."""
        hidden = 1 - self._visible
        with self._writing() as transaction:
            self._name(transaction, hidden, batch)
        self._visible = hidden

    def apply(self, batch: int, upserts: Sequence[Item], deletes: Iterable[bytes]) -> None:
        """Apply a batch to the visible database in one transaction, the deletes last. Raises StoreError."""
        with self._writing() as transaction:
            _change(transaction, self._databases[self._visible], upserts, deletes)
            self._name(transaction, self._visible, batch)

    def reader(self) -> TableReader:
        """Return a reader in this process, which is valid until the store is closed."""
        return TableReader(self._environment, self._databases)

    def close(self) -> None:
        """Close the store; its files stay."""
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

    def _name(self, transaction: lmdb.Transaction[bytes], database: int, batch: int | None) -> None:
        transaction.put(_VISIBLE, json.dumps([database, batch]).encode())


def _change(
    transaction: lmdb.Transaction[bytes], database: Database, upserts: Sequence[Item], deletes: Iterable[bytes]
) -> None:
    with transaction.cursor(database) as cursor:
        cursor.putmulti([(store_key(key), row) for key, row in upserts])
        for key in deletes:
            cursor.pop(store_key(key))


class TableReader:
    """A reader of a store; ``open`` returns one of a store that another process writes."""

    def __init__(self, environment: lmdb.Environment, databases: Sequence[Database]) -> None:
        self._environment = environment
        self._databases = databases

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the store in a folder; in its writer's own process, use ``TableStore.reader`` instead."""
        environment = lmdb.open(
            str(folder), readonly=True, create=False, max_dbs=len(_DATABASES), readahead=False, max_readers=_MAX_READERS
        )
        return cls(environment, [environment.open_db(name, create=False) for name in _DATABASES])

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
            database, batch = json.loads(visible)
            yield TableSnapshot(batch, transaction, self._databases[database])

    def close(self) -> None:
        """Close the store."""
        self._environment.close()


@dataclass(frozen=True)
class TableSnapshot:
    """The rows of a table at one batch; valid within ``TableReader.snapshot``. ``batch`` is None before the first."""

    batch: int | None
    _transaction: lmdb.Transaction[bytes]
    _database: Database

    def get(self, key: bytes) -> bytes | None:
        """Return the row with this key, or None."""
        return self._transaction.get(store_key(key), db=self._database)

    def scan(self, prefix: bytes, after: str | None = None) -> Iterator[tuple[str, bytes]]:
        """Yield each row whose key begins with ``prefix``, in the order of keys, with a cursor for ``after``.

        Raises:
            BadRequestError: the prefix is too long, or ``after`` is no cursor.
        """
        if len(prefix) > LONGEST_KEY:
            raise BadRequestError(f"the prefix is longer than {LONGEST_KEY} bytes: look up whole keys instead")
        last = None if after is None else _place(after)
        start = max(last or b"", prefix)
        with self._transaction.cursor(self._database) as cursor:
            more = cursor.set_range(start) if start else cursor.first()
            if more and cursor.key() == last:
                more = cursor.next()
            while more and cursor.key().startswith(prefix):
                yield _cursor(cursor.key()), cursor.value()
                more = cursor.next()


def store_key(text: bytes) -> bytes:
    """Return the key of a row in the store."""
    if len(text) <= LONGEST_KEY:
        return text
    return text[:LONGEST_KEY] + b"\x01" + hashlib.blake2b(text, digest_size=16).digest()


def _cursor(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def _place(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise BadRequestError(f"{cursor[:80]!r} is no cursor: write the value of next in the answer before") from None
