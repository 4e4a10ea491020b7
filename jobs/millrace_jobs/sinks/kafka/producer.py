"""A transactional producer that writes a batch's results with the batch's number, and says which batch is there.

The number is stored as a committed offset of a consumer group without members, which is named like the transactional
id: the number of the next batch, on partition 0 of the topic. Results and offset become visible together. The brokers
therefore know what Spark's log may not: whether a batch that was begun before a crash has been written. Of all
producers with one transactional id, Kafka lets only the latest one continue (fencing).
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.kafka.calls import call_in_time
from millrace_jobs.kafka.errors import PATIENCE, BrokerErrors, error_of, kafka_problem, patiently
from millrace_jobs.kafka.headers import WATERMARK
from millrace_jobs.pending import CallKind, OngoingCall
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.kafka.topic import TargetTopic

TRANSACTION_SECONDS = 900.0
"""Seconds after which the brokers abort a transaction: the longest time that they allow by default.

A batch must be written within this time, and it cannot be made smaller: its range is already in Spark's log. A dead
driver does not cost this much time, because the next driver aborts its transaction at once.
"""

_TRANSACTION_MS = int(TRANSACTION_SECONDS * 1000)
_ANSWER_SECONDS = 5.0
_ABORT_SECONDS = 10.0
_QUEUE_FULL_SECONDS = 0.05
_POLL_EVERY = 1_000

_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""Logger that keeps librdkafka's log lines out of the terminal; its errors report the same."""

_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
_FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_BROKEN = (KafkaError._STATE, KafkaError._FATAL)
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)

Headers = list[tuple[str, str | bytes | None]]


class Outgoing(NamedTuple):
    """A message to be written; ``topic`` is None for the topic of the transactions."""

    key: str | None
    value: str | bytes | None
    headers: Sequence[tuple[str, str | bytes | None]] = ()
    topic: str | None = None


