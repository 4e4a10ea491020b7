"""Reading of offset ranges with a consumer that joins no group and commits nothing."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.kafka.calls import consume
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.kafka.errors import (
    PATIENCE,
    SHORTEST_PAUSE,
    BrokerErrors,
    awaited,
    explained,
    is_transient,
    kafka_problem,
)
from millrace_jobs.sources.kafka.offsets import RESTART_HINT, OffsetRange

BLOCK_RECORDS = 65_536
"""The number of records at which a block is full: enough to make the overhead per block negligible."""

BLOCK_BYTES = 32 << 20
"""The bytes of values at which a block is full."""

_AHEAD = (1_000, 10_000, 100_000)
"""Records to prefetch per partition: about as many as a slice has, since other replicas read what follows.

Prefetching is a setting of the consumer. With only a few steps, one consumer can serve most slices.
"""

_WAIT = 0.5  # seconds for which one call waits for records
_CONSUMER: dict[str, Any] = {
    "group.id": "millrace",  # librdkafka requires one; no group is joined
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # records that are gone must never be skipped silently
    "enable.partition.eof": True,  # reports the end of a partition, even if the last offsets hold no records
    "check.crcs": True,  # TCP's checksum misses one error in 65536, and CRC32C costs next to nothing
    "fetch.queue.backoff.ms": 5,  # the default of 1000 slows reading by a factor of three when the queue is full
    "fetch.wait.max.ms": 5,  # the next partition of a slice waits for the fetch at the end of the last one
    "fetch.error.backoff.ms": 100,
    "queued.max.messages.kbytes": BLOCK_BYTES >> 10,
}

_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_NOT_THERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)

_SILENCE = 10.0
"""Seconds without a record after which a permanent error from the brokers is raised: restarting ones refuse logins."""


class RangeReader:
    """Reader of one or more offset ranges of different partitions; a context manager around its consumer.

    Every method raises MillraceError if Kafka fails permanently, or for longer than ``PATIENCE``.

    ``may_be_gone``: records at the beginning of a range that the broker has removed are left out; otherwise, that is an
    error.
    """

    def __init__(
        self, source: str, connection: Connection, ranges: Sequence[OffsetRange], *, may_be_gone: bool = False
    ) -> None:
        self._source = source
        self._connection = connection
        self._ranges = ranges
        self._reset = {"auto.offset.reset": "earliest"} if may_be_gone else {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        longest = max(map(len, self._ranges))
        ahead = {"queued.min.messages": next((step for step in _AHEAD if step >= longest), _AHEAD[-1])}
        settings = self._connection.settings() | _CONSUMER | self._reset | ahead
        try:
            pooled = self._stack.enter_context(_pooled_consumer(settings))
        except KafkaException as error:
            raise kafka_problem(error, "creating a consumer", self._connection) from error
        self._consumer, self._broker_errors = pooled
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def blocks(self) -> Iterator[list[Message]]:
        """Yield all records in non-empty blocks, range by range and in order of offset."""
        block: list[Message] = []
        size = 0
        for records in self._in_order():
            block += records
            size += sum(map(len, records))
            if len(block) >= BLOCK_RECORDS or size >= BLOCK_BYTES:
                yield block
                block, size = [], 0
        if block:
            yield block

    def _in_order(self) -> Iterator[list[Message]]:
        """Yield records in order; small ranges are read many at a time, because switching partitions takes time."""
        for group in _groups(self._ranges):
            gathered = self._gathered(group) if len(group) > 1 else None
            if gathered is not None:
                yield from gathered
                continue
            for part in group:
                for _, records in self._arrivals([part]):
                    yield records

    def _gathered(self, group: Sequence[OffsetRange]) -> list[list[Message]] | None:
        """Return the records of each range of a group; None if they are too many bytes to hold at once."""
        gathered: dict[Partition, list[Message]] = {part.partition: [] for part in group}
        size = 0
        for partition, records in self._arrivals(group):
            gathered[partition] += records
            size += sum(map(len, records))
            if size > BLOCK_BYTES:
                return None
        return list(gathered.values())

    def _arrivals(self, ranges: Sequence[OffsetRange]) -> Iterator[tuple[Partition, list[Message]]]:
        """Yield records as they arrive, in order within a partition; resume after a transient error."""
        reading = {part.partition: _Progress(part, part.begin) for part in ranges}
        waiting = list(reading.values())
        only = ranges[0].partition if len(ranges) == 1 else None
        latest_error: KafkaError | None = None
        self._assign(waiting)
        last_progress = time.monotonic()
        kafka = self._stack.enter_context(awaited(self._connection, self._doing(waiting[0])))
        while waiting:
            before = sum(each.reached for each in waiting)
            fetched = self._fetch(sum(each.missing for each in waiting), only)
            if fetched.records:
                kafka.answered()  # before others use the records, which may take long
            for partition, records in fetched.records.items():
                if taken := reading[partition].take(records):
                    yield partition, taken
            for partition, end in fetched.ends.items():
                reading[partition].meet_end(end)
            if sum(each.reached for each in waiting) > before:
                last_progress, latest_error = time.monotonic(), None
                self._broker_errors.clear()
                kafka.answered()
            done = [each for each in waiting if not each.missing]
            waiting = [each for each in waiting if each.missing]
            error = fetched.error
            if error is None and time.monotonic() > last_progress + _SILENCE:
                error = self._broker_errors.permanent
            if error is not None and waiting:
                latest_error = error
                self._check(error, reading.get(fetched.failed, waiting[0]) if fetched.failed else waiting[0])
                time.sleep(SHORTEST_PAUSE)
                self._assign(waiting)
            elif done and waiting:
                self._consumer.pause([_place(each) for each in done])
            if waiting and time.monotonic() > last_progress + PATIENCE:
                raise self._stuck(waiting[0], latest_error)
            if waiting and not fetched.records:
                kafka.failed(*explained(self._silent(waiting[0], latest_error)))

    def _assign(self, reading: Iterable[_Progress]) -> None:
        places = [_place(each) for each in reading]
        self._consumer.assign(places)
        self._consumer.resume(places)  # a partition that was paused would stay paused

    def _fetch(self, most: int, only: Partition | None) -> _Fetched:
        """Return the records that have arrived, at most ``most``; wait only if there are none."""
        first = self._consumer.poll(_WAIT)
        if first is None:
            return _Fetched()
        more = consume(self._consumer, min(most, BLOCK_RECORDS) - 1, 0) if most > 1 else []
        return _Fetched.of([first, *more], only)

    def _check(self, error: KafkaError, reading: _Progress) -> None:
        if error.code() in _GONE:
            raise self._gone(reading)
        if not is_transient(error) and error.code() not in _NOT_THERE:
            raise kafka_problem(error, self._doing(reading), self._connection)

    def _gone(self, reading: _Progress) -> MillraceError:
        """Return the error for offsets that belong to a micro-batch but no longer exist."""
        topic, number = reading.part.partition
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=5.0)
            now = f"; there are offsets {low} to {high - 1} now" if low < high else "; there are none now"
        except KafkaException:
            now = ""
        offsets = f"offsets {reading.reached} to {reading.part.end - 1}"
        said = f"source {self._source}: the records of topic {topic}, partition {number}, {offsets} are gone{now}"
        return MillraceError(Problem(said, RESTART_HINT))

    def _stuck(self, reading: _Progress, error: KafkaError | None) -> MillraceError:
        if error is None and reading.end is not None:
            return self._gone(reading)  # the partition now ends before the offsets that it once had
        return self._silent(reading, error)

    def _silent(self, reading: _Progress, error: KafkaError | None) -> MillraceError:
        """Return why there are no records: by the latest error of a fetch, or else by what the brokers report."""
        why = error or self._broker_errors.cause_of(KafkaError(KafkaError._TIMED_OUT))
        return kafka_problem(why, self._doing(reading), self._connection)

    def _doing(self, reading: _Progress) -> str:
        topic, number = reading.part.partition
        return f"reading topic {topic}, partition {number}, from offset {reading.reached} on"


@dataclass
class _Progress:
    """The progress of reading one range; ``end`` is the end of its partition, if it was reached."""

    part: OffsetRange
    reached: int
    end: int | None = None

    @property
    def missing(self) -> int:
        return max(self.part.end - self.reached, 0)

    def take(self, records: list[Message]) -> list[Message]:
        """Advance past the partition's next records, and return those that are in the range."""
        if not self.missing:
            return []
        self.reached = offset_of(records[-1]) + 1
        if self.reached <= self.part.end:
            return records
        return records[: bisect_left(records, self.part.end, key=offset_of)]

    def meet_end(self, offset: int) -> None:
        """Advance to the current end of the partition: offsets before it that were not read hold no records."""
        self.reached, self.end = max(self.reached, offset), offset


