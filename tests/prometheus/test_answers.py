"""Answers about a job that a real Prometheus scrapes: right values, of the right time, of the right driver."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

from builders import PIN, a_batch, a_native_batch
from lab.waiting import wait_until
from millrace_jobs.dedicated.replica_metrics import ReplicaMetrics
from millrace_jobs.run.job_metrics import JobMetrics
from millrace_jobs.selection.costs import CombineTask
from millrace_jobs.sketches.key_profile import add_counts, profile
from millrace_operator.metrics_source.job_metrics import newest_answer
from millrace_operator.scaling.answers import MAX_AGE
from millrace_operator.scaling.observation import Answer

from .jobs import PATIENCE, PODS, answer_with, driver, kubelet, targets

soon = partial(wait_until, seconds=PATIENCE)

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(1800)]

BATCH = a_batch(
    waiting=70,
    state_updates=60,
    sink_seconds=0.25,
    slice_rows=(3000, 2000),
    slice_seconds=(0.5, 0.4),
    profile=profile(add_counts([(np.array([1, 2], np.uint64), np.array([4, 6]))])),
    combined=tuple(CombineTask(rows, keys, 0.1) for rows, keys in ((1290, 30), (1230, 28))),
)


def job(*batches, query="q"):
    metrics = JobMetrics(query)
    for batch in batches:
        metrics.record(batch)
    return metrics


def test_another_pod_does_not_speak_for_the_querys_own(start, connect):
    """Any pod may export a query's metrics; what Prometheus says of its target is not its own to choose."""
    with driver(job(BATCH), "ns") as one, driver(job(*[BATCH] * 5), "ns", pod="q-driver-0-forged") as other:
        prometheus = connect(start(targets(one, other)))
        found = answer_with(prometheus, "ns", batches_total=1)
        soon(lambda: prometheus.instant('millrace_batches_total{pod="q-driver-0-forged"}', time.time()))
        assert answer_with(prometheus, "ns", batches_total=1).rows_total == found.rows_total == 5_000


def test_an_answer_has_every_value_and_its_time(start, connect):
    metrics = job(BATCH, BATCH)
    before = time.time()
    with driver(metrics, "ns") as one:
        prometheus = connect(start(targets(one)))
        found = answer_with(prometheus, "ns", batches_total=2, executors=3)
        assert before < found.time < time.time()
        assert found == Answer(
            time=found.time,
            batches_total=2,
            rows_total=10_000,
            processing_seconds_total=pytest.approx(1.68),
            route_tasks_total=4,
            route_seconds_total=pytest.approx(0.6),
            combine_tasks_total=8,
            combine_seconds_total=pytest.approx(1.0),
            merge_seconds_total=pytest.approx(0.8),
            longest_slice_seconds_total=1.0,
            latest_offset_seconds_total=pytest.approx(0.02),
            get_batch_seconds_total=0.0,
            wal_commit_seconds_total=pytest.approx(0.04),
            commit_seconds_total=pytest.approx(0.04),
            planning_seconds_total=pytest.approx(0.1),
            sink_seconds_total=0.5,
            partials_total=116,
            updates_total=120,
            input_bytes_total=400_000,
            routed_total=9_800,
            route_bytes_total=196_000,
            combine_bytes_total=4_640,
            state_partitions=4,
            progress_time=found.progress_time,
            interval_seconds=2,
            lag_rows=70,
            keys=60,
            imbalance=pytest.approx(0.032),
            hottest_key=0.6,
            largest_slice=0.6,
            epoch=1,
            parallelism=4,
            replicas=2,
            executors=3,
        )
        (up,) = prometheus.instant('up{namespace="ns"}[1m]', found.time)
        assert up.samples[-1].time == found.time

        metrics.record(a_native_batch())
        native = answer_with(prometheus, "ns", batches_total=3)
    assert native.time > found.time
    assert (native.keys, native.imbalance, native.executors) == (None, None, None)
    assert (native.route_tasks_total, native.combine_tasks_total) == (4, 8)


def test_nothing_is_said_of_other_queries_and_namespaces(start, connect):
    with driver(job(BATCH), "ns") as one, driver(job(BATCH, BATCH, query='q"} or {a="'), "ns") as odd:
        prometheus = connect(start(targets(one, odd)))
        answer_with(prometheus, "ns", batches_total=1)
        answer_with(prometheus, "ns", 'q"} or {a="', batches_total=2)
        now = time.time()
        assert newest_answer(prometheus, "ns", "other", PODS, now) is None
        assert newest_answer(prometheus, "n.", "q", PODS, now) is None
        assert newest_answer(prometheus, "", "q", PODS, now) is None


