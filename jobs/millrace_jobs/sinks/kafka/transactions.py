"""One Kafka transaction per batch: its results, and with them its number.

The number is kept as an offset of a consumer group nobody is a member of: that of the batch which comes next, on the
topic's partition 0. Both become visible together, so the brokers know what Spark's log may not: whether a batch that
was begun before a crash has been written. All drivers of one checkpoint use one transactional id, and Kafka lets only
the one that came last go on (fencing).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Literal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.kafka.errors import PATIENCE, Complaints, error_of, kafka_problem, patiently
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.kafka.topic import TargetTopic

TRANSACTION_SECONDS = 900.0
"""After this time the brokers end a transaction: the most that they allow, unless they are told otherwise.

A batch has to be written within it, and nobody could make it smaller: its range is in Spark's log by then. Nobody waits
that long for a driver that has died, either, since the next one ends its transaction at once.
"""

_TRANSACTION_MS = int(TRANSACTION_SECONDS * 1000)
_ANSWER_SECONDS = 5.0
_ABORT_SECONDS = 10.0
_QUEUED_KILOBYTES = 65_536
_FULL_PAUSE = 0.05
_POLL_EVERY = 1_000

_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""In place of the terminal; what librdkafka logs, its errors say too."""

_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_BROKEN = (KafkaError._STATE, KafkaError._FATAL)
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)

_ANEW = f"begin anew with another topic and {ANOTHER_CHECKPOINT}"

KeyValue = tuple[str | None, str | None]


