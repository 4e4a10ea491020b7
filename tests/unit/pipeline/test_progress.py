import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from millrace_jobs.pipeline.progress import KeptRows, batch_report
from millrace_jobs.plan.control import Pin
from millrace_jobs.selection.costs import CombineTask
from millrace_jobs.sketches.key_profile import add_counts, encode, profile

PIN = Pin(3, "pkg", 2, 4, {"choices": 2})


def profile_text(*hashes):
    return encode(profile(add_counts([(np.array(hashes, np.uint64), np.ones(len(hashes), np.int64))])))


def replica(number, **more):
    note = {
        "replica": number,
        "read": 10,
        "routed": 9,
        "late": 1,
        "seconds": 0.25,
        "epoch": 3,
        "rejected": 2,
        "incomplete": 3,
    }
    return note | {"watermark": 0, "sent": 90} | more


def worker(number, rows=5, keys=2, hashes=(1, 2), seconds=0.5):
    profile = profile_text(*hashes)
    note = {"worker": number, "rows": rows, "keys": keys, "groups": 2 * keys, "profile": profile, "seconds": seconds}
    return note | {"sent": 16 * keys}


def progress(*notes, **changes):
    """What Spark tells of a batch, as far as it is read, with these notes observed."""
    return {
        "batchId": 12,
        "timestamp": "2013-01-01T12:00:01.000Z",
        "durationMs": {"triggerExecution": 840, "addBatch": 700},
        "eventTime": {"max": "2013-01-01T12:00:00.000Z", "watermark": "2013-01-01T11:59:30.250Z"},
        "stateOperators": [
            {"allUpdatesTimeMs": 300, "allRemovalsTimeMs": 20, "commitTimeMs": 50, "numRowsTotal": 600, "memoryUsedBytes": 4096,
             "numRowsDroppedByWatermark": 3, "numRowsUpdated": 20, "numShufflePartitions": 4},
            {"allUpdatesTimeMs": 40, "allRemovalsTimeMs": 5, "commitTimeMs": 10, "numRowsTotal": 1, "memoryUsedBytes": 4,
             "numRowsDroppedByWatermark": 4, "numRowsUpdated": 1, "numShufflePartitions": 4},
        ],
        "sources": [{"endOffset": {"source": "t", "position": {}, "pin": PIN.to_json(), "waiting": 77}}],
        "observedMetrics": {"millrace_t": {"notes": [json.dumps(note) for note in notes]}},
    } | changes  # fmt: skip


def test_what_was_taken_is_of_the_sources_that_have_moved():
    stays = {"source": "a", "position": {"row": 5}, "pin": PIN.to_json(), "taken": 5, "waiting": 0}
    began = {"source": "b", "position": {"row": 0}}
    moved = {"source": "b", "position": {"row": 7}, "pin": PIN.to_json(), "taken": 7, "waiting": 3}
    sources = [{"startOffset": stays, "endOffset": stays | {"closed": 1}}, {"startOffset": began, "endOffset": moved}]
    assert batch_report(progress(sources=sources), 2.0).taken == 7


def test_the_plan_of_a_batch_is_that_of_a_source_which_has_moved():
    stays = {"source": "a", "position": {"row": 5}, "pin": replace(PIN, workers=3).to_json()}
    began = {"source": "b", "position": {"row": 0}}
    moved = {"source": "b", "position": {"row": 7}, "pin": PIN.to_json()}
    sources = [{"startOffset": stays, "endOffset": stays}, {"startOffset": began, "endOffset": moved}]
    assert batch_report(progress(sources=sources), 2.0).pin == PIN


def test_a_source_that_waits_in_the_first_batch_has_not_moved():
    waits = {"source": "clicks", "position": {"row": 0}}
    moved = {"source": "users", "position": {"row": 7}, "pin": PIN.to_json(), "taken": 7, "waiting": 3}
    sources = [{"startOffset": None, "endOffset": waits}, {"startOffset": None, "endOffset": moved}]
    assert batch_report(progress(sources=sources), 2.0).taken_from == {"users": 7}


