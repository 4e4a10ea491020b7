"""Argo CD's health of a query: its script, run by the Lua that Argo CD has, over statuses that the operator writes."""

from __future__ import annotations

import json
from itertools import product

import pytest

from millrace_operator.lifecycle.conditions import ReadyReason
from millrace_operator.lifecycle.refusals import QuotaExceededError
from unit.api.documents import MINIMAL, changed
from unit.lifecycle.cluster import POD, Cluster, copied

from .tools import ROOT, tool

SCRIPT = ROOT / "charts/argocd/health.lua"
OTHER_SQL = changed(MINIMAL, 10, "    sql: SELECT cell, count(*) AS trips FROM trips GROUP BY cell")
INVALID = changed(MINIMAL, 10, "    sql: SELECT cel FROM trips")
SUSPENDED = changed(MINIMAL, 12, "  suspend: true")
SPECS = {"first": MINIMAL, "other": OTHER_SQL, "invalid": INVALID, "suspended": SUSPENDED}
PAUSED = {"millrace.io/paused": "true"}


def lua(value):
    """A JSON value as Lua writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{lua(name)}] = {lua(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return "nil" if value is None else json.dumps(value, ensure_ascii=False)


def healths(folder, *bodies):
    """What Argo CD shows of each query: its health, and the message."""
    lines = [f"obj = {lua(each)}\nhs = dofile({lua(str(SCRIPT))})\nprint(hs.status, hs.message)" for each in bodies]
    program = folder / "queries.lua"
    program.write_text("\n".join(lines), encoding="utf-8")
    done = tool("glua", program)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split("\t", 1) for line in done.stdout.splitlines()]


def shown(folder, cluster):
    """The health of the cluster's query."""
    return healths(folder, cluster.query)[0]


@pytest.fixture
def running():
    """A query that has run for long enough to be healthy."""
    cluster = Cluster()
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    cluster.pass_time(seconds=61)
    return cluster


def test_a_query_comes_up(tmp_path):
    cluster = Cluster()
    cluster.put(MINIMAL)
    seen = [copied(cluster.query)]
    cluster.settle()
    seen.append(copied(cluster.query))
    cluster.pod_is_ready()
    seen.append(copied(cluster.query))
    assert [health for health, _ in healths(tmp_path, *seen)] == ["Progressing", "Progressing", "Healthy"]


def test_a_change_is_in_progress_until_another_driver_runs(tmp_path, running):
    running.put(OTHER_SQL)
    seen = [copied(running.query)]
    running.settle()
    seen.append(copied(running.query))
    running.pod_is_ready()
    seen.append(copied(running.query))
    assert [health for health, _ in healths(tmp_path, *seen)] == ["Progressing", "Progressing", "Healthy"]


@pytest.mark.parametrize(("text", "annotations"), [(SUSPENDED, {}), (MINIMAL, PAUSED), (OTHER_SQL, PAUSED)])
def test_what_somebody_stopped_is_suspended(tmp_path, running, text, annotations):
    running.put(text, annotations)
    running.settle()
    assert shown(tmp_path, running)[0] == "Suspended"


@pytest.mark.parametrize("annotations", [{}, PAUSED])
def test_an_invalid_change_is_degraded_and_says_why(tmp_path, running, annotations):
    running.put(INVALID, annotations)
    running.settle()
    health, message = shown(tmp_path, running)
    assert health == "Degraded"
    assert message.startswith("InvalidQuery: ")
    assert "cel" in message


def test_a_driver_that_fails_is_degraded_while_it_is_tried_again_and_given_up(tmp_path, running):
    seen = []
    while POD in running.objects:
        running.pod_fails('{"failure": "UserCodeFailed", "message": "no"}')
        seen.append(copied(running.query))
        running.pass_time(minutes=6)
    assert running.status.phase == "Failed"
    seen.append(copied(running.query))
    assert {health for health, _ in healths(tmp_path, *seen)} == {"Degraded"}


