"""A shop for the examples: clicks as a file, and the changes of a table of customers in Kafka, as Debezium writes them.

python examples/shop.py localhost:9092 out/data/clicks.csv
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

BEGIN = datetime(2024, 5, 1, 8, tzinfo=UTC)
CUSTOMERS = 200
TIERS = ("basic", "silver", "gold")

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


def clicks(hours: int) -> Iterator[str]:
    """Yield the lines of the file with the clicks, some of them by customers that are not in the table then."""
    choose = random.Random(2)
    yield "at,customer,page"
    for number in range(hours * 3600):
        at = BEGIN + timedelta(seconds=number, milliseconds=500)
        yield f"{at:%Y-%m-%dT%H:%M:%S.%f}Z,{choose.randint(1, CUSTOMERS)},/page/{choose.randint(1, 50)}"


def main() -> None:
    """Write both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brokers", help="bootstrap servers of Kafka, such as localhost:9092")
    parser.add_argument("file", type=Path, help="file for the clicks")
    parser.add_argument("--topic", default="shop.public.customers", help="topic for the changes")
    parser.add_argument("--hours", type=int, default=2, help="how long clicks and changes go on")
    asked = parser.parse_args()
    producer = Producer({"bootstrap.servers": asked.brokers, "enable.idempotence": True})
    for key, value in changes(asked.hours):
        producer.produce(asked.topic, None if value is None else json.dumps(value), json.dumps(key))
        producer.poll(0)
    if left := producer.flush(60):
        raise SystemExit(f"{left} messages were not delivered to {asked.brokers}")
    asked.file.parent.mkdir(parents=True, exist_ok=True)
    asked.file.write_text("\n".join([*clicks(asked.hours), ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
