"""The sink that writes results to a table in a database, each batch exactly once.

The results of a batch are copied into a temporary table while Spark computes them. Then one short transaction locks the
checkpoint's row of ``millrace_batches``, brings the results into the table, and records the batch. After a crash, Spark
runs the batch again; it is computed again, because state depends on it, and written only if it is not recorded. The
same holds if the connection breaks during the commit, when the driver cannot know what has become of it.

With a key, a result replaces the row with its key, and a result that is taken back removes it. Rows of closed windows
stay. Without a key, results are appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import pyarrow as pa
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.serializers import read_int
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional name
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.types import StructType
from pyspark.traceback_utils import SCCallSiteSync
from pyspark.util import _load_from_socket

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.changes import WEIGHT
from millrace_jobs.databases import connection as limits
from millrace_jobs.databases.connection import Session, patiently, time_limit
from millrace_jobs.sinks.base import ADMITTED, LastBatch, ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.databases.batches import BatchRecord
from millrace_jobs.sinks.databases.dialect import PART, Dialect, Staging
from millrace_jobs.sinks.databases.target import WantedTable
from millrace_jobs.sinks.sink_clock import SINK_CLOCK

_MERGES = 5
"""How often a merge is tried while other transactions get in its way."""

_FAILED = -1
"""What Spark sends in place of the number of batches if it has failed."""


class DatabaseSink(Sink):
    """A sink that upserts and deletes rows of a table by key, or appends to it.

    ``table`` is its name as the user wrote it. Without columns in ``keys``, results are appended.
    """

    def __init__(
        self, dialect: Dialect, table: str, keys: ResultKeys, results: StructType, query: str, checkpoint_id: str
    ) -> None:
        self._dialect, self._query, self._checkpoint = dialect, query, checkpoint_id
        self._mark = WEIGHT if keys.weighted else ADMITTED if keys.retracts else None
        self._wanted = WantedTable(table, results, keys.columns or (), self._mark is not None, dialect)
        self._open: Session | None = None
        self._record: BatchRecord | None = None
        self._staging: Staging | None = None

    @property
    def place(self) -> str:
        """Table, database and servers."""
        connection = self._dialect.connection
        return f"table {self._wanted.name} in {connection.database} at {connection.place}"

    def prepare(self, last: LastBatch) -> None:
        """Check the table, and take over its record of batches; other drivers on this checkpoint can no longer write.

        Raises MillraceError if the database cannot be used, the table does not suit the results, or has results that do
        not match this checkpoint's state.
        """
        self._wanted.require_types()

        def take() -> None:
            self.close()
            session = self._dialect.connection.open()
            try:
                with time_limit(session):
                    table = self._wanted.find(session)
                    if self._record is None or self._record.table != table:
                        self._record = BatchRecord(self._dialect, table, self._query, self._checkpoint)
                    self._record.take(session, last)
                    self._staging = self._dialect.staging(table, self._mark)
                    self._staging.create(session)
            except BaseException:
                session.close()
                raise
            self._open = session

        doing = f"looking for table {self._wanted.name}"

        def worded(error: Exception) -> MillraceError | None:
            return self._dialect.problem(error, doing) if isinstance(error, self._dialect.error) else None

        patiently(take, worded, doing, self._dialect.connection)

    def shape(self, results: DataFrame) -> DataFrame:
        """Encode the results as the texts that are sent to the temporary table."""
        marks = [] if self._mark is None else [self._mark]
        placed = results.withColumn(PART, F.spark_partition_id())
        return self._dialect.encoded(placed, [*self._wanted.results.names, *marks, PART], self._mark)

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute a batch, and write it if it is not in the table yet; return the number of rows written."""
        assert self._record is not None, "the sink has not been prepared"
        assert self._staging is not None
        if batch.number <= self._record.last:
            results.write.format("noop").mode("overwrite").save()
            return 0
        doing = f"writing batch {batch.number} to table {self._wanted.name}"
        try:
            session = self._session()
            with arrow_batches(results) as batches, SINK_CLOCK.running():
                self._staging.fill(session, SINK_CLOCK.outside(batches))
            with SINK_CLOCK.running():
                return self._merge(session, batch)
        except self._dialect.error as error:
            raise self._dialect.problem(error, doing) from error

    def withdraw(self) -> None:
        """Remove the record that ``prepare`` has made."""
        if self._record is not None and self._open is not None:
            try:
                with time_limit(self._open, limits.CONNECT_SECONDS):
                    self._record.withdraw(self._open)
            except self._dialect.error:
                pass  # the error that the run failed with is reported

    def close(self) -> None:
        """Close the connection; results that it has not committed are dropped."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _session(self) -> Session:
        """Return a session with an empty temporary table: a new one if the server has ended the last one."""
        assert self._staging is not None, "the sink has not been prepared"
        if self._open is not None:
            try:
                with time_limit(self._open, limits.CONNECT_SECONDS):
                    self._staging.empty(self._open)
                    return self._open
            except self._dialect.error:  # nothing is lost with it, and if the server itself fails, so does a new one
                self.close()
        session = self._dialect.connection.open()
        try:
            with time_limit(session, limits.CONNECT_SECONDS):
                self._staging.create(session)
        except BaseException:
            session.close()
            raise
        self._open = session
        return session

    def _merge(self, session: Session, batch: ResultBatch) -> int:
        """Bring the staged results into the table, and record the batch; return the number of rows written."""
        assert self._staging is not None
        assert self._record is not None
        for attempt in range(_MERGES):
            try:
                with time_limit(session), session.transaction():
                    self._require_unique(session)
                    self._record.lock(session, batch)
                    rows = self._staging.merge(session)
                    self._record.add(session, batch)
                self._record.last = batch.number
                return rows
            except self._dialect.error as error:
                if not self._dialect.is_conflict(error) or session.broken or attempt == _MERGES - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _require_unique(self, session: Session) -> None:
        assert self._staging is not None
        if self._mark != WEIGHT:
            return
        found = self._staging.repeated_key(session)
        if found is not None:
            key = ", ".join(map(str, found))
            message = f"two rows of the result have the key {key}, so one of them would be lost"
            hint = "write a key that identifies the rows of the result"
            raise MillraceError(Problem(message, hint, field=f"{self._dialect.connection.field}.key"))


@contextmanager
def arrow_batches(results: DataFrame) -> Iterator[Iterator[pa.RecordBatch]]:
    """Run the plan of ``results``, and yield an iterator over its record batches in the order in which they come.

    This is ``DataFrame.toArrow`` without its list of all batches, and so without their order.
    """
    with SCCallSiteSync(results.sparkSession.sparkContext):  # type: ignore[no-untyped-call]
        port, secret, server = results._jdf.collectAsArrowToPython()

    def received(stream: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from stream
        except Exception:
            with unwrap_spark_exception():
                server.getResult()  # raises what has failed in Spark
            raise

    try:
        with _load_from_socket((port, secret), _UnorderedBatches()) as stream:
            yield received(stream)
    except BaseException:
        with suppress(Exception):  # the socket is closed, so that Spark's job fails, too; it must end before this run
            server.getResult()
        raise
    with unwrap_spark_exception():
        server.getResult()


class _UnorderedBatches(ArrowStreamSerializer):
    """A reader of Spark's batches, after which come the numbers of their order."""

    def load_stream(self, stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
        """Yield the batches. Raises EOFError if Spark has failed; its server knows why."""
        yield from super().load_stream(stream)
        number = read_int(stream)  # type: ignore[no-untyped-call]
        if number == _FAILED:
            raise EOFError("Spark has failed to compute the batch")
        for _ in range(number):
            read_int(stream)  # type: ignore[no-untyped-call]
