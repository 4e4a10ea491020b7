"""Both sides of the benchmark in one Spark session: a query run by Millrace, and by plain Structured Streaming."""

from __future__ import annotations

import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import SparkSession

from bench.kafka import plain
from bench.kafka.queries import DELAY, query, stream_query
from bench.kafka.report import PLAIN
from bench.kafka.topics import create
from bench.processor_time import own_seconds
from bench.recorded_queries import NoSink
from lab.kafka import Broker
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import FixedPlan
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.results import result_keys
from millrace_jobs.run.assembly import RunEnvironment, RunInputs, RunQuery
from millrace_jobs.run.loop import RunLoop
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sinks.outputs import open_sink
from millrace_jobs.sources.connector import open_source

WORKERS, REPLICAS = 4, 2
CONTENDERS = (PLAIN, "native", "hash", "pkg")

LONG = "120s"
"""A batch interval that no batch reaches, so that admission only grows, up to the limit of the source."""


@dataclass(frozen=True)
class TimedBatch:
    """One batch with records. ``processor_seconds`` is the processor time used up to its end."""

    rows: int
    seconds: float
    processor_seconds: float


@dataclass
class BatchCollector:
    """A watcher that records the batches of a run. The processor time of the process ``broker`` is not counted."""

    broker: int
    batches: list[TimedBatch] = field(default_factory=list)

    def add(self, rows: int, seconds: float) -> None:
        """Record a finished batch, unless it is empty."""
        if rows:
            self.batches.append(TimedBatch(rows, seconds, own_seconds(without={self.broker})))

    def batch(self, report: BatchReport) -> None:
        """Record a batch that Millrace reports."""
        self.add(report.rows, report.seconds)

    def message(self, text: str) -> None:
        """Print the message, since none is expected."""
        print(text)

    def idle(self, pin: Pin) -> None:
        """Do nothing: idle time is not measured."""


class Contenders:
    """A runner of ``QUERIES`` from a topic into a new topic, with a new checkpoint for each run."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self._spark, self._broker, self._folder = spark, broker, folder
        self._servers = broker.bootstrap

    def drain(self, contender: str, name: str, topic: str, per_batch: int) -> list[TimedBatch]:
        """Process everything in the topic, ``per_batch`` records to a batch, and return the batches in order.

        Millrace's admission control starts with smaller batches and reaches that number in several steps.
        """
        collector = BatchCollector(self._broker.pid)
        if contender == PLAIN:
            self._drain_plain(name, topic, per_batch, collector)
        else:
            resource = self._stream_query(name, topic, LONG, maxRecordsPerBatch=per_batch)
            _run_to_the_end(self._run_loop(resource, contender, collector, once=True))
        return collector.batches

    def read(self, contender: str, reading: str, topic: str, per_batch: int) -> list[TimedBatch]:
        """Read everything in the topic as rows by one of ``READINGS``, drop the rows, and return the batches."""
        collector = BatchCollector(self._broker.pid)
        if contender == PLAIN:
            messages = plain.raw(self._spark, self._servers, topic, per_batch)
            rows = messages.select("value") if reading == "raw" else plain.decoded(messages)
            writer = rows.writeStream.format("noop").option("checkpointLocation", self._new_folder().as_uri())
            plain.watch(self._spark, writer.trigger(availableNow=True), collector.add)
        else:
            resource = self._stream_query(reading, topic, LONG, maxRecordsPerBatch=per_batch)
            run = self._run_loop(resource, contender, collector, once=True)
            run.query = replace(run.query, sink=NoSink())
            _run_to_the_end(run)
        return collector.batches

    def follow(self, contender: str, name: str, topic: str, interval: str, produce: Callable[[], None]) -> Path:
        """Run the query while ``produce`` writes to the topic, until it has processed everything.

        Returns Spark's part of the checkpoint. Its logs show when each record was committed.
        """
        if contender == PLAIN:
            return self._follow_plain(name, topic, interval, produce)
        run = self._run_loop(
            self._stream_query(name, topic, interval), contender, BatchCollector(self._broker.pid), once=False
        )
        running_query = threading.Thread(target=_run_to_the_end, args=(run,))
        running_query.start()
        produce()
        while run.inputs.sources["s"].lag(_position(run.environment.checkpoint)):
            time.sleep(0.1)
        run.drain()
        running_query.join()
        return Path(str(run.environment.checkpoint.spark))

    def _drain_plain(self, name: str, topic: str, per_batch: int, collector: BatchCollector) -> None:
        records = plain.decoded(plain.raw(self._spark, self._servers, topic, per_batch))
        results = plain.results(records, query(name), DELAY)
        writer = plain.to_kafka(results, self._servers, self._new_topic(), self._new_folder())
        plain.watch(self._spark, writer.trigger(availableNow=True), collector.add)

    def _follow_plain(self, name: str, topic: str, interval: str, produce: Callable[[], None]) -> Path:
        checkpoint = self._new_folder()
        results = plain.results(plain.decoded(plain.raw(self._spark, self._servers, topic)), query(name), DELAY)
        writer = plain.to_kafka(results, self._servers, self._new_topic(), checkpoint)
        running = writer.trigger(processingTime=interval).start()
        try:
            produce()
            running.processAllAvailable()
        finally:
            running.stop()
        return checkpoint

    def _stream_query(self, name: str, topic: str, interval: str, **limits: object) -> StreamQuery:
        return stream_query(name, self._servers, (topic, self._new_topic()), self._new_folder(), interval, **limits)

    def _run_loop(self, resource: StreamQuery, algorithm: str, collector: BatchCollector, *, once: bool) -> RunLoop:
        spec = resource.spec
        checkpoint = Checkpoint(checkpoint_root(resource))
        checkpoint.open(resource)
        source = open_source("s", spec.sources["s"], checkpoint.source_folder("s"), self._folder / "cache")
        compiled = compile_query(self._spark, spec, {"s": source.schema})
        sink = open_sink(SinkContext(resource, result_keys(compiled, spec), checkpoint.id, _no_table))
        sink.prepare(checkpoint.last_batch())
        start = {"epoch": 1, "algorithm": algorithm, "replicas": REPLICAS, "parallelism": WORKERS}
        return RunLoop(
            RunQuery(resource.name, spec, compiled, sink),
            RunInputs({"s": source}),
            RunEnvironment(self._spark, checkpoint, self._new_folder()),
            plans=FixedPlan(Plan.model_validate(start)),
            watcher=collector,
            once=once,
        )

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder))

    def _new_topic(self) -> str:
        topic = f"results-{uuid.uuid4().hex[:12]}"
        create(self._servers, topic)
        return topic


def _run_to_the_end(run: RunLoop) -> None:
    try:
        run.run()
    finally:
        run.query.sink.close()
        run.environment.checkpoint.close()


def _position(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """Return the end position of the last finished batch, or an empty one before the first batch."""
    offsets = checkpoint.committed()
    position: dict[str, dict[str, int]] = dict(offsets["s"]["position"]) if offsets else {}
    return position


def _no_table(_: str, __: Sequence[str], ___: Sequence[Sequence[object]]) -> None:
    """Do nothing: no query here has a console sink."""
