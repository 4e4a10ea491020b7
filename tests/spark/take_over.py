"""Run the versions of a query one after the other in this process, as a driver does, and perhaps kill it at a step.

    python -m spark.take_over FOLDER [STEP]

The versions are the YAML files of the folder, in the order of their names. Each but the last gives way after a few
batches, and the last one ends when there is nothing left to read. The step is one of the second version.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.commands.run import run_job
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.query_file import query_of
from millrace_jobs.session import following_session

BATCHES = 3
"""Batches with records of each version before it gives way."""

STEPS = {
    "before the new version opens the checkpoint": "millrace_jobs.run.job.open_checkpoint",
    "before its query is compiled": "millrace_jobs.run.job.prepare_query",
    "before the checkpoint is its own": "millrace_jobs.checkpoint.checkpoint.Checkpoint.adopt",
    "before its first batch": "millrace_jobs.run.loop.RunLoop._begin",
    "before its first results are written": "millrace_jobs.sinks.files.sink.FilesSink.write",
    "after its first results are written": "millrace_jobs.run.observer.Observer.batch",
}
"""Functions that the second version does not call any more."""


class Versions(OneProcess):
    """A platform on which another version takes over, with Spark as it is."""

    def __init__(self, files: list[Path]) -> None:
        super().__init__()
        self._files = files
        self._spark: SparkSession | None = None
        self._give_way: Callable[[], None] = lambda: None
        self._batches = 0
        self.begun = 0
        """Number of versions that have begun."""
        self._job: Job | None = None

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        before = self._spark
        made = super().session(query, partitions, workspace, quiet=quiet) if before is None else None
        self._spark = made or following_session(before, partitions)  # type: ignore[arg-type]
        return self._spark

    def when_replaced(self, give_way: Callable[[], None]) -> None:
        self._give_way, self._batches = give_way, 0

    def batch(self, report: BatchReport) -> None:
        self._batches += bool(report.rows)
        if self._batches == BATCHES and self._files:
            self._give_way()

    def idle(self, pin: Pin) -> None:
        if self._job is not None and not self._files:
            self._job.stop()

    def next_job(self) -> Job | None:
        self.begun += 1
        self._job = Job(query_of(self._files.pop(0)), self, debug=True) if self._files else None
        return self._job


def dies_in_the_second(step: str, platform: Versions) -> Any:
    """Replace the function of a step by one that kills this process once the second version has begun."""
    where, _, name = STEPS[step].rpartition(".")
    module, _, owner = where.rpartition(".")
    in_class = owner[:1].isupper()
    target = getattr(import_module(module), owner) if in_class else import_module(where)
    inner = getattr(target, name)

    def step_or_death(*arguments: Any, **more: Any) -> Any:
        if platform.begun >= 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*arguments, **more)

    return patch.object(target, name, step_or_death)


def main(folder: Path, step: str | None) -> None:
    """Run the versions of a folder."""
    platform = Versions(sorted(folder.glob("*.yaml")))

    def first() -> Job:
        job = platform.next_job()
        assert job is not None
        return job

    if step is None:
        run_job(first, 25.0, platform.next_job)
        return
    with dies_in_the_second(step, platform):
        run_job(first, 25.0, platform.next_job)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
