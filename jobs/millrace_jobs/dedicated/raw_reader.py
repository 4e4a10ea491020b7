"""A replica's share of the raw topics: a member of the consumer group, and how far it has read.

Its messages go to ``intake``.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.dedicated.instructions import Work
from millrace_jobs.dedicated.interval import CALL_SECONDS
from millrace_jobs.dedicated.topics import Topics
from millrace_jobs.kafka.calls import consume
from millrace_jobs.kafka.cluster import Partition
from millrace_jobs.sources.kafka.offsets import RESTART_HINT, Offsets
from millrace_jobs.sources.kafka.range_reader import offset_of, partition_of
from millrace_jobs.sources.kafka.source import KafkaSource

_AT_ONCE = 10_000
"""Messages taken from the consumer in one call."""

_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)

_CONSUMER: dict[str, object] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # records that are gone must never be skipped silently
    "enable.partition.eof": True,  # reports the end of a partition, even if the last offsets hold no records
    "check.crcs": True,
    "partition.assignment.strategy": "range",  # all partitions begin again, so nothing half done is carried over
    "session.timeout.ms": 6_000,  # the least that brokers allow by default; a dead replica's partitions wait so long
    "queued.max.messages.kbytes": 65_536,
    "queued.min.messages": 100_000,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 50,
    "topic.metadata.refresh.interval.ms": 10_000,  # new partitions are found within this time
}


class StoppingRecordError(MillraceError):
    """A record that stops the query: it does not decode under the policy ``Fail``, or it is gone."""


class ReassignedError(Exception):
    """The raw partitions were assigned while records were taken: the interval must be given up, and comes again."""


class RawReader:
    """The consumer of one replica in one generation.

    Args:
        source: the query's source.
        topics: names of the group.
        work: where the generation begins and ends.
        on_error: gets the broker errors of the consumer.
    """

    def __init__(self, source: KafkaSource, topics: Topics, work: Work, on_error: Callable[[KafkaError], None]) -> None:
        self._source = source
        self._work = work
        self._positions: Offsets = {}
        self._assigned: list[TopicPartition] = []  # partitions of which it is not known yet where to begin
        self._reassigned = self._is_paused = False
        settings = source.connection.settings() | _CONSUMER | {"group.id": topics.group(work.generation)}
        self.consumer = Consumer(settings | {"error_cb": on_error})
        self.consumer.subscribe(
            list(source.subscription.names or ()),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_revoke,
        )

    def take(self, most: int, seconds: float) -> list[Message]:
        """Return up to ``most`` messages that have come; wait up to ``seconds`` for the first if there are none.

        Raises:
            ReassignedError: the partitions have changed since the last call.
            KafkaException: Kafka fails.
            StoppingRecordError: records that were to be read are gone.
        """
        if self._assigned:
            self._begin()
        came = consume(self.consumer, min(most, _AT_ONCE), seconds)
        if self._reassigned:  # some may be of the assignment before, and come again
            self._reassigned = False
            raise ReassignedError
        errors = [message for message in came if message.error() is not None]
        for message in errors:
            self._meet(message)
        messages = [message for message in came if message.error() is None] if errors else came
        ends = self._work.ends
        if ends is not None:
            messages = [each for each in messages if offset_of(each) < ends.get(partition_of(each), 0)]
        return messages

    def wait(self, seconds: float) -> None:
        """Read nothing for this time, and stay in the group. Raises as ``take`` does."""
        if not self._is_paused:
            self.consumer.pause(self.consumer.assignment())
            self._is_paused = True
        if self.take(1, seconds):  # of partitions that this call has begun to read
            raise ReassignedError

    def resume(self) -> None:
        """Take messages again after ``wait``."""
        if self._is_paused:
            self.consumer.resume(self.consumer.assignment())
            self._is_paused = False

    def positions(self) -> Offsets:
        """Return where to go on in each of the replica's partitions."""
        for place in self.consumer.position(list(map(_place, self._positions))):
            partition = Partition(place.topic, place.partition)
            self._positions[partition] = max(self._positions[partition], place.offset)
        ends = self._work.ends
        if ends is None:
            return dict(self._positions)
        return {partition: min(offset, ends.get(partition, 0)) for partition, offset in self._positions.items()}

    def lag(self) -> int:
        """Return how many offsets wait in the replica's partitions, as far as the consumer has seen."""
        lag = 0
        for partition, position in self.positions().items():
            _, end = self.consumer.get_watermark_offsets(_place(partition), cached=True)
            lag += max(end - position, 0)
        return lag

    def rewind(self) -> None:
        """Read again from the committed offsets, after an interval was given up. Raises KafkaException."""
        self._positions = self._beginnings(list(map(_place, self._positions)))
        for partition, offset in self._positions.items():
            self.consumer.seek(TopicPartition(*partition, offset))

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Take the partitions, and read nothing yet: an error in here would leave them unread."""
        self._assigned = partitions
        consumer.assign([])

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._reassigned = True
        self._positions, self._assigned = {}, []

    def _begin(self) -> None:
        """Begin to read the partitions that were assigned. Raises KafkaException while a transaction is unsettled."""
        positions = self._beginnings(self._assigned)
        places = [TopicPartition(*partition, offset) for partition, offset in positions.items()]
        self.consumer.assign(places)
        self.consumer.resume(places)  # a partition that was paused before it was assigned again would stay so
        self._positions, self._assigned, self._is_paused = positions, [], False

    def _beginnings(self, places: list[TopicPartition]) -> Offsets:
        """Return the committed offset of each partition, or where the generation begins in it."""
        begins: Offsets = {}
        for place in self.consumer.committed(places, CALL_SECONDS) if places else ():
            if place.error is not None:
                raise KafkaException(place.error)
            partition = Partition(place.topic, place.partition)
            if place.offset >= 0:
                begins[partition] = place.offset
            elif partition in self._work.starts:
                begins[partition] = self._work.starts[partition]
            else:
                begins[partition] = self.consumer.get_watermark_offsets(_place(partition), CALL_SECONDS)[0]
        return begins

    def _meet(self, message: Message) -> None:
        """Note the end of a partition; raise any other error."""
        error = message.error()
        assert error is not None
        partition = partition_of(message)
        if error.code() == KafkaError._PARTITION_EOF:
            if partition in self._positions:
                self._positions[partition] = max(self._positions[partition], offset_of(message))
            return
        if error.code() in _GONE:
            at = self.positions().get(partition)
            place = f"topic {partition.topic}, partition {partition.number}, from offset {at} on"
            raise StoppingRecordError(
                Problem(f"source {self._source.name}: the records of {place} are gone", RESTART_HINT)
            )
        raise KafkaException(error)


def _place(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.number)
