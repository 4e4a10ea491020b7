"""The interface of a source: positions that only grow, ranges cut into nearly equal slices, slices read as Arrow.

A source knows nothing about Spark, plans or partitioners; ``pipeline`` wraps it in a Spark data source.
``latest`` and ``slices`` run on the driver, ``read`` runs in the tasks. A source is therefore pickled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Position = Mapping[str, Any]
"""How far a source has been consumed, as JSON. It is stored in Spark's offset log, so it is small and bounded."""


DELETED: Final = "millrace_deleted"
"""Column that is true for a record that deletes the row of its key; only sources of tables have it."""

ESTIMATED: Final = "millrace_estimated"
"""Column that is true for such a record if its event time is only an estimate; only sources of tables have it."""

POSITION: Final = "millrace_position"
"""Column with the place of a record in the order of its key's records; only sources of tables have it."""

CHANGED = pa.schema([(DELETED, pa.bool_()), (ESTIMATED, pa.bool_()), (POSITION, pa.int64())])
"""The columns of a table's records that are not the user's."""


@dataclass(frozen=True)
class Rejected:
    """The number of records of one slice that were left out because they do not decode.

    Only the policies ``Drop`` and ``DeadLetter`` leave records out. Yielded at most once, after the last block of a
    slice.
    """

    records: int


OnArrival = Callable[[NDArray[np.int64], NDArray[np.int64]], None]
"""Receives arrival times in µs since 1970, and how many records each time stands for. Shapes ``(times,)``."""

MOST_TIMES = 256
"""Arrival times of one block of records at most: of more records, every so many is looked at."""


def ignore_arrivals(micros: NDArray[np.int64], records: NDArray[np.int64]) -> None:
    """Ignore when records arrived."""


def sampled(records: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indexes of up to ``MOST_TIMES`` records, evenly spaced, and how many records each stands for."""
    step = max(-(-records // MOST_TIMES), 1)
    indexes = np.arange(0, records, step)
    return indexes, np.minimum(step, records - indexes)


class Slice(Protocol):
    """The part of a micro-batch that one replica reads; picklable."""


@dataclass(frozen=True)
class PlacedSlice:
    """The part of a micro-batch for one worker, whose records were projected and placed before the batch.

    ``notes`` are what those who placed them report about the batch, on one of its slices.
    """

    worker: int
    notes: tuple[Mapping[str, Any], ...] = ()


class Source(Protocol):
    """A stream of records with a declared schema.

    A cached property of a source is made on first use on the driver, and is not pickled: tasks only read slices.
    """

    name: str
    """The name of the source in the query, used in messages and in the names of dead-letter files."""
    schema: pa.Schema
    """The column names and types of every block that ``read`` yields; those of a table may end with CHANGED."""
    is_placed: bool = False
    """Whether records come placed on workers: slices are then ``PlacedSlice``, or ordinary ones of raw records."""

    def __getstate__(self) -> object:
        kind = type(self)
        return {k: v for k, v in self.__dict__.items() if not isinstance(getattr(kind, k, None), cached_property)}

    def check_server(self) -> None:
        """Ask the server of a source whether it has what a new query reads; store nothing. Called while Spark starts.

        Raises MillraceError if it has not, or refuses the login; a TransientError counts for nothing.
        """
        return

    def initial(self) -> Position:
        """Return the position before the first record."""

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """Return how far the batch after ``start`` may go; ``start`` itself if there is nothing new.

        Args:
            start: the end of the batch before.
            everything: admit all available records, whatever the clock says (``--once``). Admission limits still apply.
            most: the number of records that the measured capacity allows in the next batch; None is no limit. Ignored
                by sources that do not count records, and by a replay with ``everything``.
        """

    def ahead(self, start: Position, records: int) -> Position | None:
        """Return the position so many records after ``start``, or at the end, before they are due by the pace.

        None for a source without a pace, or one that does not count records: ``latest`` is all that it knows.
        """
        return None

    def exhausted(self, position: Position) -> bool:
        """Return whether the source is bounded and will never have a record beyond ``position``."""
        return False

    def lag(self, position: Position) -> int:
        """Return the backlog beyond ``position``: records or, if only that is known, files."""

    def longest_lags(self, position: Position) -> Mapping[str, int]:
        """Return the backlog of the few partitions that have the longest ones, by their names.

        Empty where nothing waits, and for a source without partitions.
        """
        return {}

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut ``(start, end]`` into at most ``replicas`` slices of nearly equal size; deterministic."""

    def most_records(self, start: Position, end: Position) -> int | None:
        """Return how many records are in ``(start, end]`` at most; None if only reading them shows it."""
        return None

    def placed_under(self, end: Position) -> Mapping[str, Any] | None:
        """Return the pin, as JSON, under which the records of the batch that ends there were placed, if they were."""
        return None

    def placed_blocks(self, piece: PlacedSlice) -> Iterator[bytes]:
        """Return the blocks of a slice of placed records, each an encapsulated Arrow record batch."""
        return iter(())

    def read(
        self, piece: Slice, label: str, on_arrival: OnArrival = ignore_arrivals
    ) -> Iterator[pa.RecordBatch | Rejected]:
        """Yield the records of one slice, always the same ones in the same order.

        ``label`` identifies the slice within this source, such as ``000000000017-003`` for batch and replica. It is
        the same on every retry and replay: dead letters are filed under it. ``on_arrival`` gets the times at which
        records arrived, as far as they are known.

        Raises MillraceError for a record that does not decode, under the policy ``Fail``.
        """


@dataclass(frozen=True)
class CorruptRecords:
    """What to do with a record that does not decode: ``Fail``, ``Drop``, or ``DeadLetter`` to a folder or topic."""

    policy: str = "Fail"
    directory: str = ""
    topic: str = ""


def bounds(length: int, slices: int) -> list[int]:
    """Return the ``slices + 1`` bounds that cut ``range(length)`` into parts whose sizes differ by at most one."""
    return [length * i // slices for i in range(slices + 1)]


def cut(lengths: Sequence[int], slices: int, indivisible: Container[int] = ()) -> list[list[tuple[int, int, int]]]:
    """Cut ranges laid end to end into at most ``slices`` non-empty parts that are equal except for rounding.

    Args:
        lengths: the lengths of the ranges: bytes, rows or offsets.
        slices: the number of parts.
        indivisible: indexes of ranges that belong entirely to the part that they begin in.

    Returns:
        The pieces of each part, as the index of a range and the bounds ``[begin, end)`` within it.
    """
    parts = []
    for low, high in itertools.pairwise(bounds(sum(lengths), slices)):
        pieces, offset = [], 0
        for index, length in enumerate(lengths):
            begin, end = max(low - offset, 0), min(high - offset, length)
            if index in indivisible:
                begin, end = (0, length) if low <= offset < high else (0, 0)
            if begin < end:
                pieces.append((index, begin, end))
            offset += length
        if pieces:
            parts.append(pieces)
    return parts
