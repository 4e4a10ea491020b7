"""The results of a batch of a table: the newest row of each key, and what becomes of earlier versions.

Results that are changes are netted first: of all changes of a key, at most one row is left. Few results are netted in
the driver. Large ones are divided by key, and netted by tasks, so that the driver gets nothing but what it writes, part
by part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.changes import FROM, TO, WEIGHT
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.kafka.fetching import PARTS
from millrace_jobs.sinks.kafka.history import split_newest
from millrace_jobs.sinks.kafka.messages import netted

_ROW = {"key": pa.string(), "value": pa.string(), "end": pa.int64()}
_VERSION = {FROM: pa.int64(), TO: pa.int64()}
_TWICE = {"twice": pa.string()}
_CHUNK = 10_000


class TablePart(NamedTuple):
    """A part of the results of a batch, with all changes of its keys.

    ``rows`` are the newest rows, with the columns ``key``, ``value`` and ``end``, and FROM if the table has a history;
    without a value for one that the table must not have. ``earlier`` are changes of earlier versions, as
    ``history.split_newest`` returns them; None without a history.
    """

    rows: pa.Table
    earlier: pa.Table | None = None

    @property
    def bytes(self) -> int:
        """The approximate memory that it takes."""
        return int(self.rows.nbytes) + (0 if self.earlier is None else int(self.earlier.nbytes))


class KeptParts:
    """Parts that are kept while all of them take no more than ``most`` bytes of memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self.parts: list[TablePart] | None = []
        """The parts; None once they are too large."""

    def add(self, part: TablePart) -> None:
        """Keep a part with the others, or none of them if they are too large with it."""
        self._bytes += part.bytes
        if self._bytes > self._most:
            self.parts = None
        elif self.parts is not None:
            self.parts.append(part)


@dataclass(frozen=True)
class TableResults:
    """The results of a table with these keys, in the columns of ``messages.encoded``."""

    keys: ResultKeys

    def divided(self, results: DataFrame) -> DataFrame:
        """Divide large results by key, and have them netted by tasks."""
        by_key = results.repartition(PARTS, "key")
        return by_key.mapInArrow(self._net_of_task, self._columns) if self.keys.weighted else by_key

    def part_of(self, fetched: pa.Table) -> TablePart:
        """Return fetched results as a part: all results of a batch, or some of ``divided``.

        Raises:
            MillraceError: two rows have the same key.
        """
        if WEIGHT in fetched.schema.names:
            try:
                return self._net(fetched)
            except ValueError as error:
                raise _twice(str(error)) from None
        if not self.keys.weighted:
            return TablePart(fetched)
        found = fetched.column("twice").drop_null()
        if len(found):
            raise _twice(found[0].as_py())
        if not self.keys.versioned:
            return TablePart(fetched.select(list(_ROW)))
        is_newest = fetched.column("end").is_valid()
        newest = fetched.filter(is_newest).select([*_ROW, FROM])
        return TablePart(newest, fetched.filter(pc.invert(is_newest)).select(["key", "value", FROM, TO]))

    def _net(self, changes: pa.Table) -> TablePart:
        """Return the part of changes that are all of their keys. Raises ValueError as ``netted`` does."""
        newest, earlier = split_newest(changes) if self.keys.versioned else (changes, None)
        return TablePart(netted(newest), earlier)

    def _net_of_task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the changes of a partition leave, with the columns of ``_columns``; a NULL end is for a version.

        A key that two rows have is a result, too: the driver knows what it is called in which output.
        """
        changes = list(batches)
        if not changes:
            return
        try:
            part = self._net(pa.Table.from_batches(changes))
        except ValueError as error:
            yield from self._filled(pa.table({"twice": [str(error)]}))
            return
        yield from self._filled(part.rows)
        if part.earlier is not None:
            yield from self._filled(part.earlier)

    def _filled(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield a table with all columns of ``_schema``, those that it has not without values."""
        columns = [
            table.column(field.name) if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
            for field in self._schema
        ]
        yield from pa.table(columns, schema=self._schema).to_batches(max_chunksize=_CHUNK)

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema(_ROW | (_VERSION if self.keys.versioned else {}) | _TWICE)

    @property
    def _columns(self) -> str:
        """The columns of ``_schema`` in Spark's words."""
        names = {pa.string(): "STRING", pa.int64(): "BIGINT"}
        return ", ".join(f"`{field.name}` {names[field.type]}" for field in self._schema)


def _twice(key: str) -> MillraceError:
    message = f"two rows of the result have the key {key}, so one of them would be lost"
    hint = "write a key that identifies the rows of the result"
    return MillraceError(Problem(message, hint, field="spec.sink.table.key"))
