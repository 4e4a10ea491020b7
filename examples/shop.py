"""A shop for the examples: clicks, and the changes of a table of customers in Kafka, as Debezium writes them.

python examples/shop.py localhost:9092 out/data/clicks.csv            # clicks as a file
python examples/shop.py kafka:9092 --clicks shop.clicks --rate 200    # clicks in a topic, as they come
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BEGIN = datetime(2024, 5, 1, 8, tzinfo=UTC)
CUSTOMERS = 200
TIERS = ("basic", "silver", "gold")
TIME = "%Y-%m-%dT%H:%M:%S.%fZ"

Row = dict[str, Any]
Message = tuple[Row, Row | None]


def changes(hours: int) -> Iterator[Message]:
    """Yield keys and values of messages: a snapshot of all customers, and then a change each second."""
    choose = random.Random(1)
    rows: dict[int, Row] = {}
    for number in range(1, CUSTOMERS + 1):
        rows[number] = {"id": number, "name": f"customer {number}", "tier": choose.choice(TIERS)}
        yield {"id": number}, _change("r", rows[number], BEGIN)
    for second in range(1, hours * 3600):
        at, number = BEGIN + timedelta(seconds=second), choose.randint(1, CUSTOMERS)
        if number in rows and choose.random() < 0.1:
            del rows[number]
            yield {"id": number}, _change("d", {"id": number, "name": None, "tier": None}, at)
            yield {"id": number}, None  # so that Kafka can remove the messages before
            continue
        op = "u" if number in rows else "c"
        rows[number] = {"id": number, "name": f"customer {number}", "tier": choose.choice(TIERS)}
        yield {"id": number}, _change(op, rows[number], at)


def _change(op: str, row: Row, at: datetime) -> Row:
    """Return the value of a message: the row after a change, or before a delete, and the change's kind and time."""
    millis = round(at.timestamp() * 1000)
    source = {"connector": "postgresql", "name": "shop", "schema": "public", "table": "customers", "ts_ms": millis}
    rows = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return rows | {"op": op, "source": source, "ts_ms": millis + 200}


def clicks(hours: int) -> Iterator[tuple[datetime, int, str]]:
    """Yield time, customer and page of each click, some of them by customers that are not in the table then."""
    choose = random.Random(2)
    for number in range(hours * 3600):
        at = BEGIN + timedelta(seconds=number, milliseconds=500)
        yield at, choose.randint(1, CUSTOMERS), f"/page/{choose.randint(1, 50)}"


def messages(table: str, topic: str | None, hours: int) -> Iterator[tuple[datetime, str, str, str | None]]:
    """Yield time, topic, key and value of the changes, and of the clicks if they have a topic, in the order of time."""

    def changed() -> Iterator[tuple[datetime, str, str, str | None]]:
        at = BEGIN
        for key, value in changes(hours):
            at = at if value is None else datetime.fromtimestamp(value["source"]["ts_ms"] / 1000, UTC)
            yield at, table, json.dumps(key), None if value is None else json.dumps(value)

    def clicked() -> Iterator[tuple[datetime, str, str, str | None]]:
        for at, customer, page in clicks(hours) if topic is not None else ():
            value = {"at": f"{at:{TIME}}", "customer": customer, "page": page}
            yield at, topic or "", str(customer), json.dumps(value)

    return heapq.merge(changed(), clicked(), key=lambda message: message[0])


def make_topics(brokers: str, partitions: dict[str, int]) -> None:
    """Create the topics that do not exist."""
    client = AdminClient({"bootstrap.servers": brokers})  # which must live until the answers are there
    made = client.create_topics([NewTopic(name, number, 1) for name, number in partitions.items()])
    for future in made.values():
        try:
            future.result(60)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def send(brokers: str, sent: Iterable[tuple[datetime, str, str, str | None]], rate: float | None) -> int:
    """Send messages, at most ``rate`` of them in a second, and return their number."""
    producer = Producer({"bootstrap.servers": brokers, "enable.idempotence": True})
    began, number = time.monotonic(), 0
    for number, (_, topic, key, value) in enumerate(sent, 1):
        producer.produce(topic, value, key)
        producer.poll(0 if rate is None else max(0.0, began + number / rate - time.monotonic()))
    if left := producer.flush(60):
        raise SystemExit(f"{left} messages were not delivered to {brokers}")
    return number


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brokers", help="bootstrap servers of Kafka, such as localhost:9092")
    parser.add_argument("file", type=Path, nargs="?", help="file for the clicks")
    parser.add_argument("--topic", default="shop.public.customers", help="topic for the changes")
    parser.add_argument("--clicks", help="topic for the clicks; both topics are made if they do not exist")
    parser.add_argument("--hours", type=int, default=2, help="how long clicks and changes go on, in event time")
    parser.add_argument("--rate", type=float, help="messages per second; default: all at once")
    asked = parser.parse_args()
    if asked.clicks is not None:
        make_topics(asked.brokers, {asked.topic: 1, asked.clicks: 2})
    number = send(asked.brokers, messages(asked.topic, asked.clicks, asked.hours), asked.rate)
    print(f"sent {number} messages")
    if asked.file is not None:
        asked.file.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{at:{TIME}},{customer},{page}" for at, customer, page in clicks(asked.hours)]
        asked.file.write_text("\n".join(["at,customer,page", *lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
