"""A second run of a query that repeats each batch of the first in a copy of its checkpoint, and writes no results.

A batch is repeated from the first run's log: with the same records, under the same plan. So the copy's state after it
is that of the first run, on another number of partitions. The copy was repartitioned in a batch of its own, so its
batch ``n + 1`` repeats batch ``n``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.checkpoint.spark_folder import SparkLog
from millrace_jobs.places import write_durably
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.execution import RoutingMode
from millrace_jobs.queries.reading import RunContext
from millrace_jobs.queries.tables.stages import announce
from millrace_jobs.run.assembly import RunQuery
from millrace_jobs.run.batch_settings import BatchSettings
from millrace_jobs.run.failures import failed_query
from millrace_jobs.sources.base import Source

_POLL_SECONDS = 0.02

_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
"""Setting by which Spark adds batches without records; here, batches come from the first run's log alone."""


@dataclass
class Follower:
    """Repeats the batches of ``original`` in ``copy``, whose last batch is a repartition of the state.

    ``sources`` are read and never asked for new records. ``workspace`` is a folder for this run alone.
    """

    query: RunQuery
    sources: Mapping[str, Source]
    spark: SparkSession
    original: SparkLog
    copy: SparkLog
    workspace: Path
    _streaming: StreamingQuery | None = None
    _mode: RoutingMode | None = None
    _settings: BatchSettings = field(init=False)

    def __post_init__(self) -> None:
        """Set up the session, in which no other query runs."""
        self._settings = BatchSettings(self.query.spec.spark_conf)
        self._limit = self.workspace / "followed"
        self.spark.conf.set(_NO_DATA, "false")

    @property
    def batch(self) -> int:
        """The batch of the original whose state the copy has."""
        committed = self.copy.last_batch().committed
        assert committed is not None, "the repartition is a batch"
        return committed - 1

    def catch_up(self, batch: int) -> None:
        """Repeat all batches up to this one, which the original has finished.

        Raises:
            MillraceError: a batch fails, is gone from the original's log, or had another watermark there.
        """
        while (done := self.batch) < batch:
            mode, last = self._stretch(done + 1, batch)
            write_durably(self._limit, str(last).encode())
            self._start(mode)
            self._wait_for(last)
            for number in range(done + 1, last + 1):
                self._require_same(number)

    def stop(self) -> None:
        """Stop after the batch that ``catch_up`` has reached; ``catch_up`` starts again."""
        if self._streaming is not None:
            with suppress(PySparkException, Py4JJavaError):
                self._streaming.stop()
        self._streaming = None

    def _stretch(self, first: int, last: int) -> tuple[RoutingMode, int]:
        """Return the mode of a batch, and the last one up to which all have that mode."""
        mode = self._mode_of(first)
        while first < last and self._mode_of(first + 1) is mode:
            first += 1
        return mode, first

    def _mode_of(self, batch: int) -> RoutingMode:
        pin = self._pin(batch)
        if pin is None:
            return self._mode or RoutingMode.NATIVE
        if pin.is_dedicated:
            message = "the query has placed records by replicas in processes of their own, which cannot be repeated"
            raise _not_followed(message, "stop the query, and repeat this command")
        return self.query.compiled.mode(pin)

    def _pin(self, batch: int) -> Pin | None:
        try:
            return self.original.pin(batch)
        except MillraceError:
            if (self.original.spark / "offsets" / str(batch)).exists():
                raise
            message = f"batch {batch} is gone from the log: this process repeats batches more slowly than they come"
            raise _not_followed(message, "stop the query, and repeat this command") from None

    def _start(self, mode: RoutingMode) -> None:
        if self._streaming is not None and self._mode is mode:
            return
        self.stop()
        routed = mode is not RoutingMode.NATIVE
        context = RunContext(
            self.spark,
            self.sources,
            self._limit,
            self.copy.spark,
            self.workspace / "policies",  # what replicas have learned decides no result
            everything=False,
            followed=self.original.spark,
        )
        query = self.query
        results = query.sink.shape(query.compiled.build(query.spec, context, routed=routed))
        per_record = query.compiled.execution.is_per_record(self.sources, routed=routed)
        self._settings.begin(results, per_record=per_record)
        writer = (
            results.writeStream.queryName(query.name)
            .foreachBatch(self._compute)
            .outputMode(query.compiled.output_mode(query.spec))
            .option("checkpointLocation", str(self.copy.spark))
            .trigger(processingTime="0 seconds")
        )
        try:
            self._streaming, self._mode = writer.start(), mode
        except (PySparkException, Py4JJavaError) as error:
            raise failed_query(str(error)) from None

    def _compute(self, results: DataFrame, number: int) -> None:
        """Compute a batch and drop its results, which the original has written (Spark's ``foreachBatch`` hook)."""
        pin = self.copy.pin(number)
        self._settings.found(results.sparkSession)
        if pin is not None:
            self._settings.follow(pin.workers)
        announce(pin, self.copy.batch(number).watermark, self.spark.sparkContext)
        results.write.format("noop").mode("overwrite").save()

    def _wait_for(self, batch: int) -> None:
        while self.batch < batch:
            assert self._streaming is not None
            if not self._streaming.isActive:
                error = self._streaming.exception()
                raise failed_query(str(error) if error is not None else "Spark's query has ended")
            time.sleep(_POLL_SECONDS)

    def _require_same(self, batch: int) -> None:
        """Require that a batch began and ended under the same watermark as its original: that decides its results."""
        before, after = (
            log.batch(number).watermark for log, number in ((self.original, batch), (self.copy, batch + 1))
        )
        if before != after:
            message = (
                f"batch {batch} had the watermark {before} ms in the query, and has {after} ms when it is repeated"
            )
            raise _not_followed(message, "stop the query, and repeat this command")


def _not_followed(message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(f"the state is unchanged: {message}", hint))
