"""The paper's other kinds of output buffers (002, section 3.4), which no query of Millrace needs: single and shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millrace_jobs.dedicated.batching.buffers import BYTE_LIMIT, Buffer, DistinctBuffers, OutputBatch, encode
from millrace_jobs.pipeline.blocks import by_worker

_TASK = "task of the consumer"


class SingleBuffer:
    """One buffer for all tasks of a consumer; a full one is cut by task.

    The paper uses it where any task may get any record, so that nothing is cut. With keys, it sends about one batch to
    each task where distinct buffers send a single one.
    """

    def __init__(self, tasks: int, records: int) -> None:
        self._tasks, self._records = tasks, records
        self._buffer = Buffer()

    @property
    def held(self) -> int:
        """Records in the buffer."""
        return self._buffer.records

    def append(self, block: pa.RecordBatch, workers: NDArray[np.int32]) -> Iterator[OutputBatch]:
        """Take in a block and return the batches that are full now, as in ``DistinctBuffers``."""
        self._buffer.add(block.append_column(_TASK, pa.array(workers, pa.int32())), 0)
        return self._batches(self._records)

    def flush(self) -> Iterator[OutputBatch]:
        """Return the rest, as in ``DistinctBuffers``."""
        return self._batches(1)

    def _batches(self, least: int) -> Iterator[OutputBatch]:
        while self._buffer.records >= least:
            tagged = self._buffer.take(self._records, BYTE_LIMIT)
            tasks = tagged.column(_TASK).to_numpy()
            busy, parts = by_worker(tagged.drop_columns([_TASK]), tasks, self._tasks)
            for task, part in zip(busy.tolist(), parts, strict=True):
                yield from encode(task, part, BYTE_LIMIT)


class SharedBuffers:
    """One buffer for each combination of tasks of several consumers, an n-dimensional array of buffers.

    A record goes into the buffer of its tasks, one of each consumer, and a full batch to all of these, so that a system
    can carry batches without a change: it sends each to every consumer, by the key of any of its records.

    Args:
        tasks: tasks of each consumer.
        records: records of a full batch.
    """

    def __init__(self, tasks: Sequence[int], records: int) -> None:
        self._shape = tuple(tasks)
        self._buffers = DistinctBuffers(int(np.prod(self._shape)), records)

    @property
    def held(self) -> int:
        """Records in the buffers."""
        return self._buffers.held

    def append(
        self, block: pa.RecordBatch, workers: Sequence[NDArray[np.int32]]
    ) -> Iterator[tuple[tuple[int, ...], OutputBatch]]:
        """Take in a block; return each batch that is full now, and the task of each consumer that gets it.

        ``workers`` has, for each consumer, the task of each record.
        """
        cells = np.ravel_multi_index(tuple(workers), self._shape).astype(np.int32)
        return map(self._addressed, self._buffers.append(block, cells))

    def flush(self) -> Iterator[tuple[tuple[int, ...], OutputBatch]]:
        """Return the rest in the same way."""
        return map(self._addressed, self._buffers.flush())

    def _addressed(self, batch: OutputBatch) -> tuple[tuple[int, ...], OutputBatch]:
        return tuple(int(task) for task in np.unravel_index(batch.worker, self._shape)), batch
