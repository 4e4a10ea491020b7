"""A calibration run: the query of a file on this machine, with designed plans, sources in turns, and no sink."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.plan import Plan
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.model.values import PositiveDuration
from millrace_api.sql.parsed_query import parsed_sql
from millrace_jobs.calibration.conductor import LEAST_BATCHES, Conductor
from millrace_jobs.calibration.core_slots import CoreSlots
from millrace_jobs.calibration.design import DesignedPlan, designed_plans
from millrace_jobs.calibration.turns import TurnSource, first_time, next_end
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.comparison.scratch_query import scratch_query
from millrace_jobs.disk import process_folder
from millrace_jobs.pending import PendingCall
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import PlanSource, pin_of
from millrace_jobs.process.processors import ProcessorClock
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.run.endpoints import Endpoints
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.sinks.base import ResultBatch, ResultKeys, Sink
from millrace_jobs.sinks.connector import SinkContext
from millrace_jobs.sources.base import Source
from millrace_support.plan_measurements import PlanMeasurements

_FILES = ("files", "replay", "rate", "nexmark", "python")
"""Kinds of source that need no server, unless their files are in an object store."""

_POLL = PositiveDuration("100ms")
"""Interval of the run, at which its sources are asked whether it is their turn."""

_PARTITIONS_PER_CORE = 2
"""State partitions of the run for each core at most: each of them takes time in every batch."""

_QUIET = 0.2
"""Cores that other processes may take without a note."""

_MANY_LATE = 0.1
"""Share of late records that is worth a note: they cost less than others."""

Say = Callable[[str], None]


class _DroppedResults(Sink):
    """A sink that has results computed, and drops them."""

    @property
    def place(self) -> str:
        """What users would see of it."""
        return "nowhere"

    def write(self, results: DataFrame, batch: ResultBatch) -> int:
        """Compute the results of a batch."""
        results.write.format("noop").mode("overwrite").save()
        return 0


@dataclass
class _CalibrationEndpoints(Endpoints):
    """The sources of the query, in turns, and the sink that drops results."""

    turn: Path
    streams: Collection[str]
    """The sources that are read in turns."""

    found_first_time: Callable[[int], None]
    """Takes the event time of the first records, in microseconds since 1970."""

    has_lookups = False

    def sources(self, spec: Spec, checkpoint: Checkpoint, workspace: Path) -> Mapping[str, Source]:
        """Open the sources; the streams that the query reads wait for their turns."""
        try:
            opened = super().sources(spec, checkpoint, workspace)
        except TransientError as error:
            raise with_sample_hint(spec, error) from None
        for name, source in opened.items():
            if spec.sources[name].kind not in _FILES:
                _check_server(spec, name, source)
        streams = {name: opened[name] for name in self.streams if name in opened}
        self._require_records(spec, streams)
        known = {name: _records_of(source) for name, source in streams.items()}
        total = sum(count or 0 for count in known.values())
        found: dict[str, Source] = dict(opened)
        for name, source in streams.items():
            share = (known[name] or 0) / total if all(known.values()) and total else 1 / len(streams)
            found[name] = TurnSource(source, self.turn, share, again=_can_read_again(spec, name, source))
        return found

    def _require_records(self, spec: Spec, streams: Mapping[str, Source]) -> None:
        """Require that each stream has records, and note the time of its first ones."""
        times: list[int] = []
        for name, source in streams.items():
            start = source.initial()
            if next_end(source, start, 1, 1) == start:
                message = f"source {name} has no record yet, and a calibration run reads those that are there"
                instead = "" if spec.sources[name].kind in _FILES else f", or {_sample_of(spec, name)}"
                field = f"spec.sources.{name}.{spec.sources[name].kind}"
                raise MillraceError(Problem(message, f"let some thousands arrive{instead}", field=field))
            watermark = spec.sources[name].watermark
            if watermark is not None and _can_read_again(spec, name, source):
                found = first_time(source, watermark.column)
                times += [] if found is None else [found]
        if times:
            self.found_first_time(min(times))

    def check_sinks(self, spec: Spec) -> None:
        """Check nothing: the sinks of the query are not used."""

    def server_checks(self, spec: Spec) -> Iterator[Callable[[], None]]:
        """Return no checks: the sinks of the query are not used."""
        return iter(())

    def sink(self, compiled: CompiledQuery, keys: Mapping[str, ResultKeys], context: SinkContext) -> Sink:
        """Return the sink that drops results."""
        return _DroppedResults()


def _by_file(source: SourceSpec) -> SourceSpec:
    """Return a source that can be asked for one file more, if it reads files as a stream."""
    if source.files is None or source.table is not None:
        return source
    return source.model_copy(update={"files": source.files.model_copy(update={"max_files_per_batch": 1})})


def streams_of(spec: Spec) -> list[str]:
    """Return the sources that a query reads in turns: its streams, or tables that change if there is no stream.

    A spec may have sources that its query does not read.
    """
    python = spec.query.python
    if python is not None:
        read = [name for name in spec.sources if python.source in (None, name)]
    else:
        tables = parsed_sql(spec).tables
        read = [name for name in spec.sources if name.lower() in tables]
    streams = [name for name in read if spec.sources[name].table is None]
    return streams or [name for name in read if spec.sources[name].is_evolving]


def _records_of(source: Source) -> int | None:
    """Return how many records a source has; None if that is not known, or it never ends."""
    start = source.initial()
    most = 1 << 40
    ahead = source.ahead(start, most)
    if ahead is not None:
        rows = int(ahead["row"]) - int(start["row"])
        return rows if rows < most else None
    end = source.latest(start, everything=True)
    return None if source.most_records(start, end) is None else source.lag(start)  # batches may have a limit


def _can_read_again(spec: Spec, name: str, source: Source) -> bool:
    """Return whether a source can be read again: without a watermark, or if that is of a column of its own."""
    watermark = spec.sources[name].watermark
    if watermark is None:
        return True
    columns = {field.name.lower(): field for field in source.schema}
    column = columns.get(watermark.column.lower())
    return column is not None and pa.types.is_timestamp(column.type)


def _check_server(spec: Spec, name: str, source: Source) -> None:
    """Ask the server of a source. Raises MillraceError, with what to write instead of what this machine cannot read."""
    try:
        source.check_server()
    except MissingInputError:
        raise
    except MillraceError as error:
        raise _hinted(error, spec, name, field=f"spec.sources.{name}.{spec.sources[name].kind}") from None


def with_sample_hint(spec: Spec, error: MillraceError) -> MillraceError:
    """Return an error of a server's source with what to write instead; other errors stay as they are."""
    remote = {name: source.kind for name, source in spec.sources.items() if source.kind not in _FILES}
    named = [name for name in remote if name in str(error)]
    if not named and len(remote) < len(spec.sources):  # it may be about another source
        return error
    return _hinted(error, spec, next(iter(named or remote)))


