"""What a replica's loop calls so that its partitioner works together with those of the other replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millrace_jobs.partitioners.base import Partitioner

Record = tuple[str, bytes]
"""Key and value of a record of the control topic."""


class Cooperation(Protocol):
    """The part of one replica in the cooperation of all, under one pin.

    Under another pin, the loop makes another one, and gives it the newest record of each key first. ``now`` is Unix
    time in seconds; clocks of replicas may differ by some tenths of an interval.
    """

    def received(self, key: str, value: bytes, now: float) -> None:
        """Take in a record of the control topic, in the topic's order, this replica's own records among them.

        Keys that the algorithm does not use are ignored, and damaged values are logged.
        """
        ...

    def started(self, partitioner: Partitioner, now: float) -> None:
        """Begin the first interval; call it once, after ``received`` with what the topic holds already."""
        ...

    def after_block(self, partitioner: Partitioner, now: float) -> Sequence[Record]:
        """Return what to publish now; call it between two blocks, and also while no block comes."""
        ...

    def after_interval(self, partitioner: Partitioner, now: float, due: float) -> Sequence[Record]:
        """Return what to publish at the end of an interval, and begin the next; call it after ``advance``.

        ``due`` is when the interval should have ended, which is the same time for all replicas, however late they are.
        """
        ...


class Alone:
    """The cooperation of replicas that exchange nothing: each goes on from its own past."""

    def received(self, key: str, value: bytes, now: float) -> None:
        """Ignore the record."""

    def started(self, partitioner: Partitioner, now: float) -> None:
        """Change nothing."""

    def after_block(self, partitioner: Partitioner, now: float) -> Sequence[Record]:
        """Publish nothing."""
        return ()

    def after_interval(self, partitioner: Partitioner, now: float, due: float) -> Sequence[Record]:
        """Publish nothing."""
        return ()