def test_what_replicas_in_pods_of_their_own_report_is_summed(start, connect):
    replicas = [ReplicaMetrics("q", number, 2.0) for number in (0, 1)]
    for metrics in replicas:
        metrics.paused(3.0)
    with (
        driver(job(BATCH), "ns") as one,
        driver(replicas[0], "ns", "q-partitioner-0") as first,
        driver(replicas[1], "ns", "q-partitioner-1") as second,
    ):
        server = start(targets(one, first))
        prometheus = connect(server)
        soon(lambda: prometheus.instant('millrace_partitioner_lag_rows{query="q"}'))
        assert answer_with(prometheus, "ns", batches_total=1).dedicated_lag_rows is None  # of one of two
        server.scrape(targets(one, first, second))
        found = answer_with(prometheus, "ns", dedicated_paused_seconds_total=6.0)
    assert (found.dedicated_busy_seconds_total, found.dedicated_lag_rows) == (0, 0)


def test_a_driver_before_its_first_batch_has_only_counters(start, connect):
    with driver(job(), "ns") as one:
        found = answer_with(connect(start(targets(one))), "ns")
    said = {name for name, value in vars(found).items() if value is not None}
    sizes = {"input_bytes_total", "routed_total", "route_bytes_total", "combine_bytes_total"}
    steps = {f"{step}_seconds_total" for step in ("latest_offset", "get_batch", "wal_commit", "commit", "planning")}
    assert said == sizes | steps | {"sink_seconds_total", "longest_slice_seconds_total"} | {
        "time", "batches_total", "rows_total", "merge_seconds_total", "partials_total", "updates_total"
    }  # fmt: skip


def test_a_target_that_is_gone_leaves_an_answer_that_grows_old(start, connect):
    with driver(job(BATCH), "ns") as one:
        server = start(targets(one))
        prometheus = connect(server)
        answer_with(prometheus, "ns", batches_total=1)
    soon(lambda: down(prometheus))
    last = newest_answer(prometheus, "ns", "q", PODS, time.time())
    assert prometheus.instant('millrace_batches_total{query="q"}') == ()  # Prometheus takes it for stale
    assert last is not None
    assert last.batches_total == 1
    assert last == newest_answer(prometheus, "ns", "q", PODS, last.time + MAX_AGE - 1)
    assert newest_answer(prometheus, "ns", "q", PODS, last.time + MAX_AGE + 1) is None
    assert newest_answer(prometheus, "ns", "q", PODS, last.time - 3600) is None

    server.scrape({})
    soon(lambda: not prometheus.instant("up"))
    assert last == newest_answer(prometheus, "ns", "q", PODS, last.time + 1)


def test_of_two_drivers_the_newer_one_counts(start, connect):
    first = job(*[BATCH] * 5)
    with driver(first, "ns") as old:
        server = start(targets(old))
        prometheus = connect(server)
        answer_with(prometheus, "ns", batches_total=5)
        second = job(a_batch(pin=PIN))
        with driver(second, "ns") as new:
            server.scrape(targets(old, new))
            taken_over = answer_with(prometheus, "ns", batches_total=1)
            first.record(BATCH)
            second.record(BATCH)
            newest = answer_with(prometheus, "ns", batches_total=2)
    assert newest.time > taken_over.time


def test_processor_time_is_that_of_the_executors_that_are_ready(start, connect):
    containers = {
        ("q-0a1b2c-exec-1", "executor"): 10.5,
        ("q-0a1b2c-exec-2", "executor"): 20.0,
        ("q-0a1b2c-exec-2", "sidecar"): 100.0,
        ("q-exec-0a1b2c-exec-1", "executor"): 1000.0,
        ("q-driver-0", "executor"): 10_000.0,
    }
    with driver(job(BATCH), "ns") as one, kubelet("ns", containers) as node, kubelet("other", containers) as far:
        prometheus = connect(start(targets(one, node, far), scrape_interval="200ms"))
        found = answer_with(prometheus, "ns", executors=2, busy_core_seconds_total=30.5)
        assert newest_answer(prometheus, "ns", "q", PODS, found.time, 3) == answer_with_executors(found, 3)
        assert newest_answer(prometheus, "ns", "q", PODS, found.time) == answer_with_executors(found, None)


def answer_with_executors(found, executors):
    return Answer(**{**vars(found), "executors": executors, "busy_core_seconds_total": None})


def down(prometheus):
    return prometheus.instant("up == 0")
