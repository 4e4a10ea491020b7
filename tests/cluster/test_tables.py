"""A table query on a cluster: deployed, scaled in place, and its table read by ``millrace get`` and by another query."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import topics
from lab.deployed import Deployed, document
from lab.installation import Installation
from lab.waiting import wait_until

pytestmark = [pytest.mark.in_turn, pytest.mark.cluster, pytest.mark.timeout(1800)]

MILLRACE = str(Path(sys.executable).with_name("millrace"))
KINDS = {f"item {number}": f"kind {number % 3}" for number in range(7)}
BY_KIND = """
SELECT i.kind, count(*) AS orders, sum(o.pieces) AS pieces
FROM orders o LEFT JOIN items i ON o.item = i.item GROUP BY i.kind
"""


class Shop:
    """Orders and items in topics, a query that joins them, and one that reads its table."""

    def __init__(self, on: Installation, namespace: str) -> None:
        self.on, self.namespace = on, namespace
        self.by_kind, self.total = Deployed(on, namespace, "by-kind"), Deployed(on, namespace, "total")
        self.ordered: Counter[str] = Counter()
        self._orders = topics.make(on.broker, f"{namespace}-orders", 2)
        self._items = topics.make(on.broker, f"{namespace}-items", 2)
        for query in (self.by_kind, self.total):
            topics.make(on.broker, self.topic(query), 2, cleanup_policy="compact")
        self._history = topics.make(on.broker, f"{namespace}-history", 2)
        items = [{"item": item, "kind": kind, "at": moment(0)} for item, kind in KINDS.items()]
        topics.fill(on.broker, self._items, items, keys=[each["item"] for each in items])
        self.order(200)

    def topic(self, query: Deployed) -> str:
        return f"{self.namespace}-{query.name}"

    def order(self, number: int) -> None:
        """Write more orders; every eighth one is of an item that does not exist."""
        first = self.ordered.total()
        orders = [{"item": f"item {n % 8}", "pieces": n, "at": moment(1 + n)} for n in range(first, first + number)]
        topics.fill(self.on.broker, self._orders, orders)
        self.ordered.update(order["item"] for order in orders)

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield the queries in the order in which they read one another."""
        broker = self.on.broker.bootstrap

        def source(topic: str, schema: str, time: str, **more: Any) -> dict[str, Any]:
            kafka = {"bootstrapServers": broker, "topic": topic, "startingOffsets": "Earliest"}
            kafka |= {"includeMetadata": True} if time == "_timestamp" else {}
            return {"kafka": kafka, "schema": schema, "watermark": {"column": time, "delay": "1h"}, **more}

        history = {"topic": self._history, "retention": "2h"}
        small = {"parallelism": {"initial": 2, "max": 4}, "scaling": {"mode": "Off"}}
        yield document(
            self.by_kind.name,
            sources={
                "orders": source(self._orders, "item STRING, pieces BIGINT, at TIMESTAMP", "at"),
                "items": source(self._items, "item STRING, kind STRING, at TIMESTAMP", "at", table={"keys": ["item"]}),
            },
            query={"sql": BY_KIND},
            sink={"table": {"bootstrapServers": broker, "topic": self.topic(self.by_kind), "history": history}},
            executors={"initial": 1, "max": 2},
            **small,
        )
        keyed = {"keys": ["kind"]}
        yield document(
            self.total.name,
            sources={
                "kinds": source(self.topic(self.by_kind), "kind STRING, orders BIGINT", "_timestamp", table=keyed)
            },
            query={"sql": "SELECT sum(orders) AS orders, count(*) AS kinds FROM kinds"},
            sink={"table": {"bootstrapServers": broker, "topic": self.topic(self.total)}},
            **small,
        )

    def wait_until_counted(self) -> None:
        """Wait until both tables have every order."""
        wait_until(lambda: self.table(self.by_kind) == self.wanted(), "the orders are counted by kind")
        known = {kind for kind in self.wanted() if kind is not None}
        totals = {None: {"orders": sum(self.wanted()[kind] for kind in known), "kinds": len(known)}}
        wait_until(lambda: self.rows(self.total) == list(totals.values()), "the other query has the total")

    def wanted(self) -> dict[str | None, int]:
        """The number of orders by kind."""
        found: Counter[str | None] = Counter()
        for item, orders in self.ordered.items():
            found[KINDS.get(item)] += orders
        return dict(found)

    def rows(self, query: Deployed) -> list[dict[str, Any]]:
        return topics.rows(self.on.broker, self.topic(query))

    def table(self, query: Deployed) -> dict[str | None, int]:
        return {row["kind"]: row["orders"] for row in self.rows(query)}

    def get(self, *keys: str) -> list[dict[str, Any]]:
        """Return the rows that ``millrace get`` shows."""
        command = [MILLRACE, "get", self.by_kind.name, *keys, "-n", self.namespace, "--format", "json"]
        command += ["--kubeconfig", str(self.on.cluster.kubeconfig)]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        answer: dict[str, Any] = json.loads(found.stdout)
        rows: list[dict[str, Any]] = answer["rows"]
        return rows


def moment(second: int) -> str:
    return f"2024-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def test_a_table_is_scaled_in_place_and_read_by_look_ups_and_by_another_query(
    installation: Installation, namespace: str
) -> None:
    shop = Shop(installation, namespace)
    for each in shop.documents():
        query = Deployed(installation, namespace, each["metadata"]["name"])
        query.apply(each)
        query.wait_until_running()
    shop.wait_until_counted()
    driver = shop.by_kind.driver["metadata"]["uid"]

    shop.by_kind.kubectl("scale", "sq", shop.by_kind.name, "--replicas=2")
    wait_until(lambda: len(shop.by_kind.executors) == 2, "it has two executors")
    shop.order(100)
    shop.wait_until_counted()
    assert (shop.by_kind.driver["metadata"]["uid"], shop.by_kind.runs) == (driver, 1)

    wanted = shop.wanted()
    assert {row["kind"]: int(row["orders"]) for row in shop.get("kind 1")} == {"kind 1": wanted["kind 1"]}
    assert {row["kind"]: int(row["orders"]) for row in shop.get()} == wanted
    (before,) = shop.get("kind 1", "--at", moment(80))
    assert int(before["orders"]) == sum(KINDS.get(f"item {n % 8}") == "kind 1" for n in range(80))
