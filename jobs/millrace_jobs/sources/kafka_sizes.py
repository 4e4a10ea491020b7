"""How large records are, for a limit in bytes on a batch whose records nobody has seen yet."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest

from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sources.kafka_reading import RangeReader
from millrace_jobs.sources.kafka_slices import OffsetRange

_EVERY = 32
"""Batches from one look to the next."""

_PARTITIONS, _OFFSETS = 4, 64
"""How many partitions are looked at, those with most waiting, and how many offsets of each."""


class RecordSize:
    """Bytes of key and value per offset, measured on the next few records now and then."""

    def __init__(self, source: str, connection: Connection) -> None:
        self._source = source
        self._connection = connection
        self._asked = 0
        self._bytes = 1.0

    def estimate(self, begins: Mapping[Partition, int], waiting: Mapping[Partition, int]) -> float:
        """Bytes per offset, at least 1, of what waits from ``begins`` on. Raises MillraceError."""
        if self._asked % _EVERY == 0:
            fattest = nlargest(_PARTITIONS, waiting, key=lambda partition: waiting[partition])
            looked = [OffsetRange(p, begins[p], begins[p] + min(waiting[p], _OFFSETS)) for p in fattest]
            with RangeReader(self._source, self._connection, looked) as reader:
                messages = [message for block in reader.blocks() for message in block]
            size = sum(len(message) + len(message.key() or b"") for message in messages)
            self._bytes = max(size / sum(map(len, looked)), 1.0)
        self._asked += 1
        return self._bytes
