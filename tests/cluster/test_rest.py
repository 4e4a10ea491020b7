"""A query without records that has no executor, as over a night: it stays well, and its first records bring them back."""

from __future__ import annotations

import time

import pytest

from lab.counting_query import Counting
from lab.deployed import Deployed
from lab.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=17), pytest.mark.timeout(3600)]

NIGHT = 300.0
"""Seconds for which the query stays at rest."""


def falls_asleep(query: Deployed) -> None:
    """Wait until the query has no executor and nothing that could become one."""
    query.wait(lambda status: status["plan"]["executors"] == 0, "it rests")
    assert query.status["lastScaling"]["reason"] == "AtRest"
    selector = f"millrace.io/query={query.name},millrace.io/role=executor"
    wait_until(lambda: query.kubectl("get", "pods", "-l", selector, "-o", "name") == "", "no executor is left")


def sleeps(query: Deployed, seconds: float) -> None:
    """Check for so many seconds that the query stays at rest and well."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        status = query.status
        assert (status["phase"], status["plan"]["executors"]) == ("Running", 0), status
        assert query.executors == []
        for type, wanted in (("Ready", "True"), ("Degraded", "False"), ("MetricsAvailable", "True")):
            assert query.condition(type)["status"] == wanted, status
        assert "at rest without executors" in query.condition("Ready")["message"]
        time.sleep(5.0)


def test_a_query_rests_over_a_night_and_its_first_records_wake_it(counting: Counting) -> None:
    query = counting.query
    counting.start(executors={"initial": 2, "min": 0, "max": 2}, scaling={"mode": "Active"})
    counting.wait_for_executors(2)
    driver = query.driver_uid
    counting.pause()
    falls_asleep(query)
    sleeps(query, NIGHT)
    assert query.status["load"]["cores"] == 0

    print(f"after a night of {NIGHT:.0f} s: first result after {counting.resume():.2f} s")
    query.wait(lambda status: status["plan"]["executors"] == 2, "it has a plan with executors")
    assert query.status["lastScaling"]["reason"] == "Woken"
    counting.wait_for_executors(2)
    counting.wait_for_records()
    counting.wait_for_progress()
    assert (query.driver_uid, query.runs) == (driver, 1)

    counting.pause()
    falls_asleep(query)
    query.kubectl("delete", "pod", query.pod)
    query.wait(lambda _: query.driver_uid not in ("", driver) and query.is_ready, "another driver runs")
    query.wait(lambda status: status["phase"] == "Running", "it runs")
    sleeps(query, 30.0)
    print(f"after another driver: first result after {counting.resume():.2f} s")
    counting.wait_for_executors(2)
    counting.wait_for_progress()
    counting.check()
    assert not query.status.get("attempts")
