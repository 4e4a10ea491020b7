import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from builders import PIN, a_batch, a_native_batch
from millrace_api.model.memory_use import MemoryPart
from millrace_jobs.pipeline.arrivals import RecordLatencies
from millrace_jobs.process.used_memory import UsedMemory
from millrace_jobs.run.automatic_snapshots import SnapshotFigures
from millrace_jobs.run.job_metrics import CHECKPOINT_FAILURES, JobMetrics
from millrace_jobs.run.metrics_contract import CONTRACT
from millrace_jobs.run.table_refresh import TableState
from millrace_jobs.selection.costs import BatchTime, CombineTask
from millrace_jobs.selection.selector import SwitchOutcome
from millrace_jobs.selection.switch import Candidate, Switch
from millrace_jobs.sketches.key_profile import add_counts, profile
from placements import placement_sketch

QUERY = {"query": "flights"}
STAGES = ("route", "combine")
COMBINE = QUERY | {"stage": "combine"}


def scrape(metrics):
    """Every sample but the times of creation, by name and labels, as Prometheus reads them."""
    families = parse_text(generate_latest(metrics.registry).decode())
    samples = [sample for family in families for sample in family.samples]
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples if not s.name.endswith("_created")}


def recorded(*reports):
    tables = {"towns": TableState(rows=5, current_at=1.7e9, failures=0, interval=300.0)}
    snapshots, folder = SnapshotFigures(current_at=1.7e9, interval=3600.0, seconds=2.5), Path(__file__).parent
    metrics = JobMetrics("flights", checkpoint=folder, tables=lambda: tables, snapshots=lambda: snapshots)
    for report in reports:
        metrics.record(report)
    metrics.record_memory({role: dict.fromkeys(MemoryPart, UsedMemory(5, 9)) for role in ("driver", "executors")})
    return metrics


def value(metrics, name, labels=QUERY):
    return scrape(metrics).get((name, tuple(sorted(labels.items()))))


def names(metrics):
    suffixes = ("_bucket", "_sum", "_count")
    histograms = {metric.name for metric in CONTRACT if metric.kind == "histogram"}
    found = {name for name, _ in scrape(metrics)}
    return {
        next((name.removesuffix(s) for s in suffixes if name.removesuffix(s) in histograms), name) for name in found
    }


def latencies(*times):
    seconds, records = zip(*times, strict=True)
    return RecordLatencies(np.array(seconds, float), np.array(records))


def placed(*ids):
    """A batch with one record of each of the keys 0, 1, ..., on the workers ``ids``."""
    sketch = placement_sketch(np.array(ids, np.int32), np.arange(len(ids), dtype=np.uint64), 4)
    return a_batch(placement=sketch)


def test_a_job_exports_exactly_the_contract():
    last = replace(placed(0, 1), latencies=latencies((0.2, 10)), behind={("flights", "departures-3"): 7})
    last = replace(last, slice_rows=(3, 4), profile=profile(add_counts([(np.array([1], np.uint64), np.array([4]))])))
    metrics = recorded(placed(0, 1), last)
    metrics.record_choice([SwitchOutcome(1, "hash", 1.5, 1.0)], None)
    assert names(metrics) == {metric.name for metric in CONTRACT}
    declared = {metric.name.removesuffix("_total"): metric for metric in CONTRACT}
    for family in metrics.registry.collect():
        for sample in family.samples:
            assert declared[family.name].violations(sample.labels) == []
            assert sample.labels["query"] == "flights"


def test_the_metrics_are_valid_openmetrics_too():
    families = list(parse_openmetrics(generate_openmetrics(recorded(a_batch()).registry).decode()))
    assert len(families) == len(CONTRACT)


def test_names_follow_the_conventions():
    for metric in CONTRACT:
        assert metric.name.startswith("millrace_")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".")
        assert metric.labels[0] == "query"
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert bool(metric.buckets) == (metric.kind == "histogram")
        if metric.unit != "number":
            assert metric.name.removesuffix("_total").endswith(f"_{metric.unit}")


def test_before_the_first_batch_counters_are_zero_and_nothing_else_is_claimed():
    counters = {metric.name for metric in CONTRACT if metric.kind == "counter"}
    shown = scrape(JobMetrics("flights"))
    assert set(shown.values()) == {0}
    assert all(("query", "flights") in labels for _, labels in shown)
    assert names(JobMetrics("flights")) == counters


