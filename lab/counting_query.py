"""A query that counts incoming records by key, and the counts that it must reach."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import topics
from .deployed import Deployed, document
from .installation import Installation
from .load import Load
from .waiting import wait_until

SQL = "SELECT name, count(*) AS records FROM records GROUP BY name"

RATE, KEYS = 100.0, 7
"""Records per second, and number of their keys."""


class Counting:
    """A query in a namespace of its own with two topics. Records arrive in one of them from the start.

    After ``stop``, which every test must call, the table has to reach ``written``.
    """

    def __init__(self, on: Installation, namespace: str, partitions: int = 2) -> None:
        self.query = Deployed(on, namespace, "counts")
        self._records = topics.make(on.broker, f"{namespace}-records", partitions)
        self._load = Load(on.broker, self._records, RATE, [1.0] * KEYS)

    def document(self, name: str = "counts", **spec: Any) -> dict[str, Any]:
        """Return the query. Under another name, it counts the same records into a table of its own."""
        broker = self.query.on.broker
        table = topics.make(broker, self._table(name), 2, cleanup_policy="compact")
        source = {"bootstrapServers": broker.bootstrap, "topic": self._records, "startingOffsets": "Earliest"}
        base = {
            "sources": {"records": {"kafka": source, "schema": "name STRING"}},
            "query": {"sql": SQL},
            "sink": {"table": {"bootstrapServers": broker.bootstrap, "topic": table}},
            "scaling": {"mode": "Off"},  # only the test changes it
        }
        return document(name, **base | spec)

    def start(self, **spec: Any) -> None:
        """Apply the query, and wait until it counts."""
        self.query.apply(self.document(**spec))
        self.query.wait_until_settled()
        self.wait_for_progress()

    def pause(self) -> None:
        """Write no more records, and wait until those before are counted."""
        self._load.rate = 0.0
        self.wait_for_progress()

    def resume(self) -> float:
        """Write records again, and return the seconds until the first of their results is committed."""
        with topics.next_committed(self.query.on.broker, self._table(self.query.name)) as wait:
            began = time.monotonic()
            self._load.rate = RATE
            wait()
            return time.monotonic() - began

    def multiply(self, factor: float) -> None:
        """Write this multiple of the usual records per second from now on."""
        self._load.rate = factor * RATE

    def stop(self) -> None:
        """Stop producing records."""
        self._load.stop()

    @property
    def written(self) -> Counter[str]:
        """The records written so far, by key."""
        return Counter(self._load.written)

    def table(self, name: str = "counts") -> Counter[str]:
        """Return the committed results: the number of records by key."""
        rows = topics.rows(self.query.on.broker, self._table(name))
        return Counter({row["name"]: row["records"] for row in rows})

    def wait_for_records(self, number: int = 300) -> None:
        """Wait until ``number`` more records were written."""
        before = self.written.total()
        wait_until(lambda: self.written.total() >= before + number, f"{number} more records come")

    def wait_for_progress(self) -> None:
        """Wait until all records written before this call are counted."""
        written = self.written
        wait_until(lambda: self.table() >= written, f"{written.total()} records are counted")

    def wait_for_executors(self, number: int, without: str = "") -> None:
        """Wait until so many executors run and take tasks, and the pod ``without`` is not one of them."""

        def at_work() -> bool:
            found = {each["metadata"]["name"] for each in self.query.executors}
            return without not in found and len(found) == self.query.applied["executorsReady"] == number

        wait_until(at_work, f"{number} executors are at work")

    def check(self) -> None:
        """Check that every record is counted once, and that no count was ever reset and counted again."""
        self.stop()
        wait_until(lambda: self.table().total() >= self.written.total(), "all records are counted")
        assert self.table() == self.written
        for name, counts in self._counts():
            assert counts == sorted(set(counts)), f"counts of {name} do not grow: {counts}"

    @property
    def checkpoint(self) -> Path:
        """The query's checkpoint folder on the node."""
        return self.query.on.cluster.folder / "volumes" / self.query.namespace / self.query.name

    @property
    def checkpoint_id(self) -> str:
        """The id drawn when the checkpoint was created."""
        return str(json.loads((self.checkpoint / "millrace.json").read_text())["id"])

    def _counts(self) -> Iterator[tuple[str, list[int]]]:
        """Yield all counts of each key, in commit order."""
        found: dict[str, list[int]] = {}
        for each in topics.committed(self.query.on.broker, self._table("counts")):
            row = json.loads(each.value or b"{}")
            found.setdefault(row["name"], []).append(row["records"])
        yield from found.items()

    def _table(self, name: str) -> str:
        return f"{self.query.namespace}-{name}"
