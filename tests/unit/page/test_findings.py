from dataclasses import replace

import pytest

from builders import a_batch, a_query
from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.page.findings import MAX_PENDING, findings, seconds_text
from millrace_jobs.pending import CallKind, PendingCall
from millrace_support.http_server import ProbeResult
from millrace_support.pages.verdict import Severity

from .runs import a_late_batch, a_skewed_batch, alive, history

FIXED = a_query("spec", "partitioner", value={"algorithm": "hash"})


STUCK = PendingCall(
    CallKind.CODE,
    "method update() of orders:Mean",
    "reducing records by key",
    calls=7,
    seconds=45.0,
    all_seconds=46.0,
    place="orders.py, line 17, in update",
)
SILENT = PendingCall(
    CallKind.SERVER,
    "Kafka at b:9092",
    "reading topic rides",
    calls=1,
    seconds=14.0,
    all_seconds=14.0,
    why="Kafka at b:9092 cannot be reached while reading topic rides",
    hint="check bootstrapServers",
)


def found(kept, clock, query=None, failing=None, probe=None, timed=True, pending=()):
    spec = (query or a_query()).spec
    return findings(kept.snapshot(), spec, failing, probe or alive(), clock.now, timed=timed, pending=pending)


def verdict(*args, **options):
    return found(*args, **options)[0]


def test_batches_in_time_keep_up():
    first = verdict(*history(*[a_batch()] * 6))
    assert (first.severity, first.title) == (Severity.WELL, "Keeping up")
    assert first.reason == "batches take 42% of their interval, and no record waits"


def test_a_run_without_a_batch_is_starting():
    kept, clock = history()
    clock.now += 4
    first = verdict(kept, clock)
    assert (first.severity, first.title) == (Severity.WELL, "Starting")
    assert "the first batch is running, 4 s after Spark was ready" in first.reason


def test_slow_first_batches_are_a_start_and_no_warning():
    assert verdict(*history(*[a_late_batch()] * 2)).title == "Starting"
    assert verdict(*history(*[a_late_batch()] * 3)).title == "Batches are late"


def test_a_run_without_new_records_waits_for_data():
    kept, clock = history(*[a_batch()] * 3)
    kept.idle()
    clock.now += 600
    first = verdict(kept, clock)
    assert (first.severity, first.title) == (Severity.WELL, "Waiting for data")
    assert first.reason.endswith("the last batch ended 10 min 00 s ago")


def test_batches_that_take_longer_than_their_interval_are_late():
    first = verdict(*history(*[a_late_batch()] * 6))
    assert (first.severity, first.title) == (Severity.WARNING, "Batches are late")
    assert first.reason == ("5 of the last 5 batches took longer than their interval of 2 s, the median 3 s (W 1.50)")
    assert "spec.parallelism.max is 4" in first.remedy


def test_late_batches_with_a_growing_lag_fall_behind():
    first = verdict(*history(*[a_late_batch(waiting=number * 4000) for number in range(14)]))
    assert first.title == "Falling behind"
    assert first.reason.endswith("; 52.0k files wait")


def test_late_batches_of_a_skewed_load_are_to_be_placed_by_auto():
    skewed = a_skewed_batch(seconds=3.0, steps={"addBatch": 2.9})
    first = verdict(*history(*[skewed] * 6), query=FIXED)
    assert "the busiest worker has 2.6 times the mean load, and the hottest key has 50% of the records" in first.reason
    assert first.remedy.startswith("spec.partitioner.algorithm is hash: write auto")


def test_late_batches_whose_time_does_not_depend_on_records_need_a_longer_interval():
    fixed = a_late_batch(steps={"addBatch": 0.9, "queryPlanning": 2.0})
    assert "write a longer spec.batchInterval than 2 s" in verdict(*history(*[fixed] * 6)).remedy


def test_a_lag_that_grows_although_batches_are_in_time_is_found():
    first = verdict(*history(*[a_batch(waiting=number * 4000) for number in range(14)]))
    assert (first.severity, first.title) == (Severity.WARNING, "Lag is growing")
    assert first.reason.startswith("52.0k files wait, 44.0k more than 22 s ago")


def test_a_lag_that_falls_is_caught_up():
    titles = [each.title for each in found(*history(*[a_batch(waiting=90_000 - n * 4000) for n in range(14)]))]
    assert titles == ["Keeping up", "Catching up"]