def test_a_batch_sets_every_metric_of_the_contract():
    combined = tuple(CombineTask(rows, keys, 0.1) for rows, keys in ((1290, 30), (1230, 28), (1240, 31), (1240, 27)))
    batch = a_batch(
        seconds=0.84, interval=2.0, waiting=70, rejected=3, late=2, incomplete=4, combined=combined, state_updates=60
    )
    metrics = recorded(batch)
    expected = {
        "millrace_batches_total": 1,
        "millrace_batch_processing_seconds_count": 1,
        "millrace_batch_processing_seconds_sum": 0.84,
        "millrace_batch_interval_seconds": 2,
        "millrace_input_rows_total": 5000,
        "millrace_input_bytes_total": 200_000,
        "millrace_routed_rows_total": 4900,
        "millrace_state_partitions": 4,
        "millrace_rejected_rows_total": 3,
        "millrace_incomplete_rows_total": 4,
        "millrace_late_rows_total": 2,
        "millrace_source_lag_rows": 70,
        "millrace_distinct_keys": 60,
        "millrace_aggregation_cost_keys": 30 + 28 + 31 + 27,
        "millrace_replication_factor_ratio": pytest.approx(116 / 60),
        "millrace_merge_task_seconds_total": 0.4,
        "millrace_partial_results_total": 30 + 28 + 31 + 27,
        "millrace_state_updates_total": 60,
        "millrace_plan_epoch": 1,
        "millrace_plan_workers": 4,
        "millrace_plan_replicas": 2,
        "millrace_watermark_delay_seconds": 30,
        "millrace_state_rows": 600,
        "millrace_state_bytes": 65_536,
    }
    assert {name: value(metrics, name) for name in expected} == expected
    sent = {stage: value(metrics, "millrace_stage_output_bytes_total", QUERY | {"stage": stage}) for stage in STAGES}
    assert sent == {"route": 98_000, "combine": 2_320}
    assert value(metrics, "millrace_load_imbalance_ratio", COMBINE) == pytest.approx(1290 / 1250 - 1)
    assert value(metrics, "millrace_cardinality_imbalance_ratio", COMBINE) == pytest.approx(31 / 29 - 1)
    assert value(metrics, "millrace_stage_task_seconds_count", COMBINE) == 4
    assert value(metrics, "millrace_stage_task_seconds_sum", QUERY | {"stage": "route"}) == pytest.approx(0.3)
    assert value(metrics, "millrace_plan_info", QUERY | {"algorithm": "pkg"}) == 1


def test_a_plan_change_leaves_no_series_of_the_former_plan():
    shuffled = a_batch(
        pin=replace(PIN, epoch=2, algorithm="shuffle", workers=2), worker_rows=(5, 5), worker_keys=(3, 4)
    )
    metrics = recorded(a_batch(), shuffled)
    assert value(metrics, "millrace_plan_info", QUERY | {"algorithm": "shuffle"}) == 1
    assert value(metrics, "millrace_plan_info", QUERY | {"algorithm": "pkg"}) is None
    assert value(metrics, "millrace_plan_epoch") == 2
    assert value(metrics, "millrace_load_imbalance_ratio", COMBINE) == 0


@pytest.mark.parametrize(
    "after",
    [a_native_batch(), a_batch(rows=0, worker_rows=(0,) * 4, worker_keys=(0,) * 4, distinct_keys=0)],
    ids=["native plan", "idle batch"],
)
def test_placement_is_absent_where_nothing_was_routed(after):
    placement = {
        "millrace_load_imbalance_ratio",
        "millrace_cardinality_imbalance_ratio",
        "millrace_aggregation_cost_keys",
        "millrace_replication_factor_ratio",
    }
    assert placement <= names(recorded(a_batch()))
    assert not placement & names(recorded(a_batch(), after))


