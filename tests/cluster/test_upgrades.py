"""A changed query that is compared with the one that runs before it takes its place, through ``kubectl``."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from fault_settings import chance
from lab.counting_query import SQL, Counting
from lab.installation import NAMESPACE, Installation
from lab.waiting import wait_until
from wrong_versions import CONTINUED, WRONG_ON_A_STATE, WrongVersion

from .compared_trips import DURATION, ComparedTrips

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


SLOW = "length(sha2(repeat(coalesce(city, 'none'), 400000), 512)) = 128"
"""A condition that always holds, after a few milliseconds."""

KINDS = WRONG_ON_A_STATE | {"a slow condition": WrongVersion((" times as long",), {"fare > 5": f"fare > 5 AND {SLOW}"})}


@pytest.mark.slow(minutes=25)
@pytest.mark.timeout(7200)
def test_each_kind_of_wrong_version_is_dropped_by_name(installation: Installation, namespace: str) -> None:
    trips = ComparedTrips(installation, namespace)
    query = trips.query
    trips.give(1_000)
    query.apply(trips.document())
    query.wait_until_settled()
    query.wait_until_healthy()
    driver, healthy = query.driver_uid, query.status["revision"]
    query.kubectl("annotate", "sq", query.name, "millrace.io/snapshot=before")
    query.wait(lambda status: snapshot_of(status).get("state") == "Done", "there is a snapshot to begin with")
    trips.give(14_000)  # in as many batches, so that their times are compared
    time.sleep(DURATION)
    verdicts = {}
    for kind, wrong in KINDS.items():
        query.apply(trips.document(wrong.of(CONTINUED), wrong.delay))
        compared = trips.compared()
        print(f"{kind}: {compared['verdict']}: {compared['message']}", flush=True)
        assert [text for text in wrong.said if text not in compared["message"]] == [], kind
        verdicts[kind] = compared["verdict"]
        query.wait(lambda _: query.condition("Degraded").get("reason") == "UpgradeRejected", f"{kind} is dropped")
        assert query.condition("Degraded")["message"]
        assert (query.driver_uid, query.runs, query.status["revision"]) == (driver, 1, healthy), kind
    assert verdicts == dict.fromkeys(WRONG_ON_A_STATE, "Different") | {"a slow condition": "Slower"}
    query.apply(trips.document())
    query.wait(lambda _: query.condition("Degraded").get("reason") == "AsExpected", "the old spec is back")
    trips.give(1_000)
    trips.check()
    assert (query.driver_uid, query.runs) == (driver, 1)


@pytest.mark.slow(minutes=10)
@pytest.mark.timeout(3600)
def test_an_operator_that_is_killed_drops_the_wrong_version_and_follows_the_right_one(counting: Counting) -> None:
    drawn, query = chance("operator"), counting.query
    counting.start(upgrade=UPGRADE)
    query.wait_until_healthy()
    driver, healthy, checkpoint = query.driver_uid, query.status["revision"], counting.checkpoint_id

    query.patch(query={"sql": WITHOUT_A_KEY})
    kill_operator(counting, drawn, 30)
    query.wait(lambda _: query.condition("Progressing").get("reason") == "Comparing", "both versions are compared")
    kill_operator(counting, drawn, 60)
    wait_until(lambda: upgrade_of(query.status).get("verdict"), "there is a verdict", seconds=1200)
    kill_operator(counting, drawn, 5)
    query.wait(lambda _: query.condition("Degraded").get("reason") == "UpgradeRejected", "the wrong one is dropped")
    assert upgrade_of(query.status)["verdict"] == "Different"
    assert "key-3" in query.condition("Degraded")["message"]
    assert (query.driver_uid, query.status["revision"]) == (driver, healthy)

    query.patch(query={"sql": IN_OTHER_WORDS})
    wait_until(lambda: upgrade_of(query.status).get("verdict") == "Equal", "the right one is equal", seconds=1200)
    for longest in (5, 20):
        kill_operator(counting, drawn, longest)
    query.wait(lambda status: status["driver"].get("revision") not in (None, healthy), "the right one takes over")
    query.wait_until_settled()
    counting.wait_for_progress()
    assert query.condition("Degraded")["reason"] == "AsExpected"
    assert not query.status.get("attempts")
    counting.check()
    assert counting.checkpoint_id == checkpoint
    snapshots = counting.checkpoint / "snapshots"
    assert not snapshots.exists() or not list(snapshots.iterdir())


def kill_operator(counting: Counting, drawn: random.Random, longest: float) -> None:
    """Kill the operator at a random moment within so many seconds, and wait until another one runs."""
    moment = drawn.uniform(0, longest)
    time.sleep(moment)
    upgrade = upgrade_of(counting.query.status)
    print(
        f"operator killed after {moment:.1f} s: {upgrade.get('verdict')}, {counting.query.status.get('phase')}",
        flush=True,
    )
    counting.query.on.kubectl("-n", NAMESPACE, "delete", "pods", "--all", "--grace-period=0", "--force")
    counting.query.on.wait_for_operator()


def snapshot_of(status: dict[str, Any]) -> dict[str, Any]:
    """Return what the status says of the snapshot that is asked for."""
    return (status.get("snapshots") or {}).get("request") or {}


def upgrade_of(status: dict[str, Any]) -> dict[str, Any]:
    """Return what the status says of the last comparison."""
    return status.get("upgrade") or {}
