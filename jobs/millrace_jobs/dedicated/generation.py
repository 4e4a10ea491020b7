"""The work of a replica in one generation: interval after interval, each of them one transaction."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.batching.buffers import OutputBatch
from millrace_jobs.dedicated.batching.pack_size import PackSize
from millrace_jobs.dedicated.control_topic import FENCED
from millrace_jobs.dedicated.directions import Directions
from millrace_jobs.dedicated.exchange import Exchange
from millrace_jobs.dedicated.instructions import Work
from millrace_jobs.dedicated.intake import Intake, IntakeCounts
from millrace_jobs.dedicated.interval import BATCH, EPOCH, GENERATION, TRANSACTION_SECONDS, IntervalWriter
from millrace_jobs.dedicated.manifest import Manifest, PackRange
from millrace_jobs.dedicated.metrics import IntervalReport, ReplicaMetrics
from millrace_jobs.dedicated.placing import Placing
from millrace_jobs.dedicated.raw_reader import RawReader, ReassignedError, StoppingRecordError
from millrace_jobs.dedicated.status import ReplicaStatus
from millrace_jobs.kafka.errors import (
    PATIENCE,
    SHORTEST_PAUSE,
    BrokerErrors,
    error_of,
    is_transient,
    kafka_problem,
    patiently,
)
from millrace_jobs.partitioners.prompt.partitioner import EarlyRelease
from millrace_jobs.pipeline.arrivals import Arrivals
from millrace_jobs.plan.control import Pin
from millrace_jobs.sources.kafka.bad_messages import BadMessageHandler
from millrace_jobs.sources.kafka.message_records import arrivals
from millrace_jobs.sources.kafka.offsets import Offsets
from millrace_jobs.sources.kafka.source import KafkaSource

MOST_RECORDS, MOST_BYTES = 1 << 19, 256 << 20
"""Records, and bytes of their values, at which a batch is cut before its interval ends: what a replica holds."""

MOST_AHEAD = 2 * MOST_RECORDS
"""Records that a replica may have written and the job not read; then it waits for the job (back pressure)."""

LONGEST_INTERVAL = 60.0
"""Seconds of a replica's longest interval: of a batch with a longer one, it writes several."""

_SENDING = 0.5
"""Share of an interval, its last, in which packs are sent.

Nothing behind the first pack of an open transaction can be read in a partition. If a replica began to send at once, it
would hold up the last interval of another replica that is a little late.
"""

_ABOUT_TO_END = 0.01
"""Seconds before the cut-off at which a replica no longer waits for records."""

_WAIT_SECONDS = 0.1
"""Seconds for which one call waits, so that a replica soon notices that it is to end."""

_REASSIGNED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._STATE,
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError._UNKNOWN_PARTITION,
    }
)
"""Errors while partitions change: of a transaction that has lost its own, of a ``seek`` too early, or of a new one."""


