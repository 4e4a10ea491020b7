"""Rows per second of the whole pipeline: plain Spark against routed plans, in one run on one machine.

    python -m bench.pipeline [--rows 1000000] [--batches 3] [--queries tumbling,hopping,python] [--json FILE]
    python -m bench.pipeline --emulate --workers 16 --replicas 4 --streams hot --queries python,heavy

Every plan reads the same recording through the same source, in batches of the same size. The first batch of each plan
is for warming up and does not count. Plain Spark is the query as a Spark user would write it: the same SQL, or
transformWithStateInPandas over the records for a Python aggregator. ``--emulate`` reports batch times as they would be
with a core for each task, from Spark's event log.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from bench.key_streams import zipf_shares
from bench.plain_spark import spark_results
from bench.recorded_queries import QUERIES, make_stream, recording, stream_query
from millrace_api.model.streamquery import Spec
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.pipeline.progress import BatchReport, batch_report
from millrace_jobs.plan.control import Control, Pin, write_control
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.reading import RunContext
from millrace_jobs.run.batch_settings import BatchSettings
from millrace_jobs.session import local_session
from millrace_jobs.sources.replay.connector import ReplaySource

KEYS = 200
STREAMS: Mapping[str, Callable[[], NDArray[np.float64]]] = {
    "uniform": lambda: zipf_shares(0.0, KEYS),
    "skewed": lambda: zipf_shares(1.2, KEYS),
    "hot": lambda: np.append(0.6 * zipf_shares(0.0, KEYS - 1), 0.4),
}
"""Shares of the keys, by stream."""

PLANS = ("spark", "native", "hash", "shuffle", "pkg")


@dataclass(frozen=True)
class PlanRun:
    """The counted batches of one plan. ``id`` is the id of Spark's query."""

    query: str
    stream: str
    plan: str
    id: str
    reports: list[BatchReport]

    def figure(self, waited: Mapping[tuple[str, int], float]) -> PlanFigure:
        """Return the figure of the run, without the seconds that batches waited for cores."""
        rates = [report.rows / (report.seconds - waited.get((self.id, report.batch), 0.0)) for report in self.reports]
        rows = _sums([report.worker_rows for report in self.reports])
        return PlanFigure(self.query, self.stream, self.plan, statistics.median(rates), rows)


@dataclass(frozen=True)
class PlanFigure:
    """The figure of one plan: median rows per second over its counted batches, and the load of its workers."""

    query: str
    stream: str
    plan: str
    rows_per_second: float
    worker_rows: tuple[int, ...]

    @property
    def imbalance(self) -> float | None:
        """Largest over mean load of a worker, less 1; None without loads."""
        return max(self.worker_rows) / statistics.mean(self.worker_rows) - 1 if sum(self.worker_rows) else None


