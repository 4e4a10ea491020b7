"""``millrace state repartition`` for a running query: in a copy, which catches up and then takes the state's place.

1. Spark's part of the checkpoint is copied as of a finished batch, and repartitioned (``state``).
2. The copy repeats the batches that the query has finished since, until it is as far (``following``).
3. The driver stops the query after a batch, which the copy repeats meanwhile. The driver puts the copy in the place of
   its state, and goes on (``checkpoint.handover``, ``state_switch``).
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.sources import CorruptPolicy, CorruptRecordsSpec
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.sql.nested_times import with_flat_times
from millrace_api.sql.parsed_query import parsed_query
from millrace_api.sql.varying import call_of_the_run
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.checkpoint.handover import Handover
from millrace_jobs.checkpoint.marker import Marker
from millrace_jobs.checkpoint.spark_folder import SparkLog, folder_in_force
from millrace_jobs.checkpoint.state_schemas import point_to_own_schemas
from millrace_jobs.places import files_below
from millrace_jobs.process import jvm
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.results import output_keys
from millrace_jobs.queries.state_layout import continue_from, recorded_aggregates, spec_to_continue, windows_after
from millrace_jobs.run.assembly import RunQuery
from millrace_jobs.run.following import Follower
from millrace_jobs.run.inputs import open_sources, user_schemas
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.reports import without_event_log
from millrace_jobs.run.state import repartition_copy, require_state
from millrace_jobs.session import stop
from millrace_jobs.sinks.outputs import open_sinks
from millrace_jobs.stores.objects import ObjectPath

_STOP_FIRST = "stop the query, and repeat this command"

_ASKED_SECONDS = 180.0
"""Seconds in which a driver has to switch: it looks several times a second, but not while it starts again."""

_POLL_SECONDS = 0.02

_FIRST_BATCH_SECONDS = 30.0
"""Seconds that the query has for its first batch on the new state, before the copier uses the processors to end."""

_READY_TO_LOAD = {
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "5",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
}
"""Settings by which the driver finds a recent snapshot of each state store, with few changes to apply to it."""

_ROUNDS, _MOST_BEHIND = 5, 10
"""Rounds of repeating without coming nearer, after which the copy must be at most so many batches behind."""


def is_running(query: StreamQuery) -> bool:
    """Whether a driver holds the query's checkpoint."""
    checkpoint = Checkpoint(checkpoint_root(query))
    return checkpoint.exists() and checkpoint.holder() is not None


def repartition_running(query: StreamQuery, partitions: int, say: Callable[[str], None], *, debug: bool = False) -> int:
    """Redistribute the state of a running query over another number of partitions.

    Returns:
        The number of partitions before; if it equals ``partitions``, nothing changes.

    Raises:
        MillraceError: the query cannot be repeated in a copy, the copy fails or is too slow, or the driver has not
            switched to it. The query goes on with its state as it was.
    """
    root = checkpoint_root(query)
    _require_repeatable(query, partitions, root)
    assert isinstance(root, Path)
    log = Checkpoint(root)
    require_state(log)
    _require_same_query(query, root)
    before = log.state_partitions
    if before == partitions:
        return before
    _require_same_writer(query.spec, before)
    _require_read_once(log)
    handover = Handover(root)
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        workspace = Path(name)
        _require_room(handover, workspace)
        try:
            handover.begin()
        except BlockingIOError:
            hint = "wait until that is done"
            raise MillraceError(Problem(f"another process repartitions the state in {root}", hint)) from None
        try:
            spark = OneProcess().session(without_event_log(query), partitions, workspace, quiet=not debug)
            try:
                _Copier(query, partitions, handover, spark, workspace, say).run()
            finally:
                stop(spark)
        except OSError as error:
            message = f"the state of {query.name} cannot be copied: {error.strerror or error}"
            raise MillraceError(Problem(message, "free some space there, and let this user write to it")) from None
        finally:
            handover.end()
            jvm.end_unused()
    return before