def next_heartbeat(now: float, slack: float, ended: int, length: float) -> int:
    """Return the number of the heartbeat that ends the interval which begins now, counted from 1970.

    It is the first one whose cut-off is to come, and comes after the heartbeat ``ended``, whose cut-off was reached. A
    slack that has become shorter since then does not bring that interval back. A clock that is set back does not make
    an interval longer than two lengths.

    Args:
        now: seconds since 1970.
        slack: seconds from the cut-off to the heartbeat, less than ``length``.
        ended: number of the last heartbeat whose cut-off was reached.
        length: seconds between two heartbeats.
    """
    running = int(now // length)
    return max(int((now + slack) // length), min(ended, running + 1)) + 1


@dataclass
class _Interval:
    """What is known of the interval that is taken in: its number, its most records, when it ends, and so on."""

    batch: int
    most: int
    due: float
    cut_off: float
    sends_from: float
    arrivals: Arrivals
    packs: list[OutputBatch] = field(default_factory=list)
    waited: float = 0.0
    began: float = field(default_factory=time.monotonic)
    used_before: float = field(default_factory=time.process_time)
    counts: IntakeCounts = field(default_factory=IntakeCounts)
    messages: int = 0
    size: int = 0
    heartbeat: int = 0


@dataclass
class GenerationRun:
    """The intervals of one replica in one generation.

    Attributes:
        source: the query's source.
        index: number of the replica.
        work: what the generation does.
        directions: where plans, and the next generation, come from.
        raw: the replica's share of the raw topics.
        writer: its transactions.
        placing: its partitioner, which outlives a generation.
        exchange: what replicas exchange, so that their partitioners work together.
        status: what probes read.
        metrics: what Prometheus reads.
        errors: the broker errors of its clients.
        cores: cores that the process may use.
    """

    source: KafkaSource
    index: int
    work: Work
    directions: Directions
    raw: RawReader
    writer: IntervalWriter
    placing: Placing
    exchange: Exchange
    status: ReplicaStatus
    metrics: ReplicaMetrics
    errors: BrokerErrors
    cores: float
    _batch: int = 0
    _ended: int = 0  # heartbeats up to this number have had their cut-off
    _astray: bool = False
    _failing_since: float | None = None
    _positions: Offsets = field(default_factory=dict)
    _ahead: deque[tuple[int, int]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        """Prepare the intake."""
        self._intake = Intake(self.source, self.work)
        self._release = EarlyRelease(min(self.work.interval, LONGEST_INTERVAL))
        self._pack_size = PackSize(self.work.interval)

    def run(self, stop: threading.Event) -> bool:
        """Write interval after interval, until ``stop`` is set, or the driver wants another generation or none.

        Returns:
            Whether a record stops the generation, so that it can go no further.

        Raises:
            MillraceError: Kafka fails permanently, or for longer than ``PATIENCE``, or another process has the index.
        """
        while not stop.is_set():
            self._follow()
            current = self.directions.current
            if current is None or current[0].generation != self.work.generation:
                return False
            try:
                self._require_position()
                if self._is_ahead(current[1].consumed):
                    self._wait_for_job()
                    continue
                self.raw.resume()
                self._adopt(current[1].pin)
                self._run_interval(min(current[1].most, MOST_RECORDS), stop)
                self._failing_since = None
            except ReassignedError:
                self._give_up()
            except KafkaException as error:
                self._give_up()
                self._check(error_of(error))
            except StoppingRecordError as error:
                self._give_up()
                self._report(error)
                return True
        self._give_up()
        return False

    def _follow(self) -> None:
        """Take in what driver and other replicas have written to the control topic."""
        for record in self.directions.follow():
            self.exchange.received(record, time.time())

    def _adopt(self, pin: Pin) -> None:
        """Follow the plan of the next interval."""
        if self.placing.follow(pin):
            self.exchange.begin(pin, self.placing.partitioner, time.time())
        self.writer.require_workers(pin.workers)
        self.placing.resize_packs(self._pack_size.records)

    def _run_interval(self, most: int, stop: threading.Event) -> None:
        """Take in the records of one interval, then place and write what is left."""
        length = min(self.work.interval, LONGEST_INTERVAL)
        number = next_heartbeat(time.time(), self._release.slack, self._ended, length)
        heartbeat = number * length
        batch = max(self._batch + 1, round(heartbeat / self.work.interval))
        interval = _Interval(
            batch,
            most,
            heartbeat,
            self._release.cut_off(heartbeat),
            heartbeat - _SENDING * length,
            Arrivals(heartbeat),
        )
        self.writer.begin(
            {EPOCH: str(self.placing.pin.epoch), BATCH: str(batch), GENERATION: self.work.generation},
        )
        label = f"{self.work.generation}-{batch:010d}-{self.index:04d}"
        with BadMessageHandler(self.source.name, self.source.corrupt, label, self.source.connection) as rejects:
            self._take_in(interval, rejects, stop)
            if stop.is_set():
                return
        is_whole = time.time() > interval.cut_off - _ABOUT_TO_END
        if is_whole:
            self._ended = number
        interval.heartbeat = self._interval_of(number if is_whole else number - 1)
        positions = self.raw.positions()
        if interval.messages or positions != self._positions:
            self._write(interval, positions, rejects.records)
        self.status.works()

    def _interval_of(self, heartbeat: int) -> int:
        """Return the batch interval, counted from 1970, that has ended by a heartbeat."""
        whole = self.work.interval <= LONGEST_INTERVAL
        return heartbeat if whole else int(heartbeat * LONGEST_INTERVAL // self.work.interval)

    def _take_in(self, interval: _Interval, rejects: BadMessageHandler, stop: threading.Event) -> None:
        """Take in what comes until the cut-off, or as much as a replica holds."""
        while not stop.is_set() and interval.messages < interval.most and interval.size < MOST_BYTES:
            left = interval.cut_off - time.time()
            if left < _ABOUT_TO_END and (interval.messages or left < 0):
                return
            asked = time.monotonic()
            messages = self.raw.take(interval.most - interval.messages, min(max(left, 0.0), _WAIT_SECONDS))
            interval.waited += time.monotonic() - asked
            if messages:
                self._place(messages, interval, rejects)
            self._follow()
            self.exchange.after_block(self.placing.partitioner, time.time())

    def _place(self, messages: Sequence[Message], interval: _Interval, rejects: BadMessageHandler) -> None:
        interval.messages += len(messages)
        interval.size += sum(map(len, messages))
        interval.arrivals.add(*arrivals(messages))
        try:
            block, keys = self._intake.take(messages, rejects, interval.counts)
        except MillraceError as error:
            raise StoppingRecordError(*error.problems) from error
        if block.num_rows:
            interval.packs += self.placing.take(block, keys)
        if time.time() > interval.sends_from:
            self._send(interval)

    def _send(self, interval: _Interval) -> None:
        for pack in interval.packs:
            self.writer.send(pack)
        interval.packs.clear()

    def _write(self, interval: _Interval, positions: Offsets, rejected: int) -> None:
        """Write what is left of an interval, and commit it."""
        began = time.monotonic()
        interval.packs += self.placing.cut()
        self._send(interval)
        manifest = partial(self._manifest, interval, positions, rejected, began)
        offset = self.writer.commit(manifest, positions, self.raw.consumer)
        took = time.monotonic() - began
        if interval.messages:
            self._release = self._release.after(took)
        self._batch, self._positions = interval.batch, positions
        self._ahead.append((offset, interval.counts.read))
        busy = time.monotonic() - interval.began - interval.waited
        used = time.process_time() - interval.used_before
        self._pack_size.observe(interval.counts.routed, self.writer.packs, busy)
        keys, ids = self.placing.end()
        self.exchange.after_interval(self.placing.partitioner, time.time(), interval.due)
        report = IntervalReport(
            records=interval.messages,
            size=interval.counts.size,
            epoch=self.placing.pin.epoch,
            place_seconds=took,
            busy_seconds=max(busy, used / self.cores),  # Kafka's client works in its own threads, also in a wait
            margin=self._release.slack,
            lag=self.raw.lag(),
            pack_records=self._pack_size.records,
        )
        self.metrics.wrote(report, keys, ids, self.placing.pin.workers)

    def _manifest(
        self,
        interval: _Interval,
        positions: Offsets,
        rejected: int,
        began: float,
        packs: Mapping[int, Sequence[PackRange]],
    ) -> Manifest:
        counts = interval.counts
        return Manifest(
            generation=self.work.generation,
            replica=self.index,
            batch=interval.batch,
            pin=self.placing.pin,
            raw=positions,
            packs=packs,
            read=counts.read,
            rejected=rejected,
            routed=counts.routed,
            size=counts.size,
            incomplete=counts.times.missing,
            latest=counts.times.latest,
            heartbeat=interval.heartbeat,
            seconds=round(time.monotonic() - began, 6),
            arrivals=interval.arrivals.note(),
        )

    def _is_ahead(self, consumed: int) -> bool:
        """Whether the job has to read first; one interval that it has not read is always allowed."""
        while self._ahead and self._ahead[0][0] < consumed:
            self._ahead.popleft()
        return len(self._ahead) > 1 and sum(records for _, records in self._ahead) > MOST_AHEAD

    def _wait_for_job(self) -> None:
        asked = time.monotonic()
        self.raw.wait(_WAIT_SECONDS)
        self.metrics.paused(time.monotonic() - asked)
        self.status.works("waiting for the job to read what was placed")

    def _require_position(self) -> None:
        """Read again from the committed offsets if an interval was given up, once it is known whether it counts."""
        self.writer.require_producer()
        if self._astray:
            self.raw.rewind()
            self._astray = False

    def _give_up(self) -> None:
        """Give up what was not committed, which comes again."""
        self.writer.abort()
        self.placing.give_up()
        self.metrics.aborted()
        self._positions = {}
        self._astray = True

    def _check(self, error: KafkaError) -> None:
        """Raise MillraceError unless the error may pass."""
        error = self.errors.cause_of(error)
        is_fatal = error.fatal()
        if is_fatal:
            error = self.errors.permanent or error
        if error.code() in FENCED and self.writer.seconds < TRANSACTION_SECONDS:
            message = f"another process works as replica {self.index} of the partitioner of this query"
            raise MillraceError(Problem(message, "run one process for each replica: this one has ended"))
        self._failing_since = self._failing_since or time.monotonic()
        is_broken = is_fatal or error.code() in FENCED  # as after brokers have ended a transaction that took too long
        passing = is_broken or is_transient(error) or error.txn_requires_abort() or error.code() in _REASSIGNED
        if not passing or time.monotonic() > self._failing_since + PATIENCE:
            raise kafka_problem(error, "moving records to workers", self.source.connection)
        if is_broken:
            self.writer.drop_producer()
            self.errors.clear()
        time.sleep(SHORTEST_PAUSE)

    def _report(self, error: StoppingRecordError) -> None:
        """Report a record that stops the query to the job, which fails with this error."""
        problem = error.problems[0]
        self.status.failed(str(problem))
        failure = Manifest(
            self.work.generation, self.index, self._batch, self.placing.pin, {}, failure=(problem.message, problem.hint)
        )

        def attempt() -> None:
            self.writer.require_producer()
            self.writer.begin({GENERATION: self.work.generation})
            try:
                self.writer.commit(lambda _: failure, {}, self.raw.consumer)
            except KafkaException:
                self.writer.abort()
                raise

        patiently(attempt, "reporting a record that stops the query", self.source.connection)