def test_what_a_batch_does_not_know_is_absent():
    metrics = recorded(a_batch(), a_native_batch(pin=None, watermark=None))
    gone = {metric.name for metric in CONTRACT} - names(metrics)
    assert gone == {
        "millrace_distinct_keys",
        "millrace_hottest_key_ratio",
        "millrace_largest_slice_ratio",
        "millrace_load_imbalance_ratio",
        "millrace_cardinality_imbalance_ratio",
        "millrace_aggregation_cost_keys",
        "millrace_replication_factor_ratio",
        "millrace_moved_keys_ratio",
        "millrace_plan_epoch",
        "millrace_plan_workers",
        "millrace_plan_replicas",
        "millrace_plan_info",
        "millrace_auto_prediction_error_ratio",
        "millrace_watermark_delay_seconds",
        "millrace_worker_rows",
        "millrace_record_latency_seconds",
        "millrace_source_partition_lag_rows",
    }


def test_predictions_and_switches_of_auto_are_exported():
    metrics = recorded(a_batch())
    candidate = Candidate("hash", BatchTime(0.1, 2.0, 0.1, 0.1), 3.0, 100, by_rule=False)
    even = replace(candidate, algorithm="pkg", time=BatchTime(0.1, 1.0, 0.1, 0.1), imbalance=0.0)
    switches = QUERY | {"reason": "imbalance"}
    assert value(metrics, "millrace_auto_switches_total", switches) == 0
    assert value(metrics, "millrace_auto_prediction_error_ratio") is None
    metrics.record_choice(
        [SwitchOutcome(3, "hash", 2.0, 4.0), SwitchOutcome(5, "hash", 2.5, 2.0)], Switch(5, candidate, even)
    )
    assert value(metrics, "millrace_auto_switches_total", switches) == 1
    assert value(metrics, "millrace_auto_prediction_error_ratio") == 0.25


def test_keys_that_went_to_other_workers_than_in_the_batch_before_have_moved():
    metrics = recorded(placed(0, 1, 2, 3))
    assert value(metrics, "millrace_moved_keys_ratio") is None
    metrics.record(placed(0, 1, 2, 1, 0))
    assert value(metrics, "millrace_moved_keys_ratio") == 0.25
    metrics.record(a_batch(rows=0, worker_rows=(0,) * 4, worker_keys=(0,) * 4, distinct_keys=0))
    assert value(metrics, "millrace_moved_keys_ratio") is None
    metrics.record(placed(1, 1, 2, 1, 3))
    assert value(metrics, "millrace_moved_keys_ratio") == 0.4
    metrics.record(a_native_batch())
    metrics.record(placed(0, 0, 0, 0))
    assert value(metrics, "millrace_moved_keys_ratio") is None


def test_an_estimate_that_cannot_be_is_moved_into_the_bounds_the_workers_know():
    def factor(distinct):
        return value(recorded(a_batch(distinct_keys=distinct)), "millrace_replication_factor_ratio")

    assert factor(500) == 1
    assert factor(1) == pytest.approx(116 / 31)


def test_the_watermark_delay_is_from_the_newest_record_of_the_run():
    first = a_batch()
    only_old_ones = a_batch(latest_event=first.latest_event - 3_600_000_000, late=5000)
    none = a_batch(latest_event=None)
    for after in (only_old_ones, none):
        assert value(recorded(first, after), "millrace_watermark_delay_seconds") == 30


def test_a_scrape_sees_whole_batches_only():
    batches = [a_batch(pin=replace(PIN, epoch=n, workers=n), waiting=n, state_rows=n) for n in (1, 2)]
    metrics = recorded(batches[0])
    done = threading.Event()

    def record():
        while not done.is_set():
            for report in batches:
                metrics.record(report)
                time.sleep(0)  # lets a scrape begin: a lock that is taken again at once is rarely given to another

    recorder = threading.Thread(target=record)
    recorder.start()
    try:
        for _ in range(200):
            seen = scrape(metrics)
            same = ("millrace_plan_epoch", "millrace_plan_workers", "millrace_source_lag_rows", "millrace_state_rows")
            assert {seen.get((name, (("query", "flights"),))) for name in same} in ({1.0}, {2.0})
    finally:
        done.set()
        recorder.join()


def test_a_query_name_may_hold_anything():
    metrics = JobMetrics('a "b"\n\\c')
    metrics.record(a_batch())
    assert value(metrics, "millrace_batches_total", {"query": 'a "b"\n\\c'}) == 1


counts = st.integers(0, 10**12)
seconds = st.floats(0, 10**6)
workers = st.lists(st.tuples(counts, counts), max_size=16)


