import json
from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.decision import Reason, Situation
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Guard, Settings
from millrace_operator.scaling.shape import Shape
from millrace_operator.scaling.zones import LoadDriver, Zone
from millrace_research.arena.scenarios import ScenarioSetting, synthetic
from millrace_research.arena.simulation.cluster import ClusterProfile
from millrace_research.arena.simulation.job import JobProfile, Noise
from millrace_research.arena.simulation.traces import constant, ramp, spike, step
from unit.scaling.deciding import BOUNDS, HandMade, run, scenario


def scaler(settings=None):
    return Scaler(settings or Settings(), BOUNDS, state_partitions=8)


def known(mind, **more):
    """A job at a W of 0.8 that its scaler knows."""
    job = HandMade(**{"rate": 20_000.0} | more)
    job.steps(mind, 8)
    return job


def test_no_answer_changes_nothing():
    decision = scaler().step(None, Situation(10.0, Shape(2, 4, 4), 0, 2))
    assert (decision.reason, decision.plan, decision.changed) == (Reason.NO_ANSWER, Shape(2, 4, 4), False)
    assert decision.detail == "Absent: the metrics gave no answer"
    assert decision.inputs is None


def test_a_job_that_fits_is_left_alone():
    mind = scaler()
    decisions = known(mind, rate=21_500.0).steps(mind, 60)  # a W of 0.85
    assert {decision.reason for decision in decisions} == {Reason.STABLE}
    assert decisions[-1].zone is Zone.STABLE


def test_a_decision_explains_itself():
    mind = scaler()
    job = known(mind)
    job.rate *= 1.8
    decision = job.until(mind)
    assert decision.reason in (Reason.SCALE_OUT, Reason.TRIAL)
    assert decision.plan.executors > decision.before.executors == 2
    assert decision.zone is Zone.OVERLOADED
    assert decision.inputs.utilization == pytest.approx(1.36, rel=0.02)
    assert decision.inputs.arrival == pytest.approx(36_000)
    assert decision.inputs.demand >= decision.inputs.arrival
    assert decision.inputs.growth is None
    assert (decision.present.plan, decision.chosen.plan) == (decision.before, decision.plan)
    assert decision.chosen.low < decision.chosen.utilization < decision.chosen.high
    ruled_out = dict(decision.ruled_out)
    assert "is above 0.90" in ruled_out[Shape(2, 4, 4)]
    assert all(plan.executors < decision.plan.executors for plan in ruled_out)
    assert f"2/4/4 -> {decision.plan}" in decision.sentence


def test_a_decision_names_what_drove_the_load():
    _, policy = run(scenario(ramp(150e3, 400e3, 200, 500, 600), Shape(1, 4, 2)))
    assert policy.changes[-1].drivers == {LoadDriver.RATE}


def test_what_was_predicted_is_compared_with_what_came():
    mind = scaler()
    job = known(mind)
    job.rate *= 1.8
    changed = job.until(mind)
    assert changed.prediction_error is None
    later = job.steps(mind, 12)[-1]
    assert later.outcome.change.after == changed.plan
    assert later.outcome.observed == pytest.approx(0.2 + 1.4e-4 * 72_000 / 2 / changed.plan.executors)
    assert abs(later.prediction_error) < 0.3


def test_a_batch_that_catches_up_is_no_reason_to_scale():
    job = JobProfile(noise=Noise(slow=0.02, slow_seconds=5.0))
    result, policy = run(scenario(constant(210e3, 900), Shape(1, 2, 2), job=job), seed=0)
    assert (result.seconds > result.interval).sum() > 5
    assert not result.rescales
    assert Reason.DRAINING in policy.reasons


def test_a_lag_that_drains_in_time_is_waited_for():
    result, policy = run(scenario(spike(200e3, 900e3, 300, 4, 600), Shape(1, 2, 2)))
    assert result.largest_backlog > 1e6
    assert not result.rescales
    assert policy.reasons[-1] is not Reason.DRAINING


