"""What the driver of the simulated job counts, as its metrics tell it."""

from __future__ import annotations

from millrace_operator.scaling.observation import Answer

from .record import SimulatedBatch


class SimulatedCounters:
    """Counters since the start of the driver, and gauges of the last finished batch."""

    def __init__(self, interval: float, dedicated: bool) -> None:
        """Count for batches of ``interval`` seconds; ``dedicated`` is whether partitioners are pods of their own."""
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
        """A stage of the running batch took ``tasks``, in seconds of a core; if it ran twice, the last time counts.

        Executors were busy with both.
        """
        self._running[stage] = tasks
        self._busy += sum(tasks)

    def finished(
        self, batch: SimulatedBatch, waiting: int, partials: int, results: int, imbalance: float | None
    ) -> None:
        """The running batch is done.

        Args:
            batch: what it was.
            waiting: records that were left at the source when it was planned.
            partials: its partial results.
            results: its results.
            imbalance: of its combine tasks, largest load over the mean less 1; None if there were none.
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
        """What metrics tell at ``now``, seconds, with so many ``executors`` ready.

        ``dedicated_busy`` is the processor time of dedicated partitioners so far, seconds.
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