def test_what_was_taken_and_waits_of_a_source_that_is_read_twice_counts_once():
    began = {"source": "a", "position": {"row": 0}}
    end = {"source": "a", "position": {"row": 7}, "pin": PIN.to_json(), "taken": 7, "waiting": 3}
    end["behind"] = {"rides-0": 2, "rides-4": 1}
    report = batch_report(progress(sources=[{"startOffset": began, "endOffset": end}] * 2), 2.0)
    assert (report.taken, report.waiting, report.waiting_in) == (7, 3, {"a": 3})
    assert report.behind == {("a", "rides-0"): 2, ("a", "rides-4"): 1}


def test_a_routed_batch_is_reported_by_its_workers_and_replicas():
    tasks = [
        {"workers": [worker(0)], "replicas": [replica(0), replica(1, seconds=0.5)]},
        {"workers": [worker(1, rows=7, keys=3, hashes=(2, 3, 4))], "replicas": []},
        {"workers": [worker(3, rows=1, keys=1, hashes=(9,), seconds=0.1)], "replicas": []},
    ]
    report = batch_report(progress(*tasks), 2.0)
    assert (report.batch, report.seconds, report.interval, report.utilization) == (12, 0.84, 2.0, 0.42)
    assert (report.rows, report.rejected, report.late, report.incomplete, report.waiting) == (20, 4, 2, 6, 77)
    assert report.rows_per_second == pytest.approx(20 / 0.84)
    assert (report.began, report.steps, report.work) == (
        datetime(2013, 1, 1, 12, 0, 1, tzinfo=UTC),
        {"addBatch": 0.7},
        0.7,
    )
    assert (report.routed, report.routed_bytes, report.partial_bytes, report.state_partitions) == (18, 180, 96, 4)
    assert report.pin == PIN
    assert report.worker_rows == (5, 7, 0, 1)
    assert report.worker_keys == (2, 3, 0, 1)
    assert report.distinct_keys == 5
    assert report.profile is not None
    assert dict(zip(report.profile.sample.hashes.tolist(), report.profile.sample.counts.tolist(), strict=True)) == {
        1: 1, 2: 2, 3: 1, 4: 1, 9: 1
    }  # fmt: skip
    assert report.placement is not None
    assert [own.sample.hashes.tolist() for own in report.placement.profiles] == [[1, 2], [2, 3, 4], [], [9]]
    assert report.combined == (CombineTask(5, 4, 0.5), CombineTask(7, 6, 0.5), CombineTask(1, 2, 0.1))
    assert report.state_updates == 21
    assert report.route == (0.25, 0.5)
    assert report.combine == (0.5, 0.5, 0.1)
    assert (report.merge_seconds, report.search_seconds) == (0.4, 0.025)
    assert (report.state_rows, report.state_bytes) == (601, 4100)
    assert report.watermark == datetime(2013, 1, 1, 11, 59, 30, 250_000, tzinfo=UTC)
    assert report.ended.tzinfo is UTC


def test_a_report_says_how_records_are_concentrated():
    tasks = [
        {"workers": [worker(0, rows=8, hashes=(1, 1, 1, 2, 3, 4, 5, 6))], "replicas": [replica(0, reading=0.5)]},
        {"workers": [worker(1, rows=2, hashes=(1, 7))], "replicas": [replica(1, read=30, reading=1.5)]},
    ]
    report = batch_report(progress(*tasks), 2.0)
    assert report.hottest_key_share == 0.4
    assert report.largest_slice_share == 0.75
    assert report.slice_seconds == (0.75, 1.75)
    unknown = batch_report(progress({"workers": [], "replicas": [replica(0)]}), 2.0)  # of a replica in its own pod
    assert (unknown.hottest_key_share, unknown.largest_slice_share, unknown.slice_seconds) == (None, None, ())


def test_two_tasks_of_one_worker_are_added_and_workers_of_an_older_plan_left_out():
    tasks = [{"workers": [worker(1), worker(6)], "replicas": [replica(0)]}, {"workers": [worker(1)], "replicas": []}]
    assert batch_report(progress(*tasks), 2.0).worker_rows == (0, 10, 0, 0)


def test_replicas_that_combine_their_own_slices_are_no_workers():
    native = PIN.to_json() | {"algorithm": "native"}
    tasks = [{"workers": [worker(0)], "replicas": [replica(0)]}, {"workers": [worker(1)], "replicas": [replica(1)]}]
    report = batch_report(progress(*tasks, sources=[{"endOffset": {"source": "t", "pin": native}}]), 2.0)
    assert (report.worker_rows, report.worker_keys) == ((), ())
    assert (report.rows, report.distinct_keys) == (20, 2)


