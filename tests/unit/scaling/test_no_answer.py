import math
from dataclasses import replace

import pytest

from millrace_operator.scaling.answers import ESSENTIAL, AnswerReader
from millrace_operator.scaling.observation import COUNTERS, SERIES, NoAnswer, NoAnswerReason, Observation
from millrace_operator.scaling.shape import Shape

from .recorded_job import EPOCH, Job, check_truth, read, read_with, reasons


def test_metrics_that_do_not_answer_are_absent():
    assert AnswerReader().step(None, 0.0, EPOCH) == NoAnswer(NoAnswerReason.ABSENT, "the metrics gave no answer")


@pytest.mark.parametrize("name", ESSENTIAL)
def test_a_missing_essential_series_is_no_answer(name):
    found = read_with(lambda answer: replace(answer, **{name: None}))
    assert found[5] == NoAnswer(NoAnswerReason.ABSENT, f"the metrics have no value of {name}")


@pytest.mark.parametrize("name", ["time", *SERIES])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_no_answer(name, value):
    found = read_with(lambda answer: replace(answer, **{name: value}))
    assert found[5] == NoAnswer(NoAnswerReason.NOT_A_NUMBER, f"{name} is {value}, which is not a number")


@pytest.mark.parametrize("name", SERIES)
def test_negative_values_are_no_answer(name):
    found = read_with(lambda answer: replace(answer, **{name: -0.01}))
    assert found[5] == NoAnswer(NoAnswerReason.NEGATIVE, f"{name} is -0.01, and cannot be negative")


def test_a_negative_imbalance_by_rounding_is_none():
    seen = read_with(lambda answer: replace(answer, imbalance=-1e-16))[5]
    assert seen.imbalance == 0


def test_an_answer_that_is_too_old_is_stale():
    reading, (first, second) = AnswerReader(), Job().run(10).answers
    reading.step(first, 5.0, EPOCH)
    found = reading.step(second, 71.0, EPOCH)
    assert found == NoAnswer(NoAnswerReason.STALE, "the answer is 61 s old, over the limit of 60 s")


def test_answers_that_are_always_five_minutes_late_are_stale():
    assert set(reasons(read(Job().run(60).answers, delay=300))) == {NoAnswerReason.STALE}


def test_an_answer_of_the_future_does_not_keep_later_ones_out():
    answers = Job().run(60).answers
    reading, found = AnswerReader(), []
    for number, answer in enumerate(answers):
        told = replace(answer, time=answer.time + 3600) if number == 5 else answer
        found.append(reading.step(told, answer.time, EPOCH))
    assert found[5] == NoAnswer(NoAnswerReason.INCONSISTENT, "the time of the answer is 3600 s ahead")
    assert all(isinstance(one, Observation) for one in found[6:])


def test_the_same_answer_again_becomes_stale():
    job, reading = Job().run(30), AnswerReader()
    read(job.answers, reading)
    found = [reading.step(job.answers[-1], 30.0 + passed, EPOCH) for passed in (5, 30, 60, 61, 300)]
    assert reasons(found) == [NoAnswerReason.NO_BATCH] * 3 + [NoAnswerReason.STALE] * 2


def frozen(job, seconds):
    """Answers of a job's metrics that stand still, with times that go on."""
    last = job.answers[-1]
    return [replace(last, time=last.time + passed) for passed in range(5, seconds, 5)]


def test_metrics_that_stand_still_while_records_wait_are_frozen():
    job, reading = Job().run(30), AnswerReader()
    job.answers[-1] = replace(job.answers[-1], lag_rows=1000.0)
    read(job.answers, reading)
    found = read(frozen(job, 60), reading)
    due = [NoAnswerReason.NO_BATCH] * 4 + [NoAnswerReason.FROZEN] * 7  # ten times 2 s, and 0.4 s for what waits
    assert reasons(found) == due
    assert found[-1].message == "no batch has ended for 55 s, though 1000 records wait and a batch should take 2 s"


def test_a_stream_on_which_nothing_waits_may_pause():
    job, reading = Job().run(30), AnswerReader()
    read(job.answers, reading)
    assert set(reasons(read(frozen(job, 3600), reading))) == {NoAnswerReason.NO_BATCH}


def test_a_batch_of_a_large_backlog_may_take_long():
    """2.5 million records wait, and 1,000 take 0.4 ms: no batch for an hour is not frozen yet."""
    job, reading = Job().run(30), AnswerReader()
    job.answers[-1] = replace(job.answers[-1], lag_rows=2.5e6)
    read(job.answers, reading)
    assert set(reasons(read(frozen(job, 3600), reading))) == {NoAnswerReason.NO_BATCH}