class NumberedProducer:
    """A transactional producer, each of whose transactions has the results and the number of a batch.

    ``id`` is the transactional id, and the name of the group with the numbers; ``other`` is another topic that messages
    of a batch can go to.
    """

    def __init__(self, id: str, topic: TargetTopic, query: str, other: TargetTopic | None = None) -> None:
        self.id, self._topic, self._query, self._other = id, topic, query, other
        self._producer: Producer | None = None
        self._next = 0
        self.noted: Mapping[str, Any] = {}
        """What was noted with the last number that was committed; a look for that number reads it."""
        self.longest: int | None = None
        """The longest message that the topic accepts, in bytes; None if unknown."""
        self._undelivered: tuple[KafkaError, Message] | None = None

    def has(self, batch: int) -> bool:
        """Return whether a batch is in the topic."""
        return batch < self._next

    def note(self) -> Mapping[str, Any]:
        """Read what was noted with the last number that was committed; nothing if the group has none.

        Raises MillraceError if this user lacks the permission, or Kafka does not answer.
        """
        return self.noted if self._written("read_committed") is not None else {}

    def _take_over(self, longest: int | None) -> int | None:
        """Fence all other producers with this id, abort their transactions, and return the number of the next batch.

        Nothing older can be committed after that, so the number stays until this producer, or one after it, writes.
        It is None if the group has no offset.

        Raises MillraceError if this user lacks the permission, or Kafka does not answer.
        """
        self.longest = longest
        broker_errors = BrokerErrors()
        self._producer = Producer(self._settings(longest) | {"error_cb": broker_errors}, logger=_SILENT)
        try:
            self._initialize(self._producer, broker_errors)
            return self._written("read_committed")
        except BaseException:
            self.close()
            raise

    def write(self, batch: ResultBatch, messages: Iterable[Outgoing], note: Mapping[str, Any] | None = None) -> None:
        """Write the messages of a batch and its number in one transaction, with a note for the next run.

        Raises MillraceError if the transaction failed and none of it can be read; a TransientError if a retry may help.
        """
        assert self._producer is not None
        self._send(self._producer, messages, batch, note or {})
        self._next = batch.number + 1

    def record(self, next: int, note: Mapping[str, Any]) -> None:
        """Commit a number without results: that of the next batch, with a note for the next run.

        Raises:
            MillraceError: as for ``write``.
        """
        assert self._producer is not None
        self._send(self._producer, [], ResultBatch(next - 1, 0, 0), note)
        self._next = next

    def close(self) -> None:
        """Release the producer; messages that it has not committed are dropped."""
        if self._producer is not None:
            with suppress(KafkaException):
                self._producer.purge()
            self._producer = None  # its ``close`` would wait for brokers that may be unreachable

    def _settings(self, longest: int | None) -> dict[str, object]:
        def remember(error: KafkaError, message: Message) -> None:
            """Remember the first message that could not be delivered: its error is the cause of later ones."""
            if self._undelivered is None and error.code() not in _PURGED:
                self._undelivered = error, message

        settings: dict[str, object] = {
            "compression.type": "lz4",  # unless options have another
            **self._topic.connection.settings(),
            "transactional.id": self.id,
            "transaction.timeout.ms": _TRANSACTION_MS,
            "message.timeout.ms": int(PATIENCE * 1000),
            "allow.auto.create.topics": False,
            "partitioner": "murmur2_random",  # as Kafka's own clients place keys
            "queue.buffering.max.kbytes": 65_536,
            # Only when a connection closes does librdkafka look again for the coordinator of a group.
            "connections.max.idle.ms": 10_000,
            "on_delivery": remember,
            "delivery.report.only.error": True,
        }
        return settings if longest is None else settings | {"message.max.bytes": max(longest, 1000)}

    def _initialize(self, producer: Producer, broker_errors: BrokerErrors) -> None:
        def initialize() -> None:
            try:
                # otherwise librdkafka looks for the coordinator before it is connected, and again only after 0.5 s
                producer.list_topics(self._topic.name, _ANSWER_SECONDS)
                producer.init_transactions(_ANSWER_SECONDS)
            except KafkaException as error:
                if error_of(error).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                    message = (
                        f"Kafka at {self._topic.connection.servers} does not let transactions take "
                        f"{TRANSACTION_SECONDS:g} s, which the sink asks for"
                    )
                    hint = f"raise transaction.max.timeout.ms of the brokers to {_TRANSACTION_MS} or more"
                    raise self._topic.problem(message, hint) from None
                raise KafkaException(broker_errors.cause_of(error_of(error))) from None

        patiently(initialize, f"taking over transactional id {self.id}", self._topic.connection)

    def _written(self, isolation: Literal["read_uncommitted", "read_committed"]) -> int | None:
        """Return the number of the next batch, which is the group's committed offset; None if the group has none.

        With ``read_committed``, wait while a transaction with another offset is being completed.
        """
        settings = self._topic.connection.settings()
        # Not an AdminClient: with one, librdkafka 2.16 crashes if the group's coordinator moves meanwhile.
        consumer = Consumer(settings | {"group.id": self.id, "isolation.level": isolation})  # never joins the group

        def ask() -> int:
            try:
                (position,) = consumer.committed([TopicPartition(self._topic.name, 0)], timeout=_ANSWER_SECONDS)
            except KafkaException:
                report = consumer.poll(0)  # the reason for a missing answer, such as a missing permission
                if report is None or report.error() is None:
                    raise
                raise KafkaException(report.error()) from None
            if position.error is not None:
                raise KafkaException(position.error)
            try:
                self.noted = dict(json.loads(position.metadata or "{}"))
            except (ValueError, TypeError):
                self.noted = {}
            return int(position.offset)

        try:
            offset = patiently(ask, f"looking for the last batch of group {self.id}", self._topic.connection)
            self._group = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        return offset if offset >= 0 else None

    def _send(
        self, producer: Producer, messages: Iterable[Outgoing], batch: ResultBatch, note: Mapping[str, Any]
    ) -> None:
        began = time.monotonic()
        self._undelivered = None
        try:
            producer.begin_transaction()
            try:
                self._produce(producer, messages, batch)
                about = json.dumps({**note, "query": self._query, "batch": batch.number, "epoch": batch.epoch})
                position = TopicPartition(self._topic.name, 0, batch.number + 1, about)
                self._in_time(lambda s: producer.send_offsets_to_transaction([position], self._group, s), batch)
            except KafkaException as error:
                if error_of(error).code() in _BROKEN:
                    self._in_time(producer.commit_transaction, batch)  # fails, and its error says why
                raise
            self._in_time(producer.commit_transaction, batch)
        except KafkaException as error:
            raise self._abandon(producer, error_of(error), batch, time.monotonic() - began) from None
        except BaseException:
            self._abort(producer)
            raise

    def _in_time(self, call: Callable[[float], None], batch: ResultBatch) -> None:
        doing = f"writing batch {batch.number} to topic {self._topic.name}"
        with OngoingCall(CallKind.SERVER, f"Kafka at {self._topic.connection.servers}", doing):
            call_in_time(call, PATIENCE)

    def _produce(self, producer: Producer, messages: Iterable[Outgoing], batch: ResultBatch) -> None:
        about = {"query": self._query, "batch": batch.number, "epoch": batch.epoch}
        headers: Headers = [(f"millrace-{k}", str(v).encode()) for k, v in about.items()]
        removing = [*headers, (WATERMARK, str(batch.watermark).encode())] if batch.watermark else headers
        for count, (key, value, own, other) in enumerate(messages):
            topic = other or self._topic.name
            while True:
                try:
                    common = removing if value is None else headers
                    producer.produce(topic, value, key, headers=[*common, *own] if own else common)
                    break
                except BufferError:  # the queue is full until messages are delivered or time out
                    producer.poll(_QUEUE_FULL_SECONDS)
                except KafkaException as error:
                    if error_of(error).code() == KafkaError.MSG_SIZE_TOO_LARGE:
                        raise self._too_large(batch, topic, key, value) from None
                    raise
            if count % _POLL_EVERY == 0:
                producer.poll(0)

    def _abandon(self, producer: Producer, error: KafkaError, batch: ResultBatch, seconds: float) -> MillraceError:
        with suppress(KafkaException):
            producer.poll(0)  # runs the callbacks that report undelivered messages
        undelivered = self._undelivered
        errors = [error, *filter(None, [self._abort(producer)])]
        what = f"batch {batch.number}" if batch.number >= 0 else "the first transaction"
        doing = f"writing {what} to topic {self._topic.name}"
        if any(each.code() in _FENCED for each in errors):
            return self._fenced(batch, seconds)
        if undelivered is not None:
            error, message = undelivered
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return self._too_large(batch, message.topic(), message.key(), message.value())
            doing = f"writing {what} to topic {message.topic()}"
        problem = kafka_problem(error, doing, self._topic.connection)
        broken = any(each.fatal() or each.txn_requires_abort() for each in errors) and error.code() not in _FORBIDDEN
        return TransientError(*problem.problems) if broken else problem  # the next transaction need not fail

    def _abort(self, producer: Producer) -> KafkaError | None:
        """Abort the transaction; return the error if that fails, as it may after a commit without an answer.

        The next ``open`` determines the outcome of a transaction that could not be aborted.
        """
        try:
            call_in_time(producer.abort_transaction, _ABORT_SECONDS)
        except KafkaException as error:
            return error_of(error)
        return None

    def _fenced(self, batch: ResultBatch, seconds: float) -> MillraceError:
        if seconds >= TRANSACTION_SECONDS:
            message = f"batch {batch.number} took {seconds:.0f} s to be written to topic {self._topic.name}"
            hint = "find out why the brokers are slow: the batch will be written again, at the same size"
            return TransientError(Problem(f"{message}, and Kafka has ended its transaction", hint))
        return self._replaced()

    def _replaced(self) -> MillraceError:
        message = f"another driver has taken over writing the results of {self._query} to topic {self._topic.name}"
        return MillraceError(Problem(message, "run only one driver on a checkpoint: stop this one or the other one"))

    def _too_large(
        self, batch: ResultBatch, topic: str | None, key: str | bytes | None, value: str | bytes | None
    ) -> MillraceError:
        target = self._other if self._other is not None and self._other.name == topic else self._topic
        longest = self.longest if target is self._topic else None
        size = sum(len(part.encode() if isinstance(part, str) else part) for part in (key, value) if part is not None)
        limit = f"at most {longest} (max.message.bytes)" if longest is not None else "less"
        message = f"a result of batch {batch.number} is {size} bytes long, and topic {target.name} accepts {limit}"
        hint = f"select fewer columns, or: {target.alter_command(f'max.message.bytes={2 * size}')}"
        return target.problem(message, hint)
