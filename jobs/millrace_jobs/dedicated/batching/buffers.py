"""Output buffers: the records of each worker are collected until they fill a batch (paper 002, section 3.4).

The buffers are the paper's *distinct* ones: one for each consumer task, here each worker, so that an output batch has
records of a single worker. They hold at most ``workers * records`` records after each call, and a record waits until
the producer has emitted about as many, or until the buffers are flushed. A batch has the paper's *vertical* layout, one
list per attribute, which is what an Arrow record batch is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.pipeline.blocks import by_worker

BYTE_LIMIT = 512 << 10
"""Size at which a batch ends before it has all its records: half of what a broker takes for one message by default."""

_COPY_AFTER = 1 << 16
"""Records after which the buffers may copy what they hold, so that a few records do not keep many blocks in memory."""


class OutputBatch(NamedTuple):
    """Records for one worker, encoded.

    Attributes:
        worker: the worker they go to.
        records: how many they are.
        data: one encapsulated Arrow record batch message, as in a block (``pipeline.blocks``), without its schema.
    """

    worker: int
    records: int
    data: pa.Buffer


@dataclass(slots=True)
class Buffer:
    """The records of one worker, in order, as pieces of the blocks they came in; each with its bytes when encoded."""

    pieces: deque[tuple[pa.RecordBatch, int]] = field(default_factory=deque)
    records: int = 0
    bytes: int = 0

    def add(self, piece: pa.RecordBatch, around: int) -> None:
        """Put records at the end; ``around`` is the encoded bytes of a batch without records."""
        size = pa.ipc.get_record_batch_size(piece) - around
        self.pieces.append((piece, size))
        self.records += piece.num_rows
        self.bytes += size

    def take(self, records: int, room: int) -> pa.RecordBatch:
        """Remove the first records, at least one: up to ``records``, in whole pieces up to ``room`` bytes."""
        taken: list[pa.RecordBatch] = []
        while records and self.pieces and (not taken or self.pieces[0][1] <= room):
            piece, size = self.pieces.popleft()
            if piece.num_rows > records:
                rest, rest_size = piece.slice(records), size * (piece.num_rows - records) // piece.num_rows
                self.pieces.appendleft((rest, rest_size))
                piece, size = piece.slice(0, records), size - rest_size
            taken.append(piece)
            records -= piece.num_rows
            room -= size
            self.records -= piece.num_rows
            self.bytes -= size
        return taken[0] if len(taken) == 1 else pa.concat_batches(taken)

    def compact(self, around: int) -> None:
        """Copy the records together, which frees the blocks that they came in; ``around`` as in ``add``."""
        if self.pieces:
            whole = pa.concat_batches([piece for piece, _ in self.pieces])
            self.pieces, self.records, self.bytes = deque(), 0, 0
            self.add(whole, around)


class DistinctBuffers:
    """One buffer for each worker.

    Args:
        workers: number of workers.
        records: records of a full batch, b_out.
        limit: bytes of an encoded batch at most; a single record that is larger makes a batch of its own.
    """

    def __init__(self, workers: int, records: int, limit: int = BYTE_LIMIT) -> None:
        self._buffers = [Buffer() for _ in range(workers)]
        self._records, self._limit = records, limit
        self._room = limit  # without what a batch without records has
        self._uncopied = 0

    @property
    def held(self) -> int:
        """Records in the buffers."""
        return sum(buffer.records for buffer in self._buffers)

    def resize(self, records: int) -> None:
        """Let batches have ``records`` records from the next call on; larger buffers are then cut."""
        self._records = records

    def workers(self, n: int) -> None:
        """Change the number of workers.

        Raises:
            ValueError: a worker that is to go has records.
        """
        if any(buffer.records for buffer in self._buffers[n:]):
            raise ValueError(f"workers from {n} on have records in their buffers: flush before there are fewer workers")
        del self._buffers[n:]
        self._buffers += [Buffer() for _ in range(n - len(self._buffers))]

    def append(self, block: pa.RecordBatch, workers: NDArray[np.int32]) -> Iterator[OutputBatch]:
        """Take in a block, ``workers`` with shape ``(rows,)``, and return the batches that are full now.

        The block is taken in by the call; batches are encoded as the iterator advances, which has to end before the
        next call. All blocks between two flushes have the same schema.
        """
        busy, pieces = by_worker(block, workers, len(self._buffers))
        grown, around = busy.tolist(), _size_of_none(block.schema)
        for worker, piece in zip(grown, pieces, strict=True):
            self._buffers[worker].add(piece, around)
        self._room = max(0, self._limit - around)
        self._uncopied += block.num_rows
        if self._uncopied > _COPY_AFTER and self._uncopied > 4 * self.held:
            for buffer in self._buffers:
                buffer.compact(around)
            self._uncopied = 0
        return self._batches(grown)

    def flush(self) -> Iterator[OutputBatch]:
        """Return the rest, also as batches that are not full; the buffers are empty when the iterator ends."""
        return self._batches(range(len(self._buffers)), rest=True)

    def _batches(self, workers: Iterable[int], *, rest: bool = False) -> Iterator[OutputBatch]:
        """Yield the full batches of the workers, and with ``rest`` all their records."""
        for worker in workers:
            buffer = self._buffers[worker]
            while buffer.records >= self._records or buffer.bytes > self._room or (rest and buffer.records):
                yield from encode(worker, buffer.take(self._records, self._room), self._limit)


def encode(worker: int, records: pa.RecordBatch, limit: int) -> Iterator[OutputBatch]:
    """Yield records as one output batch, or as several if it would be larger than ``limit`` bytes."""
    data = records.serialize()
    if data.size <= limit or records.num_rows == 1:
        yield OutputBatch(worker, records.num_rows, data)
        return
    half = records.num_rows // 2
    yield from encode(worker, records.slice(0, half), limit)
    yield from encode(worker, records.slice(half), limit)


@lru_cache(maxsize=16)
def _size_of_none(schema: pa.Schema) -> int:
    """Return the bytes that a batch of this schema has without records."""
    size: int = pa.ipc.get_record_batch_size(pa.RecordBatch.from_pylist([], schema))
    return size