def test_after_metrics_stood_still_the_batches_of_that_time_do_not_count():
    job, reading = Job().run(30), AnswerReader()
    read(job.answers, reading)
    read(frozen(job, 300), reading)
    job.run(345)
    late = [answer for answer in job.answers if answer.time >= 330]
    found = read(late, reading)
    assert reasons(found) == [NoAnswerReason.FROZEN, None, None, None]
    assert found[0].message == "150 batches came within 5 s: some ended while the metrics stood still"
    check_truth(job, found[1])


def test_a_single_batch_may_take_any_time_and_is_observed():
    """A batch takes ten minutes: nothing is said meanwhile, and then all, with two short batches after it."""
    job = Job(seconds=lambda batch: 600.0 if batch == 10 else 0.8).run(700)
    found = dict(zip((answer.time for answer in job.answers), read(job.answers), strict=True))
    meanwhile = reasons(found[time] for time in range(30, 620, 5))
    assert set(meanwhile) == {NoAnswerReason.NO_BATCH}
    (long,) = [one for one in found.values() if isinstance(one, Observation) and one.utilization > 1]
    assert (long.batches, long.seconds) == (3, pytest.approx((600 + 0.8 + 0.8) / 3))
    check_truth(job, long, arrival=0.01)


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_that_goes_down_is_a_reset(name):
    answers = Job(dedicated=True).run(60).answers
    before = getattr(answers[4], name)
    after = before - 1 if name == "batches_total" else 0.99 * before
    found = read_with(lambda answer: replace(answer, **{name: after}), answers=answers)
    message = f"{name} went down from {before:g} to {after:g}"
    assert found[5] == NoAnswer(NoAnswerReason.COUNTER_RESET, message)


def test_after_a_driver_restarted_its_batches_are_observed():
    old, new = Job().run(120), Job(seconds=1.2).run(60)
    later = [replace(answer, time=answer.time + 120) for answer in new.answers[1:]]
    found = read(old.answers + later)[len(old.answers) :]
    assert reasons(found[:3]) == [NoAnswerReason.COUNTER_RESET, NoAnswerReason.NO_BATCH, None]
    assert [one.seconds for one in found[2:]] == [pytest.approx(1.2)] * (len(found) - 2)


def test_no_observation_starts_at_a_counter_that_was_low_once():
    found = read_with(lambda answer: replace(answer, rows_total=5.0))
    assert reasons(found[4:8]) == [None, NoAnswerReason.COUNTER_RESET, NoAnswerReason.NO_BATCH, None]
    assert found[7].rows == 2000


def test_batches_of_another_epoch_are_of_another_plan():
    answers = Job().run(30).answers
    found = read(answers, epoch=2)
    assert set(reasons(found)) == {NoAnswerReason.OTHER_PLAN}
    assert found[0].message == "the last batch ran under the plan of epoch 1, and 2 was decided last"


@pytest.mark.parametrize(("name", "planned"), [("parallelism", Shape(2, 5, 3)), ("replicas", Shape(2, 4, 1))])
def test_batches_with_other_tasks_than_the_plan_has_are_of_another_plan(name, planned):
    answer = Job().run(10).answers[-1]
    found = AnswerReader().step(answer, answer.time, EPOCH, planned)
    assert found.reason is NoAnswerReason.OTHER_PLAN
    assert found.message.startswith(f"{name} is {getattr(answer, name):g}, and the plan says")
    assert AnswerReader().step(answer, answer.time, EPOCH, Shape(9, 4, 3)).reason is NoAnswerReason.NO_BATCH


@pytest.mark.parametrize(
    ("planned", "fits"),
    [
        (Shape(3, 6, 3), True),  # two executors of two cores take four of six tasks at once
        (Shape(4, 8, 3), True),
        (Shape(3, 6, 4), False),  # they take all four that route
        (Shape(2, 8, 3), True),  # one takes two of the three at once, which may be too few to read what waits
        (Shape(4, 8, 2), False),  # there are no more replicas than planned
    ],
)
def test_batches_have_fewer_tasks_than_planned_while_executors_are_missing(planned, fits):
    answer = Job().run(10).answers[-1]
    found = AnswerReader(executor_cores=2).step(answer, answer.time, EPOCH, planned)
    assert found.reason is (NoAnswerReason.NO_BATCH if fits else NoAnswerReason.OTHER_PLAN)


