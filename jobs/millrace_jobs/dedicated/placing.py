"""Placement of a replica's records on workers: the partitioner, the output buffers, and the records of an interval.

The packs go to ``interval``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from millrace_jobs.dedicated.batching.buffers import DistinctBuffers, OutputBatch
from millrace_jobs.partitioners.base import BatchPartitioner, Hashes, Partitioner, Workers
from millrace_jobs.partitioners.registry import make
from millrace_jobs.plan.control import Pin

_NO_KEYS = np.empty(0, np.uint64)
_NO_IDS = np.empty(0, np.int32)


class Placing:
    """The partitioner of one replica with its buffers, from interval to interval.

    Most partitioners place a record when it comes. A batch partitioner counts the records of the interval, and places
    them at its end (paper 004, Algorithm 1 and 2).
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._pin: Pin | None = None
        self._partitioner: Partitioner | None = None
        self._buffers = DistinctBuffers(1, 1)
        self._saved: bytes | None = None
        self._held: list[pa.RecordBatch] = []
        self._keys: list[Hashes] = []
        self._ids: list[Workers] = []

    @property
    def pin(self) -> Pin:
        """The plan of the interval."""
        assert self._pin is not None
        return self._pin

    @property
    def partitioner(self) -> Partitioner:
        """The partitioner of the interval's plan."""
        assert self._partitioner is not None
        return self._partitioner

    def follow(self, pin: Pin) -> bool:
        """Adopt the plan of the next interval, and return whether it is another one.

        What the partitioner has learned stays if the plan's algorithm does.
        """
        if pin == self._pin:
            return False
        known, self._pin = self._pin, pin
        same = known is not None and _kind(known) == _kind(pin)
        if same and self._partitioner is not None:
            self._partitioner.resize(pin.workers)
        else:
            self._partitioner, self._saved = self._made(pin), None
        self._buffers.workers(pin.workers)
        return True

    def take(self, block: pa.RecordBatch, keys: Hashes) -> Iterator[OutputBatch]:
        """Take in projected records with the hashes of their keys, and return the packs that are full."""
        self._keys.append(keys)
        partitioner = self.partitioner
        if isinstance(partitioner, BatchPartitioner):
            partitioner.accumulate(keys)
            self._held.append(block)
            return iter(())
        ids = partitioner.route(keys)
        self._ids.append(ids)
        return self._buffers.append(block, ids)

    def cut(self) -> Iterator[OutputBatch]:
        """Place what has not been placed, and return all packs that are left."""
        partitioner = self.partitioner
        if isinstance(partitioner, BatchPartitioner):
            ids = partitioner.cut()
            self._ids.append(ids)
            ends = np.cumsum([block.num_rows for block in self._held])
            for block, placed in zip(self._held, np.split(ids, ends[:-1]), strict=True) if self._held else ():
                yield from self._buffers.append(block, placed)
            self._held.clear()
        yield from self._buffers.flush()

    def resize_packs(self, records: int) -> None:
        """Set the maximum number of records of a pack, from the next record on."""
        self._buffers.resize(records)

    def end(self) -> tuple[Hashes, Workers]:
        """End a written interval; return the hashes and workers of its records, shape ``(records,)`` each."""
        placed = self._placed()
        self.partitioner.advance()
        self._saved = self.partitioner.save()
        return placed

    def give_up(self) -> None:
        """Forget the records of the interval, since they will be read again."""
        for _ in self._buffers.flush():
            pass
        self._held.clear()
        self._placed()
        if self._pin is None:
            return
        self._partitioner = self._made(self._pin)
        if self._saved is not None:
            self._partitioner.restore(self._saved)
            self._partitioner.resize(self._pin.workers)

    def _placed(self) -> tuple[Hashes, Workers]:
        keys = np.concatenate([_NO_KEYS, *self._keys])
        ids = np.concatenate([_NO_IDS, *self._ids])
        self._keys.clear()
        self._ids.clear()
        return keys, ids

    def _made(self, pin: Pin) -> Partitioner:
        return make(
            pin.algorithm,
            workers=pin.workers,
            replica=self._index,
            replicas=max(pin.replicas, self._index + 1),
            seed=pin.seed,
            parameters=pin.parameters,
        )


def _kind(pin: Pin) -> tuple[object, ...]:
    return pin.algorithm, dict(pin.parameters), pin.replicas, pin.seed
