"""A query over trips on the cluster, whose wrong versions are compared with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from lab import topics
from lab.deployed import Deployed, document
from lab.installation import Installation
from lab.waiting import wait_until
from wrong_versions import CONTINUED

DURATION = 45
"""Seconds after which a snapshot counts, as ``spec.upgrade.duration`` says."""

_START = datetime(2024, 3, 1, tzinfo=UTC)
_SCHEMA = "id BIGINT, at TIMESTAMP, city STRING, fare DOUBLE, tip DOUBLE"
_DELAY = 300
"""Seconds of the watermark's delay, which no trip exceeds."""

_LATE = 240
"""Seconds that trips are late at most: more than two batches of a comparison span, in which Spark still takes them."""

_EXPECTED = f"""
SELECT time_bucket(INTERVAL 1 MINUTE, "at") AS since, city, count(*) AS n, max(tip) AS most, round(sum(fare), 2) AS total
FROM trips WHERE fare > 5 AND tip >= 0 GROUP BY 1, 2 HAVING since + INTERVAL 1 MINUTE <= (
  SELECT max("at") - INTERVAL {_DELAY} SECOND FROM trips)
"""


class ComparedTrips:
    """The query in a namespace of its own, with results in a topic."""

    def __init__(self, on: Installation, namespace: str) -> None:
        self.query = Deployed(on, namespace, "trips")
        self._broker, self._chance = on.broker, np.random.default_rng(7)
        self._trips: list[dict[str, Any]] = []
        self._topic = topics.make(on.broker, f"{namespace}-trips", 1)  # in which none overtakes another
        self._results = topics.make(on.broker, f"{namespace}-results", 2)

    def document(self, sql: str = CONTINUED, delay: str | None = None) -> dict[str, Any]:
        """Return a version of the query."""
        kafka = {"bootstrapServers": self._broker.bootstrap, "topic": self._topic, "startingOffsets": "Earliest"}
        watermark = {"column": "at", "delay": delay or f"{_DELAY}s"}
        return document(
            self.query.name,
            sources={"trips": {"kafka": kafka, "schema": _SCHEMA, "watermark": watermark}},
            query={"sql": sql},
            sink={"kafka": {"bootstrapServers": self._broker.bootstrap, "topic": self._results}},
            emit="OnWindowClose",
            upgrade={"mode": "Shadow", "duration": f"{DURATION}s"},
            scaling={"mode": "Off"},
        )

    def give(self, number: int) -> None:
        """Write so many trips, a tenth of a second apart; a fifth is up to four minutes late, and a fourth has no city."""
        made = list(self._made(number))
        self._trips += made
        topics.fill(self._broker, self._topic, [each | {"at": _text(each["at"])} for each in made])

    def _made(self, number: int) -> Iterator[dict[str, Any]]:
        for each in range(len(self._trips), len(self._trips) + number):
            late = (
                timedelta(seconds=float(self._chance.uniform(0, _LATE))) if self._chance.random() < 0.2 else timedelta()
            )
            city = ("a", "b", "c", None)[self._chance.integers(4)]
            fare, tip = (int(self._chance.integers(100, 4_000)) / divisor for divisor in (100, 1_000))
            yield {
                "id": each,
                "at": _START + each * timedelta(seconds=0.1) - late,
                "city": city,
                "fare": fare,
                "tip": tip,
            }

    def compared(self) -> dict[str, Any]:
        """Wait for the verdict on the version that was applied last, and return the status of the comparison."""
        generation = self.query.on.get("-n", self.query.namespace, "sq", self.query.name)["metadata"]["generation"]

        def found() -> dict[str, Any] | None:
            upgrade: dict[str, Any] = self.query.status.get("upgrade") or {}
            return upgrade if upgrade.get("generation") == generation and upgrade.get("verdict") else None

        compared: dict[str, Any] = wait_until(found, lambda: f"both are compared: {self.query.status}", seconds=1200)
        return compared

    def check(self) -> None:
        """Wait until DuckDB's rows of all windows that are closed are there, each once."""
        moment = pa.timestamp("us")
        trips = pa.table(
            {
                "at": pa.array([each["at"].replace(tzinfo=None) for each in self._trips], moment),
                **{name: [each[name] for each in self._trips] for name in ("city", "fare", "tip")},
            }
        )
        with duckdb.connect() as connection:
            connection.register("trips", trips)
            expected = sorted(connection.execute(_EXPECTED).fetchall(), key=str)
        wait_until(lambda: len(self._rows()) >= len(expected), f"{len(expected)} rows are there")
        assert self._rows() == expected

    def _rows(self) -> list[tuple[Any, ...]]:
        rows = (json.loads(each.value or b"{}") for each in topics.committed(self._broker, self._results))
        found = [(_time(row["since"]), row.get("city"), row["n"], row["most"], row["total"]) for row in rows]
        return sorted(found, key=str)


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)