def test_a_rollback_is_degraded_though_the_last_healthy_spec_runs(tmp_path, running):
    running.put(OTHER_SQL)
    running.settle()
    for _ in range(3):
        running.pod_fails('{"failure": "UserCodeFailed", "message": "no"}')
        running.pass_time(minutes=6)
    running.pod_is_ready()
    assert running.status.phase == "Running"
    health, message = shown(tmp_path, running)
    assert (health, message.split(":")[0]) == ("Degraded", "RolledBack")


def test_executors_that_a_quota_refuses_degrade_a_query_that_runs(tmp_path, running):
    running.put(MINIMAL + "  executors: {initial: 3, max: 8}\n")
    running.settle()
    running.driver_follows(executors=1, partitions=3)
    running.refused_pods["executor"] = QuotaExceededError("exceeded quota: few")
    running.pass_time(seconds=30)
    health, message = shown(tmp_path, running)
    assert (health, message.split(":")[0]) == ("Degraded", "QuotaExceeded")


def test_each_reason_has_a_health(tmp_path):
    """Any that is new counts as degraded, and is seen here."""
    reasons = [each for each in ReadyReason if each is not ReadyReason.RUNNING]
    by_health = {}
    for reason, (health, _) in zip(reasons, healths(tmp_path, *map(body, reasons)), strict=True):
        by_health.setdefault(health, set()).add(str(reason))
    assert by_health == {
        "Suspended": {"Suspended"},
        "Progressing": {
            "Deploying",
            "DriverLost",
            "FirstBatch",
            "Draining",
            "Deleting",
            "WaitingForUpstream",
            "Queued",
        },
        "Degraded": {
            "InvalidQuery",
            "NotAllowed",
            "NameTaken",
            "QuotaExceeded",
            "PodRefused",
            "Failed",
            "BackingOff",
            "ConnectionNotFound",
        },
    }


def body(reason):
    """A query that is not ready for a reason."""
    ready = {"type": "Ready", "status": "False", "reason": str(reason), "message": "why"}
    return {"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "conditions": [ready]}}


def test_health_is_what_phase_and_conditions_say_in_every_state(tmp_path):
    """Any two events in a query's life, the first before or after its driver is ready."""
    bodies = [each for ready in (False, True) for events in product(EVENTS, repeat=2) for each in walk(ready, *events)]
    for each, (health, message) in zip(bodies, healths(tmp_path, *bodies), strict=True):
        found = {one["type"]: one for one in each["status"]["conditions"]}
        invalid = found["Ready"]["reason"] == "InvalidQuery"
        stopped = not invalid and (each["status"]["phase"] == "Suspended" or each["metadata"]["annotations"] == PAUSED)
        assert (health == "Suspended") == stopped, (message, each["status"])
        healthy = (found["Ready"]["status"], found["Progressing"]["status"], found["Degraded"]["status"])
        assert (health == "Healthy") == (healthy == ("True", "False", "False") and not stopped), (
            message,
            each["status"],
        )
        assert health in ("Healthy", "Suspended", "Progressing", "Degraded")


EVENTS = [*SPECS, "paused", "ready", "fails", "waits"]


def walk(ready, *events):
    """The query after each event."""
    cluster = Cluster()
    cluster.put(MINIMAL)
    cluster.settle()
    if ready:
        cluster.pod_is_ready()
    for event in events:
        if event in SPECS:
            cluster.put(SPECS[event])
        elif event == "paused":
            cluster.put(MINIMAL, PAUSED)
        elif event == "ready" and POD in cluster.objects:
            cluster.pod_is_ready()
        elif event == "fails" and POD in cluster.objects:
            cluster.pod_fails('{"failure": "UserCodeFailed", "message": "no"}', restarts=2)
        else:
            cluster.pass_time(seconds=70)
        cluster.settle()
        yield copied(cluster.query)