def test_replicas_report_records_when_spark_runs_its_own_plan():
    """A note comes before the records and one after them; only that one counts, and Spark counts what was late."""
    first = {"pin": PIN.to_json(), "replica": 0, "rejected": 0, "watermark": 0}
    last = {"read": 10, "epoch": 3, "replica": 0, "rejected": 2, "watermark": 0}
    report = batch_report(progress(first, last, first | {"replica": 1}, last | {"replica": 1}), 2.0)
    assert (report.rows, report.rejected, report.late) == (20, 4, 7)
    assert (report.worker_rows, report.distinct_keys) == ((), None)
    assert (report.route, report.combine) == ((), ())


@pytest.mark.parametrize(("note", "expected"), [(replica(0), 1), ({"read": 10, "replica": 0}, 7 + 5)])
def test_late_rows_of_operators_on_tables_count_unless_replicas_have_counted_the_records(note, expected):
    stage = [json.dumps({"bucket": bucket, "late": late, "kept": 1}) for bucket, late in ((0, 5), (3, 0))]
    observed = {"millrace_t": {"notes": [json.dumps(note)]}, "stage_0": {"notes": stage}}
    assert batch_report(progress(observedMetrics=observed), 2.0).late == expected


def test_several_sources_are_added():
    pin = PIN.to_json()
    ends = [{"source": "a", "pin": pin, "waiting": 5}, {"source": "b", "waiting": 6}, None]
    sources = [{"endOffset": end} for end in ends]
    observed = {f"millrace_{name}": {"notes": [json.dumps({"read": 4})]} for name in "ab"} | {"of the user": {"n": 1}}
    report = batch_report(progress(sources=sources, observedMetrics=observed), 2.0)
    assert (report.rows, report.waiting, report.pin) == (8, 11, PIN)


def stage_note(bucket, kept, late=0):
    return json.dumps({"bucket": bucket, "kept": kept, "late": late})


def test_operators_on_tables_report_the_buckets_that_they_have_processed():
    """A bucket that was processed twice, by its rows and then by a timer, counts as it was left."""
    kept = KeptRows()
    first = {"stage_0": {"notes": [stage_note(3, 10, late=2), stage_note(5, 4)]}, "stage_1": {"notes": []}}
    report = batch_report(progress(observedMetrics=first), 2.0, kept)
    assert (report.state_rows, report.late) == (14, 2)
    second = {
        "stage_0": {"notes": [stage_note(3, 9, late=1), stage_note(3, 7)]},
        "stage_1": {"notes": [stage_note(3, 1)]},
    }
    report = batch_report(progress(observedMetrics=second), 2.0, kept)
    assert (report.state_rows, report.late) == (7 + 4 + 1, 1)


def test_a_batch_without_anything_is_reported_as_zero():
    nothing = {"durationMs": {}, "eventTime": {}, "stateOperators": [], "sources": [], "observedMetrics": {}}
    report = batch_report(progress(**nothing), 2.0)
    assert (report.rows, report.late, report.waiting, report.state_rows, report.merge_seconds) == (0, 0, 0, 0, 0)
    assert (report.pin, report.watermark, report.latest_event, report.distinct_keys) == (None, None, None, None)
    assert batch_report(progress(**nothing), 2.0, counted=False).state_rows is None
    assert (report.seconds, report.rows_per_second, report.utilization) == (0, 0, 0)


def test_the_epoch_is_no_event_time():
    """Spark has 1970 for a watermark that nothing has moved."""
    report = batch_report(progress(eventTime={"watermark": "1970-01-01T00:00:00.000Z"}), 2.0)
    assert report.watermark is None


def test_a_watermark_after_the_year_9999_is_the_last_datetime():
    report = batch_report(progress(eventTime={"watermark": "+10000-01-01T00:00:00.000Z"}), 2.0)
    assert report.watermark == datetime.max.replace(tzinfo=UTC)


def test_the_latest_event_is_that_of_all_sources():
    """Spark's progress has the times of one of them."""
    notes = {
        "millrace_a": {"notes": [json.dumps(replica(0, latest=7))]},
        "millrace_b": {"notes": [json.dumps(replica(0, latest=9)), json.dumps(replica(1))]},
    }
    assert batch_report(progress(observedMetrics=notes), 2.0).latest_event == 9
