"""Section 3.4: what each kind of output buffers holds, how long it delays records, and what a batch's layout costs.

Delays are counted in records that the producer emits, as the paper does, so that they depend on no clock.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench.batching.comparison import PaperComparison, spread
from bench.batching.kinds import SharedBuffers, SingleBuffer
from millrace_jobs.dedicated.batching.buffers import DistinctBuffers
from millrace_jobs.pipeline.blocks import split

TASKS = (2, 3)
"""Tasks of the two consumers of Figures 3.8 to 3.10."""

BATCH = 100
_RECORDS = 30_000
_SCHEMA = pa.schema([("number", pa.int64())])
_LAYOUT_RECORDS = 1000
_BLOCK, _WORKERS = 8192, 32


def buffer_kinds() -> Iterator[PaperComparison]:
    """Compare the records held and the delay of each kind with the paper's formulas, for uniform keys."""
    least, most = _single()
    yield _kind("one single buffer, random", BATCH, BATCH, least, most)
    held, delay = _distinct()
    yield _kind("distinct buffers", sum(TASKS) * BATCH, sum(TASKS) / 2 * BATCH, held, delay)
    product = int(np.prod(TASKS))
    shared_held, shared_delay = _shared()
    yield _kind("shared buffers", product * BATCH, product * BATCH, shared_held, shared_delay)
    order = least < held < shared_held and most < delay < shared_delay
    yield PaperComparison(
        "3.4", "records held and delay: single, distinct, shared", "rise", "rise" if order else "differ", order
    )


def layouts(rounds: int) -> Iterator[PaperComparison]:
    """Compare a batch of rows with one of columns, and with Arrow's: bytes, and seconds to write and read it."""
    rng = np.random.default_rng(1)
    keys, texts = rng.integers(0, 1000, _LAYOUT_RECORDS).tolist(), [f"segment {i % 90}" for i in range(_LAYOUT_RECORDS)]
    values = rng.random(_LAYOUT_RECORDS).tolist()
    rows = list(zip(keys, texts, values, strict=True))
    schema = pa.schema([("key", pa.int64()), ("text", pa.string()), ("value", pa.float64())])
    block = pa.RecordBatch.from_pydict({"key": keys, "text": texts, "value": values}, schema=schema)
    columns = (keys, texts, values)
    kinds: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
        "rows": (rows, pickle.dumps, pickle.loads),
        "columns": (columns, pickle.dumps, pickle.loads),
        "Arrow": (block, lambda batch: batch.serialize(), lambda data: pa.ipc.read_record_batch(data, schema)),
    }
    sizes = {name: memoryview(write(given)).nbytes for name, (given, write, _) in kinds.items()}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, (given, write, read) in kinds.items():
            times[name].append(min(_seconds(given, write, read) for _ in range(20)))
    for name in ("columns", "Arrow"):
        ratios = [rows_time / own for rows_time, own in zip(times["rows"], times[name], strict=True)]
        yield PaperComparison("3.4", f"time to write and read a batch of rows, over {name}", "-", spread(ratios))
        yield PaperComparison(
            "3.4", f"bytes of a batch of rows, over {name}", "-", f"{sizes['rows'] / sizes[name]:.2f}"
        )


def buffer_times(rounds: int) -> Iterator[PaperComparison]:
    """Compare the processor time of distinct buffers with that of cutting each block by worker at once."""
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 100_000, _BLOCK)
    block = pa.RecordBatch.from_pydict(
        {"key": keys, "text": [f"key {key}" for key in keys], "value": rng.random(_BLOCK)}
    )
    workers = (keys % _WORKERS).astype(np.int32)
    cut = [min(_seconds(block, lambda b: split(b, workers, _WORKERS), len) for _ in range(20)) for _ in range(rounds)]
    for records in (100, 1000, 10_000):
        own = [_buffering(block, workers, records) for _ in range(rounds)]
        ratios = [ours / plain for ours, plain in zip(own, cut, strict=True)]
        what = f"time of distinct buffers for {_WORKERS} workers with b_out of {records:,}, over cutting without them"
        yield PaperComparison("3.4", what, "-", spread(ratios, 2))


def _buffering(block: pa.RecordBatch, workers: NDArray[np.int32], records: int) -> float:
    """Return the processor seconds for a block, mean over as many as fill the buffers several times."""
    buffers, blocks = DistinctBuffers(_WORKERS, records), 200
    began = time.thread_time()
    for _ in range(blocks):
        for _ in buffers.append(block, workers):
            pass
    return (time.thread_time() - began) / blocks


def _kind(name: str, memory: float, fill: float, held: float, delay: float) -> PaperComparison:
    ours = f"{held:,.0f} and {delay:,.0f}"
    close = held <= memory and abs(delay / fill - 1) < 0.1
    return PaperComparison("3.4", f"{name}: records held at most, and records emitted between two batches of one",
                      f"{memory:,.0f} and {fill:,.0f}", ours, close)  # fmt: skip


def _stream() -> Iterator[tuple[pa.RecordBatch, list[Any]]]:
    """Yield records one by one, each with its task of both consumers."""
    rng = np.random.default_rng(2)
    for number, (a, b) in enumerate(rng.integers(0, TASKS, (_RECORDS, len(TASKS))).tolist()):
        block = pa.RecordBatch.from_arrays([pa.array([number])], schema=_SCHEMA)
        yield block, [np.array([a], np.int32), np.array([b], np.int32)]


def _single() -> tuple[int, float]:
    buffer, most, batches = SingleBuffer(1, BATCH), 0, 0
    for block, (first, _) in _stream():
        batches += sum(1 for _ in buffer.append(block, np.zeros_like(first)))
        most = max(most, buffer.held)
    return most, _RECORDS / batches


def _distinct() -> tuple[int, float]:
    pools, most, fills = [DistinctBuffers(tasks, BATCH) for tasks in TASKS], 0, [0, 0]
    for block, tasks in _stream():
        for consumer, (pool, chosen) in enumerate(zip(pools, tasks, strict=True)):
            fills[consumer] += sum(1 for _ in pool.append(block, chosen))
        most = max(most, sum(pool.held for pool in pools))
    delays = [_RECORDS * tasks / batches for tasks, batches in zip(TASKS, fills, strict=True)]
    return most, sum(delays) / len(delays)


def _shared() -> tuple[int, float]:
    buffers, most, batches = SharedBuffers(TASKS, BATCH), 0, 0
    for block, tasks in _stream():
        batches += sum(1 for _ in buffers.append(block, tasks))
        most = max(most, buffers.held)
    return most, _RECORDS * int(np.prod(TASKS)) / batches


def _seconds(batch: Any, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> float:
    began = time.thread_time()
    read(write(batch))
    return time.thread_time() - began
