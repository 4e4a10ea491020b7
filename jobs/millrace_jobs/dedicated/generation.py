"""The work of a replica in one generation: interval after interval, each of them one transaction.

In an interval, records pass ``raw_reader``, ``intake``, ``placing`` and ``interval``; then they are the job's, in
``routed_source``.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from confluent_kafka import KafkaError, KafkaException

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.batching.pack_size import PackSize
from millrace_jobs.dedicated.control_topic import FENCED
from millrace_jobs.dedicated.instructions import Instructions, Work
from millrace_jobs.dedicated.intake import Intake, IntakeInterval
from millrace_jobs.dedicated.interval import BATCH, EPOCH, GENERATION, TRANSACTION_SECONDS
from millrace_jobs.dedicated.manifest import Manifest, Packs
from millrace_jobs.dedicated.raw_reader import RawReader, ReassignedError, StoppingRecordError
from millrace_jobs.dedicated.replica import PartitionerReplica
from millrace_jobs.dedicated.replica_metrics import IntervalReport
from millrace_jobs.kafka.errors import PATIENCE, SHORTEST_PAUSE, error_of, is_transient, kafka_problem, patiently
from millrace_jobs.partitioners.prompt.partitioner import EarlyRelease
from millrace_jobs.pipeline.arrivals import Arrivals
from millrace_jobs.sources.kafka.bad_messages import BadMessageHandler
from millrace_jobs.sources.kafka.offsets import Offsets

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


class GenerationRun:
    """The intervals of one replica in one generation."""

    def __init__(self, replica: PartitionerReplica, work: Work) -> None:
        self._replica, self._work = replica, work
        self._writer, self._placing, self._peers = replica.writer, replica.placing, replica.peers
        self._length = min(work.interval, LONGEST_INTERVAL)
        self._intake = Intake(replica.source, work)
        self._release = EarlyRelease(self._length)
        self._pack_size = PackSize(work.interval)
        self._batch = 0
        self._ended = 0  # heartbeats up to this number have had their cut-off
        self._astray = False  # whether an interval was given up, and the reader is somewhere in it
        self._failing_since: float | None = None
        self._positions: Offsets = {}
        self._ahead: deque[tuple[int, int]] = deque()  # manifests that the job has not read: offset, records
        self._raw = RawReader(replica.source, replica.topics, work, replica.errors)

    def run(self, stop: threading.Event) -> bool:
        """Write interval after interval, until ``stop`` is set, or the driver wants another generation or none.

        Returns:
            Whether a record stops the generation, so that it can go no further.

        Raises:
            MillraceError: Kafka fails permanently, or for longer than ``PATIENCE``, or another process has the index.
        """
        try:
            while not stop.is_set():
                self._follow()
                current = self._replica.control.current
                if current is None or current[0].generation != self._work.generation:
                    return False
                try:
                    self._step(current[1], stop)
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
        finally:
            self._raw.close()

    def _follow(self) -> None:
        """Take in what driver and other replicas have written to the control topic."""
        for key, value in self._replica.control.follow():
            self._peers.received(key, value)

    def _step(self, instructions: Instructions, stop: threading.Event) -> None:
        """Write one interval, or wait for the job if it is far behind."""
        self._writer.require_producer()  # only then it is known whether an interval that was given up counts
        if self._astray:
            self._raw.rewind()
            self._astray = False
        while self._ahead and self._ahead[0][0] < instructions.consumed:
            self._ahead.popleft()
        # One interval that the job has not read is always allowed.
        if len(self._ahead) > 1 and sum(records for _, records in self._ahead) > MOST_AHEAD:
            began = time.monotonic()
            self._raw.wait(_WAIT_SECONDS)
            self._replica.metrics.paused(time.monotonic() - began)
            self._replica.status.works("waiting for the job to read what was placed")
            return
        self._raw.resume()
        if self._placing.follow(instructions.pin):
            self._peers.begin(instructions.pin, self._placing.partitioner, self._work.interval)
        self._writer.require_workers(instructions.pin.workers)
        self._placing.resize_packs(self._pack_size.records)
        self._run_interval(min(instructions.most, MOST_RECORDS), stop)
        self._failing_since = None

    def _run_interval(self, most: int, stop: threading.Event) -> None:
        """Take in the records of one interval, at most so many, then place and write what is left."""
        length = self._length
        number = next_heartbeat(time.time(), self._release.slack, self._ended, length)
        due = number * length
        batch = max(self._batch + 1, round(due / self._work.interval))
        interval = IntakeInterval(batch, due, self._release.cut_off(due), due - _SENDING * length, Arrivals(due))
        generation, source = self._work.generation, self._replica.source
        self._writer.begin({EPOCH: str(self._placing.pin.epoch), BATCH: str(batch), GENERATION: generation})
        label = f"{generation}-{batch:010d}-{self._replica.index:04d}"
        with BadMessageHandler(source.name, source.corrupt, label, source.connection) as rejects:
            self._take_in(interval, most, rejects, stop)
            if stop.is_set():
                return
        interval.rejected = rejects.records
        is_whole = time.time() > interval.cut_off - _ABOUT_TO_END
        if is_whole:
            self._ended = number
        heartbeat = number if is_whole else number - 1
        if self._work.interval > LONGEST_INTERVAL:  # the batch interval that has ended by then
            heartbeat = int(heartbeat * LONGEST_INTERVAL // self._work.interval)
        positions = self._raw.positions()
        if interval.messages or positions != self._positions:
            self._write(interval, positions, heartbeat)
        self._replica.status.works()

    def _take_in(self, interval: IntakeInterval, most: int, rejects: BadMessageHandler, stop: threading.Event) -> None:
        """Take in what comes until the cut-off, or as much as a replica holds."""
        while not stop.is_set() and interval.messages < most and interval.message_bytes < MOST_BYTES:
            left = interval.cut_off - time.time()
            if left < _ABOUT_TO_END and (interval.messages or left < 0):
                return
            began = time.monotonic()
            messages = self._raw.take(most - interval.messages, min(max(left, 0.0), _WAIT_SECONDS))
            interval.waited += time.monotonic() - began
            if messages:
                block, keys = self._intake.take(messages, rejects, interval)
                if block.num_rows:
                    interval.packs += self._placing.take(block, keys)
                if time.time() > interval.sends_from:
                    self._send(interval)
            self._follow()
            self._peers.after_block(self._placing.partitioner)

    def _send(self, interval: IntakeInterval) -> None:
        for pack in interval.packs:
            self._writer.send(pack)
        interval.packs.clear()

    def _write(self, interval: IntakeInterval, positions: Offsets, heartbeat: int) -> None:
        """Write what is left of an interval, and commit it."""
        began = time.monotonic()
        interval.packs += self._placing.cut()
        self._send(interval)
        pin = self._placing.pin

        def manifest(packs: Packs) -> Manifest:
            return Manifest(
                generation=self._work.generation,
                replica=self._replica.index,
                batch=interval.batch,
                pin=pin,
                raw=positions,
                packs=packs,
                read=interval.read,
                rejected=interval.rejected,
                routed=interval.routed,
                size=interval.size,
                incomplete=interval.times.missing,
                latest=interval.times.latest,
                heartbeat=heartbeat,
                seconds=round(time.monotonic() - began, 6),
                arrivals=interval.arrivals.note(),
            )

        offset = self._writer.commit(manifest, positions, self._raw.consumer)
        took = time.monotonic() - began
        if interval.messages:
            self._release = self._release.after(took)
        self._batch, self._positions = interval.batch, positions
        self._ahead.append((offset, interval.read))
        busy = time.monotonic() - interval.began - interval.waited
        used = time.process_time() - interval.used_before
        self._pack_size.observe(interval.routed, self._writer.packs, busy)
        keys, ids = self._placing.end()
        self._peers.after_interval(self._placing.partitioner, interval.due)
        report = IntervalReport(
            records=interval.messages,
            size=interval.size,
            epoch=pin.epoch,
            place_seconds=took,
            busy_seconds=max(busy, used / self._replica.cores),  # Kafka's client works in threads, also in a wait
            margin=self._release.slack,
            lag=self._raw.lag(),
            pack_records=self._pack_size.records,
        )
        self._replica.metrics.wrote(report, keys, ids, pin.workers)

    def _give_up(self) -> None:
        """Give up what was not committed, which comes again."""
        self._writer.abort()
        self._placing.give_up()
        self._replica.metrics.aborted()
        self._positions = {}
        self._astray = True

    def _check(self, error: KafkaError) -> None:
        """Raise MillraceError unless the error may pass."""
        errors = self._replica.errors
        error = errors.cause_of(error)
        is_fatal = error.fatal()
        if is_fatal:
            error = errors.permanent or error
        if error.code() in FENCED and self._writer.seconds < TRANSACTION_SECONDS:
            message = f"another process works as replica {self._replica.index} of the partitioner of this query"
            raise MillraceError(Problem(message, "run one process for each replica: this one has ended"))
        self._failing_since = self._failing_since or time.monotonic()
        is_broken = is_fatal or error.code() in FENCED  # as after brokers have ended a transaction that took too long
        passing = is_broken or is_transient(error) or error.txn_requires_abort() or error.code() in _REASSIGNED
        if not passing or time.monotonic() > self._failing_since + PATIENCE:
            raise kafka_problem(error, "moving records to workers", self._replica.source.connection)
        if is_broken:
            self._writer.drop_producer()
            errors.clear()
        time.sleep(SHORTEST_PAUSE)

    def _report(self, error: StoppingRecordError) -> None:
        """Report a record that stops the query to the job, which fails with this error."""
        problem = error.problems[0]
        self._replica.status.failed(str(problem))
        generation, pin = self._work.generation, self._placing.pin
        reason = (problem.message, problem.hint)
        failure = Manifest(generation, self._replica.index, self._batch, pin, {}, failure=reason)

        def attempt() -> None:
            self._writer.require_producer()
            self._writer.begin({GENERATION: generation})
            try:
                self._writer.commit(lambda _: failure, {}, self._raw.consumer)
            except KafkaException:
                self._writer.abort()
                raise

        patiently(attempt, "reporting a record that stops the query", self._replica.source.connection)
