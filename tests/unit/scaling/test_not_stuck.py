"""States out of which a job has to come again: what went wrong is over, and the load needs more, or less."""

from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Guard, Mode, Settings
from millrace_operator.scaling.shape import Range, Shape
from unit.scaling.deciding import BOUNDS, SETTINGS, HandMade


def scaler(settings=SETTINGS, bounds=BOUNDS):
    return Scaler(settings, bounds, 8)


def test_a_change_that_nobody_carried_out_is_decided_again():
    mind, job = scaler(), HandMade()
    job.steps(mind, 12)
    job.rate = 47_000.0
    decided = []
    for _ in range(60):
        before = job.plan, job.epoch
        decision = job.step(mind)
        job.plan, job.epoch = before
        decided += [decision] if decision.changed else []
    assert len(decided) > 1


def test_an_executor_that_does_not_leave_is_not_waited_for_for_ever():
    mind, job = scaler(), HandMade(rate=10_000.0, plan=Shape(4, 8, 8))
    while job.plan.executors == 4:
        job.step(mind)
    job.ready = 4
    reasons = [decision.reason for decision in job.steps(mind, 60)]
    assert reasons[-1] is not Guard.COOLDOWN


def test_an_executor_that_is_lost_for_good_at_the_lower_bound_stops_no_decision():
    mind, job = scaler(bounds=replace(BOUNDS, executors=Range(2, 2))), HandMade(rate=10_000.0)
    job.steps(mind, 12)
    job.ready = 1
    last = job.steps(mind, 60)[-1]
    assert last.reason not in (Guard.CLUSTER, Guard.COOLDOWN)
    assert "0 executors" not in last.sentence


@pytest.mark.parametrize("ahead", [3600.0, 31_536_000.0])
def test_a_clock_that_was_ahead_stops_no_decision(ahead):
    mind, job = scaler(), HandMade()
    job.steps(mind, 6)
    job.now += ahead
    job.steps(mind, 6)
    job.now -= ahead
    reasons = [decision.reason for decision in job.steps(mind, 12)]
    assert Reason.NO_ANSWER not in reasons[-6:]


def test_repeated_tasks_keep_no_job_from_being_calibrated():
    mind, job = scaler(), HandMade(rate=10_000.0, plan=Shape(4, 8, 8))
    job.totals["combine_tasks_total"] = 0.0
    reasons = []
    for _ in range(60):
        job.totals["combine_tasks_total"] += 5
        reasons.append(job.step(mind).reason)
    assert Reason.SCALE_IN in reasons


def test_advice_for_a_plan_that_is_out_of_bounds_is_by_the_metrics():
    mind = scaler(Settings(mode=Mode.ADVISE), replace(BOUNDS, executors=Range(3, 8)))
    last = HandMade().steps(mind, 12)[-1]
    assert last.inputs is not None
