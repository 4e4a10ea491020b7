"""A query with its inbox, checkpoint and results in one folder, run as often as a test needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyspark.sql import SparkSession

from millrace_api.model.plan import Plan
from millrace_api.sql.nested_times import with_flat_times
from millrace_api.validation.loading import load_queries
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.plan_source import FixedPlan, PlanSource
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.execution import Execution
from millrace_jobs.queries.results import require_partitions, result_keys
from millrace_jobs.run.assembly import RunEnvironment, RunInputs, RunQuery
from millrace_jobs.run.loop import RunLoop
from millrace_jobs.sinks.base import ResultKeys, Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sinks.files.changelog import BATCH_ID
from millrace_jobs.sinks.outputs import open_sink
from millrace_jobs.sources.connector import open_source

from .feeding import Arrival, Feeder

Placing = tuple[str, int, int]
"""Algorithm, workers n, replicas m."""

COMBINATIONS = [(n, m) for n in (1, 2, 7, 16) for m in (1, 3)]

FOREVER = "30000d"
"""A watermark delay long enough that no record is late."""


def plan(epoch: int, placing: Placing) -> Plan:
    """Return the plan of one batch."""
    algorithm, n, m = placing
    return Plan.model_validate({"epoch": epoch, "algorithm": algorithm, "parallelism": n, "replicas": m})


def stream_document(
    folder: Path,
    *,
    schema: str,
    sql: str = "",
    aggregates: dict[str, Any] | None = None,
    python: dict[str, Any] | None = None,
    watermark: tuple[str, str] | None = None,
    emit: str = "OnUpdate",
    sink: dict[str, Any] | None = None,
    others: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    **files: Any,
) -> dict[str, Any]:
    """Return a StreamQuery over the files that arrive in ``folder/inbox``, one per batch.

    ``others`` are further sources that read the same files, each with what it has beside the fields of the first one.
    """
    source: dict[str, Any] = {
        "files": {"path": str(folder / "inbox"), "format": "parquet", "maxFilesPerBatch": 1} | files,
        "schema": schema,
    }
    timestamps = source["files"].pop("timestampFormat", None)
    if timestamps:
        source["timestampFormat"] = timestamps
    if watermark is not None:
        source["watermark"] = {"column": watermark[0], "delay": watermark[1]}
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "stream"},
        "spec": {
            "sources": {"events": source} | {name: source | own for name, own in others.items()},
            "query": ({"sql": sql} if sql else {"python": python}) | ({"aggregates": aggregates} if aggregates else {}),
            "sink": sink or {"files": {"path": str(folder / "results")}},
            "emit": emit,
            "batchInterval": "50ms",
            "parallelism": {"max": 16},
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
        },
    }


class Stream:
    """One query and everything that it leaves behind."""

    def __init__(self, spark: SparkSession, folder: Path, **query: Any) -> None:
        self._spark = spark
        self._folder = folder
        self._epoch = 0
        self.messages: list[str] = []
        self.execution: Execution | None = None
        self.state_partitions = 0
        (folder / "inbox").mkdir(parents=True)
        self._file = folder / "query.yaml"
        self._file.write_text(yaml.safe_dump(stream_document(folder, **query)), encoding="utf-8")
        (self.query,) = load_queries(self._file)

    def sink(self) -> Sink:
        """The query's sink, for tests to wrap."""
        checkpoint = Checkpoint(checkpoint_root(self.query))
        checkpoint.open(self.query)
        checkpoint.close()
        return open_sink(SinkContext(self.query, ResultKeys(), checkpoint.id, _no_table))

    def feed(self, batches: Sequence[tuple[Placing, bytes]], sink: Sink | None = None) -> list[BatchReport]:
        """Run the query over these files, each in its own batch under its plan, and drain the run."""
        arrivals = []
        for placing, content in batches:
            self._epoch += 1
            arrivals.append(Arrival(plan(self._epoch, placing), content))
        feeder = Feeder(arrivals, self._folder / "inbox", self._folder / "control.json", lambda: run.drain())
        self.messages = feeder.messages
        run = self._run(feeder, feeder, sink=sink)
        self._finish(run)
        return feeder.reports

    def feed_in_a_process_that_dies(self, placing: Placing, content: bytes, program: str = "spark.die_in_batch") -> int:
        """Start a batch in a process that kills itself before the batch is done, and return its exit status."""
        self._epoch += 1
        (self._folder / "inbox" / f"{self._epoch:06d}").write_bytes(content)
        plan_file = self._folder / "plan.yaml"
        plan_file.write_text(plan(self._epoch, placing).to_json(), encoding="utf-8")
        script = [sys.executable, "-m", program, self._file, plan_file]
        # the output ends with the last process that writes to it, which is the JVM
        return subprocess.run(script, stdout=subprocess.PIPE, timeout=300, check=False).returncode

    def close_windows(self, placing: Placing) -> list[BatchReport]:
        """Run the query again without new records, until all windows are closed."""
        self._epoch += 1
        feeder = Feeder([], self._folder, self._folder, lambda: None)
        self._finish(self._run(FixedPlan(plan(self._epoch, placing)), feeder, once=True))
        return feeder.reports

    def results(self) -> pa.Table:
        """Return all rows in the sink."""
        return results_in(self._folder)

    def _run(self, plans: PlanSource, feeder: Feeder, *, sink: Sink | None = None, once: bool = False) -> RunLoop:
        spec = with_flat_times(self.query.spec)
        checkpoint = Checkpoint(checkpoint_root(self.query))
        checkpoint.open(self.query)
        sources = {
            name: open_source(name, source, checkpoint.source_folder(name), self._folder / "cache")
            for name, source in self.query.spec.sources.items()
        }
        planned = compile_query(self._spark, spec, {name: source.schema for name, source in sources.items()})
        require_partitions(planned.execution, spec)
        self.execution, self.state_partitions = planned.execution, checkpoint.state_partitions
        partitions = planned.execution.result_partitions(checkpoint.state_partitions)
        sink = sink or open_sink(
            SinkContext(self.query, result_keys(planned, spec), checkpoint.id, _no_table, partitions=partitions)
        )
        sink.prepare(checkpoint.last_batch())
        return RunLoop(
            RunQuery(self.query.name, spec, planned, sink),
            RunInputs(sources),
            RunEnvironment(self._spark, checkpoint, self._folder),
            plans=plans,
            watcher=feeder,
            once=once,
        )

    def _finish(self, run: RunLoop) -> None:
        try:
            run.run()
        finally:
            run.query.sink.close()
            run.environment.checkpoint.close()


def results_in(folder: Path) -> pa.Table:
    """Return all rows in the sink of the query in this folder; times are in UTC, without that zone."""
    files = sorted((folder / "results").glob("batch-*.parquet"))
    if not files:
        return pa.table({BATCH_ID: pa.array([], pa.int64())})
    rows = pa.concat_tables(pq.read_table(file) for file in files)
    plain = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field for field in rows.schema
    ]
    return rows.cast(pa.schema(plain))


def assert_placed(reports: Sequence[BatchReport], placings: Sequence[Placing]) -> None:
    """Check that each batch with records ran under its plan, and that its workers got all routed records."""
    busy = [report for report in reports if report.rows]
    pins = [report.pin for report in busy]
    assert [(pin.algorithm, pin.workers, pin.replicas) for pin in pins if pin is not None] == list(placings)
    for report, (algorithm, n, m) in zip(busy, placings, strict=True):
        if algorithm != "native":
            assert len(report.worker_rows) == n
            assert len(report.route) == m
            assert sum(report.worker_rows) > 0
            assert algorithm != "shuffle" or min(report.worker_rows) > 0


def _no_table(*_: object) -> None:
    raise AssertionError("nothing is shown in the terminal")
