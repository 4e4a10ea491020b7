"""A query that runs in this process while a test writes to its topic, one transaction per batch."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from lab.kafka import Broker
from lab.topics import PATIENCE
from millrace_api.validation.loading import load_queries
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
from spark.streams import Placing, plan


class LiveQuery:
    """A query over the source ``events``, a topic with one partition.

    A transaction on one partition becomes visible as a whole, so that what ``give`` writes is one batch.
    """

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, document: dict[str, Any]) -> None:
        file = folder / "query.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        (self.query,) = load_queries(file)
        self._spark = spark
        self._folder = folder
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": str(folder)})
        self._producer.init_transactions(PATIENCE)
        self._topic = document["spec"]["sources"]["events"]["kafka"]["topic"]
        self._epoch = 0

    def run(self, placing: Placing, *, once: bool = False) -> LiveRun:
        """Start a run on the query's checkpoint, under one plan."""
        self._epoch += 1
        return LiveRun(self._run_loop(placing, once=once), self)

    def write(self, values: Sequence[str]) -> None:
        """Write records in one transaction."""
        self._producer.begin_transaction()
        for value in values:
            self._producer.produce(self._topic, value)
        self._producer.commit_transaction(PATIENCE)

    def _run_loop(self, placing: Placing, *, once: bool) -> RunLoop:
        spec = self.query.spec
        checkpoint = Checkpoint(checkpoint_root(self.query))
        checkpoint.open(self.query)
        state = checkpoint.source_folder("events")
        source = open_source("events", spec.sources["events"], state, self._folder / "cache")
        planned = compile_query(self._spark, spec, {"events": source.schema})
        partitions = checkpoint.state_partitions
        sink = open_sink(
            SinkContext(self.query, result_keys(planned, spec), checkpoint.id, lambda *_: None, partitions=partitions)
        )
        sink.prepare(checkpoint.last_batch())
        return RunLoop(
            RunQuery(self.query.name, spec, planned, sink),
            RunInputs({"events": source}),
            RunEnvironment(self._spark, checkpoint, self._folder),
            plans=FixedPlan(plan(self._epoch, placing)),
            watcher=_Reports(),
            once=once,
        )


class LiveRun:
    """One run, as a context manager that drains it at the end."""

    def __init__(self, run: RunLoop, live: LiveQuery) -> None:
        self.reports: list[BatchReport] = []
        self._run = run
        self._live = live
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._go, daemon=True)

    def __enter__(self) -> LiveRun:
        self._thread.start()
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._run.drain()
        self.wait()

    def give(self, values: Sequence[str]) -> None:
        """Write records, and wait for the batch that reads them."""
        self._live.write(values)
        while True:
            report = self._next()
            if report.rows:
                assert report.rows == len(values)
                return

    def wait(self) -> None:
        """Wait until the run has ended, and add its last batches to ``reports``."""
        self._thread.join()
        while not self._queue.empty():
            self.reports.append(self._queue.get())
        if self._failure is not None:
            raise self._failure

    @property
    def _queue(self) -> queue.Queue[BatchReport]:
        watcher = self._run.watcher
        assert isinstance(watcher, _Reports)
        return watcher.reports

    def _next(self) -> BatchReport:
        while True:
            try:
                self.reports.append(self._queue.get(timeout=1))
                return self.reports[-1]
            except queue.Empty:
                assert self._thread.is_alive(), self._failure

    def _go(self) -> None:
        try:
            self._run.run()
        except BaseException as failure:
            self._failure = failure
        finally:
            self._run.query.sink.close()
            self._run.environment.checkpoint.close()


class _Reports:
    """A watcher that hands reports to a test in another thread."""

    def __init__(self) -> None:
        self.reports: queue.Queue[BatchReport] = queue.Queue()

    def batch(self, report: BatchReport) -> None:
        self.reports.put(report)

    def message(self, text: str) -> None:
        print(text)

    def idle(self, pin: Pin) -> None:
        pass