@given(st.lists(st.tuples(counts, seconds, workers, st.none() | counts, st.lists(seconds, max_size=4)), max_size=5))
def test_counters_and_histograms_add_up_over_any_batches(batches):
    reports = [
        a_batch(
            rows=rows,
            seconds=took,
            worker_rows=tuple(r for r, _ in placed),
            worker_keys=tuple(k for _, k in placed),
            distinct_keys=distinct,
            combine=tuple(tasks),
        )
        for rows, took, placed, distinct, tasks in batches
    ]
    metrics = recorded(*reports)
    assert value(metrics, "millrace_batches_total") == len(reports)
    assert value(metrics, "millrace_input_rows_total") == pytest.approx(sum(report.rows for report in reports))
    tasks = sum(len(report.combine) for report in reports)
    assert value(metrics, "millrace_stage_task_seconds_count", COMBINE) == (tasks or None)


def test_latencies_are_weighed_by_records():
    metrics = recorded(
        a_batch(latencies=latencies((0.3, 10), (0.31, 5), (700.0, 1))), a_batch(latencies=latencies((0.05, 4)))
    )
    buckets = [
        value(metrics, "millrace_record_latency_seconds_bucket", QUERY | {"le": bound})
        for bound in ("0.05", "0.2", "0.3", "0.5", "600.0", "+Inf")
    ]
    assert buckets == [4, 4, 14, 19, 19, 20]  # a bound belongs to its bucket
    assert value(metrics, "millrace_record_latency_seconds_count") == 20
    assert value(metrics, "millrace_record_latency_seconds_sum") == pytest.approx(3 + 1.55 + 700 + 0.2)


def test_without_arrival_times_there_is_no_latency():
    assert "millrace_record_latency_seconds" not in names(recorded(a_batch(), a_batch()))


def test_the_time_of_the_checkpoint_is_observed_per_batch():
    metrics = recorded(a_batch(checkpoint_seconds=0.25), a_batch(checkpoint_seconds=0.5))
    assert value(metrics, "millrace_checkpoint_write_seconds_sum") == 0.75
    assert value(metrics, "millrace_checkpoint_write_seconds_count") == 2


def test_failed_writes_of_the_checkpoint_are_counted_without_a_batch():
    failed = [0]
    metrics = JobMetrics("flights", {CHECKPOINT_FAILURES: lambda: failed[0]})
    assert value(metrics, "millrace_checkpoint_failures_total") == 0
    failed[0] = 3
    assert value(metrics, "millrace_checkpoint_failures_total") == 3
    assert value(metrics, "millrace_checkpoint_failures_total") == 3


@pytest.mark.parametrize(
    ("workers", "series", "first"), [(1, 1, "0"), (64, 64, "0"), (65, 33, "0-1"), (1000, 63, "0-15")]
)
def test_workers_have_64_series_at_most(workers, series, first):
    rows = tuple(range(1, workers + 1))
    found = {
        dict(labels)["worker"]: number
        for (name, labels), number in scrape(recorded(a_batch(worker_rows=rows, worker_keys=rows))).items()
        if name == "millrace_worker_rows"
    }
    assert len(found) == series
    assert first in found
    assert sum(found.values()) == sum(rows)


def test_progress_is_the_end_of_a_batch_or_having_nothing_to_do(monkeypatch):
    progress = "millrace_last_progress_time_seconds"
    monkeypatch.setattr(time, "time", lambda: 100.0)
    metrics = recorded(a_batch())
    assert value(metrics, progress) == 100
    monkeypatch.setattr(time, "time", lambda: 130.0)
    assert value(metrics, progress) == 100
    metrics.record_idle(PIN)
    assert value(metrics, progress) == 130
    assert value(metrics, "millrace_batches_total") == 1


def test_an_idle_query_reports_the_plan_of_its_next_batch_and_leaves_the_last_batch_as_it_was():
    metrics = recorded(a_batch(waiting=0))
    before = scrape(metrics)
    metrics.record_idle(replace(PIN, epoch=9, workers=6, replicas=3, algorithm="shuffle"))
    names = [f"millrace_plan_{each}" for each in ("epoch", "workers", "replicas")]
    assert [value(metrics, name) for name in names] == [9, 6, 3]
    assert value(metrics, "millrace_plan_info", QUERY | {"algorithm": "shuffle"}) == 1
    assert value(metrics, "millrace_plan_info", QUERY | {"algorithm": PIN.algorithm}) is None
    apart = ("millrace_plan_", "millrace_last_progress", "millrace_checkpoint_volume")
    unchanged = {key: number for key, number in before.items() if not key[0].startswith(apart)}
    assert unchanged.items() <= scrape(metrics).items()


