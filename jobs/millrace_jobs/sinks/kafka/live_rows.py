"""The rows that a table has, by their keys, on the driver's disk (SQLite): for a table whose rows can go.

The topic is the truth; this is a copy of its keys, each with the end of its window. A batch enters it so that it is a
copy of the topic wherever a driver dies:

1. ``change`` yields the messages of a batch's rows, part by part, and changes the copy. After the last message, and so
   before Kafka commits, ``finish`` writes the changes together with the number of the batch and with what takes them
   back.
2. The next run learns from Kafka which batch is the last in the topic. If that is the batch of the copy, the copy is
   right. If it is the one before, the changes are taken back. In any other case the topic is read again. Batches are
   compared with their tokens (``LastWritten``), so that one that another driver has written is another batch.

It is also read again if it is another topic, or has lost records (``TableOrigin``); if the machine went down before
``close``, since nothing is flushed to disk until then; and if the rows do not add up to the checksum noted with them.

Memory does not grow with the table: SQLite has ``CACHE_BYTES`` for its pages, and of larger transactions it writes
pages out before they end. Its temporary files, for sorting and for what a long command collects, are in the folder of
the copy, too. Rows are in the order of their windows' ends, so that those that expire are neighbors.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from millrace_api.errors import Problem, TransientError
from millrace_jobs.disk import boot_id, sync
from millrace_jobs.sinks.connector import KEYS
from millrace_jobs.sinks.kafka.messages import Row
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.topic import LastWritten, TableOrigin

CACHE_BYTES = 16 << 20
"""Memory for pages of the copy; sorting, in a rebuild, takes as much again."""

_CHUNK = 1_000
_LOG_BYTES = 16 << 20

_TABLES = """
CREATE TABLE live (ends INTEGER, key TEXT, PRIMARY KEY (ends, key)) WITHOUT ROWID;
CREATE TABLE undo (place INTEGER PRIMARY KEY, ends INTEGER, key TEXT, was_live INTEGER);
CREATE TABLE about (text TEXT, checksum INTEGER);
INSERT INTO about VALUES (NULL, NULL);
"""

_TRIGGERS = """
CREATE TEMP TRIGGER added AFTER INSERT ON main.live BEGIN
    INSERT INTO undo (ends, key, was_live) VALUES (new.ends, new.key, 0);
END;
CREATE TEMP TRIGGER removed AFTER DELETE ON main.live BEGIN
    INSERT INTO undo (ends, key, was_live) VALUES (old.ends, old.key, 1);
