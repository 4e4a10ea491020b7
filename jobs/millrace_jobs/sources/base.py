"""What a source is: positions that only grow, ranges cut into nearly equal slices, slices read as Arrow.

A source knows nothing of Spark, plans or partitioners; ``pipeline`` wraps it into a Spark data source.
``latest`` and ``slices`` run on the driver, ``read`` in the tasks: a source is pickled on its way there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

Position = Mapping[str, Any]
"""How far a source has been consumed, as JSON; goes into Spark's offset log, so it is small and bounded."""


@dataclass(frozen=True)
class Rejected:
    """Records of one slice that could not be decoded and were left out, by policy ``drop`` or ``deadLetter``.

    Comes at most once, after the last block of a slice.
    """

    records: int


class Slice(Protocol):
    """The part of a batch that one replica reads; picklable."""


class Source(Protocol):
    """A stream of records with a declared schema."""

    @property
    def name(self) -> str:
        """What the query calls it; in messages and in the names of dead-letter files."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Column names and types of every block that ``read`` yields."""
        ...

    def initial(self) -> Position:
        """The position before the first record."""
        ...

    def latest(self, start: Position, *, everything: bool, most: int | None = None) -> Position:
        """How far the batch after ``start`` may go: ``start`` itself when there is nothing new.

        ``everything`` asks for all there is, whatever the clock says (``--once``); admission limits hold.
        ``most`` is how many records the next batch may have, as the measured capacity allows; None is no limit.
        Sources that do not count records, and those that replay all, pass over it.
        """
        ...

    def exhausted(self, position: Position) -> bool:
        """True when a bounded source has no record beyond ``position`` and never will."""
        ...

    def lag(self, position: Position) -> int:
        """Records (or, where only that is known, files) waiting beyond ``position``."""
        ...

    def slices(self, start: Position, end: Position, replicas: int) -> list[Slice]:
        """Cut ``(start, end]`` into at most ``replicas`` slices of nearly equal size; the same every time."""
        ...

    def read(self, piece: Slice, label: str) -> Iterator[pa.RecordBatch | Rejected]:
        """The records of one slice in order, the same every time. Raises MillraceError on policy ``fail``.

        ``label`` tells the slice from all others of this source, such as ``000000000017-003`` for batch and
        replica, and is the same on every retry and replay: dead letters are filed under it.
        """
        ...


@dataclass(frozen=True)
class CorruptRecords:
    """What to do with a record that does not decode: ``fail``, ``drop``, or ``deadLetter`` to a folder or topic."""

    policy: str = "fail"
    directory: str = ""
    topic: str = ""
