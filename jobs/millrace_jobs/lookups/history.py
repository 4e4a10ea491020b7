"""Earlier versions of a table's rows by event time, in databases beside that of the rows.

One database has the start of each row's period, by the row's key. The other has the versions that are not valid any
more: its keys are a row's key, byte 0 and the start of the version in eight bytes, so that the versions of a row are
beside each other in the order of time; its values are the end of the version in eight bytes, and the row's text.

Versions that ended before the history begins are removed in parts: each batch looks at some versions, more than it
adds, and begins again at the first when it has seen them all. So a batch never has to remove very many at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import lmdb
    from lmdb import _Database as Database

_OFFSET = 1 << 63
_WIDTH = 8
_SWEPT_PER_VERSION, _SWEPT_PER_BATCH = 4, 1_000


class HistoryTimes(NamedTuple):
    """The event times that a history answers for, in microseconds since 1970: from ``since`` on.

    Rows at times before ``final`` change no more. Both are None before the first watermark: there is no limit yet.
    """

    since: int | None = None
    final: int | None = None


class Version(NamedTuple):
    """A version of a row that is valid from ``start`` until ``end``, in microseconds since 1970.

    ``row`` is None for one that is taken back.
    """

    key: bytes
    start: int
    end: int
    row: bytes | None


@dataclass(frozen=True)
class VersionChanges:
    """The starts of rows that have been written, by their key, and changes of earlier versions in their order."""

    starts: Sequence[tuple[bytes, int]] = ()
    versions: Sequence[Version] = ()


NO_VERSIONS = VersionChanges()
NO_TIMES = HistoryTimes()


@dataclass(frozen=True)
class HistoryDatabases:
    """The two databases, of which all keys of rows are those of the store (``store.store_key``)."""

    starts: Database
    versions: Database

    def clear(self, transaction: lmdb.Transaction[bytes]) -> None:
        """Remove everything."""
        for database in (self.starts, self.versions):
            transaction.drop(database, delete=False)

    def change(
        self, transaction: lmdb.Transaction[bytes], changes: VersionChanges, deleted: Iterable[bytes] = ()
    ) -> None:
        """Apply the changes of a batch; ``deleted`` are the keys of rows that have been removed."""
        with transaction.cursor(self.starts) as cursor:
            cursor.putmulti([(key, _packed(start)) for key, start in changes.starts])
            for key in deleted:
                cursor.pop(key)
        with transaction.cursor(self.versions) as cursor:
            for version in changes.versions:
                place = _place(version.key, version.start)
                if version.row is None:
                    cursor.pop(place)
                else:
                    cursor.put(place, _packed(version.end) + version.row)

    def start(self, transaction: lmdb.Transaction[bytes], key: bytes) -> int | None:
        """Return the start of a row's period, or None if it is not known."""
        found = transaction.get(key, db=self.starts)
        return None if found is None else _unpacked(found)

    def earlier(self, transaction: lmdb.Transaction[bytes], key: bytes, time: int) -> bytes | None:
        """Return the earlier version of a row that was valid at a time, or None if there is none."""
        with transaction.cursor(self.versions) as cursor:
            after = cursor.set_range(_place(key, time + 1))
            if not (cursor.prev() if after else cursor.last()):
                return None
            place, value = cursor.key(), cursor.value()
        is_of_row = len(place) == len(key) + 1 + _WIDTH and place.startswith(key + b"\x00")
        return value[_WIDTH:] if is_of_row and time < _unpacked(value[:_WIDTH]) else None


class Sweep:
    """The removal of old versions, a part in each batch."""

    def __init__(self) -> None:
        self._place = b""

    def advance(
        self, transaction: lmdb.Transaction[bytes], databases: HistoryDatabases, since: int, added: int
    ) -> None:
        """Look at the next versions, and remove those that ended by ``since``."""
        with transaction.cursor(databases.versions) as cursor:
            more = cursor.set_range(self._place) if self._place else cursor.first()
            for _ in range(_SWEPT_PER_BATCH + _SWEPT_PER_VERSION * added):
                if not more:
                    break
                is_old = _unpacked(cursor.value()[:_WIDTH]) <= since
                more = cursor.delete() and bool(cursor.key()) if is_old else cursor.next()
            self._place = cursor.key() if more else b""


def _place(key: bytes, start: int) -> bytes:
    return key + b"\x00" + _packed(start)


def _packed(time: int) -> bytes:
    """Return a time as bytes that are in the order of times."""
    return min(time + _OFFSET, (1 << 64) - 1).to_bytes(_WIDTH, "big")


def _unpacked(packed: bytes) -> int:
    return int.from_bytes(packed, "big") - _OFFSET
