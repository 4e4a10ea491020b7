"""A minimum of executors that the user's schedule asks for."""

from dataclasses import replace

from millrace_operator.scaling.decision.decision import Reason, Situation
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Guard, Mode, Settings
from unit.scaling.deciding import BOUNDS, SETTINGS, HandMade, Shape


def quiet(settings=SETTINGS):
    """A scaler, and a job that needs one executor and has one."""
    return Scaler(settings, BOUNDS, 8), HandMade(rate=2_000.0, plan=Shape(1, 2, 2))


def test_executors_are_there_from_the_first_step_of_the_scheduled_time_on():
    mind, job = quiet()
    job.steps(mind, 8)
    decision = job.step(mind, scheduled_minimum=5)
    assert (decision.reason, decision.guard, decision.plan.executors) == (Reason.SCHEDULED, Guard.BOUNDS, 5)
    assert decision.sentence == "1/2/2 -> 5/2/2, since spec.scaling.schedule asks for 5 executors now."


def test_fewer_executors_than_are_scheduled_are_not_kept_though_they_are_enough():
    mind, job = quiet()
    plans = {decision.plan.executors for decision in job.steps(mind, 60, scheduled_minimum=3)}
    assert plans == {3}


def test_executors_are_released_after_the_scheduled_time():
    mind, job = quiet()
    job.steps(mind, 60, scheduled_minimum=3)
    decision = job.until(mind, 60)
    assert (decision.reason, decision.plan.executors) == (Reason.SCALE_IN, 1)


def test_a_load_that_needs_more_than_is_scheduled_gets_more():
    mind, job = quiet()
    job.steps(mind, 8, scheduled_minimum=2)
    job.rate = 60_000.0
    assert job.until(mind, 30, scheduled_minimum=2).plan.executors > 2


def test_a_schedule_asks_for_no_more_than_the_maximum():
    mind, job = quiet()
    assert job.step(mind, scheduled_minimum=100).plan.executors == BOUNDS.executors.high


def test_a_quota_limits_what_is_scheduled_and_is_named():
    mind, job = quiet()
    decision = job.step(mind, scheduled_minimum=5, executors_quota=3)
    assert (decision.reason, decision.guard, decision.plan.executors) == (Reason.SCHEDULED, Guard.QUOTA, 3)
    assert decision.sentence.endswith("schedule asks for 5 executors now, and the quota allows 3 executors.")


def test_executors_come_without_metrics_and_none_is_released_until_there_are_some():
    mind, job = quiet()
    situation = Situation(0.0, job.plan, 0, 1, scheduled_minimum=4)
    assert mind.step(None, situation).plan.executors == 4
    after = replace(situation, now=20_000.0, plan=Shape(4, 2, 2), scheduled_minimum=0)
    assert mind.step(None, after).reason is Reason.NO_ANSWER


def test_nothing_is_scheduled_where_scaling_only_advises_or_is_paused():
    mind, job = quiet(Settings(mode=Mode.ADVISE))
    assert not job.step(mind, scheduled_minimum=5).changed
    for pause in ("paused", "scale_out_paused"):
        mind, job = quiet()
        assert not job.step(mind, scheduled_minimum=5, **{pause: True}).changed
