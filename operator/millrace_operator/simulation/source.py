"""The source of the job: records that came and wait, behind dedicated partitioners where there are any."""

from __future__ import annotations

from .traces import Trace


class SimulatedSource:
    """Records of a trace, taken by batches; time only goes on, from 0.

    Attributes:
        taken: records that batches took so far.
        routed_seconds: processor time of the dedicated partitioners so far.
    """

    def __init__(self, trace: Trace, route_seconds: float | None = None) -> None:
        """Serve ``trace``; ``route_seconds`` is what a dedicated replica takes per record, None without such."""
        self._trace = trace
        self._route_seconds = route_seconds
        self._routed = 0.0
        self._until = 0.0
        self.taken = 0

    @property
    def routed_seconds(self) -> float:
        """Processor time of the dedicated partitioners so far."""
        return self._routed * (self._route_seconds or 0.0)

    def advance(self, now: float, replicas: int) -> None:
        """Let ``replicas`` dedicated partitioners work until ``now``: as much as came, and as they can."""
        if self._route_seconds:
            capacity = replicas / self._route_seconds
            self._routed = min(self._trace.arrived(now), self._routed + capacity * (now - self._until))
            self._until = now

    def waiting(self, now: float) -> int:
        """Records that came until ``now`` and that no batch took."""
        return int(self._trace.arrived(now)) - self.taken

    def take(self, now: float, most: int | None) -> int:
        """Records for a batch that is planned at ``now``: all that it can have, or ``most``."""
        offered = self._routed if self._route_seconds else self._trace.arrived(now)
        rows = int(offered) - self.taken
        if most is not None:
            rows = min(rows, most)
        self.taken += rows
        return rows

    def newest(self, now: float) -> float:
        """When the newest record that was taken came, if batches were planned until ``now``."""
        return now if not self.waiting(now) else self._trace.when(self.taken)
