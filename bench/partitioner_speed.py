"""One partitioner on one core: records per second, beside its transcription in plain Python, and its state's memory."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.key_streams import hashed
from bench.plain_python import transcription
from millrace_jobs.benchmark.contenders import ComparisonSetting, Contender
from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Partitioner

BLOCK = 65_536
"""Records that a source delivers at a time."""
BATCH = 1_000_000
"""Records in a micro-batch, which is a window."""
PLAIN_RECORDS = 5_000
"""Records that the transcription gets, from the beginning of the stream."""
SEED = 1

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class SpeedFigure:
    """Speed of the best run of each kind, in records per second of processor time."""

    partitioner: str
    workers: int
    stream: str
    in_blocks: float
    """Speed in micro-batches of blocks, including the end of each window."""
    in_one_block: float
    """Speed with the whole stream as one block and one window."""
    plain_python: float


def measure_speed(contender: Contender, workers: int, stream: str, keys: Hashes, repeats: int) -> SpeedFigure:
    """Route the stream in blocks and in one block, ``repeats`` times each, and its beginning in plain Python.

    As in a job, each run begins with a new partitioner that has the state left by an earlier batch. One more run comes
    first and does not count.
    """
    left = state_after(contender, workers, keys[:BATCH])

    def begin() -> Partitioner:
        return restored(contender, workers, left)

    def in_blocks(partitioner: Partitioner) -> None:
        for records in blocks(keys, BATCH):
            take_batch(partitioner, records)
            partitioner.advance()

    def in_one_block(partitioner: Partitioner) -> None:
        partitioner.route(keys)
        partitioner.advance()

    place = transcription(contender.algorithm, contender.parameters)
    return SpeedFigure(
        contender.label,
        workers,
        stream,
        in_blocks=len(keys) / _least_seconds(in_blocks, begin, repeats),
        in_one_block=len(keys) / _least_seconds(in_one_block, begin, repeats),
        plain_python=PLAIN_RECORDS
        / _least_seconds(lambda codes: place(codes, workers, SEED), keys[:PLAIN_RECORDS].tolist, repeats=1),
    )


def state_after(contender: Contender, workers: int, keys: Hashes) -> bytes:
    """Return the state that a first micro-batch leaves."""
    partitioner = _new(contender, workers)
    take_batch(partitioner, keys)
    partitioner.advance()
    return partitioner.save()


def restored(contender: Contender, workers: int, state: bytes) -> Partitioner:
    """Return a new partitioner that continues from a state."""
    partitioner = _new(contender, workers)
    partitioner.restore(state)
    return partitioner


def blocks(keys: Hashes, rows: int) -> Iterator[Hashes]:
    """Split ``keys`` into blocks of ``rows`` records. The last one may be shorter."""
    return (keys[row : row + rows] for row in range(0, len(keys), rows))


def take_batch(partitioner: Partitioner, keys: Hashes) -> None:
    """Place one micro-batch, as a job does."""
    if isinstance(partitioner, BatchPartitioner):
        for block in blocks(keys, BLOCK):
            partitioner.accumulate(block)
        partitioner.cut()
    else:
        for block in blocks(keys, BLOCK):
            partitioner.route(block)


def _new(contender: Contender, workers: int) -> Partitioner:
    """Return a single replica without history, with windows of one slide."""
    return contender.replicas(ComparisonSetting(workers, replicas=1, seed=SEED, slides=1))[0]


def _least_seconds(run: Callable[[Subject], object], begin: Callable[[], Subject], repeats: int) -> float:
    """Return the least processor time of this thread. Other processes affect it only through the caches."""
    run(begin())
    seconds = []
    for _ in range(repeats):
        subject = begin()
        began = time.thread_time()
        run(subject)
        seconds.append(time.thread_time() - began)
    return min(seconds)


_STATUS = Path("/proc/self/status")
_EARLIER = 100_000
"""Records of the earlier batch, whose state a measured partitioner starts from."""


@dataclass(frozen=True)
class StateFigure:
    """Growth of the process in bytes, in a window of ``keys`` distinct keys and after it.

    All allocations of numpy and the kernels count. ``peak`` is the maximum, whether a table grew or a batch was cut.
    ``saved`` is the length of what ``save`` returns.
    """

    partitioner: str
    workers: int
    keys: int
    resident: int
    peak: int
    saved: int
    resident_after: int
    saved_after: int


def can_measure_state() -> bool:
    """Whether this system reports the memory of a process, as Linux does."""
    return _STATUS.exists()


def measure_state(contender: Contender, workers: int, keys: int) -> StateFigure:
    """Route ``keys`` distinct keys in one window, in a process of its own, and return the figures.

    They are accurate to about a MiB, because memory that compiling left over is used first.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        return executor.submit(_measure, contender, workers, keys).result()


def _measure(contender: Contender, workers: int, keys: int) -> StateFigure:
    stream = hashed(np.arange(keys))
    left = state_after(contender, workers, stream[:_EARLIER])  # also compiles the kernels
    _forget_peak()
    before = _bytes("VmRSS")
    partitioner = restored(contender, workers, left)
    for block in blocks(stream, BLOCK):
        if isinstance(partitioner, BatchPartitioner):
            partitioner.accumulate(block)
        else:
            partitioner.route(block)
    resident = _bytes("VmRSS") - before
    peak = _bytes("VmHWM") - before
    saved = len(partitioner.save())
    if isinstance(partitioner, BatchPartitioner):
        _forget_peak()  # ``save`` raised it, but a job saves only between windows
        partitioner.cut()
        peak = max(peak, _bytes("VmHWM") - before)
    partitioner.advance()
    resident_after = _bytes("VmRSS") - before
    saved_after = len(partitioner.save())
    return StateFigure(contender.label, workers, keys, resident, peak, saved, resident_after, saved_after)


def _bytes(field: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def _forget_peak() -> None:
    """Reset the high-water mark to the current resident size, which Linux does on a 5 in ``clear_refs``."""
    Path("/proc/self/clear_refs").write_text("5")
