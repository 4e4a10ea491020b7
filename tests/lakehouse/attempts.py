"""Attempts of a task of which two write, or whose executor dies once it has written; imported by Spark's tasks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from lab.processes import command_of
from millrace_jobs.sinks.files.object_writing import ObjectsWriter
from millrace_jobs.sinks.lakehouse.data_files import FileWriter

FAULT, MARKS = "MILLRACE_TEST_FAULT", "MILLRACE_TEST_MARKS"
"""Variables of the tasks: what happens, and the folder of the marks by which attempts know of each other."""

SPECULATION, LOSS, NONE = "speculation", "loss", "none"
PATIENCE = 60.0


class FaultyFileWriter(FileWriter):
    """A writer whose attempts meet, or die, when their files are complete."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return faulty(super().__call__(batches))


class FaultyObjectsWriter(ObjectsWriter):
    """The same for objects with results."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return faulty(super().__call__(batches))


def faulty(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task once all of them are there and its fault has happened."""
    found = list(batches)
    context, marks = TaskContext.get(), Path(os.environ[MARKS])
    assert context is not None
    fault = os.environ[FAULT]
    if fault != NONE and context.partitionId() == 0:
        is_first = not any(marks.iterdir())
        (marks / f"written by attempt {context.taskAttemptId()}").touch()
        if fault == LOSS and is_first:
            os.kill(_executor(), signal.SIGKILL)
        if fault == SPECULATION:
            deadline = time.monotonic() + PATIENCE
            while len(list(marks.iterdir())) < 2:
                assert time.monotonic() < deadline, "no other attempt has begun"
                time.sleep(0.05)
    yield from found


def _executor() -> int:
    """Return the process id of the executor's JVM, whose child's child this process is."""
    process = os.getpid()
    while "CoarseGrainedExecutorBackend" not in command_of(process):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process