class BatchTransactions:
    """Writes batches of messages to a topic, each once."""

    def __init__(self, topic: TargetTopic, query: str, checkpoint_id: str) -> None:
        self.id = f"millrace-{query}-{checkpoint_id}"
        self._topic = topic
        self._query = query
        self._producer: Producer | None = None
        self._next = 0
        self._longest: int | None = None
        self._undelivered: tuple[KafkaError, Message] | None = None

    def open(self, last: LastBatch, longest: int | None) -> None:
        """Fence all other drivers, end what they have left unfinished, and find out which batch comes next.

        ``longest`` is the longest message that the topic takes, in bytes, where it is known.

        Raises:
            MillraceError: this user may not, or nobody can tell whether the unfinished batch has been written.
        """
        self.close()
        self._longest = longest
        # A driver whose checkpoint is older than the topic has to find out before it fences the one that wrote there.
        require_known(self._written("read_uncommitted"), last, self._topic)
        complaints = Complaints()
        self._producer = producer = Producer(self._settings(longest) | {"error_cb": complaints}, logger=_SILENT)
        try:
            self._initialise(producer, complaints)
            written = self._written("read_committed")
            self._next = next_batch(written, last, self._topic)
            if written != self._next:  # from now on a group without an offset is one that has lost it
                self._send(producer, [], ResultBatch(self._next - 1, 0, 0))
        except BaseException:
            self.close()
            raise

    def has(self, batch: int) -> bool:
        """Whether a batch is in the topic."""
        return batch < self._next

    def write(self, batch: ResultBatch, messages: Iterable[KeyValue]) -> None:
        """Write the messages of a batch, and that it is written.

        Raises:
            MillraceError: nothing of it can be read; a TransientError where another try may help.
        """
        assert self._producer is not None
        self._send(self._producer, messages, batch)
        self._next = batch.number + 1

    def close(self) -> None:
        """Let go of the producer; what it has not committed is dropped."""
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.purge()
            self._producer = None  # its ``close`` would wait for brokers that may be away

    def _settings(self, longest: int | None) -> dict[str, object]:
        settings: dict[str, object] = {
            **self._topic.connection.settings(),
            "transactional.id": self.id,
            "transaction.timeout.ms": _TRANSACTION_MS,
            "message.timeout.ms": int(PATIENCE * 1000),
            "allow.auto.create.topics": False,
            "partitioner": "murmur2_random",  # as Kafka's own clients place keys
            "compression.type": "lz4",
            "queue.buffering.max.kbytes": _QUEUED_KILOBYTES,
            # A connection that closes makes librdkafka look again for a group's coordinator that has gone.
            "connections.max.idle.ms": 10_000,
            "on_delivery": self._note,
            "delivery.report.only.error": True,
        }
        return settings if longest is None else settings | {"message.max.bytes": max(longest, 1000)}

    def _initialise(self, producer: Producer, complaints: Complaints) -> None:
        def initialise() -> None:
            try:
                producer.init_transactions(_ANSWER_SECONDS)
            except KafkaException as error:
                if error_of(error).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                    message = (
                        f"Kafka at {self._topic.connection.servers} does not let transactions take "
                        f"{TRANSACTION_SECONDS:g} s, which the sink asks for"
                    )
                    hint = f"raise transaction.max.timeout.ms of the brokers to {_TRANSACTION_MS} or more"
                    raise self._topic.problem(message, hint) from None
                raise KafkaException(complaints.behind(error_of(error))) from None

        patiently(initialise, f"taking over transactional id {self.id}", self._topic.connection)

    def _written(self, isolation: Literal["read_uncommitted", "read_committed"]) -> int | None:
        """Number of the batch that comes next, by the group's offset; None where it has none.

        With ``read_committed`` it waits while a transaction that holds another offset is being ended.
        """
        settings = self._topic.connection.settings()
        # An AdminClient could ask, too, but librdkafka 2.16 crashes where it does and the group's coordinator moves.
        consumer = Consumer(settings | {"group.id": self.id, "isolation.level": isolation})  # it never joins

        def ask() -> int:
            try:
                (position,) = consumer.committed([TopicPartition(self._topic.name, 0)], timeout=_ANSWER_SECONDS)
            except KafkaException:
                said = consumer.poll(0)  # why nobody answered, such as that this user may not ask
                if said is None or said.error() is None:
                    raise
                raise KafkaException(said.error()) from None
            if position.error is not None:
                raise KafkaException(position.error)
            return int(position.offset)

        try:
            offset = patiently(ask, f"looking for the last batch of group {self.id}", self._topic.connection)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        return offset if offset >= 0 else None

    def _send(self, producer: Producer, messages: Iterable[KeyValue], batch: ResultBatch) -> None:
        """One transaction."""
        began = time.monotonic()
        self._undelivered = None
        try:
            producer.begin_transaction()
            try:
                self._produce(producer, messages, batch)
                about = json.dumps({"query": self._query, "batch": batch.number, "epoch": batch.epoch})
                position = TopicPartition(self._topic.name, 0, batch.number + 1, about)
                in_time(lambda s: producer.send_offsets_to_transaction([position], self._group, s), PATIENCE)
            except KafkaException as error:
                if error_of(error).code() in _BROKEN:
                    in_time(producer.commit_transaction, PATIENCE)  # what is broken cannot be committed: it says why
                raise
            in_time(producer.commit_transaction, PATIENCE)
        except KafkaException as error:
            raise self._given_up(producer, error_of(error), batch, time.monotonic() - began) from None
        except BaseException:
            self._abort(producer)
            raise

    def _produce(self, producer: Producer, messages: Iterable[KeyValue], batch: ResultBatch) -> None:
        headers: list[tuple[str, str | bytes | None]] = [
            ("millrace-query", self._query.encode()),
            ("millrace-batch", str(batch.number).encode()),
            ("millrace-epoch", str(batch.epoch).encode()),
        ]
        topic = self._topic.name
        for count, (key, value) in enumerate(messages):
            while True:
                try:
                    producer.produce(topic, value, key, headers=headers)
                    break
                except BufferError:  # the queue is full: room comes with deliveries, or with messages timing out
                    producer.poll(_FULL_PAUSE)
                except KafkaException as error:
                    if error_of(error).code() == KafkaError.MSG_SIZE_TOO_LARGE:
                        raise self._too_large(batch, key, value) from None
                    raise
            if count % _POLL_EVERY == 0:
                producer.poll(0)

    def _note(self, error: KafkaError, message: Message) -> None:
        """The producer's report of a message that could not be delivered; the first one tells why."""
        if self._undelivered is None and error.code() not in _PURGED:
            self._undelivered = error, message

    def _given_up(self, producer: Producer, error: KafkaError, batch: ResultBatch, seconds: float) -> MillraceError:
        """End a transaction that failed; what to tell of it."""
        with suppress(KafkaException):
            producer.poll(0)  # lets it report what was not delivered
        undelivered = self._undelivered
        errors = [error, *filter(None, [self._abort(producer)])]
        what = f"batch {batch.number}" if batch.number >= 0 else "a first transaction"
        doing = f"writing {what} to topic {self._topic.name}"
        if any(each.code() in _FENCED for each in errors):
            return self._fenced(batch, seconds)
        if undelivered is not None:
            error, message = undelivered
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return self._too_large(batch, message.key(), message.value())
        problem = kafka_problem(error, doing, self._topic.connection)
        broken = any(each.fatal() or each.txn_requires_abort() for each in errors) and error.code() not in _FORBIDDEN
        return TransientError(*problem.problems) if broken else problem  # the next transaction need not fail

    def _abort(self, producer: Producer) -> KafkaError | None:
        """End a transaction without a trace, where the brokers let us: a commit without an answer may have been done.

        Of what is left, ``open`` finds out the outcome.
        """
        try:
            in_time(producer.abort_transaction, _ABORT_SECONDS)
        except KafkaException as error:
            return error_of(error)
        return None

    def _fenced(self, batch: ResultBatch, seconds: float) -> MillraceError:
        if seconds >= TRANSACTION_SECONDS:
            message = f"batch {batch.number} took {seconds:.0f} s to be written to topic {self._topic.name}"
            hint = "see why the brokers take so long: it will be written again, and is as large then"
            return TransientError(Problem(f"{message}, and Kafka has ended its transaction", hint))
        message = f"another driver has taken over writing the results of {self._query} to topic {self._topic.name}"
        return MillraceError(Problem(message, "two must not run on one checkpoint: leave it to the other one"))

    def _too_large(self, batch: ResultBatch, key: str | bytes | None, value: str | bytes | None) -> MillraceError:
        size = sum(len(part.encode() if isinstance(part, str) else part) for part in (key, value) if part is not None)
        limit = f"{self._longest} (max.message.bytes)" if self._longest is not None else "less"
        message = f"a result of batch {batch.number} is {size} bytes long, and topic {self._topic.name} takes {limit}"
        return self._topic.problem(message, f"select less, or: {self._topic.alter(f'max.message.bytes={2 * size}')}")


