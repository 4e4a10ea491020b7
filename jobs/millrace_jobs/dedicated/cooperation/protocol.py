"""What a replica's loop calls so that its partitioner works together with those of the other replicas."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from millrace_jobs.partitioners.base import Partitioner

Record = tuple[str, bytes]
"""Key and value of a record of the control topic."""

log = logging.getLogger(__name__)


class Cooperation:
    """The part of one replica in the cooperation of all, under one pin; this one exchanges nothing.

    Under another pin, the loop makes another one, and gives it the newest record of each key first. ``now`` is Unix
    time in seconds; clocks of replicas may differ by some tenths of an interval.
    """

    def received(self, key: str, value: bytes, now: float) -> None:
        """Take in a record of the control topic, in the topic's order, this replica's own records among them.

        Keys that the algorithm does not use are ignored, and damaged values are logged.
        """
        try:
            self._receive(key, value, now)
        except ValueError as error:
            log.warning("the record %s of the control topic is ignored: %s", key, error)

    def _receive(self, key: str, value: bytes, now: float) -> None:
        """Take in a record. Raises ValueError if its value is damaged."""

    def started(self, partitioner: Partitioner, now: float) -> None:
        """Begin the first interval; call it once, after ``received`` with what the topic holds already."""

    def after_block(self, partitioner: Partitioner, now: float) -> Sequence[Record]:
        """Return what to publish now; call it between two blocks, and also while no block comes."""
        return ()

    def after_interval(self, partitioner: Partitioner, now: float, due: float) -> Sequence[Record]:
        """Return what to publish at the end of an interval, and begin the next; call it after ``advance``.

        ``due`` is when the interval should have ended, which is the same time for all replicas, however late they are.
        """
        return ()
