"""One partitioner on one core: records per second, beside its transcription in plain Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from bench.plain_python import transcription
from millrace_jobs.partitioners.base import Hashes, Partitioner
from millrace_research.comparison.contenders import Contender
from millrace_research.comparison.state_memory import SEED, blocks, restored, state_after, take_batch

BATCH = 1_000_000
"""Records in a micro-batch, which is a window."""
PLAIN_RECORDS = 5_000
"""Records that the transcription gets, from the beginning of the stream."""

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