END;
"""

_INSERT = "INSERT OR IGNORE INTO live VALUES (?, ?)"
_DELETE = "DELETE FROM live WHERE ends = ? AND key = ?"
_PRESENT = "SELECT count(*), coalesce(sum(checksum(ends, key)), 0) FROM live"
_CHANGED = """
SELECT coalesce(sum(1 - 2 * was_live), 0), coalesce(sum((1 - 2 * was_live) * checksum(ends, key)), 0) FROM undo
"""
_NEWEST = """
INSERT INTO live SELECT ends, key FROM (SELECT ends, key, max(place) FROM read GROUP BY key)
WHERE ends IS NOT NULL ORDER BY ends, key
"""
_FIRST = "CREATE TEMP TABLE first AS SELECT ends, key, was_live, min(place) FROM undo GROUP BY ends, key"
# In SQLite, columns beside a single max() or min() are those of the row that has it.


class _At(NamedTuple):
    batch: int | None
    token: int | None
    rows: int
    checksum: int


@dataclass(frozen=True)
class _About:
    """What is noted with the rows.

    ``before`` is what the rows in ``undo`` lead back to, if they lead anywhere. ``boot`` is the ``boot_id`` of a
    machine that may have changes in memory; None after a flush.
    """

    identity: str
    ends: Mapping[str, int]
    boot: str | None
    at: _At
    before: _At | None = None


class LiveRows:
    """The keys of a table's rows; ``resume`` or ``rebuild`` comes before everything else.

    The copy stays in ``folder`` on a local disk after ``close``; without one, it is temporary.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="millrace-") if folder is None else None
        self._folder = folder or Path(self._temporary.name if self._temporary is not None else "")
        self._path = self._folder / f"{KEYS}.sqlite"
        self._open: sqlite3.Connection | None = None
        self._is_checked = False

    def __len__(self) -> int:
        return _about(self._database).at.rows

    def resume(self, origin: TableOrigin, last: LastWritten) -> bool:
        """Go on with the copy that there is, if it is right; otherwise return false: ``rebuild`` has to follow.

        ``origin`` is the topic now, and ``last`` the last batch in it.
        """
        try:
            is_right = self._path.exists() and self._is_right(origin, last)
        except (sqlite3.Error, ArithmeticError, TypeError, ValueError):  # damaged, or an older driver has not ended yet
            is_right = False
        self._is_checked = is_right
        if not is_right:
            self._remove()
        return is_right

    def rebuild(self, origin: TableOrigin, last: LastWritten, changes: Iterable[tuple[str, int | None]]) -> None:
        """Make the copy from the messages of the topic.

        Args:
            origin: the topic before the first of them was read.
            last: the last batch in the topic.
            changes: the key of each message, and the end of its window in microseconds since 1970 or None for a
                tombstone; those of a key in their order.

        Raises TransientError if the disk is full, or fails.
        """
        self._remove()
        with self._reported():
            self._folder.mkdir(parents=True, exist_ok=True)
            place = self._folder / f"{KEYS}.new"
            place.unlink(missing_ok=True)
            database = self._open = _connected(place, "OFF")
            database.executescript(_TABLES)
            with _temporary_files_in(self._folder):
                database.execute("BEGIN")
                database.execute("CREATE TEMP TABLE read (place INTEGER PRIMARY KEY, ends INTEGER, key TEXT)")
                database.executemany("INSERT INTO read (key, ends) VALUES (?, ?)", changes)
                database.execute(_NEWEST)
                at = _At(*last, *database.execute(_PRESENT).fetchone())
                _note(database, _About(origin.identity, origin.ends, boot_id(), at))
                database.execute("COMMIT")
            self._disconnect()
            place.replace(self._path)  # only a complete copy ever has this name
            self._connect()
            self._is_checked = True

    def begin(self) -> None:
        """Begin a batch; what one before it has begun and not finished is forgotten.

        Raises TransientError if the disk is full, or fails.
        """
        with self._reported():
            database = self._database
            if database.in_transaction:
                database.execute("ROLLBACK")
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM undo")

    def change(self, rows: Iterable[Row]) -> Iterator[Outgoing]:
        """Yield the messages of rows of the batch: one for each, but none to retract a row that is not there.

        ``rows`` are a part of the batch's results, each key once in the batch; without a value for a row that the table
        must not have.

        Raises TransientError if the disk is full, or fails.
        """
        with self._reported():
            database = self._database
            added: list[tuple[int, str]] = []
            for key, value, end in rows:
                assert key is not None
                if value is not None:
                    added.append((end, key))
                    if len(added) == _CHUNK:
                        self._add(added)
                else:
                    self._add(added)
                    if not database.execute(_DELETE, (end, key)).rowcount:
                        continue
                yield Outgoing(key, value)
            self._add(added)

    def finish(self, batch: LastWritten, watermark: int) -> Iterator[Outgoing]:
        """Yield the tombstones of the rows that expire with the batch, once those of all its rows were asked for.

        After the last one, the copy has the batch; Kafka has to commit it next. If that fails, ``resume`` follows.

        ``batch`` has its number, and the token that is written with it. ``watermark`` is in milliseconds since 1970; a
        row whose window it has already passed is sent and then expires.

        Raises TransientError if the disk is full, or fails.
        """
        with self._reported():
            database, until = self._database, (watermark * 1000,)
            for (key,) in database.execute("SELECT key FROM live WHERE ends <= ? ORDER BY ends, key", until):
                yield Outgoing(key, None)
            with _temporary_files_in(self._folder):  # keys of the rows, since a trigger runs for each
                database.execute("DELETE FROM live WHERE ends <= ?", until)
            about = _about(database)
            more, checksum = database.execute(_CHANGED).fetchone()
            at = _At(*batch, about.at.rows + more, about.at.checksum + checksum)
            _note(database, replace(about, at=at, before=about.at))
            database.execute("COMMIT")

    def removed(self, most: int) -> pa.ChunkedArray | None:
        """Return the keys of the rows that the last batch has removed; None if they are more than ``most``."""
        with self._reported():
            ((count,),) = self._database.execute("SELECT count(*) FROM undo WHERE was_live = 1")
            if count > most:
                return None
            found = self._database.execute("SELECT key FROM undo WHERE was_live = 1")
            chunks = iter(lambda: found.fetchmany(_CHUNK), [])
            return pa.chunked_array([pa.array([key for (key,) in chunk], pa.string()) for chunk in chunks], pa.string())

    def close(self) -> None:
        """Close the copy, and flush it to disk if it stays; a second call does nothing."""
        if self._open is not None and self._is_checked and self._temporary is None:
            with suppress(sqlite3.Error, OSError):
                if self._open.in_transaction:
                    self._open.execute("ROLLBACK")
                self._open.execute("PRAGMA synchronous = FULL")
                self._open.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                sync(self._path)
                _note(self._open, replace(_about(self._open), boot=None))
                self._open.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._disconnect()
        if self._temporary is not None:
            self._temporary.cleanup()

    @property
    def _database(self) -> sqlite3.Connection:
        assert self._open is not None, "neither resumed nor rebuilt"
        return self._open

    def _is_right(self, origin: TableOrigin, last: LastWritten) -> bool:
        """Return whether the copy on disk is that of the topic, perhaps after taking its last batch back."""
        database = self._open or self._connect()
        if database.in_transaction:
            database.execute("ROLLBACK")
        about = _about(database)
        if about.boot not in (None, boot_id()) or not origin.follows(about.identity, about.ends):
            return False
        at = about.at
        if at[:2] != last:
            if about.before is None or about.before[:2] != last:
                return False
            at = about.before
            with _temporary_files_in(self._folder):
                _take_back(database)
        _note(database, _About(origin.identity, origin.ends, boot_id(), at))
        if self._is_checked:
            return True
        (found,) = database.execute("PRAGMA quick_check(1)").fetchone()  # reads all of the file
        return bool(found == "ok" and database.execute(_PRESENT).fetchone() == at[2:])

    def _add(self, added: list[tuple[int, str]]) -> None:
        if added:
            self._database.executemany(_INSERT, added)
            added.clear()

    def _connect(self) -> sqlite3.Connection:
        self._open = _connected(self._path, "WAL")
        self._open.executescript(_TRIGGERS)
        return self._open

    def _disconnect(self) -> None:
        if self._open is not None:
            with suppress(sqlite3.Error):
                self._open.close()
        self._open = None

    def _remove(self) -> None:
        self._disconnect()
        self._is_checked = False
        for name in ("", "-wal", "-shm", "-journal"):
            self._path.with_name(self._path.name + name).unlink(missing_ok=True)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Raise errors of the database as TransientError; the copy is then made again."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._remove()
            message = f"the copy of the table's keys in {self._folder} cannot be used: {error}"
            hint = "see that the disk works and has room: the copy is made again from the topic"
            raise TransientError(Problem(message, hint)) from None


