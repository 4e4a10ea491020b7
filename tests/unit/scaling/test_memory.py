import json
import math
from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.changes import (
    FORGET_SECONDS,
    STARTUP_SECONDS,
    TOO_FEW_SECONDS,
    TRIED_SECONDS,
    Change,
    ChangeMemory,
    ChangeOutcome,
    Line,
)
from millrace_operator.scaling.observation import Observation
from millrace_operator.scaling.shape import Shape

TWO, FOUR, EIGHT = Shape(2, 4, 4), Shape(4, 8, 8), Shape(8, 16, 16)
OUT = Change(100.0, TWO, FOUR, 1e4, (Line(0.2, 8e-5), Line(0.2, 4e-5)))  # 1.8 s for 20,000 records become 1.0 s
SEEN = Observation(0.0, 10.0, 1, FOUR, 3, 2.0, seconds=1.0, rows=2e4, arrival=1e4, lag=0.0)
GRACE, TELLING = 6, 6


def after(change=OUT, ready_at=130.0, plan=FOUR):
    memory = ChangeMemory()
    memory.begin(change)
    memory.follow(ready_at - 5, plan, change.before.executors, change.time, 180.0)
    memory.follow(ready_at, plan, plan.executors, None, 180.0)
    return memory


def observed(memory, *seconds, seen=SEEN):
    found = [memory.observe(replace(seen, seconds=each), 200.0, GRACE, TELLING) for each in seconds]
    return [outcome for outcome in found if outcome is not None]


def test_a_change_is_settled_when_executors_are_there_and_grace_is_over():
    memory = ChangeMemory()
    assert memory.settled(6)
    memory.begin(OUT)
    memory.follow(105.0, FOUR, 3, 100.0, 180.0)
    observed(memory, 1.5, 1.5, 1.5)
    assert not memory.settled(6)
    memory.follow(130.0, FOUR, 4, None, 180.0)
    observed(memory, 1.2)
    assert not memory.settled(6)
    observed(memory, 1.1)
    assert memory.settled(6)
    assert not memory.settled(9)


def test_what_came_of_a_change_is_known_after_its_grace():
    memory = after()
    outcomes = observed(memory, 3.0, 2.0, 1.0, 1.04, 9.0, 1.0)
    assert outcomes == [memory.outcome]
    assert memory.outcome == ChangeOutcome(OUT, without=1.8, predicted=1.0, observed=pytest.approx(1.02))
    assert memory.outcome.error == pytest.approx(1.0 / 1.02 - 1)
    assert memory.outcome.helped


def test_the_median_batch_tells_whether_a_change_helped():
    memory = after()
    observed(memory, 1.0, 1.0, 1.02, 1.02)
    assert memory.outcome.observed == pytest.approx(1.02)


@pytest.mark.parametrize(("seconds", "helped"), [(1.0, True), (1.6, True), (1.7, False), (2.5, False)])
def test_a_step_helped_if_a_good_part_of_the_gain_came(seconds, helped):
    assert ChangeOutcome(OUT, 1.8, 1.0, seconds).helped is helped


def test_only_steps_that_were_meant_to_help_are_judged():
    assert ChangeOutcome(OUT, 1.8, 1.7, 2.5).helped  # hardly anything was promised
    assert ChangeOutcome(replace(OUT, before=FOUR, after=TWO), 1.8, 1.0, 2.5).helped
    assert ChangeOutcome(replace(OUT, undoes=True), 1.8, 1.0, 2.5).helped


def test_other_tasks_helped_if_they_did_no_harm():
    reshaped = replace(OUT, after=Shape(2, 8, 4))
    assert ChangeOutcome(reshaped, 1.8, 1.0, 1.85).helped
    assert not ChangeOutcome(reshaped, 1.8, 1.0, 1.9).helped


def test_other_tasks_are_not_judged_once_the_load_has_grown():
    """What records add looks like harm, and the tasks before would cost time in which the load grows further."""
    reshaped = replace(OUT, after=Shape(2, 8, 4))
    assert not ChangeOutcome(reshaped, 1.8, 1.0, 2.5, rate=reshaped.rate * 1.2).helped
    assert ChangeOutcome(reshaped, 1.8, 1.0, 2.5, rate=reshaped.rate * 1.3).helped