def test_a_lag_that_stays_is_not_said_to_fall():
    assert [each.title for each in found(*history(*[a_batch(waiting=90_000)] * 6))] == ["Keeping up"]


def test_a_lag_of_files_is_compared_with_the_files_of_a_batch():
    batches = [a_batch(rows=1_000_000, taken=4, waiting=10 + 15 * number) for number in range(14)]
    assert verdict(*history(*batches)).title == "Lag is growing"


def test_long_batches_of_a_run_over_what_exists_are_no_warning():
    first = verdict(*history(*[a_late_batch(waiting=40)] * 6), timed=False)
    assert (first.severity, first.title) == (Severity.WELL, "Reading what exists")
    assert first.reason.endswith("records were read, 40 wait")


def test_a_skewed_load_in_time_is_noted_below_the_verdict():
    both = found(*history(*[a_skewed_batch()] * 6), query=FIXED)
    assert [each.title for each in both] == ["Keeping up", "Load is skewed"]


def test_a_restart_after_a_failure_comes_before_all_else_with_its_remedy():
    failing = TransientError(Problem("the broker does not answer", "check that it runs", field="spec.sources.trips"))
    first = verdict(*history(*[a_late_batch()] * 6), failing=failing)
    assert (first.severity, first.title) == (Severity.FAILURE, "Failing and starting again")
    assert (first.reason, first.remedy) == ("spec.sources.trips: the broker does not answer", "check that it runs")


@pytest.mark.parametrize(
    ("failure", "reason", "remedy"),
    [
        (MillraceError(Problem("a disk is full", "free some space")), "a disk is full", "free some space"),
        (KeyError("x"), "'x'", "run with --debug to see where"),
        (AssertionError(), "AssertionError", "run with --debug to see where"),
    ],
)
def test_a_failed_run_says_why(failure, reason, remedy):
    kept, clock = history(a_batch())
    kept.failed(failure)
    first = verdict(kept, clock)
    assert (first.title, first.reason, first.remedy) == ("Failed", reason, remedy)


def test_a_hung_run_says_for_how_long():
    probe = ProbeResult(False, "hung: no batch or task finished for 700 s, allowed 600 s")
    assert verdict(*history(a_batch()), probe=probe).title == "Hung"


def test_own_code_that_does_not_return_is_the_verdict_with_its_step_and_line():
    kept, clock = history(*[a_late_batch()] * 6)
    clock.now += 90
    (first,) = found(kept, clock, pending=[STUCK])
    assert (first.severity, first.title) == (Severity.WARNING, "Own code does not return")
    assert first.reason == (
        "the method update() of orders:Mean has not returned for 45 s while reducing records by key, "
        "at orders.py, line 17, in update"
    )
    assert first.remedy.startswith("see what it waits for there")


def test_many_calls_of_own_code_that_take_long_are_not_said_to_be_stuck():
    slow = replace(STUCK, calls=1234, seconds=0.1)
    first = verdict(*history(*[a_batch()] * 6), pending=[slow])
    assert first.title == "Own code takes long"
    assert first.reason.startswith("1,234 calls of the method update() of orders:Mean have taken 46 s")


@pytest.mark.parametrize("timed", [True, False])
def test_a_server_that_does_not_answer_is_named_while_it_is_waited_for_also_in_the_first_batch(timed):
    first = verdict(*history(), pending=[SILENT, STUCK], timed=timed)
    assert (first.severity, first.title) == (Severity.WARNING, "Waiting for Kafka")
    assert first.reason == "Kafka at b:9092 cannot be reached while reading topic rides, for 14 s so far"
    assert first.remedy == "check bootstrapServers"
    mute = verdict(*history(), pending=[replace(SILENT, hint="")], timed=timed)
    assert mute.remedy.startswith("check whether it runs"), "that is not what helps with own code"


def test_a_run_that_has_ended_waits_for_nothing():
    kept, clock = history(*[a_batch()] * 3)
    kept.ended("drained")
    assert verdict(kept, clock, pending=[STUCK]).title == "Stopped"


def test_a_failure_comes_before_what_is_waited_for():
    failing = TransientError(Problem("the broker does not answer", "check that it runs"))
    titles = [each.title for each in found(*history(a_batch()), failing=failing, pending=[SILENT] * 5)]
    assert titles == ["Failing and starting again", *["Waiting for Kafka"] * MAX_PENDING]


