"""The source ``python``, whose records a class of the user's own reads by offsets.

The position is the offset behind the last record that was read. A batch is a range of offsets, which Spark logs before
the first record is read, and is cut into ranges of nearly equal length. A batch that is run again asks for the same
ranges: each record is in the results once if the class gives the same records for the same offsets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from millrace_api.errors import TransientError
from millrace_api.model.python_source import PythonSourceSpec
from millrace_jobs.own_code.loading import SAME_COMMAND
from millrace_jobs.own_code.source_classes import OwnRecords, SourceClass
from millrace_jobs.sources.base import OnArrival, Position, Rejected, Slice, Source, bounds, ignore_arrivals
from millrace_jobs.sources.connector import SourceConnector, SourceContext
from millrace_jobs.sources.formats.column_types import place_of, shown_names
from millrace_jobs.sources.formats.format_reader import MAX_ROWS, completed, without_event_time
from millrace_jobs.sources.formats.typed_columns import TypedColumn


@dataclass(frozen=True)
class OffsetSlice:
    """The offsets ``[begin, end)`` of a stream."""

    begin: int
    end: int


class PythonSource(Source):
    """The records that a class reads; position ``{"offset": k}``: all records with offsets below k were read.

    A new query begins at offset 0, and not at one that the class chooses: a first batch that is run again has to begin
    where it did before.

    Args:
        name: the name of the source in the query.
        schema: the declared columns.
        own: the class. An object of it plans the batches, and each slice is read by one of its own.
        max_records_per_batch: the most offsets of a batch; None is no limit.
    """

    def __init__(
        self, name: str, schema: pa.Schema, own: SourceClass, max_records_per_batch: int | None = None
    ) -> None:
        self.name = name
        self.schema = schema
        self._own = own
        self._max_records = max_records_per_batch
        self._known = 0
        self._has_all = False

    @cached_property
    def _records(self) -> OwnRecords:
        return OwnRecords(self._own)

    def initial(self) -> Position:
        """Return the position before offset 0."""
        return {"offset": 0}

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return how far the stream goes, with ``everything`` as first found; at most ``most`` offsets are new."""
        offset = int(start["offset"])
        if not (everything and self._has_all):
            with _transient_as_of_a_source():
                self._known = self._records.latest(offset)
            self._has_all = everything
        limits = [limit for limit in (most, self._max_records) if limit is not None]
        return {"offset": min([self._known, *(offset + limit for limit in limits)])}

    def lag(self, position: Position) -> int:
        """Return the number of offsets beyond ``position`` that the last call of ``latest`` knew of."""
        return max(self._known - int(position["offset"]), 0)

    def most_records(self, start: Position, end: Position) -> int:
        """Return the number of offsets, each of which has one record at most."""
        return int(end["offset"]) - int(start["offset"])

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut the offsets into ranges whose lengths differ by at most one."""
        cuts = [start["offset"] + cut for cut in bounds(end["offset"] - start["offset"], replicas)]
        return [OffsetSlice(low, high) for low, high in itertools.pairwise(cuts) if low < high]

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records of the slice in the declared types."""
        assert isinstance(piece, OffsetSlice)
        with _transient_as_of_a_source():
            own = OwnRecords(self._own)
            columns = _DeclaredColumns(self.schema, own)
            for found in own.read(piece.begin, piece.end):
                for first in range(0, found.num_rows, MAX_ROWS):
                    yield columns.of(found.slice(first, MAX_ROWS))


class _DeclaredColumns:
    """Conversion of the records of a class to the declared columns, which are found by name; others are ignored."""

    def __init__(self, schema: pa.Schema, own: OwnRecords) -> None:
        self._schema = schema
        self._stored = without_event_time(schema)
        self._own = own
        self._found: pa.Schema | None = None
        self._columns: list[tuple[int, TypedColumn]] = []

    def of(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return records with the declared columns. Raises MillraceError if they lack one, or a value does not fit."""
        if self._found is None or not self._found.equals(records.schema):
            self._columns = [self._column(field, records.schema) for field in self._stored]
            self._found = records.schema
        arrays = [self._converted(column, records.column(place)) for place, column in self._columns]
        return completed(pa.RecordBatch.from_arrays(arrays, schema=self._stored), self._schema)

    def _column(self, field: pa.Field, found: pa.Schema) -> tuple[int, TypedColumn]:
        place = place_of(field.name, found)
        if place < 0:
            what = f"no column {field.name}" if place == -1 else f"several columns {field.name}"
            hint = f"yield it, or correct the schema{SAME_COMMAND}"
            self._own.fail(f"yielded records with {what}, but {shown_names(found.names) or 'no columns'}", hint)
        return place, TypedColumn(found.field(place).type, field, "iso")

    def _converted(self, column: TypedColumn, values: pa.Array) -> pa.Array:
        try:
            return column.convert(values)
        except ValueError as error:
            hint = f"yield values of Arrow's type {column.field.type}, or correct the schema{SAME_COMMAND}"
            self._own.fail(f"yielded records that do not fit the schema: {error}", hint)


@contextmanager
def _transient_as_of_a_source() -> Iterator[None]:
    """Raise what may pass here, since the place decides on its class: a source that is away, and no error of code."""
    try:
        yield
    except TransientError as error:
        raise TransientError(*error.problems) from error


class PythonSourceConnector(SourceConnector[PythonSourceSpec]):
    """Opens a source whose records a class reads."""

    def check(self, spec: PythonSourceSpec, context: SourceContext) -> None:
        """Check that the class can be loaded, and takes the options."""
        SourceClass(context.name, spec.read, spec.options).imported()

    def open(self, spec: PythonSourceSpec, context: SourceContext) -> Source:
        """Return the source; an object of the class is created only where batches are planned and read."""
        self.check(spec, context)
        own = SourceClass(context.name, spec.read, spec.options)
        return PythonSource(context.name, self.schema(context.source), own, spec.max_records_per_batch)