def _sample_of(spec: Spec, name: str) -> str:
    return (
        "write some thousands of its records to a file, and in a copy of the query, in place of "
        f"{spec.sources[name].kind} of source {name}: files: {{path: sample.jsonl, format: json}}"
    )


def _hinted(error: MillraceError, spec: Spec, name: str, field: str = "") -> MillraceError:
    """Return an error of a source with one hint more, and with the source's field if it names none."""
    hint = f"where this machine does not reach it, {_sample_of(spec, name)}"
    problems = (
        replace(each, hint=f"{each.hint}; {hint}" if each.hint else hint, field=each.field or field)
        for each in error.problems
    )
    found = type(error)(*problems)
    found.failure = error.failure
    return found


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

    def waits(self, calls: Sequence[PendingCall]) -> None:
        """Say once what the run waits for, or why it was started again."""
        for reason in [call.reason for call in calls if call.reason not in self.said]:
            self.said.add(reason)
            self.say(f"waiting: {reason}")

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
        self._endpoints = _CalibrationEndpoints(turn, streams, self._note_first_time)
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
            designed=lambda cores: plans or designed_plans(cores, *bounds),
        )
        self._log = (self._folder / "log").open("w", encoding="utf-8")
        scratch = scratch_query(query, query.name, self._folder / "checkpoint", from_beginning=True)
        sources = {name: _by_file(source) for name, source in scratch.spec.sources.items()}
        paced = scratch.spec.model_copy(update={"batch_interval": _POLL, "sources": sources})
        self.job = Job(
            scratch.model_copy(update={"spec": paced}),
            self._platform,
            leaves_open=True,
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

    def measured(self) -> PlanMeasurements:
        """Return what the run has measured. Raises MillraceError if that is too little."""
        found = self._conductor
        if found.rejected and not found.events and not found.warm_up:
            message = f"no record could be read: {found.rejected:,} were rejected"
            raise MillraceError(Problem(message, "compare format and schema of the source with its records"))
        if len(found.finished) < LEAST_BATCHES:
            message = (
                f"the run ended after {found.warm_up + len(found.finished)} batches, too few to know what they cost"
            )
            raise MillraceError(Problem(message, "give it more time with --seconds, and more records"))
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
            yield (
                "all batches had about as many records, so that it is hardly known what a batch costs, and what its "
                "records do: give more records, or more and smaller files"
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
