"""The memory that a partitioner's state takes, in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Partitioner
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_research.comparison.contenders import ComparisonSetting, Contender

BLOCK = 65_536
"""Records that a source delivers at a time."""
SEED = 1

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
    stream = hash_columns([pa.array(np.arange(keys))], keys)
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
