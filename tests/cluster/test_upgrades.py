"""A changed query that is compared with the one that runs before it takes its place, through ``kubectl``."""

from __future__ import annotations

from typing import Any

import pytest

from lab.counting_query import SQL, Counting

pytestmark = [pytest.mark.in_turn, pytest.mark.cluster, pytest.mark.slow(minutes=8), pytest.mark.timeout(1500)]

UPGRADE = {"mode": "Shadow", "duration": "20s"}
WITHOUT_A_KEY = SQL.replace("FROM records", "FROM records WHERE name <> 'key-3'")
IN_OTHER_WORDS = "SELECT name,\n       count(*) AS records\nfrom records group by name\n"


def test_a_wrong_version_is_dropped_by_name_and_a_right_one_takes_over(counting: Counting) -> None:
    query = counting.query
    counting.start(upgrade=UPGRADE)
    query.wait_until_healthy()
    driver, healthy, checkpoint = query.driver_uid, query.status["revision"], counting.checkpoint_id

    query.patch(query={"sql": WITHOUT_A_KEY})
    query.wait(lambda _: query.condition("Progressing").get("reason") == "Comparing", "both versions are compared")
    counting.wait_for_progress()
    query.wait(lambda _: query.condition("Degraded").get("reason") == "UpgradeRejected", "the wrong one is dropped")
    assert query.status["upgrade"]["verdict"] == "Different"
    assert "key-3" in query.condition("Degraded")["message"]
    assert "verdict: different" in query.kubectl("logs", query.status["upgrade"]["pod"], "--container", "driver")
    assert (query.driver_uid, query.status["revision"]) == (driver, healthy), "the old one never stopped"
    counting.wait_for_progress()

    runs = query.runs
    query.patch(query={"sql": IN_OTHER_WORDS})
    query.wait(lambda status: upgrade_of(status).get("verdict") == "Equal", "the right one is equal")
    query.wait(lambda status: status["driver"].get("revision") not in (None, healthy), "the right one takes over")
    query.wait_until_settled()
    counting.wait_for_progress()
    assert (query.driver_uid, query.runs) == (driver, runs), "in the driver that runs"
    assert "another version of the query takes over" in query.log
    assert query.condition("Degraded")["reason"] == "AsExpected"
    assert not query.status.get("attempts")
    counting.check()
    assert counting.checkpoint_id == checkpoint
    snapshots = counting.checkpoint / "snapshots"
    assert not snapshots.exists() or not list(snapshots.iterdir()), "the comparison's own snapshots are removed"


def test_a_version_that_has_taken_over_is_what_a_killed_driver_goes_on_with(counting: Counting) -> None:
    query = counting.query
    counting.start(upgrade=UPGRADE)
    query.wait_until_healthy()
    driver, healthy = query.driver_uid, query.status["revision"]
    query.patch(query={"sql": IN_OTHER_WORDS})
    query.wait(lambda status: status["driver"].get("revision") not in (None, healthy), "the new one takes over")
    new, runs = query.status["driver"]["revision"], query.runs
    query.kubectl("exec", query.pod, "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
    query.wait(lambda _: query.runs > runs, "its container starts again")
    query.wait_until_settled()
    counting.wait_for_progress()
    assert (query.driver_uid, query.status["driver"]["revision"]) == (driver, new)
    query.kubectl("delete", "pod", query.pod)
    query.wait(lambda _: query.driver_uid != driver, "another pod follows")
    query.wait_until_settled()
    assert query.status["driver"]["revision"] == new
    counting.wait_for_progress()
    counting.check()


def upgrade_of(status: dict[str, Any]) -> dict[str, Any]:
    """Return what the status says of the last comparison."""
    return status.get("upgrade") or {}
