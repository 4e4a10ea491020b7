"""Blocks: the records of one replica for one worker, in Arrow's format, shuffled by Spark as single values.

Spark moves a few large values per task instead of one row per record, and neither side converts records to rows. A row
of this stream is ``worker INT, shuffle_key INT, block BINARY, note STRING``. Spark shuffles by ``shuffle_key``, so that
each worker has a task of its own. ``note`` carries, as JSON, what a replica reports to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ARROW_SCHEMA = pa.schema(
    [("worker", pa.int32()), ("shuffle_key", pa.int32()), ("block", pa.binary()), ("note", pa.string())]
)

OBSERVED = "millrace_"
"""Prefix, before the source's name, of the observations that carry the notes of a batch to the driver."""

STAGE = "stage_"
"""Prefix, before the number of a stage, of the observations that carry its notes to the driver, under ``notes``.

There is a note for each time that a bucket was processed: ``bucket``, ``late`` rows, and ``kept`` rows in its state. If
rows were matched, it also has the ``task``, the ``rows`` that came in, their ``pairs``, and those of each ``hot`` key.
"""

_JOINED_RECORDS, _JOINED_BYTES = 1 << 16, 32 << 20
"""Records, and bytes, from which on ``joined`` yields a batch."""


def by_worker(
    batch: pa.RecordBatch, workers: NDArray[np.int32], n: int
) -> tuple[NDArray[np.int64], list[pa.RecordBatch]]:
    """Sort a batch by worker id; the order within a worker is preserved.

    Args:
        batch: the records.
        workers: shape ``(rows,)``, worker id of each record, in ``range(n)``.
        n: number of workers.

    Returns:
        The workers that have records, ascending, and the records of each: slices of one batch.
    """
    counts = np.bincount(workers, minlength=n)
    busy = np.flatnonzero(counts)
    if len(busy) > 1:
        # NumPy's stable sort of 16-bit integers is a radix sort, linear in the rows
        order = np.argsort(workers.astype(np.uint16) if n <= 1 << 16 else workers, kind="stable")
        batch = batch.take(pa.array(order))
    ends = np.cumsum(counts[busy])
    sizes = zip(ends.tolist(), counts[busy].tolist(), strict=True)
    return busy, [batch.slice(end - count, count) for end, count in sizes]


def split(batch: pa.RecordBatch, workers: NDArray[np.int32], n: int) -> pa.RecordBatch:
    """Cut a batch by worker id; the order within a worker is preserved.

    Takes the arguments of ``by_worker``. Returns one row of the block stream per worker that has records.
    """
    busy, parts = by_worker(batch, workers, n)
    columns = [
        pa.array(busy.astype(np.int32)),
        pa.array(shuffle_keys(n)[busy]),
        pa.array([part.serialize().to_pybytes() for part in parts], pa.binary()),
        pa.nulls(len(busy), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def joined(encoded: Iterable[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of encoded blocks in few batches: what takes them in has a cost for each batch."""
    held: list[pa.RecordBatch] = []
    records = size = 0
    for block in encoded:
        held.append(pa.ipc.read_record_batch(pa.py_buffer(block), schema))
        records, size = records + held[-1].num_rows, size + len(block)
        if records >= _JOINED_RECORDS or size >= _JOINED_BYTES:
            yield pa.concat_batches(held)
            held, records, size = [], 0, 0
    if held:
        yield pa.concat_batches(held)


def row(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a row with one batch, for the worker of the running task."""
    zero, block = pa.array([0], pa.int32()), pa.array([batch.serialize().to_pybytes()], pa.binary())
    return pa.RecordBatch.from_arrays([zero, zero, block, pa.nulls(1, pa.string())], schema=ARROW_SCHEMA)


def note(content: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a row that carries a note and no records; worker 0 passes it on."""
    zero = pa.array([0], pa.int32())
    columns = [zero, zero, pa.nulls(1, pa.binary()), pa.array([json.dumps(content)])]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def decode(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[int, pa.RecordBatch | dict[str, Any]]]:
    """Yield the record batches and notes in rows of the block stream, each with the worker it was sent to."""
    columns = (rows.column("worker").to_pylist(), rows.column("block"), rows.column("note").to_pylist())
    for worker, block, text in zip(*columns, strict=True):
        if text is not None:
            yield worker, json.loads(text)
        if block.is_valid:
            yield worker, pa.ipc.read_record_batch(block.as_buffer(), schema)


_SPARK_SEED = np.uint32(42)


@lru_cache(maxsize=64)
def shuffle_keys(n: int) -> NDArray[np.int32]:
    """Return for each of ``n`` partitions an INT that Spark's hash partitioning puts there; shape ``(n,)``.

    The shuffle is a ``repartition(column)`` without a number, because its number of tasks follows a setting that may
    change from batch to batch; the number of ``repartitionById`` is fixed. ``repartition`` hashes its column, so this
    function searches for values with the wanted hashes.
    """
    found = np.full(n, -1, dtype=np.int32)
    begin = 0
    while (found < 0).any():
        candidates = np.arange(begin, begin + 16 * n, dtype=np.int32)
        partitions = partitions_of(candidates, n)
        known, first = np.unique(partitions, return_index=True)
        new = found[known] < 0
        found[known[new]] = candidates[first[new]]
        begin += 16 * n
    return found


def partitions_of(values: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """Return the partition, of ``n``, in which Spark's hash partitioning places each INT; shape ``(values,)``."""
    return _murmur3(values).astype(np.int64) % n


def _murmur3(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return Murmur3 x86 32 of INTs as Spark's ``hash(column)`` does (Appleby, MurmurHash3, public domain)."""
    with np.errstate(over="ignore"):
        k = _rotate(values.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        h = _rotate(_SPARK_SEED ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)  # length in bytes
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> np.uint32(16))).view(np.int32)


def _rotate(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