def test_a_failure_forbids_the_same_step_under_a_similar_load_for_a_time_that_grows():
    memory = ChangeMemory()
    waits = []
    for _ in range(7):
        memory.failed(ChangeOutcome(OUT, 1.8, 1.0, 1.8), now=1000.0)
        waits.append(memory.failures[-1].until - 1000.0)
    assert waits == [FORGET_SECONDS * times for times in (1, 2, 4, 8, 16, 16, 16)]
    assert memory.failures_like(1.2e4, 1000.0)
    assert not memory.failures_like(1.3e4, 1000.0)
    assert not memory.failures_like(1e4, 1000.0 + 16 * FORGET_SECONDS)


def test_a_failure_forbids_the_direction_of_the_step():
    memory = ChangeMemory()
    memory.failed(ChangeOutcome(OUT, 1.8, 1.0, 1.8), 0.0)
    memory.failed(ChangeOutcome(replace(OUT, after=Shape(2, 8, 4)), 1.8, 1.0, 1.8), 0.0)
    more, other_tasks = memory.failures
    assert more.forbids(Shape(3, 6, 6))
    assert not more.forbids(Shape(2, 8, 4))
    assert other_tasks.forbids(Shape(2, 4, 8))
    assert not other_tasks.forbids(TWO)
    assert not other_tasks.forbids(Shape(3, 6, 6))


def test_too_few_executors_stay_too_few_until_the_load_is_lower_or_time_has_passed():
    memory = ChangeMemory()
    memory.were_too_few(2, 1e4, now=0.0)
    memory.were_too_few(3, 2e4, now=0.0)
    assert memory.too_few_for(9.8e3, 10.0).count == 2
    assert memory.too_few_for(1.96e4, 10.0).count == 3
    assert memory.too_few_for(9.6e3, 10.0) is None
    assert memory.too_few_for(1e4, TOO_FEW_SECONDS + 1) is None
    memory.were_too_few(2, 1e4, now=TOO_FEW_SECONDS)
    assert memory.too_few_for(1e4, 2.9 * TOO_FEW_SECONDS).count == 2


def test_a_plan_takes_no_more_than_what_it_had_too_little_for():
    memory = ChangeMemory()
    present = Shape(4, 8, 8)
    assert memory.capacity(TWO, present, 0.0) == math.inf
    memory.were_too_few(2, 1e4, 0.0)
    memory.were_too_few_replicas(6, 2e4, 0.0)
    for executors in (1, 2):
        assert memory.capacity(Shape(executors, 4, 8), present, 10.0) == pytest.approx(9.7e3)
    assert memory.capacity(Shape(3, 4, 6), present, 10.0) == pytest.approx(1.94e4)
    assert memory.capacity(Shape(3, 4, 7), present, 10.0) == math.inf
    assert memory.capacity(Shape(2, 4, 7), Shape(2, 4, 8), 10.0) == math.inf, "it has no fewer executors"
    assert memory.too_few_for(3e4, 10.0).count == 2, "replicas are no limit of executors"
    assert memory.capacity(TWO, present, TOO_FEW_SECONDS + 1) == math.inf


def test_what_earlier_versions_remembered_as_too_few_is_still_known():
    memory = ChangeMemory()
    memory.were_too_few(2, 1e4, 0.0)
    saved = json.loads(json.dumps(memory.save()))
    saved["too_few"] = [{"executors": one.pop("count"), **one} for one in saved["too_few"]]
    for name in ("too_few_replicas", "late", "late_now", "whole"):
        del saved[name]
    other = ChangeMemory()
    other.restore(saved | {"downtimes": [1.0], "lost": 0.5})
    assert other.too_few == memory.too_few


def test_start_up_and_late_batches_are_learned():
    memory = ChangeMemory()
    assert (memory.startup, memory.late_seconds) == (STARTUP_SECONDS, 6.0)
    for seconds in (20.0, 20.0, 60.0, 24.0):
        memory.begin(replace(OUT, planned=2e4))
        memory.follow(100.0 + seconds, FOUR, 4, None, 180.0)
        observed(memory, 2.3, 1.0, 1.0, 1.0)
    assert 20.0 < memory.startup < 60.0
    assert memory.late_seconds == pytest.approx((6 + 4 * 3 * 2.3) / 5)  # three batches of 2.3 s, at an interval of 2 s


