"""Attempts of tasks that write a partition by a transaction of their own, with faults; imported by Spark's tasks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from lab.processes import command_of
from millrace_jobs.sinks.kafka.partition_writer import PartitionWriter

FAULT, MARKS = "MILLRACE_TEST_FAULT", "MILLRACE_TEST_MARKS"
"""Variables of the tasks: what happens, and the folder of the marks by which attempts know of each other."""

CUT_OFF = "what came before the executor died has passed for the whole input"
"""The mark of ``outlive``; it shows that only a check of the end of the input keeps a part from being committed."""

PATIENCE = 60.0


@dataclass(frozen=True)
class FaultyWriter(PartitionWriter):
    """A writer whose first attempt to write partition 0 has a fault."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        fault = FAULTS.get(os.environ[FAULT])
        if fault is None or context.partitionId() != 0:
            return super().__call__(batches)
        marks = Path(os.environ[MARKS])
        is_first = not any(marks.iterdir())
        (marks / f"attempt {context.taskAttemptId()}").touch()
        if not is_first and fault is not meet:
            return super().__call__(batches)
        return fault(super().__call__, batches)


Write = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def fail_when_written(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail after the commit."""
    list(write(batches))
    raise RuntimeError("as the test wants it, after the commit")


def die_when_written(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Kill the executor after the commit."""
    list(write(batches))
    os.kill(_executor(), signal.SIGKILL)
    time.sleep(PATIENCE)
    yield from ()


def outlive(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Kill the executor in the middle of the input, and go on with what has come."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # by which Spark's daemon ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def cut() -> Iterator[pa.RecordBatch]:
        yield next(batches)
        os.kill(_executor(), signal.SIGKILL)
        yield from batches
        (Path(os.environ[MARKS]) / CUT_OFF).touch()

    yield from write(cut())


def meet(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Wait in the middle of the transaction until two attempts are there."""
    marks = Path(os.environ[MARKS])

    def meeting() -> Iterator[pa.RecordBatch]:
        yield next(batches)
        deadline = time.monotonic() + PATIENCE
        while len(list(marks.iterdir())) < 2:
            assert time.monotonic() < deadline, "no other attempt has begun"
            time.sleep(0.05)
        yield from batches

    yield from write(meeting())


FAULTS = {each.__name__: each for each in (fail_when_written, die_when_written, outlive, meet)}


@dataclass(frozen=True)
class DyingWriter(PartitionWriter):
    """A writer that kills the local driver when one partition is written, and lets no other be written before."""

    driver: int = field(default_factory=os.getpid)
    turn: str = field(default_factory=lambda: os.environ[MARKS])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                Path(self.turn).mkdir()
                break
            except FileExistsError:
                time.sleep(0.05)
        if list(super().__call__(batches)):
            for process in (*_java_of(self.driver), self.driver):
                os.kill(process, signal.SIGKILL)
            time.sleep(PATIENCE)
        Path(self.turn).rmdir()
        yield from ()


def _java_of(driver: int) -> list[int]:
    """Return the process ids of the JVMs that a process has started."""
    processes = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return [each for each in processes if _parent(each) == driver and "SparkSubmit" in command_of(each)]


def _parent(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended
        return 0


def _executor() -> int:
    """Return the process id of the executor's JVM, whose child's child this process is."""
    process = os.getpid()
    while "CoarseGrainedExecutorBackend" not in command_of(process):
        process = _parent(process)
    return process
