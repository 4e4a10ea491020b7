"""A calibration run: the query of a file on this machine, with designed plans, sources in turns, and no sink."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.plan import Plan
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.model.values import PositiveDuration
from millrace_jobs.calibration.calibration_endpoints import CalibrationEndpoints, away_error, streams_of
from millrace_jobs.calibration.conductor import LEAST_BATCHES, Conductor
from millrace_jobs.calibration.core_slots import CoreSlots
from millrace_jobs.calibration.design import LEAST_ROWS, DesignedPlan, designed_plans
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.comparison.scratch_query import scratch_query
from millrace_jobs.disk import process_folder
from millrace_jobs.pending import CallKind, PendingCall
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import PlanSource, pin_of
from millrace_jobs.process.processors import ProcessorClock
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_support.plan_measurements import PlanMeasurements

_POLL = PositiveDuration("100ms")
"""Interval of the run, at which its sources are asked whether it is their turn."""

_PARTITIONS_PER_CORE = 2
"""State partitions of the run for each core at most: each of them takes time in every batch."""

_AWAY = 20.0
"""Seconds for which a server may be away during a run: a batch that waited says nothing of what batches cost."""

_ENDS_WITHIN = "5s"
"""How long Spark may take to end a batch that waits for a server."""

_QUIET = 0.2
"""Cores that other processes may take without a note."""

_MANY_LATE = 0.1
"""Share of late records that is worth a note: they cost less than others."""

Say = Callable[[str], None]


def by_file(source: SourceSpec) -> SourceSpec:
    """Return a source that can be asked for one file more, if it reads files, or the rows of a lakehouse's table."""
    files = source.files or source.lakehouse
    if files is None:
        return source
    return source.model_copy(update={source.kind: files.model_copy(update={"max_files_per_batch": 1})})


@dataclass
class _CalibrationPlatform(OneProcess):
    """This process, whose conductor makes the plans and hears of every batch."""

    say: Say = lambda _: None
    conductor: Conductor | None = None
    partitions: int = 2
    slots: CoreSlots | None = None
    late: int = 0
    rows: int = 0
    others: float = 0.0
    """Cores that other processes have taken since the first batch."""

    clock: ProcessorClock | None = None
    said: set[str] = field(default_factory=set)
    away_since: float = math.inf
    """When a server was first missed, by the monotonic clock; infinite while none is."""

    spec: Spec | None = None
    designed: Callable[[int], Sequence[DesignedPlan]] = lambda _: []

    @property
    def chooses_algorithm(self) -> bool:
        """Whether ``auto`` may choose: while the run warms up, so that all batches of the design have one algorithm."""
        return self.conductor is None or self.conductor.is_warming_up

    def state_partitions(self, spec: Spec) -> int:
        """Return the number of state partitions."""
        return self.partitions

    def plans(self) -> PlanSource | None:
        """Return the conductor."""
        assert self.conductor is not None
        pin_of(self.conductor.base)  # a parameter that is wrong is an error before Spark starts
        return self.conductor

    def copies(self, checkpoint: Checkpoint) -> None:
        """Return no folder: rows are not looked up."""

    def cores(self, spark: SparkSession) -> int:
        """Return the number of cores that batches have now."""
        return self.slots.free if self.slots is not None else super().cores(spark)

    def started(self, spark: SparkSession, partitions: int) -> None:
        """Take hold of the cores, which may be fewer than the machine's for this process."""
        assert self.conductor is not None
        self.slots = CoreSlots(spark)
        self.conductor.plans = self.designed(self.slots.total)

    def batch(self, report: BatchReport) -> None:
        """Give a finished batch to the conductor."""
        assert self.conductor is not None
        self.late += report.late
        self.rows += report.rows
        now = ProcessorClock.now()
        self.clock = self.clock or now
        self.others = now.others_since(self.clock)
        self.conductor.batch(report)

    def idle(self, pin: Pin) -> None:
        """Have the conductor end a run that reads nothing."""
        assert self.conductor is not None
        self.conductor.idle()

    def waits(self, calls: Sequence[PendingCall]) -> MillraceError | None:
        """Say once what the run waits for; end it if a server has been away for long."""
        for reason in [call.reason for call in calls if call.reason not in self.said]:
            self.said.add(reason)
            self.say(f"waiting: {reason}")
        away = [call for call in calls if call.kind is CallKind.SERVER]
        if not away:
            self.away_since = math.inf
            return None
        now = time.monotonic()
        self.away_since = min(self.away_since, now - max(call.seconds for call in away))
        if now - self.away_since < _AWAY:
            return None
        assert self.spec is not None
        return away_error(self.spec, away[0])

    def close(self) -> None:
        """Give all cores back."""
        if self.slots is not None:
            with suppress(PySparkException, Py4JError, ConnectionError):
                self.slots.release()


