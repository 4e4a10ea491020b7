"""The source of the simulated job: records that wait for a batch, and the admission of records to the next one."""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

from millrace_research.arena.simulation.traces import Trace


class SimulatedSource:
    """A source whose batches take the records of a trace, behind dedicated partitioners if there are any.

    Its clock starts at 0 and never goes back. ``taken`` is the number of records that batches took so far.
    """

    def __init__(self, trace: Trace, route_seconds: float | None = None) -> None:
        """Serve ``trace``; ``route_seconds`` is the time per record of a dedicated replica, None without replicas."""
        self._trace = trace
        self._route_seconds = route_seconds
        self._routed = 0.0
        self._until = 0.0
        self.taken = 0
        self.routed_seconds = 0.0
        """CPU time of the dedicated partitioners so far, seconds."""

    def place(self, now: float, route_seconds: float | None) -> None:
        """Put dedicated partitioners before the batches from ``now`` on, or remove them with None.

        Both begin at the records that no batch has taken.
        """
        self._route_seconds, self._routed, self._until = route_seconds, float(self.taken), now

    @property
    def unrouted(self) -> float:
        """Number of records that wait in front of the dedicated partitioners, as of the last ``advance``."""
        return self._trace.arrived(self._until) - self._routed if self._route_seconds else 0.0

    def advance(self, now: float, replicas: int) -> None:
        """Let ``replicas`` dedicated partitioners route records until ``now``, limited by arrivals and by capacity."""
        if self._route_seconds:
            capacity, before = replicas / self._route_seconds, self._routed
            self._routed = min(self._trace.arrived(now), before + capacity * (now - self._until))
            self.routed_seconds += (self._routed - before) * self._route_seconds
            self._until = now

    def waiting(self, now: float) -> int:
        """Return the number of records that arrived until ``now`` and that no batch has taken."""
        return int(self._trace.arrived(now)) - self.taken

    def take(self, now: float, most: int | None) -> int:
        """Take the records of a batch planned at ``now``, ``most`` at most, and return their number."""
        offered = self._routed if self._route_seconds else self._trace.arrived(now)
        rows = int(offered) - self.taken
        if most is not None:
            rows = min(rows, most)
        self.taken += rows
        return rows

    def newest(self, now: float) -> float:
        """Return the arrival time of the newest taken record; ``now`` if no record is waiting."""
        return now if not self.waiting(now) else self._trace.when(self.taken)


class AdmissionPolicy(Protocol):
    """A limit on the records of the next batch, constructed with the batch interval in seconds."""

    def limit(self, waiting: int) -> int | None:
        """Return the most records of the next batch, or None for no limit.

        ``waiting`` records were left at the source when the last batch was planned.
        """

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Learn from a finished batch: its records, its processing time, the part in which tasks ran, and its plan."""


class TwoIntervals:
    """Admission that lets batches grow while they take less than two intervals, in proportion to the time left.

    Without a limit, a job that falls behind takes its whole backlog at once. Each batch is then longer than the last
    by the ratio of load to capacity, and the job reports nothing until the batch ends. A finished batch never allows
    fewer records than it had itself, so a job whose batches are long for other reasons is not starved.
    """

    def __init__(self, interval: float) -> None:
        """Limit batches to two intervals of ``interval`` seconds each."""
        self._aim = 2 * interval
        # The largest allowance of the last three batches counts: one that was held up does not lower the limit.
        self._allowed = deque[float](maxlen=3)

    def limit(self, waiting: int) -> int | None:
        """Return the most records of the next batch; None until a batch with records has finished."""
        return math.ceil(max(self._allowed)) if self._allowed else None

    def finished(self, rows: int, seconds: float, work: float, plan: object) -> None:
        """Learn from a finished batch; an empty one is ignored."""
        if rows:
            self._allowed.append(rows * max(self._aim / seconds, 1.0))