def test_a_step_that_does_not_help_is_undone_once_and_remembered():
    mind = scaler()
    job = known(mind, rate=10_000.0, fixed=1.4, core_seconds=1e-6)
    job.serial = 6e-5  # from now on records cost time of a single core
    decisions = job.steps(mind, 80)
    changes = [decision for decision in decisions if decision.changed]
    undone = [decision for decision in changes if decision.reason is Reason.UNDONE]
    assert len(undone) == 1
    tried = changes[changes.index(undone[0]) - 1]
    assert undone[0].plan == tried.before
    assert "did not help" in undone[0].sentence
    assert not undone[0].outcome.helped
    assert [one for one in changes if one.time > undone[0].time] == []
    again = job.steps(mind, 60)  # a quarter of an hour later it may be tried again, and then for half an hour not
    assert sum(one.reason is Reason.UNDONE for one in again) <= 1


def test_executors_that_do_no_good_are_given_back():
    mind = scaler()
    job = known(mind)
    job.rate *= 1.2
    changed = job.until(mind)
    job.core_seconds *= changed.plan.executors / 2  # the nodes are shared: no more is done than before
    decisions = job.steps(mind, 12)
    assert Reason.UNDONE in [decision.reason for decision in decisions]
    assert job.plan.executors == 2


def test_after_a_step_change_there_are_two_rescales_at_most():
    for seed in range(3):
        result, _ = run(scenario(step(150e3, 400e3, 200, 900), Shape(1, 4, 2)), seed)
        assert 1 <= len(result.rescales) <= 2
        settled = result.start > 500
        assert (result.seconds > result.interval)[settled].mean() < 0.02


def test_a_constant_load_with_noise_is_left_alone_once_its_plan_fits():
    for rate in (250e3, 330e3, 400e3):
        trace = constant(rate, 1200).noisy(0.08, 10.0, seed=3)
        result, _ = run(scenario(trace, Shape(2, 8, 4)))
        executors = [rescale.after.executors for rescale in result.rescales]
        assert len(executors) <= 2
        assert executors == sorted(executors) or executors == sorted(executors, reverse=True)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_other_tasks_are_tried_before_executors_are_added_while_batches_are_in_time(seed):
    """A job that begins with tasks for the largest plan, which leave a fifth of its few cores idle."""
    scene = synthetic("constant", ScenarioSetting(seed=seed))
    _, policy = run(replace(scene, trace=scene.trace.between(0, 900)), seed)
    assert [(decision.reason, decision.plan.executors) for decision in policy.changes] == [
        (Reason.RESHAPE, scene.initial.executors)
    ]


def test_a_growing_load_gets_executors_before_they_are_missing():
    result, _ = run(scenario(ramp(150e3, 900e3, 200, 1400, 1500), Shape(1, 4, 4)))
    assert result.rescales[-1].after.executors >= 3
    assert (result.seconds > result.interval).mean() < 0.06


def test_a_restart_of_the_operator_changes_no_decision():
    scene = scenario(step(150e3, 400e3, 200, 700), Shape(1, 4, 2))
    straight, _ = run(scene)
    restarted, policy = run(scene, restarting=True)
    assert straight.rescales
    assert restarted.rescales == straight.rescales
    assert len(json.dumps(policy.scaler.save())) < 200_000


def test_executors_that_never_come_are_done_without():
    cluster = ClusterProfile(never=1.0)
    settings = Settings(patience=60.0)
    result, policy = run(scenario(step(150e3, 400e3, 200, 700), Shape(1, 4, 2), cluster=cluster), settings=settings)
    assert Guard.CLUSTER in policy.reasons
    assert result.rescales[-1].after.executors == 1
    assert len(result.rescales) == 2


def test_every_decision_has_a_sentence():
    for scene in (
        scenario(spike(150e3, 900e3, 200, 120, 700), Shape(1, 4, 2)),
        scenario(constant(50e3, 500), Shape(4, 8, 8)),
    ):
        for decision in run(scene)[1].decisions:
            assert decision.sentence.endswith(".")
            assert "None" not in decision.sentence
            assert decision.changed == (" -> " in decision.sentence) or decision.guard or decision.outcome
