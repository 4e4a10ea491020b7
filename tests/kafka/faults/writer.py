"""A writer to a topic, with or without transactions, that keeps trying while the broker is down."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lab.kafka import Broker

OUTAGE = 300.0
"""Seconds of outage after which a write fails."""


class Record(NamedTuple):
    """A value, and the partition to write it to."""

    partition: int
    value: bytes


class Writer:
    """Two producers of one topic, one of them transactional, that know the partitions it has now."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._topic = topic
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.timeout.ms": int(OUTAGE * 1000),
            "log_level": 2,
        }
        self._in_transactions: dict[str, str | int | float | bool] = self._settings | {
            "transactional.id": f"writer-{uuid.uuid4()}",
            "transaction.timeout.ms": int(OUTAGE * 1000),
        }
        self._plain = Producer(self._settings)
        self._transactional = self._make_transactional()

    def write(self, records: Sequence[Record]) -> None:
        """Write without a transaction. Return when all records are in the topic."""
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                refused.append(error)

        for record in records:
            self._plain.produce(self._topic, record.value, partition=record.partition, on_delivery=delivered)
        assert self._plain.flush(OUTAGE) == 0, f"the broker was away for more than {OUTAGE} s"
        if refused:
            raise KafkaException(refused[0])

    def write_in_transaction(self, records: Sequence[Record], *, commit: bool) -> None:
        """Write in one transaction, which is committed, or is aborted when all records are in the topic."""
        while True:
            try:
                self._transactional.begin_transaction()
                for record in records:
                    self._transactional.produce(self._topic, record.value, partition=record.partition)
                self._transactional.flush(OUTAGE)
                self._end(commit)
                return
            except KafkaException as error:
                if error.args[0].fatal():
                    self._transactional = self._make_transactional()
                elif error.args[0].txn_requires_abort():
                    self._end(commit=False)
                else:
                    raise

    def _end(self, commit: bool) -> None:
        end = self._transactional.commit_transaction if commit else self._transactional.abort_transaction
        _stubbornly(lambda: end(10.0))

    def _make_transactional(self) -> Producer:
        producer = Producer(self._in_transactions)
        _stubbornly(lambda: producer.init_transactions(10.0))
        return producer


def _stubbornly(action: Callable[[], None]) -> None:
    """Repeat the action while its error is retriable."""
    deadline = time.monotonic() + OUTAGE
    while True:
        try:
            action()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
