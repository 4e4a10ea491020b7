"""Memory of a partitioner's state when a window has as many distinct keys as records."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.key_streams import hashed
from bench.partitioner_speed import BLOCK, blocks, restored, state_after
from millrace_jobs.benchmark.contenders import Contender
from millrace_jobs.partitioners.base import BatchPartitioner

_STATUS = Path("/proc/self/status")
_EARLIER = 100_000


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
