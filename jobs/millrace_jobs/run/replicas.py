"""The partitioner's replicas of one run: what the run loop asks of them, whoever runs their processes.

``dedicated.coordinator`` instructs them, and hands on the source that reads what they place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.dedicated.processes import ReplicaProcesses
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import native_problem
from millrace_jobs.queries.execution import CompiledQuery, RoutingMode
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.sources.base import Position, Source

if TYPE_CHECKING:
    from millrace_jobs.dedicated.coordinator import Coordinator
    from millrace_jobs.sources.kafka.source import KafkaSource


class ReplicaControl:
    """The replicas of a query under plans with ``placement: Dedicated``; they rest under any other plan.

    Args:
        query: the query.
        compiled: the query in the form that it runs in.
        sources: its sources, as they were opened.
        processes: runs the replicas' processes.
    """

    def __init__(
        self,
        query: StreamQuery,
        compiled: CompiledQuery,
        sources: Mapping[str, Source],
        processes: ReplicaProcesses,
    ) -> None:
        self._query, self._compiled, self._sources = query, compiled, sources
        self._processes = processes
        self._coordinator: Coordinator | None = None

    def require(self, pin: Pin) -> None:
        """Raise MillraceError if replicas in processes of their own cannot place the query's records as planned."""
        if not pin.is_dedicated:
            return
        schemas = {name: source.schema for name, source in self._sources.items()}
        problem = self._compiled.execution.dedicated_problem(self._query.spec, schemas)
        if problem is None and self._compiled.mode(pin) is not RoutingMode.DEDICATED:
            problem = native_problem()
        if problem is not None:
            raise MillraceError(problem)

    def begin(self, positions: Mapping[str, Position], pin: Pin) -> Mapping[str, Source]:
        """Return the sources of a query whose records the replicas place, after these positions by source.

        Raises:
            MillraceError: Kafka fails.
        """
        coordinator = self._opened()
        self._processes.scale(pin.replicas)
        name = self._source.name
        return {**self._sources, name: coordinator.begin(positions.get(name), pin)}

    def finish(self) -> Mapping[str, Source]:
        """Return the sources for a batch that was begun with placed records, while the plan has no replicas."""
        return {**self._sources, self._source.name: self._opened().finish()}

    def instruct(self, pin: Pin, committed: Mapping[str, Position], most: Callable[[str], int]) -> None:
        """Publish the plan, how far the job is, and how many records a batch may have; by source.

        Raises:
            MillraceError: Kafka fails, or another driver has taken over.
        """
        if self._coordinator is not None:
            name = self._source.name
            self._processes.scale(pin.replicas)
            self._coordinator.instruct(pin, committed.get(name), most(name))

    def require_running(self) -> None:
        """Raise MillraceError if another driver has taken over, or the processes of this run end again and again.

        Replicas that ended because of another driver must not be started again: they would fence those of that one.
        """
        if self._coordinator is not None:
            self._coordinator.require_driver()
        self._processes.require_running()

    def release(self) -> None:
        """Let the replicas rest."""
        self._processes.scale(0)
        if self._coordinator is not None:
            self._coordinator.release()

    def close(self) -> None:
        """Stop following the control topic; the processes have their own end."""
        if self._coordinator is not None:
            self._coordinator.close()

    @property
    def _source(self) -> KafkaSource:
        from millrace_jobs.sources.kafka.source import KafkaSource  # runs without replicas need no client of Kafka

        source = self._sources[self._routed.source]
        assert isinstance(source, KafkaSource)
        return source

    @property
    def _routed(self) -> Routed:
        assert isinstance(self._compiled.execution, Routed), "no other query can be placed by replicas"
        return self._compiled.execution

    def _opened(self) -> Coordinator:
        if self._coordinator is None:
            from millrace_jobs.dedicated.coordinator import Coordinator

            self._coordinator = Coordinator(self._query, self._routed, self._source, self._processes.driver)
        return self._coordinator