def test_a_query_that_had_nothing_to_do_since_its_start_can_be_scaled():
    """A driver that restarts on a topic without records has everything that the operator asks for."""
    metrics = JobMetrics("flights", interval=2.0)
    metrics.record_idle(PIN)
    wanted = {
        "millrace_batches_total": 0,
        "millrace_input_rows_total": 0,
        "millrace_batch_processing_seconds_sum": 0,
        "millrace_batch_interval_seconds": 2,
        "millrace_source_lag_rows": 0,
        "millrace_plan_epoch": PIN.epoch,
        "millrace_plan_workers": PIN.workers,
        "millrace_plan_replicas": PIN.replicas,
    }
    assert {name: value(metrics, name) for name in wanted} == wanted


def test_size_and_free_space_of_the_checkpoints_volume_are_exported(tmp_path):
    metrics = JobMetrics("flights", checkpoint=tmp_path)
    metrics.record_idle(PIN)
    size, free = (value(metrics, f"millrace_checkpoint_volume_{each}_bytes") for each in ("size", "free"))
    assert 0 < free <= size == shutil.disk_usage(tmp_path).total


@pytest.mark.parametrize("checkpoint", [None, Path("/nowhere")])
def test_a_volume_that_cannot_be_read_is_not_shown(checkpoint):
    metrics = JobMetrics("flights", checkpoint=checkpoint)
    metrics.record(a_batch())
    assert value(metrics, "millrace_checkpoint_volume_size_bytes") is None
    assert value(metrics, "millrace_batches_total") == 1


def test_a_partition_has_a_lag_until_it_is_read_to_its_end():
    name = "millrace_source_partition_lag_rows"
    labels = {"source": "flights", "partition": "departures-3"} | QUERY
    metrics = recorded(replace(a_batch(), behind={("flights", "departures-3"): 7}))
    assert value(metrics, name, labels) == 7
    metrics.record(a_batch())
    assert value(metrics, name, labels) is None


def test_snapshots_are_shown_at_any_time_and_not_before_the_first():
    state = SnapshotFigures(interval=3600.0)
    metrics = JobMetrics("flights", snapshots=lambda: state)
    assert value(metrics, "millrace_snapshot_current_time_seconds") is None
    assert value(metrics, "millrace_snapshot_interval_seconds") == 3600
    state = SnapshotFigures(current_at=1.7e9, interval=3600.0, seconds=2.5)
    metrics.record(a_batch())
    assert value(metrics, "millrace_snapshot_current_time_seconds") == 1.7e9
    assert value(metrics, "millrace_snapshot_seconds") == 2.5


def test_tables_are_shown_at_any_time():
    tables = {
        "towns": TableState(rows=5, current_at=1.7e9, failures=2, interval=300.0),
        "codes": TableState(rows=2, current_at=1.6e9, failures=0, interval=None),
    }
    metrics = JobMetrics("flights", tables=lambda: tables)
    labels = QUERY | {"table": "towns"}
    for _ in range(2):
        assert value(metrics, "millrace_table_rows", labels) == 5
        assert value(metrics, "millrace_table_current_time_seconds", labels) == 1.7e9
        assert value(metrics, "millrace_table_refresh_interval_seconds", labels) == 300
        assert value(metrics, "millrace_table_refresh_interval_seconds", QUERY | {"table": "codes"}) is None
        metrics.record(a_batch())


def test_what_more_executors_do_not_shorten_is_exported():
    report = a_batch(sink_seconds=0.5, slice_rows=(30, 10), slice_seconds=(0.75, 1.75))
    metrics = recorded(report, report)
    assert value(metrics, "millrace_sink_seconds_total") == 1.0
    assert value(metrics, "millrace_longest_slice_seconds_total") == 3.5
    assert value(metrics, "millrace_largest_slice_ratio") == 0.75
    assert value(metrics, "millrace_hottest_key_ratio") is None  # no worker counted
