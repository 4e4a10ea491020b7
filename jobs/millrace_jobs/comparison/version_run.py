"""One run of a comparison: a version of a query on the batches that the first run decides.

It has a process of its own (``commands.compare``), since both versions can have modules of their own with one name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from pyspark.sql import SparkSession
from rich.console import Console

from millrace_api.errors import Problem
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.spark_settings import settings_of
from millrace_jobs.comparison.fixed_batches import (
    BATCHES,
    LEAST_RECORDS,
    BatchEnds,
    FirstSource,
    LaterSource,
    positions_in,
)
from millrace_jobs.comparison.kept_results import KeptFolder, KeptOutput, ResultKeeper
from millrace_jobs.comparison.scratch_query import scratch_query
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.places import write_durably
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.endpoints import Endpoints
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.session import TASK_ATTEMPTS, local_session
from millrace_jobs.sinks.base import ResultKeys, Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sources.base import Source


@dataclass(frozen=True)
class VersionTask:
    """What a run of a comparison has to know; stored as JSON.

    Attributes:
        file: the query's file.
        query: its name in the file.
        name: the name that both versions have in the comparison.
        connections: files with Connections.
        folder: the folder of this run; ``checkpoint`` in it may exist already.
        ends: file with the ends of the batches, which the first run writes.
        is_first: whether this run decides the batches.
        records: the number of records after which the first run ends.
        seconds: the time after which the first run ends; None for no limit.
        from_beginning: whether to read topics and tables from their beginning where the query would begin at their end.
        in_pod: whether the file is the operator's, and the run takes the cores of one executor.
    """

    file: str
    query: str
    name: str
    connections: Sequence[str]
    folder: str
    ends: str
    is_first: bool
    records: int
    seconds: float | None
    from_beginning: bool
    in_pod: bool = False

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the task in a file."""
        return cls(**json.loads(file.read_text(encoding="utf-8")))

    def write(self, file: Path) -> None:
        """Write the task to a file."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @property
    def checkpoint(self) -> Path:
        """The folder of the run's checkpoint."""
        return Path(self.folder, "checkpoint")

    @property
    def results(self) -> KeptFolder:
        """The results of the run."""
        return KeptFolder(Path(self.folder, "results"))

    @property
    def waiting_file(self) -> Path:
        """File with the number of records, or files, that wait in each source; the first run writes it."""
        return Path(self.folder, "waiting.json")

    @property
    def outcome_file(self) -> Path:
        """File with the outcome of the run."""
        return Path(self.folder, "outcome.json")


@dataclass(frozen=True)
class ComparedBatch:
    """A finished batch: its records, the seconds that they took without looking for more, and the late ones."""

    number: int
    rows: int
    seconds: float
    late: int
    rejected: int