@dataclass(frozen=True)
class _Copier:
    """One attempt, in the process that holds the handover."""

    query: StreamQuery
    partitions: int
    handover: Handover
    spark: SparkSession
    workspace: Path
    say: Callable[[str], None]

    def run(self) -> None:
        began = time.monotonic()
        for name, value in _READY_TO_LOAD.items():
            self.spark.conf.set(name, value)
        batch = self.handover.link()
        point_to_own_schemas(self.handover.copy)
        repartition_copy(self.spark, self.handover.copy, self.partitions)
        self.say(f"copied the state of batch {batch} to {self.partitions} partitions in {_since(began)}")
        follower = self._follower()
        try:
            self._follow(follower)
            self._hand_over(follower)
        finally:
            follower.stop()

    def _follower(self) -> Follower:
        root, query = self.handover.original.parent, self.query
        checkpoint = Checkpoint(root)
        sources = open_sources(_without_dead_letters(query.spec), root / "sources", self.workspace)
        spec = with_flat_times(query.spec)
        continued = spec_to_continue(spec, checkpoint.layout)
        held, after = recorded_aggregates(checkpoint.layout), windows_after(checkpoint.layout)
        compiled = compile_query(self.spark, continued, user_schemas(spec, sources), held, after)
        compiled, _ = continue_from(compiled, continued.query.sql, checkpoint.layout)
        keys = output_keys(compiled, spec)
        sink = open_sinks(query, keys, checkpoint.id, lambda *_: None, results=compiled.result)
        copied = RunQuery(query.name, spec, compiled, sink)
        original = SparkLog(self.handover.original)
        return Follower(copied, sources, self.spark, original, SparkLog(self.handover.copy), self.workspace)

    def _follow(self, follower: Follower) -> None:
        """Repeat batches until the copy is one behind the query, or stays a few behind it."""
        began, first = time.monotonic(), follower.batch
        least, rounds = math.inf, 0
        while (lag := (newest := self._newest(follower)) - follower.batch) > 1 and rounds < _ROUNDS:
            least, rounds = (lag, 0) if lag < least else (least, rounds + 1)
            follower.catch_up(newest)
        if lag > _MOST_BEHIND:
            raise _refused(
                f"the copy stays {lag} batches behind the query, which leaves it too little of the processors"
            )
        self.say(f"repeated {follower.batch - first} batches in {_since(began)}")

    def _hand_over(self, follower: Follower) -> None:
        """Ask the driver to stop, let the copy have its last batch, and wait until the driver has gone on.

        Until the driver has stopped, the copy repeats each batch as soon as the log has its records and plan, beside
        the driver: a driver that dies in that batch is replaced by one that repeats it, too.
        """
        handover = self.handover
        handover.ask(self.partitions)
        asked, offered = time.monotonic(), -1
        while (
            handover.requested() is not None and handover.copy.is_dir()
        ):  # a driver may die once it has taken the copy
            if time.monotonic() - asked > _ASKED_SECONDS:
                raise _refused(f"the driver has not switched to the copy within {_ASKED_SECONDS:.0f} s")
            stopped = handover.stopped_at()
            if stopped is None:
                follower.catch_up(follower.original.last_batch().begun or 0)
            elif stopped != offered:
                handover.take_back()
                follower.catch_up(stopped)
                follower.stop()
                _require_same_query(self.query, handover.original.parent)  # another driver may have another one
                handover.offer(stopped)
                offered = stopped
            time.sleep(_POLL_SECONDS)
        if Checkpoint(handover.original.parent).state_partitions != self.partitions:
            raise _refused("the driver goes on with its own state, and its log says why")
        self._wait_for_first_batch(offered + 1)

    def _wait_for_first_batch(self, adopted: int) -> None:
        """Leave the processors to the query until it has finished a batch after the one that it has adopted."""
        log = SparkLog(folder_in_force(self.handover.original.parent))
        until = time.monotonic() + _FIRST_BATCH_SECONDS
        while (log.last_batch().committed or 0) <= adopted and time.monotonic() < until and is_running(self.query):
            time.sleep(_POLL_SECONDS)

    def _newest(self, follower: Follower) -> int:
        newest = follower.original.last_batch().committed
        if newest is None or not is_running(self.query):
            raise _refused("the query has ended")
        return newest