def test_no_observation_mixes_batches_of_two_plans():
    job, reading = Job().run(31), AnswerReader()
    read(job.answers, reading)
    job.epoch, job.parallelism = 2, 8
    job.run(60, seconds=0.5)
    found = read(job.answers[6:], reading, epoch=2)
    assert reasons(found) == [NoAnswerReason.NO_BATCH, NoAnswerReason.NO_BATCH, None, None, None, None]
    assert found[0].message == "this is the first answer under the plan of epoch 2"
    assert [one.seconds for one in found[2:]] == [pytest.approx(0.5)] * 4


def test_the_batch_that_began_before_executors_came_is_left_out():
    job, reading = Job(seconds=7.0).run(31), AnswerReader()
    read(job.answers, reading)
    job.executors = 6
    job.run(90, seconds=3.0)
    found = read(job.answers[6:], reading)
    assert found[0] == NoAnswer(NoAnswerReason.OTHER_PLAN, "executors went from 2 to 6")
    assert found[1] == NoAnswer(NoAnswerReason.NO_BATCH, "batch 6 may have begun with other executors")
    seen = [one for one in found if isinstance(one, Observation)]
    assert len(seen) >= 10
    assert [(one.plan.executors, one.seconds) for one in seen] == [(6, pytest.approx(3.0))] * len(seen)


def test_batches_with_other_tasks_for_fewer_executors_count_as_soon_as_one_is_reported():
    job, reading = Job().run(31), AnswerReader()
    read(job.answers, reading)
    job.executors = 1
    job.run(36)
    job.parallelism = 2
    found = read(job.run(60).answers[6:], reading)
    assert reasons(found) == [NoAnswerReason.OTHER_PLAN, NoAnswerReason.OTHER_PLAN, *[None] * 4]
    assert [one.message for one in found[:2]] == ["executors went from 2 to 1", "parallelism went from 4 to 2"]
    for seen in found[2:]:
        check_truth(job, seen)


def test_batches_of_two_intervals_are_not_mixed():
    answers = Job().run(60).answers
    later = [replace(answer, interval_seconds=1.0) for answer in answers[6:]]
    found = read(answers[:6] + later)[5:9]
    assert found[1] == NoAnswer(NoAnswerReason.OTHER_PLAN, "interval_seconds went from 2 to 1")
    assert reasons(found) == [None, NoAnswerReason.OTHER_PLAN, NoAnswerReason.NO_BATCH, None]


def test_a_job_that_has_not_finished_a_batch_has_no_observation():
    answer = Job(seconds=30.0).run(5).answers[0]
    assert answer.epoch is None
    found = AnswerReader().step(answer, 5.0, EPOCH)
    assert found == NoAnswer(NoAnswerReason.NO_BATCH, "the job has finished no batch yet: batches_total is 0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"executors": 0.0}, "executors is 0, and batches need 1 or more"),
        ({"parallelism": 0.0}, "parallelism is 0, and batches need 1 or more"),
        ({"replicas": 1.5}, "replicas is 1.5, not a whole number"),
        ({"batches_total": 14.5}, "batches_total is 14.5, not a whole number"),
        ({"interval_seconds": 0.0}, "interval_seconds is 0, and must be above 0"),
        ({"time": 20.0}, "the answer is 5 s older than the one before"),
        ({"time": 25.0}, "two answers of the time 25 differ"),
        ({"batches_total": 12.0}, "4000 records and 1.6 s of processing were counted, but no batch ended"),
        ({"processing_seconds_total": 9.6}, "2 batches took 0 s"),
        ({"processing_seconds_total": 39.6}, "2 batches took 30 s, but only 10 s passed"),
        ({"rows_total": 1e12}, "1e+12 records were processed in 1.6 s"),
    ],
)
def test_values_that_contradict_each_other_are_no_answer(change, message):
    found = read_with(lambda answer: replace(answer, **change))
    assert found[5] == NoAnswer(NoAnswerReason.INCONSISTENT, message)
    assert isinstance(found[7], Observation)
    assert (found[7].rows, found[7].seconds) == (2000.0, pytest.approx(0.8))


def test_records_that_waited_cannot_vanish():
    answers = [replace(answer, lag_rows=90_000.0) for answer in Job().run(30).answers]
    answers[-1] = replace(answers[-1], lag_rows=0.0)
    message = "86000 records that waited are gone, but no batch read them"
    assert read(answers)[-1] == NoAnswer(NoAnswerReason.INCONSISTENT, message)