def _connected(path: Path, journal: str) -> sqlite3.Connection:
    """Open a database for this process alone; ``journal`` is SQLite's journal mode."""
    database = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    database.create_function("checksum", 2, _checksum, deterministic=True)
    kibibytes = CACHE_BYTES // 1024
    for setting in (
        "locking_mode = EXCLUSIVE",
        f"journal_mode = {journal}",
        "synchronous = OFF",
        f"cache_size = -{kibibytes}",
        f"temp.cache_size = -{kibibytes}",
        f"journal_size_limit = {_LOG_BYTES}",
    ):
        database.execute(f"PRAGMA {setting}")
    return database


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Have SQLite's temporary files made in this folder; the setting is one of the process, not of a connection."""

    def use(place: str) -> None:
        quoted = place.replace("'", "''")
        with closing(sqlite3.connect(":memory:")) as other:  # the one that sets it loses its temporary tables
            other.execute(f"PRAGMA temp_store_directory = '{quoted}'")

    use(str(folder))
    try:
        yield
    finally:
        use("")


def _checksum(ends: int, key: str) -> int:
    return zlib.crc32(key.encode(), ends & 0xFFFFFFFF)


def _about(database: sqlite3.Connection) -> _About:
    """Return what is noted. Raises ValueError if it is damaged."""
    text, checksum = database.execute("SELECT text, checksum FROM about").fetchone()
    if _checksum(0, text) != checksum:
        raise ValueError(text)
    noted = json.loads(text)
    before = noted.pop("before")
    return _About(**noted | {"at": _At(*noted["at"]), "before": None if before is None else _At(*before)})


def _note(database: sqlite3.Connection, about: _About) -> None:
    text = json.dumps(vars(about))
    database.execute("UPDATE about SET text = ?, checksum = ?", (text, _checksum(0, text)))


def _take_back(database: sqlite3.Connection) -> None:
    """Take back the last batch: every row that it changed becomes what it was before its first change."""
    database.execute("BEGIN IMMEDIATE")
    database.execute(_FIRST)
    for command, was_live in ((_DELETE, 0), (_INSERT, 1)):
        rows = database.execute("SELECT ends, key FROM first WHERE was_live = ?", (was_live,))
        database.executemany(command, rows)
    database.execute("DROP TABLE first")
    database.execute("DELETE FROM undo")
    about = _about(database)
    assert about.before is not None
    _note(database, replace(about, at=about.before, before=None))
    database.execute("COMMIT")
