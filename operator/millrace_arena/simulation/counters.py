"""Metrics that the driver of the simulated job reports."""

from __future__ import annotations

from millrace_arena.simulation.record import SimulatedBatch
from millrace_operator.scaling.observation import Answer


class SimulatedCounters:
    """Counters since the start of the driver, and gauges of the last finished batch."""

    def __init__(self, interval: float, dedicated: bool) -> None:
        """Count for a batch interval in seconds; ``dedicated`` says whether partitioners run in pods of their own."""
        self._interval = interval
        self._dedicated = dedicated
        self._batches = 0
        self._rows = 0
        self._processing = 0.0
        self._busy = 0.0
        self._tasks = {"route": 0, "combine": 0, "merge": 0}
        self._seconds = {"route": 0.0, "combine": 0.0, "merge": 0.0}
        self._partials = 0
        self._updates = 0
        self._lag: int | None = None
        self._imbalance: float | None = None
        self._last: SimulatedBatch | None = None
        self._running: dict[str, list[float]] = {}

    def ran(self, stage: str, tasks: list[float]) -> None:
        """Record the core seconds of the tasks of a stage of the running batch.

        If a stage runs twice, the last run counts, but both add to the busy time of the executors.
        """
        self._running[stage] = tasks
        self._busy += sum(tasks)

    def finished(
        self, batch: SimulatedBatch, waiting: int, partials: int, results: int, imbalance: float | None
    ) -> None:
        """Record the end of the running batch.

        Args:
            batch: the finished batch.
            waiting: records left at the source when the batch was planned.
            partials: number of its partial results.
            results: number of its results.
            imbalance: largest load of a combine task over the mean, less 1; None if no combine tasks ran.
        """
        for stage, tasks in self._running.items():
            self._tasks[stage] += len(tasks)
            self._seconds[stage] += sum(tasks)
        self._running = {}
        self._batches += 1
        self._rows += batch.rows
        self._processing += batch.seconds
        self._partials += partials
        self._updates += results
        self._lag, self._imbalance, self._last = waiting, imbalance, batch

    def answer(self, now: float, executors: int, dedicated_busy: float) -> Answer:
        """Return the metrics at ``now``, seconds, with ``executors`` executors ready.

        ``dedicated_busy`` is the CPU time of dedicated partitioners so far, seconds.
        """
        routed, last = not self._dedicated, self._last
        return Answer(
            time=now,
            batches_total=self._batches,
            rows_total=self._rows,
            processing_seconds_total=self._processing,
            route_tasks_total=self._tasks["route"] if routed else None,
            route_seconds_total=self._seconds["route"] if routed else None,
            combine_tasks_total=self._tasks["combine"],
            combine_seconds_total=self._seconds["combine"],
            merge_seconds_total=self._seconds["merge"],
            partials_total=self._partials,
            updates_total=self._updates,
            busy_core_seconds_total=self._busy,
            dedicated_busy_seconds_total=dedicated_busy if self._dedicated else None,
            interval_seconds=self._interval,
            lag_rows=self._lag,
            keys=last.distinct if last else None,
            imbalance=self._imbalance,
            epoch=last.epoch if last else None,
            parallelism=last.plan.parallelism if last else None,
            replicas=last.plan.replicas if last else None,
            executors=executors,
        )
