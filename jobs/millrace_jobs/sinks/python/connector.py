"""The sink ``python``, which calls a function of the user's own with the results of each batch.

A batch makes one call, however many results it has, so that the function can write all of them in one transaction.
After a crash, Spark computes the batch again, with the same results, and the function is called again with the same
number: results are written exactly once if the function writes a batch that it has written before only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.sinks import PythonSinkSpec
from millrace_api.model.streamquery import Emit
from millrace_jobs.own_code.sink_functions import FIELD, SinkBatch, SinkFunction
from millrace_jobs.sinks.base import ResultBatch, Sink, named
from millrace_jobs.sinks.connector import SinkConnector, SinkContext
from millrace_jobs.sinks.fetching import ResultFetcher
from millrace_jobs.sinks.sink_clock import SINK_CLOCK

MOST_BYTES = 256 << 20
"""Bytes of Arrow in the largest table that a function gets. A function with a reader gets any number, in pieces."""


class PythonSink(Sink):
    """A sink that calls a function with the results of each batch that has some.

    ``jumps`` is whether a batch can have many results although the last one had few.
    """

    def __init__(self, function: SinkFunction, query: str, checkpoint_id: str, *, jumps: bool) -> None:
        self._function, self._query, self._checkpoint = function, query, checkpoint_id
        self._fetcher = ResultFetcher(jumps=jumps)

    @property
    def place(self) -> str:
        """Path of the function."""
        return f"the function {self._function.path}"

    def shape(self, results: DataFrame) -> DataFrame:
        """Return each result as a struct, the form that is fetched in bounded memory."""
        return results.select(F.struct(*map(named, results.columns)).alias("value"))

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Call the function, unless the batch has no results; return how many results it got."""
        watermark = datetime.fromtimestamp(batch.watermark / 1000, UTC) if batch.watermark else None
        told = SinkBatch(batch.number, self._checkpoint, self._query, watermark)
        with self._fetcher.fetched(results, may_be_any=batch.may_have_results) as tables:
            pieces = _ResultPieces(SINK_CLOCK.outside(tables))
            first = next(pieces, None)
            if first is None:
                return 0
            found = chain([first], pieces)
            read = _ReadBatches(found)
            given = (
                self._whole(found, batch)
                if self._function.takes_table
                else pa.RecordBatchReader.from_batches(first.schema, read)
            )
            batch.require_lease()
            try:
                with SINK_CLOCK.running():
                    self._function(given, told)
            except MillraceError:
                if pieces.failure is not None:  # what the function raised is what it got from its reader
                    raise pieces.failure from None
                raise
            if pieces.failure is not None:  # the function went on without the rest of the batch
                raise pieces.failure
            if read.begun:
                self._function.require_all_read(told, sum(piece.num_rows for piece in read))
            return pieces.rows

    def _whole(self, pieces: Iterator[pa.Table], batch: ResultBatch) -> pa.Table:
        """Return all results of a batch as one table. Raises MillraceError if they are too large for one."""
        found, size = [], 0
        for piece in pieces:
            found.append(piece)
            size += piece.nbytes
            if size > MOST_BYTES:
                message = f"the results of batch {batch.number} are larger than the {MOST_BYTES >> 20} MiB of a table"
                hint = (
                    f"annotate the first parameter of {self._function.path} as pa.RecordBatchReader, which reads them "
                    "in pieces, or write a lower maxRecordsPerBatch or maxFilesPerBatch for the source"
                )
                raise MillraceError(Problem(message, hint, field=f"{FIELD}.write"))
        return pa.concat_tables(found)


class _ResultPieces(Iterator[pa.Table]):
    """The results of a batch as tables that are not empty, with the number of rows so far, and what failed."""

    def __init__(self, fetched: Iterator[pa.Table]) -> None:
        self._tables = (_columns(table) for table in fetched if table.num_rows)
        self.rows = 0
        self.failure: Exception | None = None

    def __next__(self) -> pa.Table:
        try:
            found = next(self._tables)
        except StopIteration:
            raise
        except Exception as error:
            self.failure = error
            raise
        self.rows += found.num_rows
        return found


def _columns(fetched: pa.Table) -> pa.Table:
    """Return the columns of results that were fetched as structs."""
    value = fetched.column("value").combine_chunks()
    return pa.Table.from_arrays(value.flatten(), schema=pa.schema(value.type))


class _ReadBatches(Iterator[pa.RecordBatch]):
    """The batches behind a reader; ``begun`` says whether the function has read one."""

    def __init__(self, pieces: Iterator[pa.Table]) -> None:
        self._batches = (batch for piece in pieces for batch in piece.to_batches())
        self.begun = False

    def __next__(self) -> pa.RecordBatch:
        self.begun = True
        return next(self._batches)


class PythonSinkConnector(SinkConnector[PythonSinkSpec]):
    """Loads the function that writes the results."""

    def check(self, spec: PythonSinkSpec) -> None:
        """Check that the function can be loaded, and takes the options."""
        SinkFunction(spec.write, spec.options)

    def open(self, spec: PythonSinkSpec, context: SinkContext) -> Sink:
        """Return the sink that calls the function."""
        query = context.query
        jumps = query.spec.emit is not Emit.ON_UPDATE
        return PythonSink(SinkFunction(spec.write, spec.options), query.name, context.checkpoint_id, jumps=jumps)
