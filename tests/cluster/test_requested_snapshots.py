"""A snapshot without a shell on the volume: asked for, seen, continued by another query and removed by kubectl alone."""

from __future__ import annotations

from typing import Any

import pytest

from lab.counting_query import Counting
from lab.deployed import Deployed
from lab.installation import CLAIM
from lab.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=4), pytest.mark.timeout(1800)]


def ask(query: Deployed, value: str) -> dict[str, Any]:
    """Ask by the annotation, and return the snapshots once it is done."""
    query.kubectl("annotate", "sq", query.name, f"millrace.io/snapshot={value}", "--overwrite")

    def done(status: dict[str, Any]) -> bool:
        request = status.get("snapshots", {}).get("request", {})
        assert request.get("state") != "Failed", request
        return request.get("name") == value and request.get("state") == "Done"

    snapshots: dict[str, Any] = query.wait(done, f"{value} is done")["snapshots"]
    return snapshots


def test_another_query_counts_on_from_a_snapshot_that_kubectl_asks_for(counting: Counting) -> None:
    counting.start()
    query = counting.query
    driver = query.driver_uid
    found = ask(query, "monday")
    assert [(each["name"], each["origin"]) for each in found["newest"]] == [("monday", "Person")]
    assert "SnapshotTaken" in query.events

    other = Deployed(query.on, query.namespace, "again")
    place = f"file:///var/lib/millrace/checkpoint/{query.name}/snapshots/monday"
    other.apply(counting.document("again", checkpoint={"claimName": CLAIM, "fromSnapshot": place}))
    other.wait_until_running()
    counting.wait_for_records()
    counting.stop()
    wait_until(lambda: counting.table("again") == counting.written, "the other query has counted all records once")
    wait_until(lambda: counting.table() == counting.written, "and so has the first")
    other.kubectl("delete", "sq", other.name)

    assert ask(query, "-monday")["count"] == 0
    assert query.driver_uid == driver
    assert query.runs == 1
