import json
from dataclasses import fields, replace

import pytest

from millrace_operator.scaling.answers import ESSENTIAL, MAX_AGE, AnswerReader
from millrace_operator.scaling.observation import SERIES, NoAnswer, NoAnswerReason, Observation, Stage
from millrace_operator.scaling.shape import Shape

from .recorded_job import Job, check_truth, read


def test_two_answers_tell_about_the_batches_between_them():
    job = Job(interval=2.0, rate=1000.0, seconds=0.8, dedicated=True).run(15)
    first, second, third = read(job.answers)
    assert first == NoAnswer(NoAnswerReason.NO_BATCH, "this is the first answer under the plan of epoch 1")
    assert second == NoAnswer(NoAnswerReason.NO_BATCH, "batch 4 may have begun with other executors")
    assert third == Observation(
        since=10.0,
        until=15.0,
        epoch=1,
        plan=Shape(2, 4, 3),
        batches=3,
        interval=2.0,
        seconds=pytest.approx(0.8),
        rows=2000.0,
        arrival=1000.0,
        lag=0.0,
        keys=100.0,
        partials=200.0,
        updates=100.0,
        imbalance=0.25,
        route=Stage(3.0, pytest.approx(0.002)),
        combine=Stage(4.0, pytest.approx(0.004)),
        merge_seconds=pytest.approx(0.006),
        dedicated_busy=pytest.approx(0.1),
        routed=1800.0,
        input_bytes=200_000.0,
        route_bytes=120_000.0,
        combine_bytes=10_000.0,
        source_seconds=pytest.approx(0.011),
        log_seconds=pytest.approx(0.04),
        planning_seconds=pytest.approx(0.03),
        sink_seconds=pytest.approx(0.02),
        longest_slice=pytest.approx(0.001),
    )
    assert third.utilization == pytest.approx(0.4)


def test_the_rate_of_arrival_does_not_depend_on_how_many_batches_happen_to_end_between_two_answers():
    seen = [one for one in read(Job().run(120).answers) if isinstance(one, Observation)]
    assert {one.batches for one in seen} == {2, 3}
    assert {one.arrival for one in seen} == {1000.0}


def test_the_rate_of_arrival_is_not_that_of_the_batch_after_a_long_one():
    """Which takes what came during the long one, all at once."""
    job = Job(seconds=lambda batch: 9.0 if batch % 10 == 9 else 0.8).run(300, every=1.0)
    seen = [one for one in read(job.answers) if isinstance(one, Observation)]
    assert max(one.rows for one in seen) == 9000
    assert [one.arrival for one in seen] == pytest.approx([1000.0] * len(seen))


def test_the_rate_of_arrival_is_not_underrated_while_batches_grow():
    job = Job(seconds=lambda batch: 2.0 * 1.3**batch).run(600)
    seen = [one for one in read(job.answers) if isinstance(one, Observation) and one.batches == 1]
    assert len(seen) >= 10
    assert [one.arrival for one in seen[1:]] == pytest.approx([1000.0] * (len(seen) - 1))


def test_what_waits_has_come_too():
    first, before, after = Job().run(15).answers
    seen = read([first, before, replace(after, lag_rows=1500.0)])[-1]
    assert seen.lag == 1500
    assert seen.arrival == pytest.approx((6000 + 1500) / 6)
    seen = read([first, replace(before, lag_rows=1500.0), after])[-1]
    assert seen.arrival == pytest.approx((6000 - 1500) / 6)


def test_what_came_is_never_negative():
    """A little less than what was read waits less, as when records are dropped at the source."""
    first, before, after = Job().run(15).answers
    seen = read([first, replace(before, lag_rows=6500.0), after])[-1]
    assert seen.arrival == 0