class CalibrationRun:
    """A calibration run, from its preparation to its measurements.

    Args:
        query: the query of the user.
        seconds: time of all batches.
        cores: cores of this machine.
        say: takes a line on what happens.
        debug: whether to show what Spark prints.
        plans: the plans to measure, the usual one first; those of the design if there are none.
    """

    def __init__(
        self,
        query: StreamQuery,
        seconds: float,
        cores: int,
        say: Say,
        *,
        debug: bool = False,
        plans: Sequence[DesignedPlan] = (),
    ) -> None:
        self._query = query
        self._folder, _ = process_folder("millrace-calibrate-")
        turn = self._folder / "turn.json"
        spec = query.spec
        streams = streams_of(spec)
        self._endpoints = CalibrationEndpoints(turn, streams, self._note_first_time)
        bounds = spec.parallelism, spec.partitioner.replicas
        base = Plan.initial(spec, auto=Algorithm.NATIVE).model_copy(update={"placement": Placement.INLINE})
        delays = [each.watermark.delay.microseconds for each in spec.sources.values() if each.watermark is not None]
        self._conductor = Conductor(
            plans or designed_plans(cores, *bounds),
            base,
            seconds,
            leave=lambda cores: self._leave(cores),
            give=lambda turn_: turn_.write(turn),
            say=say,
            end=lambda: self.job.stop(),
            clock=time.monotonic,
            delay=max(delays, default=0),
            streams=frozenset(streams),
        )
        self._conductor.begin()
        deployed = spec.state_partitions(spec.executors.max * spec.executors.cores.slots)
        partitions = min(deployed, max(2, _PARTITIONS_PER_CORE * cores))
        self._platform = _CalibrationPlatform(
            say=say,
            conductor=self._conductor,
            partitions=partitions,
            spec=spec,
            designed=lambda cores: plans or designed_plans(cores, *bounds),
        )
        self._log = (self._folder / "log").open("w", encoding="utf-8")
        scratch = scratch_query(query, query.name, self._folder / "checkpoint", from_beginning=True)
        given = scratch.spec.sources
        sources = {name: by_file(source) if name in streams else source for name, source in given.items()}
        conf = {**scratch.spec.spark_conf, "spark.sql.streaming.stopTimeout": _ENDS_WITHIN}
        paced = scratch.spec.model_copy(update={"batch_interval": _POLL, "sources": sources, "spark_conf": conf})
        self.job = Job(
            scratch.model_copy(update={"spec": paced}),
            self._platform,
            leaves_open=True,
            starts_again=False,  # what comes after a failure says nothing of what batches cost
            debug=debug,
            console=Console(file=self._log, width=200),
            endpoints=self._endpoints,
        )

    def _note_first_time(self, micros: int) -> None:
        self._conductor.first_time = micros

    def _leave(self, cores: int) -> None:
        if self._platform.slots is not None:
            self._platform.slots.leave(cores)

    def close(self) -> None:
        """Remove the checkpoint, and all else that the run has written."""
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def has_enough(self) -> bool:
        """Whether so many batches have finished that they say what others cost."""
        return len(self._conductor.finished) >= LEAST_BATCHES

    def measured(self) -> PlanMeasurements:
        """Return what the run has measured. Raises MillraceError if that is too little."""
        found = self._conductor
        if found.rejected and not found.events and not found.warm_up:
            message = f"no record could be read: {found.rejected:,} were rejected"
            raise MillraceError(Problem(message, "compare format and schema of the source with its records"))
        if not self.has_enough:
            message = (
                f"the run ended after {found.warm_up + len(found.finished)} batches, too few to know what they cost"
            )
            raise MillraceError(Problem(message, "give it more time with --seconds, and more records"))
        most = max(batch.rows for batch in found.counted)
        if most < LEAST_ROWS:
            message = f"no batch had more than {most:,} records, too few to know what a record costs"
            raise MillraceError(Problem(message, "give its sources some thousands"))
        return PlanMeasurements(
            query=self._query,
            cores=self._total,
            state_partitions=self._platform.partitions,
            algorithm=found.algorithm,
            batches=found.counted,
            warm_up=found.warm_up,
            seconds=found.spent,
            event_seconds=self._event_seconds(),
            notes=list(self._notes()),
        )

    @property
    def _total(self) -> int:
        return self._conductor.plans[0].cores

    def _event_seconds(self) -> float | None:
        """Return the event time of a record on average; None if it is not known."""
        events = self._conductor.events
        if len(events) < 2 or events[-1][0] == events[0][0]:
            return None
        return max(events[-1][1] - events[0][1], 0) / 1e6 / (events[-1][0] - events[0][0])

    def _notes(self) -> Iterator[str]:
        """Yield what limits the measurements."""
        found, spec = self._conductor, self._query.spec
        seen = {(batch.cores, batch.parallelism, batch.replicas) for batch in found.counted}
        if len(seen) < len(found.plans):
            yield f"{len(seen)} of {len(found.plans)} designed plans were measured: more --seconds measure the others"
        if self._total == 1:
            yield "this machine has one core, so that what more cores would gain is only assumed"
        sizes = {batch.rows for batch in found.counted}
        if max(sizes) < 2 * min(sizes):
            more = "more records, or more and smaller files" if len(seen) == len(found.plans) else "it more --seconds"
            yield (
                "all batches had about as many records, so that it is hardly known what a batch costs, and what its "
                f"records do: give {more}"
            )
        if self._platform.late > _MANY_LATE * self._platform.rows:
            share = self._platform.late / self._platform.rows
            yield f"{share:.0%} of the records were late, which cost less than others"
        if self._platform.others > _QUIET:
            yield (
                f"other processes of this machine took {self._platform.others:.1f} cores meanwhile, so that all is "
                "slower here than it could be: run this again when they are done"
            )
        if spec.partitioner.algorithm is Algorithm.AUTO:
            yield f"algorithm auto had come to {found.algorithm}, which stayed; the deployed query goes on choosing"
        if spec.partitioner.placement.at_start is Placement.DEDICATED:
            yield "replicas ran in the tasks of batches here, and have pods of their own when the query is deployed"
