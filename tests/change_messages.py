"""Changes of a database's table as Debezium writes them, and the versions of the rows that they make."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


def envelope(op: str, before: Row | None, after: Row | None, micros: int, **source: Any) -> Row:
    """Return the value of a message about a change at a time in microseconds since 1970."""
    times = {"ts_ms": micros // 1000, "ts_us": micros, "ts_ns": micros * 1000}
    database = {"version": "3.1.0.Final", "connector": "postgresql", "name": "shop", "schema": "public", **source}
    return {"before": before, "after": after, "source": database | times, "op": op, "ts_ms": micros // 1000 + 5}


@dataclass
class ChangedTable:
    """A table with the key ``id`` and the columns ``name`` and ``level``, and what Debezium writes about its changes.

    ``full``: its REPLICA IDENTITY is FULL, so that messages have the rows before.
    """

    seed: int
    full: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    messages: list[tuple[Row | None, Row | None]] = field(default_factory=list)
    versions: list[tuple[int, str | None, int, datetime]] = field(default_factory=list)
    """Each version of a row from its time on; a delete has no name and the level -1."""

    def change(self, changes: int, seconds: int) -> None:
        """Make random changes, the first ones a snapshot, evenly over a time; several may be in one transaction."""
        choose = random.Random(self.seed)
        for number in range(changes):
            at = BEGIN + timedelta(seconds=seconds * (number // 3 * 3) / changes, microseconds=self.seed)
            op, key = choose.choice("cuuudk"), choose.randrange(12)
            if number < 6:
                self._set("r", number, at)
            elif op == "k" and key in self.rows and 100 + number not in self.rows:
                self._delete(key, at)
                self._set("c", 100 + number, at)
            elif op == "d" and key in self.rows:
                self._delete(key, at)
            else:
                self._set("u" if key in self.rows else "c", key, at)
            if number % 10 == 5:
                self.messages.append(({"serverName": "shop"}, {"ts_ms": _micros(at) // 1000}))
                begin = {"status": "BEGIN", "id": f"{number}", "event_count": None, "data_collections": None}
                self.messages.append(({"id": f"{number}"}, begin))

    def write_again(self, until: int) -> None:
        """Write the changes of the first seconds once more, as a connector that has crashed, and then crashes again."""
        end = _micros(BEGIN + timedelta(seconds=until))
        later = (place for place, (_, value) in enumerate(self.messages) if value and _time(value) >= end)
        self.messages += self.messages[: next(later)]

    def _set(self, op: str, key: int, at: datetime) -> None:
        level = len(self.messages)
        row = {"id": key, "name": f"name {level % 7}" if level % 5 else None, "level": level}
        before = self.rows.get(key) if self.full and op == "u" else None
        self.messages.append(({"id": key}, envelope(op, before, row, _micros(at))))
        self.rows[key] = row
        self.versions.append((key, row["name"], level, at))

    def _delete(self, key: int, at: datetime) -> None:
        row = self.rows.pop(key)
        before = row if self.full else {"id": key, "name": None, "level": None}
        self.messages += [({"id": key}, envelope("d", before, None, _micros(at))), ({"id": key}, None)]
        self.versions.append((key, None, -1, at))

    def texts(self) -> Iterator[tuple[str, str | None]]:
        """Yield the keys and values of the messages."""
        for key, value in self.messages:
            yield json.dumps(key), None if value is None else json.dumps(value)


def _time(value: Row) -> int:
    time: int = value.get("source", {}).get("ts_us", 0)
    return time


def _micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