def _require_repeatable(query: StreamQuery, partitions: int, root: Path | ObjectPath) -> None:
    """Refuse what cannot be repeated from the log, or not handed over."""
    spec = query.spec
    most = spec.parallelism.max
    if not 1 <= partitions <= most:
        message = f"{partitions} state partitions are not possible while the query runs: parallelism.max is {most}"
        raise MillraceError(Problem(message, f"write a number from 1 to {most}, or a higher spec.parallelism.max"))
    why = next(_obstacles(spec, root), None)
    if why is not None:
        raise MillraceError(Problem(f"the state cannot be repartitioned while {query.name} runs: {why}", _STOP_FIRST))


def _obstacles(spec: Spec, root: Path | ObjectPath) -> Iterator[str]:
    if not isinstance(root, Path):
        yield f"its checkpoint {root} is in an object store, where no copy can be handed over"
    static = [name for name, source in spec.sources.items() if source.is_static]
    if static:
        yield f"source {static[0]} is a static table, of which a copy would read other rows"
    moving = [name for name, source in spec.sources.items() if source.watermark is not None]
    if len(moving) > 1:
        names = " and ".join(moving)
        yield f"sources {names} have watermarks, whose common one depends on when the query was started"
    found = None if spec.query.sql is None else call_of_the_run(parsed_query(spec.query.sql).tree)
    if found is not None:
        yield f"{found} has another value when a batch is repeated"


def _require_same_query(query: StreamQuery, root: Path) -> None:
    """Refuse a query that is not the one that runs: its state would have another form."""
    marker = Marker.read(root)
    if marker is None or marker.query.spec != query.spec:
        message = f"the query that runs on {root} is not as this file has it"
        raise MillraceError(
            Problem(message, "write it as it runs, or run it as it is written, and repeat this command")
        )


def _require_same_writer(spec: Spec, before: int) -> None:
    """Refuse sinks that write in a transaction for each state partition: their producers are made at a start."""
    for output in spec.outputs.values():
        if output.sink.by_partition or (before == 1 and output.sink.kafka is not None):
            message = f"sink {output.sink.kind} writes in a transaction for each state partition"
            raise MillraceError(
                Problem(f"the state cannot be repartitioned while the query runs: {message}", _STOP_FIRST)
            )


def _require_read_once(log: SparkLog) -> None:
    """Refuse a query that reads a source twice: a reader cannot know which of the two offsets in the log is its own."""
    read = [offset["source"] for offset in log.committed_offsets()]
    twice = next((name for name in read if read.count(name) > 1), None)
    if twice is not None:
        message = f"the state cannot be repartitioned while the query runs: source {twice} is read twice"
        raise MillraceError(Problem(message, _STOP_FIRST))


def _require_room(handover: Handover, workspace: Path) -> None:
    """Require room for the new state in the checkpoint, and for its working copies where Spark keeps them."""
    state = sum(size for _, size in files_below(handover.original / "state"))
    for place, needed in ((handover.original, state), (workspace, 2 * state)):
        free = shutil.disk_usage(place).free
        if free < needed:
            needs, has = f"{needed / (1 << 20):,.0f} MiB", f"{free / (1 << 20):,.0f} MiB"
            message = f"a copy of the state needs about {needs} at {place}, which has {has} left"
            raise MillraceError(Problem(message, "free some space there, or set TMPDIR to another folder"))


def _without_dead_letters(spec: Spec) -> Spec:
    """Return the spec with sources that drop the records that the query has written to a place for dead letters."""
    sources = {
        name: source.model_copy(update={"corrupt_records": CorruptRecordsSpec(policy=CorruptPolicy.DROP)})
        if source.corrupt_records.policy is CorruptPolicy.DEAD_LETTER
        else source
        for name, source in spec.sources.items()
    }
    return spec.model_copy(update={"sources": sources})


def _refused(why: str) -> MillraceError:
    return MillraceError(Problem(f"the state is unchanged: {why}", "repeat this command"))


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