def test_a_batch_that_does_not_end_is_found_while_it_runs():
    kept, clock = history(*[a_batch()] * 3)
    clock.now += 90
    first = verdict(kept, clock)
    assert first.title == "A batch takes long"
    assert first.reason.startswith("no batch has finished for 1 min 30 s; the interval is 2 s")


def test_a_batch_that_takes_long_under_a_skewed_load_may_do_so_because_of_it():
    kept, clock = history(*[a_skewed_batch()] * 3)
    clock.now += 90
    first = verdict(kept, clock, query=FIXED)
    assert first.title == "A batch takes long"
    assert "In the batch before, the busiest worker has " in first.reason
    assert first.remedy.startswith("spec.partitioner.algorithm is hash: write auto, ")
    assert "see whether own code" in first.remedy
    assert "write auto" not in verdict(kept, clock).remedy


def test_a_start_is_no_batch_that_takes_long():
    kept, clock = history(*[a_batch()] * 3)
    kept.step("starting Spark")
    clock.now += 90
    assert verdict(kept, clock).title == "Starting"


def test_earlier_batches_say_nothing_of_one_that_does_not_end():
    kept, clock = history(*[a_late_batch()] * 6)
    assert verdict(kept, clock).title == "Batches are late"
    clock.now += 90
    assert [each.title for each in found(kept, clock)] == ["A batch takes long"]


def corrupt(value):
    return a_query("spec", "sources", "trips", "corruptRecords", value=value)


@pytest.mark.parametrize(
    ("policy", "remedy"),
    [
        ({"policy": "Drop"}, "write spec.sources.trips.corruptRecords: {policy: DeadLetter, path: FOLDER}"),
        ({"policy": "DeadLetter", "path": "bad"}, "read them in bad, then correct spec.sources.trips.schema"),
    ],
)
def test_rejected_records_are_found_with_where_to_read_them(policy, remedy):
    first = verdict(*history(*[a_batch(rows=990, rejected=10)] * 2), query=corrupt(policy))
    assert (first.severity, first.title) == (Severity.WARNING, "Records are rejected")
    assert first.reason == ("20 records (1.00%) of this run do not decode; of the last 2 batches, 20 records (1.00%)")
    assert first.remedy.startswith(remedy)


def test_one_record_is_not_several():
    first = verdict(*history(a_batch(rows=199, rejected=1)), query=corrupt({"policy": "Drop"}))
    assert first.reason == "1 record (0.50%) of this run does not decode; of the last 1 batch, 1 record (0.50%)"


def test_late_records_are_found_with_the_delay_that_is_too_short():
    first = verdict(*history(a_batch(), a_batch(late=100)))
    assert first.title == "Records are late"
    assert first.remedy == "write a longer spec.sources.trips.watermark.delay than 10m, which keeps windows open longer"


def test_late_records_of_long_ago_are_a_note():
    titles = [each.title for each in found(*history(a_batch(late=1), *[a_batch()] * 20))]
    assert titles == ["Keeping up", "Records are late"]


def test_incomplete_records_are_found():
    assert verdict(*history(a_batch(), a_batch(incomplete=5))).title == "Records have no key or time"


def test_the_most_urgent_finding_comes_first():
    batch = replace(a_late_batch(), late=3, rejected=4)
    titles = [each.title for each in found(*history(*[batch] * 6))]
    assert titles == ["Batches are late", "Records are rejected", "Records are late"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.084, "84 ms"), (0.9996, "1 s"), (1.54, "1.5 s"), (9.96, "10 s"), (59.6, "1 min 00 s"),
     (125, "2 min 05 s"), (12_000, "3 h 20 min"), (187_200, "2 d 4 h")],
)  # fmt: skip
def test_durations_are_short(seconds, text):
    assert seconds_text(seconds) == text


def test_a_slow_sink_is_named_by_what_tasks_do_not_account_for():
    slow = a_batch(seconds=9.0, steps={"addBatch": 8.8}, route=(0.1, 0.1), combine=(0.2, 0.2))
    kept, clock = history(*[slow] * 5)
    remedy = findings(kept.snapshot(), a_query().spec, None, alive(), clock.now)[0].remedy
    assert remedy == (
        "all tasks together took 1.1 s to read and compute; the other 7.7 s are those of the sink, or of tasks that wait "
        "for executors: look first at what spec.sink writes to"
    )