def test_what_came_during_a_pause_is_spread_over_it():
    """Nothing for 40 s, without a batch, and then 2,000 records in one."""
    first, before, after = Job().run(15).answers
    pause = [replace(before, time=before.time + passed) for passed in range(5, 40, 5)]
    late = replace(
        after,
        time=before.time + 40,
        batches_total=before.batches_total + 1,
        rows_total=before.rows_total + 2000,
        processing_seconds_total=before.processing_seconds_total + 0.8,
    )
    found = read([first, before, *pause, late])[-1]
    assert (found.batches, found.seconds, found.arrival) == (1, pytest.approx(0.8), 2000 / 40)


def test_optional_series_may_be_absent():
    optional = [name for name in SERIES if name not in ESSENTIAL]
    answers = [replace(answer, **dict.fromkeys(optional)) for answer in Job().run(15).answers]
    seen = read(answers)[-1]
    assert isinstance(seen, Observation)
    unknown = [field.name for field in fields(Observation) if getattr(seen, field.name) is None]
    assert unknown == [
        "keys",
        "partials",
        "updates",
        "imbalance",
        "route",
        "combine",
        "merge_seconds",
        "dedicated_busy",
        "routed",
        "input_bytes",
        "route_bytes",
        "combine_bytes",
        "source_seconds",
        "log_seconds",
        "planning_seconds",
        "sink_seconds",
        "longest_slice",
        "hottest_key",
        "largest_slice",
    ]


def test_a_stream_without_records_is_observed():
    seen = read(Job(rate=0.0, seconds=0.05).run(30).answers)[2:]
    assert [(one.rows, one.arrival, one.utilization) for one in seen] == [(0.0, 0.0, pytest.approx(0.025))] * 4


def test_partitioner_pods_are_never_more_than_busy():
    answers = [replace(answer, dedicated_busy_seconds_total=20 * answer.time) for answer in Job().run(15).answers]
    assert read(answers)[-1].dedicated_busy == 1


@pytest.mark.parametrize(
    ("waiting", "paused", "busy"),
    [(4001, 0.0, 1.0), (3999, 0.0, 0.1), (4001, 0.14, 1.0), (4001, 0.16, 0.1), (None, None, 0.1)],
)
def test_partitioner_pods_with_a_queue_are_busy_unless_the_job_holds_them_back(waiting, paused, busy):
    """Three pods, which are 0.3 s of each second busy together; 2,000 records come in an interval."""
    answers = [
        replace(
            answer,
            dedicated_lag_rows=waiting,
            dedicated_paused_seconds_total=None if paused is None else paused * answer.time,
        )
        for answer in Job(dedicated=True).run(15).answers
    ]
    assert read(answers)[-1].dedicated_busy == pytest.approx(busy)


def test_a_queue_of_partitioner_pods_has_to_last():
    answers = Job(dedicated=True).run(15).answers
    answers = [replace(answer, dedicated_paused_seconds_total=0.0) for answer in answers]
    answers[-1] = replace(answers[-1], dedicated_lag_rows=1e6)
    assert read(answers)[-1].dedicated_busy == pytest.approx(0.1)


def test_a_short_gap_is_spanned_and_a_long_one_is_not():
    job = Job().run(600)
    for gap in (10, 55, 65, 500):
        answers = [answer for answer in job.answers if not 60 < answer.time < 60 + gap]
        first = next(number for number, answer in enumerate(answers) if answer.time > 60)
        found = read(answers)
        if gap < MAX_AGE:
            check_truth(job, found[first])
        else:
            assert found[first].message == f"there was no good answer for {gap} s, and older ones do not count"
            assert found[first + 1].reason is NoAnswerReason.NO_BATCH
            check_truth(job, found[first + 2])


def test_reading_goes_on_after_a_restart():
    job = Job().run(60)
    found = read(job.answers)
    for number in range(len(job.answers)):
        reading = AnswerReader()
        read(job.answers[:number], reading)
        again = AnswerReader()
        again.restore(json.loads(json.dumps(reading.save())))
        assert read(job.answers[number:], again) == found[number:]
