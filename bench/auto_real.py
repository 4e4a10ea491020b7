"""``auto`` and fixed choices as queries in Spark, in six corners of the grid: seconds per batch on this machine."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.key_streams import zipf_shares
from bench.recorded_queries import QUERIES, make_stream, recording, run_to_the_end, stream_query
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import FixedPlan
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.run.plans import AutoPlans, first_algorithm
from millrace_jobs.selection.costs import Resources
from millrace_jobs.selection.selector import CANDIDATES
from millrace_jobs.session import local_session
from millrace_jobs.sources.replay.connector import ReplaySource

KEYS = 20_000
REPLICAS = 2
WARM_UP = 2
COUNTED = 4
AUTO_BATCHES = 24
"""Batches that ``auto`` runs. Only the last ``COUNTED`` of them count."""


@dataclass(frozen=True)
class Corner:
    """A query over a stream with some skew on ``workers`` workers, with ``share`` of the usual records per batch."""

    query: Mapping[str, object]
    skew: float
    workers: int
    share: float = 1.0


CORNERS = {
    "cheap-uniform-4": Corner(QUERIES["tumbling"], 0.0, 4),
    "cheap-skewed-64": Corner(QUERIES["tumbling"], 2.0, 64),
    "hopping-uniform-4": Corner(QUERIES["hopping"], 0.0, 4, share=0.2),
    "heavy-uniform-4": Corner(QUERIES["heavy"], 0.0, 4, share=0.2),
    "heavy-skewed-4": Corner(QUERIES["heavy"], 2.0, 4, share=0.2),
    "heavy-skewed-64": Corner(QUERIES["heavy"], 2.0, 64, share=0.2),
}


@dataclass(frozen=True)
class CornerFigure:
    """Median seconds of the counted batches. ``chosen`` is the algorithm that ``auto`` ended with."""

    corner: str
    plan: str
    seconds: float
    chosen: str = ""
    switches: tuple[str, ...] = ()


@dataclass
class ReportCollector:
    """A watcher that keeps the reports of a run and passes each on to ``auto``."""

    auto: AutoPlans | None = None
    reports: list[BatchReport] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def batch(self, report: BatchReport) -> None:
        """Keep a report with records, and pass every report on to ``auto``."""
        if report.rows:
            self.reports.append(report)
        if self.auto is not None:
            self.auto.observe(report)

    def message(self, text: str) -> None:
        """Keep the message."""
        self.messages.append(text)

    def idle(self, pin: Pin) -> None:
        """Do nothing: idle time is not measured."""


class CornerBench:
    """A benchmark that runs one plan after the other in one Spark session."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self._spark, self._folder, self._rows = spark, folder, rows

    def measure(self, name: str, plan: str) -> CornerFigure:
        """Run a corner's query under one plan, or under ``auto``."""
        corner = CORNERS[name]
        rows = int(self._rows * corner.share)
        batches = AUTO_BATCHES if plan == "auto" else WARM_UP + COUNTED
        source = self._source(corner, rows, batches)
        query = stream_query(corner.query, parallelism={"initial": corner.workers, "max": 64})
        compiled = compile_query(self._spark, query.spec, {"s": source.schema})
        first = first_algorithm(compiled.execution) if plan == "auto" else Algorithm(plan)
        start = Plan(epoch=1, algorithm=first, replicas=REPLICAS, parallelism=corner.workers)
        collector = ReportCollector()
        checkpoint = Checkpoint(Path(tempfile.mkdtemp(dir=self._folder)))
        checkpoint.open(query)
        if plan == "auto":
            resources = Resources(os.cpu_count() or 1, checkpoint.state_partitions)
            choice = compiled.execution.choice
            assert choice is not None
            collector.auto = AutoPlans(FixedPlan(start), first, choice, lambda: resources, collector.message)
        plans = collector.auto or FixedPlan(start)
        run_to_the_end(self._spark, query, compiled, source, checkpoint, plans, collector)
        seconds = statistics.median(report.seconds for report in collector.reports[-COUNTED:])
        chosen = collector.auto.selector.algorithm if collector.auto is not None else plan
        return CornerFigure(name, plan, seconds, chosen, tuple(m for m in collector.messages if m.startswith("auto")))

    def _source(self, corner: Corner, rows: int, batches: int) -> ReplaySource:
        path = self._folder / f"{corner.skew}-{rows}-{batches}.parquet"
        if not path.exists():
            make_stream(path, rows * batches, zipf_shares(corner.skew, KEYS), rows)
        return recording(path, self._folder / "cache", rows)


def run_corners(rows: int, corners: Sequence[str] | None, plans: Sequence[str] | None, file: Path | None) -> None:
    """Run the corners, all by default, and print their figures. ``auto`` runs last in each corner."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder = Path(name)
        spark = local_session("bench", 4, {}, folder, quiet=True)
        bench = CornerBench(spark, folder, rows)
        for corner in corners or CORNERS:
            for plan in [*(plans or CANDIDATES), "auto"]:
                figures.append(bench.measure(corner, plan))
                print(json.dumps(asdict(figures[-1])), file=sys.stderr, flush=True)
        spark.stop()
    show(figures, Console(width=140))
    if file:
        file.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))


def show(figures: Sequence[CornerFigure], console: Console) -> None:
    """Print seconds per batch and their ratio to the best fixed choice."""
    table = Table(title="auto against fixed choices, as queries in Spark")
    for column in ("corner", "plan", "s/batch", "x best", "chosen"):
        table.add_column(column, justify="right" if column in ("s/batch", "x best") else "left")
    for figure in figures:
        fixed = [one.seconds for one in figures if one.corner == figure.corner and one.plan != "auto"]
        ratio = f"{figure.seconds / min(fixed):.2f}" if fixed else "-"
        chosen = figure.chosen if figure.plan == "auto" else ""
        table.add_row(figure.corner, figure.plan, f"{figure.seconds:.2f}", ratio, chosen)
    console.print(table)
    for figure in figures:
        for text in figure.switches:
            console.print(f"{figure.corner}: {text}")