@dataclass
class _Fetched:
    """The result of one fetch: records and end offsets by partition.

    ``error`` is the first error, and ``failed`` its partition, if any. Messages after the error are not included.
    """

    records: dict[Partition, list[Message]] = field(default_factory=dict)
    ends: dict[Partition, int] = field(default_factory=dict)
    error: KafkaError | None = None
    failed: Partition | None = None

    @classmethod
    def of(cls, messages: list[Message], only: Partition | None) -> Self:
        """Sort messages by partition; some may be errors, or mark the end of a partition.

        ``only`` is the partition of all messages if just one is read. It saves looking up the partition of each
        message, which would cost a quarter as much as reading it.
        """
        if only is not None and all(message.error() is None for message in messages):
            return cls({only: messages})
        fetched = cls()
        for message in messages:
            partition = partition_of(message)
            error = message.error()
            if error is None:
                fetched.records.setdefault(partition, []).append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                fetched.ends[partition] = offset_of(message)
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # librdkafka looks for a group that none joins
                fetched.error, fetched.failed = error, partition
                break
        return fetched


def _groups(ranges: Sequence[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Group adjacent ranges up to one block in total; a larger range is a group of its own."""
    group: list[OffsetRange] = []
    for part in ranges:
        if group and sum(map(len, group)) + len(part) > BLOCK_RECORDS:
            yield group
            group = []
        group.append(part)
    if group:
        yield group


def _place(reading: _Progress) -> TopicPartition:
    return TopicPartition(reading.part.partition.topic, reading.part.partition.number, reading.reached)


def partition_of(message: Message) -> Partition:
    """Return the partition of a message."""
    return Partition(message.topic() or "", message.partition() or 0)


def offset_of(message: Message) -> int:
    """Return the offset of a message."""
    return message.offset() or 0


class PooledConsumer(NamedTuple):
    """A consumer, and the broker errors that it has reported during the current slice."""

    consumer: Consumer
    errors: BrokerErrors


_idle: dict[int, PooledConsumer] = {}
"""The idle consumer, at most one, by the hash of its settings.

A process reuses a consumer from one slice to the next, because connecting, logging in and finding the partition leaders
takes longer than reading the slice of a small micro-batch.
"""


@contextmanager
def _pooled_consumer(settings: dict[str, Any]) -> Iterator[PooledConsumer]:
    """Provide a consumer with these settings and no assignment; leave it in the pool unless reading fails.

    Raises KafkaException if librdkafka rejects the settings.
    """
    # The settings include secrets, so a consumer that logged in with an outdated secret is not reused.
    name = hash(frozenset(settings.items()))
    pooled = _idle.pop(name, None)
    if pooled is None:
        errors = BrokerErrors()
        pooled = PooledConsumer(Consumer(settings | {"error_cb": errors}), errors)
    try:
        yield pooled
        # A partition that stays paused would be fetched for the next slice only after a second.
        pooled.consumer.resume(pooled.consumer.assignment())
        pooled.consumer.unassign()
    except BaseException:
        pooled.consumer.close()
        raise
    pooled.errors.clear()
    others = list(_idle.values())
    _idle.clear()
    _idle[name] = pooled
    for other in others:
        other.consumer.close()