def next_batch(written: int | None, last: LastBatch, topic: TargetTopic) -> int:
    """Which batch is to be written next, by the topic's group (``written``) and by Spark's log.

    To a topic that is new the unfinished batch comes next, unless its group says otherwise: it was for another one.

    Raises:
        MillraceError: they do not belong together, so that a batch would be lost or written twice.
    """
    require_known(written, last, topic)
    unfinished = last.unfinished
    if unfinished is None:
        return last.next
    if written is None or written < unfinished:
        if last.elsewhere:
            return unfinished
        message = (
            f"batch {unfinished} was begun and not finished, and the consumer group that tells whether it is in topic "
            f"{topic.name} has " + ("lost its offset" if written is None else f"only batches before {written}")
        )
        hint = f"look for messages with the header millrace-batch {unfinished} in the topic; {_ANEW}"
        raise topic.problem(message, hint)
    return written


def require_known(written: int | None, last: LastBatch, topic: TargetTopic) -> None:
    """Make sure that Spark's log knows of every batch that is in the topic.

    Raises:
        MillraceError: the checkpoint is an old one, or another driver has gone on with a copy of it.
    """
    if written is not None and written > (last.next if last.unfinished is None else last.next + 1):
        newest = "no batch" if last.begun is None else f"no batch after {last.begun}"
        message = f"topic {topic.name} has results up to batch {written - 1}, but the checkpoint knows of {newest}"
        raise topic.problem(message, f"restore the newest checkpoint, or {_ANEW}")


_GRACE = 5.0


def in_time(call: Callable[[float], None], seconds: float) -> None:
    """Make a call that is given these seconds, and not wait much longer for it.

    librdkafka does not always keep the time-out that it is given: while the coordinator of a group is away, it may
    wait for ever (confluentinc/librdkafka#5456, #5511). Then the call is left behind in a thread of its own.

    Raises:
        KafkaException: of the call, or that it timed out.
    """
    failed: list[BaseException] = []

    def make() -> None:
        try:
            call(seconds)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=make, name="librdkafka call", daemon=True)
    thread.start()
    thread.join(seconds + _GRACE)
    if thread.is_alive():
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    if failed:
        raise failed[0]