def test_a_second_step_before_the_first_shows_its_effect_is_due_to_the_same_late_batches():
    memory = ChangeMemory()
    load = replace(OUT, planned=2e4)
    memory.begin(load)
    memory.follow(120.0, FOUR, 3, None, 180.0)
    observed(memory, 5.0, 5.0)
    memory.begin(replace(load, before=FOUR, after=EIGHT))
    memory.follow(150.0, EIGHT, 8, None, 180.0)
    observed(memory, *[1.0] * 6, seen=replace(SEEN, plan=EIGHT))
    assert memory.late_seconds == pytest.approx((6 + 2 * 3 * 5.0) / 2)


@pytest.mark.parametrize("change", [{"planned": None}, {"before": Shape(0, 4, 4)}])
def test_executors_that_were_not_added_for_a_load_say_nothing_of_late_batches(change):
    memory = after(replace(OUT, **{"planned": 2e4} | change))
    observed(memory, *[3.0] * 6)
    assert memory.late_seconds == 6.0


def test_executors_are_missing_since_the_last_one_came():
    memory = ChangeMemory()
    memory.begin(OUT)
    memory.follow(110.0, FOUR, 2, 100.0, 180.0)
    assert memory.short_for(150.0) == 50.0
    memory.follow(150.0, FOUR, 3, 100.0, 180.0)
    assert memory.short_for(160.0) == 10.0
    memory.follow(160.0, FOUR, 4, None, 180.0)
    assert memory.short_for(160.0) is None


def test_a_shortage_is_remembered_for_a_time_that_grows_while_it_comes_again():
    memory = ChangeMemory()
    memory.ran_short(3, 0.0)
    assert (memory.shortage.executors, memory.shortage.until) == (3, FORGET_SECONDS)
    memory.ran_short(3, FORGET_SECONDS)
    assert memory.shortage.until == 3 * FORGET_SECONDS
    memory.ran_short(3, 10 * FORGET_SECONDS)
    assert memory.shortage.until == 11 * FORGET_SECONDS


def test_executors_that_were_tried_long_ago_are_forgotten():
    memory = ChangeMemory()
    memory.observe(SEEN, 0.0, GRACE, TELLING)
    memory.observe(replace(SEEN, plan=TWO), 100.0, GRACE, TELLING)
    assert sorted(memory.tried(100.0)) == [2, 4]
    assert memory.tried(TRIED_SECONDS + 50) == [2]


def test_memory_is_bounded_and_survives_a_restart():
    memory = after()
    for number in range(50):
        memory.failed(ChangeOutcome(OUT, 1.8, 1.0, 1.8), 100.0 * number)
        memory.were_too_few(2, 1e4 + number, 100.0)
        memory.begin(OUT)
        memory.follow(130.0, FOUR, 4, None, 180.0)
        observed(memory, 1.0, 1.0, 1.0, 1.0)
    memory.ran_short(3, 5000.0)
    memory.begin(replace(OUT, expected=None))
    memory.follow(110.0, FOUR, 2, 100.0, 180.0)
    saved = json.loads(json.dumps(memory.save()))
    assert len(json.dumps(saved)) < 6000
    other = ChangeMemory()
    other.restore(saved)
    assert other.save() == memory.save()
    assert (other.outcome, other.change, other.shortage) == (memory.outcome, memory.change, memory.shortage)


def after_a_time_without_batches(memory):
    other = ChangeMemory()
    other.restore(json.loads(json.dumps(memory.save())))
    other.observe(replace(SEEN, seconds=0.0, rows=0.0), 400.0, GRACE, TELLING)
    return other


def test_batches_after_lost_executors_were_replaced_say_nothing_of_the_plan():
    memory = after()
    observed(memory, *[1.0] * 12)
    assert memory.settled(12)
    memory.follow(300.0, FOUR, 3, None, 180.0)
    memory.follow(340.0, FOUR, 4, None, 180.0)
    assert not memory.settled(1)
    assert after_a_time_without_batches(memory).settled(12)
    saved = json.loads(json.dumps(memory.save()))
    other = ChangeMemory()
    other.restore(saved)
    for each in (memory, other):
        observed(each, 1.5, 1.0)
        assert each.settled(6)
        assert not each.settled(7)
    del saved["whole"]  # which earlier versions have not saved
    other = ChangeMemory()
    other.restore(saved)
    assert other.settled(12)
