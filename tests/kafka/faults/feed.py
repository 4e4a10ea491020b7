"""A stream of records written to a topic while a query reads it, and its records as a table for DuckDB."""

from __future__ import annotations

import json
import random
import threading
import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from lab import topics
from lab.kafka import Broker

from .writer import OUTAGE, Record, Writer

START = datetime(2024, 3, 1)
STEP_SECONDS = 0.25
"""Time from one step to the next. Each step is one second of event time."""

RECORDS_PER_STEP = 12
KEYS = 150

_JITTER = 5.0
"""Largest number of seconds of event time by which a record is older than its step."""

_ABORTED = 0.15
"""Share of the steps that begin with an aborted transaction."""


class Feed(threading.Thread):
    """A thread that writes JSON records ``id, moment, key, value`` until ``finish``; during an outage it waits.

    A step begins when the previous one is in the topic, so that partitions never differ by more than one step. Every
    second step is one transaction.
    """

    def __init__(self, broker: Broker, topic: str, seed: int, partitions: int) -> None:
        super().__init__(daemon=True)
        self.partitions = partitions
        """Number of partitions to write to. It may grow while the feed runs."""
        self._broker = broker
        self._topic = topic
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._ids = 0

    def run(self) -> None:
        try:
            self._write_steps()
        except Exception as error:
            self._failure = error

    def stop(self) -> None:
        """Stop after the current step."""
        self._over.set()

    def finish(self) -> int:
        """Stop after the current step, and return the number of records written. Their ids count from 0."""
        self.stop()
        self.join(2 * OUTAGE)
        assert not self.is_alive(), "the broker takes no more records"
        if self._failure is not None:
            raise self._failure
        return self._ids

    def _write_steps(self) -> None:
        partitions, step = 0, 0
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due, time.monotonic() - STEP_SECONDS) + STEP_SECONDS
            if partitions != self.partitions:
                partitions = self.partitions
                writer = Writer(self._broker, self._topic)
            if self._chance.random() < _ABORTED:
                aborted = [self._record(-1, step, partitions) for _ in range(RECORDS_PER_STEP)]
                writer.write_in_transaction(aborted, commit=False)
            records = [self._record(self._ids + i, step, partitions) for i in range(RECORDS_PER_STEP)]
            if step % 2:
                writer.write_in_transaction(records, commit=True)
            else:
                writer.write(records)
            self._ids += RECORDS_PER_STEP
            step += 1

    def _record(self, number: int, step: int, partitions: int) -> Record:
        """Return a record. Most records go to one partition, and few keys have most of them."""
        milliseconds = round(1000 * (step - self._chance.uniform(0, _JITTER)))
        # no two records of the same time, of which the table of the newest ones would have either
        at = START + timedelta(milliseconds=milliseconds, microseconds=number % 1000)
        value = {
            "id": number,
            "moment": f"{at.isoformat(timespec='microseconds')}Z",
            "key": f"key {min(int(self._chance.paretovariate(0.6)), KEYS)}",
            "value": self._chance.randint(-99, 99),
        }
        return Record(min(int(self._chance.expovariate(1.0)), partitions - 1), json.dumps(value).encode())


def events_in(broker: Broker, topic: str) -> pa.Table:
    """Return all committed records of the topic as a table for DuckDB, each with its place in the topic."""
    messages = topics.committed(broker, topic)
    records = [json.loads(message.value or b"") for message in messages]
    return pa.table(
        {
            "partition": pa.array([message.partition for message in messages], pa.int64()),
            "offset": pa.array([message.offset for message in messages], pa.int64()),
            "id": pa.array([record["id"] for record in records], pa.int64()),
            "moment": pa.array([_moment(record["moment"]) for record in records], pa.timestamp("us")),
            "key": pa.array([record["key"] for record in records], pa.string()),
            "value": pa.array([record["value"] for record in records], pa.int64()),
        }
    )


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC).replace(tzinfo=None)