@dataclass(frozen=True)
class VersionOutcome:
    """How a run of a comparison has ended: its batches, or why it failed."""

    batches: tuple[ComparedBatch, ...] = ()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the outcome in a file. Raises FileNotFoundError if the run has died."""
        found = json.loads(file.read_text(encoding="utf-8"))
        return cls(
            tuple(ComparedBatch(**each) for each in found["batches"]),
            tuple(Problem(**each) for each in found["problems"]),
        )

    def write(self, file: Path) -> None:
        """Write the outcome to a file in one step."""
        write_durably(file, json.dumps(asdict(self)).encode())

    @property
    def rows(self) -> int:
        """The number of records read."""
        return sum(batch.rows for batch in self.batches)


@dataclass
class _Endpoints(Endpoints):
    """The sources of a comparison, and the sink that keeps its results."""

    task: VersionTask
    enough: Path
    has_lookups = False
    _checkpoint: Checkpoint | None = None

    def sources(self, spec: Spec, checkpoint: Checkpoint, workspace: Path) -> Mapping[str, Source]:
        """Open the sources, with the batches of the comparison."""
        self._checkpoint = checkpoint
        opened = super().sources(spec, checkpoint, workspace)
        if self.task.is_first:
            return self._first(opened, checkpoint)
        ends = BatchEnds.read(Path(self.task.ends))
        return {name: LaterSource(source, ends, self.task.checkpoint) for name, source in opened.items()}

    def _first(self, opened: Mapping[str, Source], checkpoint: Checkpoint) -> dict[str, Source]:
        """Return sources that end where they end now, and write how much that is."""
        reached = {name: offset["position"] for name, offset in checkpoint.committed().items()}
        wrapped: dict[str, Source] = {}
        waiting = {}
        for name, source in opened.items():
            start = reached.setdefault(name, source.initial())
            ready = source.latest(start, everything=True)
            known = source.most_records(start, ready)
            behind = source.lag(ready)
            waiting[name] = {"records": None if known is None else known + behind, "units": source.lag(start)}
            most = min(self.task.records if known is None else known + behind, self.task.records) // BATCHES
            wrapped[name] = FirstSource(source, max(most, LEAST_RECORDS), self.enough)
        BatchEnds.add(Path(self.task.ends), reached)
        write_durably(self.task.waiting_file, json.dumps(waiting).encode())
        return wrapped

    def check_sinks(self, spec: Spec) -> None:
        """Check nothing: the sinks of the query are not used."""

    def server_checks(self, spec: Spec) -> Iterator[Callable[[], None]]:
        """Return no checks: the sinks of the query are not used."""
        return iter(())

    def sink(self, compiled: CompiledQuery, keys: Mapping[str, ResultKeys], context: SinkContext) -> Sink:
        """Return the sink that keeps the results."""
        outputs = context.query.spec.outputs
        kept = [KeptOutput.of(field, compiled, keys[field], spec) for field, spec in outputs.items()]
        return ResultKeeper(self.task.results.path, compiled.result, kept, self._begin)

    def _begin(self) -> None:
        """Note where the batch ends that is about to be computed."""
        assert self._checkpoint is not None
        if self.task.is_first:
            BatchEnds.add(Path(self.task.ends), positions_in(list(self._checkpoint.begun().values())))


_IN_POD = {"spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true"}
"""Settings of a run in a pod: all its state stores together have memory as of Spark's default, 500 MiB."""


def _cores(spec: Spec) -> int:
    return max(spec.executors.cores.slots, 1)


@dataclass
class _Platform(OneProcess):
    """This process, which times the batches, and ends the first run when it has read enough."""

    task: VersionTask | None = None
    enough: Path = Path()
    batches: list[ComparedBatch] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def state_partitions(self, spec: Spec) -> int:
        """Return the number of state partitions that suits the cores of the run."""
        return spec.state_partitions(_cores(spec)) if self._in_pod else super().state_partitions(spec)

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """Return a local Spark session; that of a pod has the cores of an executor: a node has more than its own."""
        settings = settings_of(query)
        if self._in_pod:
            own = {"spark.master": f"local[{_cores(query.spec)}, {TASK_ATTEMPTS}]"}
            settings = own | _IN_POD | settings
        return local_session(query.name, partitions, settings, workspace, quiet=quiet)

    @property
    def _in_pod(self) -> bool:
        return self.task is not None and self.task.in_pod

    def copies(self, checkpoint: Checkpoint) -> None:
        """Return no folder: rows are not looked up."""

    def batch(self, report: BatchReport) -> None:
        """Note a finished batch."""
        seconds = sum(report.steps.values()) - report.steps.get("latestOffset", 0.0)
        self.batches.append(ComparedBatch(report.batch, report.rows, seconds, report.late, report.rejected))
        assert self.task is not None
        limit = self.task.seconds
        is_long = limit is not None and time.monotonic() - self._began > limit
        if self.task.is_first and (is_long or sum(each.rows for each in self.batches) >= self.task.records):
            self.enough.touch()


def run_version(given: StreamQuery, task: VersionTask) -> VersionOutcome:
    """Run a version of a query, as its file has it, to the end of the comparison's batches.

    Raises:
        MillraceError: it cannot run, or fails.
    """
    folder = Path(task.folder)
    query = scratch_query(given, task.name, task.checkpoint, from_beginning=task.from_beginning)
    enough = folder / "enough"
    platform = _Platform(task=task, enough=enough)
    with (folder / "log").open("w", encoding="utf-8") as log:
        console = Console(file=log, width=200)
        endpoints = _Endpoints(task, enough)
        with Job(query, platform, once=True, console=console, endpoints=endpoints) as job:
            job.run()
    return VersionOutcome(tuple(platform.batches))
