"""A load that stops: the job goes to its minimum, and comes back when records do."""

from dataclasses import replace

import pytest

from millrace_operator.scaling.answers import AnswerReader
from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Guard
from millrace_operator.scaling.observation import NoAnswer, NoAnswerReason, Observation
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.simulation.job import JobProfile
from millrace_research.arena.simulation.metrics import Fault, FaultyTime, MetricsProfile
from millrace_research.arena.simulation.traces import steps
from unit.scaling.deciding import BOUNDS, SETTINGS, HandMade, run, scenario

FIRST, ENOUGH = 4, 5
STOPPED, BACK = 900.0, 2700.0
STOPS = steps([900_000.0, 0.0, 900_000.0], [0.0, STOPPED, BACK], 3600.0)
"""A load for five executors stops after 15 minutes, and comes back after half an hour."""


def stopping(until=BACK, **more):
    return scenario(STOPS.between(0, until), **({"initial": Shape(FIRST, 16, 8)} | more))


def executors_at(found, time):
    """The executors of the plan at a time of a run."""
    return next((each.after.executors for each in reversed(found.rescales) if each.time <= time), FIRST)


def test_a_load_that_stops_releases_all_executors_but_the_minimum_though_empty_batches_run():
    mind, job = Scaler(SETTINGS, BOUNDS, 8), HandMade(rate=40_000.0, plan=Shape(4, 8, 8))
    job.steps(mind, 8)
    job.rate = 0.0
    decision = job.until(mind, 60)
    assert (decision.reason, decision.plan.executors) == (Reason.SCALE_IN, 1)


def test_a_load_that_stops_releases_all_executors_but_the_minimum_where_no_batch_runs():
    found, policy = run(stopping(STOPS.duration))
    assert executors_at(found, STOPPED) >= 4
    released = next(each for each in policy.changes if each.time > STOPPED)
    assert (released.reason, released.plan.executors) == (Reason.SCALE_IN, 1)
    assert SETTINGS.scale_in_delay <= released.time - STOPPED < SETTINGS.scale_in_delay + 60
    assert not [batch for batch in found.batches if STOPPED + 10 < batch.planned < BACK]


def test_a_load_that_returns_gets_its_executors_back_and_every_record_is_computed():
    found, policy = run(stopping(STOPS.duration))
    again = next(each for each in policy.changes if each.time > BACK)
    assert again.plan.executors > 1
    assert again.time - BACK < 60  # three batches on a single executor
    assert executors_at(found, STOPS.duration) >= ENOUGH
    assert found.rows.sum() + found.unfinished == found.arrived
    assert found.unfinished < 4 * STOPS.peak


def test_a_job_that_has_not_learned_anything_is_released_too():
    quiet = steps([900_000.0, 0.0], [0.0, 15.0], 900.0)
    found, _ = run(scenario(quiet, initial=Shape(8, 16, 16)))
    assert executors_at(found, quiet.duration) == 1


def test_a_job_is_released_whose_batches_would_take_too_long_on_any_number_of_executors():
    """As on a busy machine, or with an interval that is too short: a prediction of W means nothing where no batch runs."""
    quiet = steps([100.0, 0.0], [0.0, 200.0], 900.0)
    bounds = Bounds(Range(1, 2), Range(1, 64), Range(1, 8), executor_cores=1)
    found, _ = run(scenario(quiet, initial=Shape(2, 8, 2), bounds=bounds, job=JobProfile(fixed=4.0)))
    assert executors_at(found, quiet.duration) == 1


def test_the_minimum_of_the_user_stays():
    few = replace(BOUNDS, executors=replace(BOUNDS.executors, low=3))
    found, _ = run(stopping(bounds=few))
    assert executors_at(found, BACK) == 3


def test_a_pause_holds_an_idle_job_as_any_other():
    found, policy = run(stopping(), scale_in_paused=True)
    assert executors_at(found, BACK) == executors_at(found, STOPPED)
    assert policy.decisions[-1].guard is Guard.SCALE_IN_PAUSED


def test_a_restarted_operator_goes_on():
    scene = stopping()
    restarted, other = (run(scene, restarting=restarting)[0] for restarting in (True, False))
    assert [each.after for each in restarted.rescales] == [each.after for each in other.rescales]


@pytest.mark.parametrize("fault", [Fault.FROZEN, Fault.GAP, Fault.ABSENT, Fault.UNREACHABLE, Fault.NEGATIVE])
def test_metrics_that_say_nothing_are_not_taken_for_an_idle_job(fault):
    wrong = MetricsProfile(faults=(FaultyTime(fault, 890.0, 1800.0),))
    found, _ = run(stopping(metrics=wrong))
    assert not [each for each in found.rescales if 900.0 < each.time < 1800.0]


IDLE = replace(
    HandMade(rate=1000.0, now=100.0).answer(2),
    batches_total=10.0,
    rows_total=2e4,
    processing_seconds_total=8.0,
    progress_time=100.0,
)


def reading(*changes):
    """What a reader says of answers, five seconds apart, with these changes."""
    reader = AnswerReader()
    found = []
    for number, change in enumerate(changes):
        answer = replace(IDLE, time=100.0 + 5 * number, **change)
        found.append(reader.step(answer, answer.time, 0))
    return found


def test_a_trigger_without_records_is_a_rate_of_0():
    seen = reading({}, {"progress_time": 104.0})[-1]
    assert isinstance(seen, Observation)
    assert seen.idle
    assert (seen.arrival, seen.rows, seen.seconds, seen.lag, seen.batches) == (0.0, 0.0, 0.0, 0.0, 2)


@pytest.mark.parametrize(
    "change", [{"progress_time": 100.0}, {"progress_time": None}, {"progress_time": 104.0, "lag_rows": 5.0}]
)
def test_without_a_sign_of_life_or_with_records_that_wait_nothing_is_known(change):
    found = reading({}, change)[-1]
    assert isinstance(found, NoAnswer)
    assert found.reason is NoAnswerReason.NO_BATCH


def test_what_arrives_after_an_idle_time_is_not_spread_over_it():
    idle = [{"progress_time": 100.0 + 5 * number} for number in range(100)]
    batch = {"progress_time": 600.0, "batches_total": 11.0, "rows_total": 3e4, "processing_seconds_total": 9.0}
    seen = reading(*idle, batch)[-1]
    assert isinstance(seen, Observation)
    assert seen.arrival == pytest.approx(1e4 / 5, rel=0.5)