class PipelineBench:
    """A benchmark that runs one plan after the other in one Spark session."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, batches: int, workers: int, replicas: int) -> None:
        self._spark = spark
        self._folder = folder
        self._rows = rows
        self._batches = batches
        self._workers = workers
        self._replicas = replicas

    def measure(self, query: str, stream: str, plan: str) -> PlanRun:
        """Run one query on one stream under one plan."""
        spec = stream_query(QUERIES[query]).spec
        source = self._source(stream)
        compiled = compile_query(self._spark, spec, {"s": source.schema})
        workspace = Path(tempfile.mkdtemp(dir=self._folder))
        algorithm = plan if plan != "spark" else "native"
        write_control(workspace / "control.json", Control(Pin(1, algorithm, self._replicas, self._workers)))
        context = RunContext(
            self._spark,
            {"s": source},
            workspace / "control.json",
            checkpoint=workspace / "cp",
            policies=workspace / "policies",
            everything=True,
        )
        results = self._results(compiled, spec, context, plan)
        by_spark = plan == "spark" or compiled.execution.is_per_record(context.sources, routed=plan != "native")
        BatchSettings({}).begin(results, per_record=by_spark)
        running = (
            results.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(workspace / "cp"))
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination()
        reports = [batch_report(json.loads(progress.json), 1.0) for progress in running.recentProgress]
        return PlanRun(query, stream, plan, str(running.id), [report for report in reports if report.rows][1:])

    def _results(self, compiled: CompiledQuery, spec: Spec, context: RunContext, plan: str) -> DataFrame:
        if plan != "spark":
            return compiled.build(spec, context, routed=plan != "native")
        if spec.query.python is not None:
            return spark_results(spec, context)
        assert spec.query.sql is not None
        as_written = CompiledQuery(Native(parsed_query(spec.query.sql), "plain Spark"), compiled.result, True)
        return as_written.build(spec, context, routed=False)

    def _source(self, stream: str) -> ReplaySource:
        path = self._folder / f"{stream}.parquet"
        if not path.exists():
            make_stream(path, self._rows * (self._batches + 1), STREAMS[stream](), self._rows)
        return recording(path, self._folder / "cache", self._rows)


def _sums(columns: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*columns, strict=True))


_BATCH = "streaming.sql.batchId"
_QUERY = "sql.streaming.queryId"


@dataclass
class _Stage:
    """The times of one stage, in milliseconds."""

    first: int = 1 << 62
    last: int = 0
    longest: int = 0

    @property
    def waited(self) -> int:
        """Milliseconds by which the stage would have ended sooner with a core for each task."""
        return max(self.last - self.first - self.longest, 0)


def log_settings(folder: Path) -> Mapping[str, str]:
    """Return the settings with which Spark writes its event log into ``folder``."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def seconds_waited(folder: Path) -> dict[tuple[str, int], float]:
    """Return the seconds by which each batch would have been shorter, by query id and batch number.

    With a core for each task, a stage takes as long as its longest task, without waves of tasks. The time between
    stages stays. A task runs on one core in the real run too, so it takes as long as it would then.
    """
    batch_of: dict[int, tuple[str, int]] = {}
    stages: defaultdict[int, _Stage] = defaultdict(_Stage)
    for event in _events(folder):
        if event["Event"] == "SparkListenerJobStart" and _BATCH in event["Properties"]:
            key = event["Properties"][_QUERY], int(event["Properties"][_BATCH])
            batch_of.update(dict.fromkeys(event["Stage IDs"], key))
        elif event["Event"] == "SparkListenerTaskEnd":
            stage, task = stages[event["Stage ID"]], event["Task Info"]
            stage.first = min(stage.first, task["Launch Time"])
            stage.last = max(stage.last, task["Finish Time"])
            stage.longest = max(stage.longest, task["Finish Time"] - task["Launch Time"])
    waited: defaultdict[tuple[str, int], float] = defaultdict(float)
    for number, stage in stages.items():
        if number in batch_of:
            waited[batch_of[number]] += stage.waited / 1000
    return waited


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.iterdir():
        with file.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def show(figures: list[PlanFigure], title: str, console: Console) -> None:
    """Print a table: rows per second, the ratio to plain Spark, and the load of each worker."""
    table = Table(title=title)
    for column in ("query", "stream", "plan", "rows/s", "x Spark", "imbalance", "rows by worker"):
        table.add_column(column, justify="right" if column in ("rows/s", "x Spark", "imbalance") else "left")
    base = {(figure.query, figure.stream): figure.rows_per_second for figure in figures if figure.plan == "spark"}
    for figure in figures:
        spark = base.get((figure.query, figure.stream))
        table.add_row(
            figure.query,
            figure.stream,
            figure.plan,
            f"{figure.rows_per_second:,.0f}",
            f"{figure.rows_per_second / spark:.2f}" if spark else "-",
            "-" if figure.imbalance is None else f"{figure.imbalance:.3f}",
            " ".join(f"{rows:,}" for rows in figure.worker_rows),
        )
    console.print(table)


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="records in a batch")
    parser.add_argument("--batches", type=int, default=3, help="batches that count")
    parser.add_argument("--queries", default="tumbling,hopping,python", help=f"of {', '.join(QUERIES)}")
    parser.add_argument("--streams", default="uniform,skewed", help=f"of {', '.join(STREAMS)}")
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--emulate", action="store_true", help="report batch times as with a core for each task")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder, log = Path(name), Path(name, "log")
        log.mkdir()
        settings = {"spark.sql.streaming.numRecentProgressUpdates": str(options.batches + 10)}  # for all batches
        partitions = options.workers if options.emulate else 2
        settings |= log_settings(log) if options.emulate else {}
        spark = local_session("bench", partitions, settings, folder, quiet=True)
        bench = PipelineBench(spark, folder, options.rows, options.batches, options.workers, options.replicas)
        for query in options.queries.split(","):
            for stream in options.streams.split(","):
                for plan in options.plans.split(","):
                    runs.append(bench.measure(query, stream, plan))
                    print(
                        f"{query} {stream} {plan}: {runs[-1].figure({}).rows_per_second:,.0f} rows/s", file=sys.stderr
                    )
        spark.stop()
        waited = seconds_waited(log)
    figures = [run.figure(waited) for run in runs]
    cores = "a core for each task" if options.emulate else f"{os.cpu_count()} cores"
    show(
        figures, f"n={options.workers} workers, m={options.replicas} replicas, {KEYS} keys, {cores}", Console(width=120)
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


if __name__ == "__main__":
    main()
