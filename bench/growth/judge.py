"""The contenders seen from outside: what a reader of committed messages has counted, and what it has cost by then."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from bench.control_groups import ProcessAccount
from bench.processor_time import tree_seconds

RIGHT = "right"
MARKS = 20
"""Number of marks along the records of a turn."""

_SAMPLED = 0.5
"""Seconds between two looks at the memory of a contender."""

_SILENCE = 120.0
"""Seconds after a result without another one, after which no more are expected."""

_SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])
_OPTIONS = pyarrow.json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")
_PREFIX = len("key-")


@dataclass(frozen=True)
class GrowthMark:
    """How far a contender was, and what it had used by then.

    Attributes:
        records: number of records in the newest results of all keys.
        seconds: seconds since its start.
        processor, broker: processor seconds of the contender since its start, and of the broker.
    """

    records: int
    seconds: float
    processor: float
    broker: float


class CountedKeys:
    """The newest result of each key, as a reader of all results has them."""

    def __init__(self, keys: int) -> None:
        self.newest: NDArray[np.int64] = np.zeros(keys, np.int64)
        self.records = self.results = 0
        """Number of records in the newest results, and number of results."""

    def add(self, values: Sequence[bytes]) -> None:
        """Add results in any order: a later one of a key has more records."""
        table = pyarrow.json.read_json(io.BytesIO(b"\n".join(values)), parse_options=_OPTIONS)
        names = table.column("key").combine_chunks()
        keys = pc.utf8_slice_codeunits(names, _PREFIX).cast(pa.int64()).to_numpy(zero_copy_only=False)
        changed = np.unique(keys)
        before = int(self.newest[changed].sum())
        np.maximum.at(self.newest, keys, table.column("n").to_numpy())
        self.records += int(self.newest[changed].sum()) - before
        self.results += len(keys)


class GrowthWatch:
    """A reader of one contender's results, from its start over all its restarts.

    Args:
        arriving: what becomes visible, each with the seconds since 1970, as ``bench.peers.judge.visible`` has it.
        counted: the results so far.
        broker: process id of the broker.
    """

    def __init__(self, arriving: Iterator[tuple[float, list[bytes]]], counted: CountedKeys, broker: int) -> None:
        self._arriving, self.counted, self._broker = arriving, counted, broker
        self.peak = 0
        """Most memory of the contender that was seen, in bytes."""

    def until(self, records: int, account: ProcessAccount, began: float) -> list[GrowthMark]:
        """Watch until the results cover that many records, and return the marks on the way there.

        The first mark is at the first result. Where the contender ends, or falls silent, the last mark has fewer
        records.

        Args:
            records: number of records to wait for.
            account: what the contender has used since this start.
            began: when the contender was started, in seconds since 1970.
        """
        marks: list[GrowthMark] = []
        used = tree_seconds(self._broker)
        step, latest, sampled = max((records - self.counted.records) // MARKS, 1), began, began
        for seen, values in self._arriving:
            if seen > sampled + _SAMPLED:
                self.peak, sampled = max(self.peak, account.memory()), seen
            if values:
                latest = seen
                self.counted.add(values)
                total = self.counted.records
                if not marks or total >= min(marks[-1].records + step, records):
                    broker = tree_seconds(self._broker) - used
                    marks.append(GrowthMark(total, time.time() - began, account.processor_seconds(), broker))
            if self.counted.records >= records or (marks and seen > latest + _SILENCE):
                break
        self.peak = max(self.peak, account.memory())
        return marks


def verdict(counted: CountedKeys, expected: NDArray[np.int64]) -> str:
    """Return ``right`` if each key has its number of records, and otherwise how many keys have not."""
    wrong = int((counted.newest != expected).sum())
    return RIGHT if wrong == 0 else f"{wrong:,} of {len(expected):,} keys wrong"
