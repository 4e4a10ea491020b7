"""Tables that are read as a whole: all rows of a source, or of a table of a database or a lakehouse.

The contents that a table has had are Parquet files in the checkpoint, each beside what is known of it. A batch names
its content in its offsets (``Control.tables``), so that it joins the same one if it is repeated. Names sort by age. A
file is complete once its description exists, and neither is changed after that.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import FailureClass
from millrace_jobs.changes import normalized
from millrace_jobs.places import Place, may_be_away, write_durably
from millrace_jobs.shown_values import shown_value
from millrace_jobs.sources.base import Rejected, Source


@dataclass(frozen=True)
class StaticTable:
    """The rows of a static table, and the numbers of records that do not decode, and that have NULL in their key."""

    rows: pa.Table
    rejected: int
    incomplete: int


@dataclass(frozen=True)
class TableLimits:
    """The most that a table may have: rows, and bytes of its rows in memory."""

    rows: int
    bytes: int


@dataclass(frozen=True)
class TableRead:
    """A table as of one moment: its version, None if it has none, and its rows, which are read as they are taken.

    It has at least ``least`` rows, as far as that is known before they are read.
    """

    version: str | None
    records: Iterator[pa.RecordBatch | Rejected]
    least: int = 0


class WholeTable(Protocol):
    """A table that can be read as a whole again and again."""

    def read(self, known: str | None) -> TableRead | None:
        """Return the table as it is now; None if its version is still the ``known`` one.

        Raises MillraceError if it cannot be read; a TransientError if that may pass. So may the iteration of its rows.
        """


@dataclass(frozen=True)
class RecordsAsTable:
    """The records of a source as a table."""

    source: Source

    def read(self, known: str | None) -> TableRead:
        """Return all records that the source has now."""
        start = self.source.initial()
        pieces = self.source.slices(start, self.source.latest(start, everything=True), 1)
        return TableRead(None, (item for piece in pieces for item in self.source.read(piece, "table")))


def read_static_table(source: Source, keys: Sequence[str]) -> StaticTable:
    """Read all records of a source as a table with these columns as its primary key.

    Records with a NULL in the key are no rows, as in all tables. Raises MillraceError if a record does not decode,
    under the policy ``Fail``, or two records have the same key.
    """
    return static_table(source.name, RecordsAsTable(source).read(None).records, source.schema, keys)


def static_table(
    name: str,
    records: Iterable[pa.RecordBatch | Rejected],
    schema: pa.Schema,
    keys: Sequence[str],
    limits: TableLimits | None = None,
    least: int = 0,
) -> StaticTable:
    """Read records as the rows of a table with these columns as its primary key; there are at least ``least``.

    Raises MillraceError if two records have the same key, or there are more than the limits allow.
    """
    read: list[pa.RecordBatch] = []
    rejected = count = size = 0
    if limits is not None:
        _require_within(limits, least, size, name)
    for item in records:
        if isinstance(item, Rejected):
            rejected += item.records
            continue
        read.append(item)
        count += item.num_rows
        size += item.nbytes
        if limits is not None:
            _require_within(limits, count, size, name)
    found = rows = pa.Table.from_batches(read, schema)
    for key in keys:
        rows = rows.filter(rows.column(key).is_valid())
    _require_one_row_per_key(name, rows, keys)
    return StaticTable(rows, rejected, found.num_rows - rows.num_rows)


def _require_within(limits: TableLimits, rows: int, size: int, name: str) -> None:
    if rows > limits.rows:
        what, field = f"{limits.rows:,} rows", "maxRows"
    elif size > limits.bytes:
        units = (("g", 30), ("m", 20), ("k", 10))  # as a query writes them
        most = next(f"{limits.bytes >> bits}{unit}" for unit, bits in units if limits.bytes % (1 << bits) == 0)
        what, field = f"{most} in memory", "maxSize"
    else:
        return
    message = f"source {name}: the static table has more than {what}"
    hint = f"raise {field} and the memory of the driver and the executors, or read fewer rows and columns"
    raise source_error(Problem(message, hint, field=f"spec.sources.{name}.table.{field}"))


def _require_one_row_per_key(name: str, rows: pa.Table, keys: Sequence[str]) -> None:
    equal = [normalized(rows.column(key).combine_chunks()) for key in keys]
    counts = pa.table(equal, names=list(keys)).group_by(list(keys)).aggregate([([], "count_all")])
    several = counts.filter(pc.greater(counts.column("count_all"), 1))
    if several.num_rows:
        key = ", ".join(f"{column} = {shown_value(several.column(column)[0])!r}" for column in keys)
        message = f"source {name}: the static table has {several.column('count_all')[0]} rows with the key {key}"
        hint = "keep one of them, or name more columns in keys"
        raise source_error(Problem(message, hint, field=f"spec.sources.{name}.table.keys"))


def source_error(problem: Problem) -> MillraceError:
    """Return an error that is one of the source."""
    error = MillraceError(problem)
    error.failure = FailureClass.SOURCE
    return error


@dataclass(frozen=True)
class TableContent:
    """What is known of a content."""

    name: str  # its name; that of a newer one is greater
    origin: str  # what it was read from, as a digest
    version: str | None  # the version that the table had; None if it has no versions
    digest: str  # digest of its rows
    rows: int  # number of its rows
    size: int  # size of its rows in memory, in bytes
    read_at: float  # when it was read, in seconds since 1970


class TableContents:
    """The contents of one table, in a place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def newest(self) -> TableContent | None:
        """Return the newest content; None if there is none.

        Raises OSError or ValueError if its description cannot be read.
        """
        names = self._names(".json")
        if not names:
            return None
        with may_be_away(self._place):
            found = json.loads((self._place / f"{names[-1]}.json").read_text(encoding="utf-8"))
        return TableContent(**found)

    def store(self, rows: pa.Table, origin: str, version: str | None, newest: TableContent | None) -> TableContent:
        """Store rows as a new content, unless the newest one has the same: then return that one with its new version.

        Raises OSError if it cannot be written.
        """
        import pyarrow.parquet as pq  # connectors are loaded before Spark starts, and few store a table

        file = io.BytesIO()
        pq.write_table(rows, file, compression="zstd")
        digest = hashlib.sha256(file.getbuffer()).hexdigest()
        if newest is not None and (newest.digest, newest.origin) == (digest, origin):
            return TableContent(**asdict(newest) | {"version": version})
        number = 1 + max((int(name.partition("-")[0]) for name in self._names()), default=0)
        # drivers that follow each other never write the same file
        name = f"{number:010d}-{uuid.uuid4().hex[:8]}"
        content = TableContent(name, origin, version, digest, rows.num_rows, rows.nbytes, time.time())
        with may_be_away(self._place):
            write_durably(self._place / f"{name}.parquet", file.getvalue())
            write_durably(self._place / f"{name}.json", json.dumps(asdict(content)).encode())
        return content

    def load(self, name: str) -> pa.Table:
        """Return the rows of a content. Raises OSError if it cannot be read; FileNotFoundError if it does not exist."""
        import pyarrow.parquet as pq

        with may_be_away(self._place):
            return pq.read_table(pa.BufferReader((self._place / f"{name}.parquet").read_bytes()))

    def columns(self, name: str) -> pa.Schema:
        """Return the columns of a content.

        Raises OSError if it cannot be read; FileNotFoundError if it does not exist.
        """
        return self.load(name).schema

    def remove(self, name: str) -> None:
        """Remove a content. Raises OSError if it cannot be removed."""
        for suffix in (".json", ".parquet"):
            (self._place / f"{name}{suffix}").unlink(missing_ok=True)

    def remove_before(self, name: str) -> None:
        """Remove the contents that are older than this one. Raises OSError if one cannot be removed."""
        for old in self._names():
            if old < name:
                self.remove(old)

    def _names(self, suffix: str = "") -> list[str]:
        """Return the names of all contents in ascending order, of those that have a file with this suffix."""
        try:
            with may_be_away(self._place):
                files = [each.name for each in self._place.iterdir()]
        except FileNotFoundError:
            return []
        found = {file.partition(".")[0] for file in files if file.endswith(suffix or (".parquet", ".json"))}
        return sorted(name for name in found if name.partition("-")[0].isdigit())
