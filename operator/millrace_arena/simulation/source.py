"""The source of the simulated job: records that wait for a batch, behind dedicated partitioners if there are any."""

from __future__ import annotations

from millrace_arena.simulation.traces import Trace


class SimulatedSource:
    """A source whose batches take the records of a trace; its clock starts at 0 and never goes back.

    Attributes:
        taken: records that batches took so far.
        routed_seconds: CPU time of the dedicated partitioners so far, seconds.
    """

    def __init__(self, trace: Trace, route_seconds: float | None = None) -> None:
        """Serve ``trace``; ``route_seconds`` is the time per record of a dedicated replica, None without replicas."""
        self._trace = trace
        self._route_seconds = route_seconds
        self._routed = 0.0
        self._until = 0.0
        self.taken = 0

    @property
    def routed_seconds(self) -> float:
        """CPU time of the dedicated partitioners so far, seconds."""
        return self._routed * (self._route_seconds or 0.0)

    def advance(self, now: float, replicas: int) -> None:
        """Let ``replicas`` dedicated partitioners route records until ``now``, limited by arrivals and by capacity."""
        if self._route_seconds:
            capacity = replicas / self._route_seconds
            self._routed = min(self._trace.arrived(now), self._routed + capacity * (now - self._until))
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
