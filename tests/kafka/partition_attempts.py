"""Attempts of tasks that write a partition by a transaction of their own, with faults; imported by Spark's tasks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext

from lab.processes import command_of
from millrace_jobs.sinks.kafka import partition_writer, transactions
from millrace_jobs.sinks.kafka.partition_writer import PartitionWriter, require_whole
from millrace_jobs.sinks.kafka.transactions import PartitionTransactions

FAULT, MARKS = "MILLRACE_TEST_FAULT", "MILLRACE_TEST_MARKS"
"""Variables of the tasks: what happens, and the folder of the marks by which attempts know of each other."""

ATTEMPT = "attempt "
"""What the marks of attempts to write partition 0 begin with."""

CUT_OFF = "what came before the executor died has passed for the whole input"
"""The mark of ``outlive``; it shows that only a check of the end of the input keeps a part from being committed."""

HANGS, GOES_ON = "hangs", "goes on"
"""Marks of an attempt that is cut off: its process and that of its executor, and that it may go on."""

REFUSED, COMMITTED = "refused", "committed"
"""Marks of how it ended."""

OTHERS, WRITTEN = "others", "written"
"""Marks of the other attempts: that they may begin, and that one has written."""

PATIENCE = 60.0
_TRANSACTION_SECONDS = 6
_HANGING_SECONDS = 240.0


@dataclass(frozen=True)
class FaultyWriter(PartitionWriter):
    """A writer whose first attempt to write partition 0 has a fault."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        fault = FAULTS.get(os.environ[FAULT])
        if fault is None or context.partitionId() != 0:
            return super().__call__(batches)
        is_first = not any(_marks().iterdir())
        (_marks() / f"{ATTEMPT}{context.taskAttemptId()}").touch()
        if is_first or fault is meet:
            return fault(super().__call__, batches)
        if fault in CUT_OFFS:
            return _when_others_may(super().__call__, batches)
        return super().__call__(batches)


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
        (_marks() / CUT_OFF).touch()

    yield from write(cut())


def meet(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Wait in the middle of the transaction until another attempt is in its own."""

    def meeting() -> Iterator[pa.RecordBatch]:
        yield next(batches)  # before the attempt takes over the partition, which it does before it asks for more
        (_marks() / f"writes {os.getpid()}").touch()
        _wait_until(lambda: len(list(_marks().glob("writes *"))) >= 2, "other attempt writes", PATIENCE)
        yield from batches

    yield from write(meeting())


def outlast_alone(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Be cut off in the middle of a transaction until the brokers have ended it, and go on before another attempt."""
    return _outlast(write, batches, before=1)


def outlast_and_meet(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Be cut off before the commit until the brokers have ended the transaction, and another attempt has committed."""
    return _outlast(write, batches, before=None)


def _outlast(write: Write, batches: Iterator[pa.RecordBatch], before: int | None) -> Iterator[pa.RecordBatch]:
    """Hang behind the first record batches of the input, or all of them, and go on with the rest of it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def hanging() -> Iterator[pa.RecordBatch]:
        yield next(batches)
        rest = list(batches)
        require_whole()  # the input is there as a whole, whatever becomes of the executor
        yield from () if before else rest
        _mark(HANGS, f"{os.getpid()} {_executor()}")
        _wait_until((_marks() / GOES_ON).exists, "end of the pause", _HANGING_SECONDS)
        yield from rest if before else ()

    with _short_transactions():
        try:
            written = list(write(hanging()))
        except BaseException:
            _mark(REFUSED)
            raise
    _mark(COMMITTED)
    yield from written


def _when_others_may(write: Write, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    _wait_until((_marks() / OTHERS).exists, "word that other attempts may begin", _HANGING_SECONDS)
    written = list(write(batches))
    _mark(WRITTEN)
    yield from written


@contextmanager
def _short_transactions() -> Iterator[None]:
    """Let this process make producers whose transactions the brokers end soon."""
    settings = PartitionTransactions._settings
    names = ("transaction.timeout.ms", "message.timeout.ms", "socket.timeout.ms")  # none may be longer than the first
    short = dict.fromkeys(names, _TRANSACTION_SECONDS * 1000)
    for kept in partition_writer._producers.values():
        kept.close()
    partition_writer._producers.clear()
    with (
        patch.object(PartitionTransactions, "_settings", lambda self, longest: settings(self, longest) | short),
        patch.object(transactions, "TRANSACTION_SECONDS", _TRANSACTION_SECONDS),
    ):
        yield


CUT_OFFS = (outlast_alone, outlast_and_meet)
FAULTS = {each.__name__: each for each in (fail_when_written, die_when_written, outlive, meet, *CUT_OFFS)}


def _marks() -> Path:
    return Path(os.environ[MARKS])


def _mark(name: str, text: str = "") -> None:
    """Make a mark that is there only with its text."""
    unfinished = _marks() / f".{name}"
    unfinished.write_text(text)
    unfinished.rename(_marks() / name)


def _wait_until(holds: Callable[[], bool], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"no {what} in {seconds} s"
        time.sleep(0.05)


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
