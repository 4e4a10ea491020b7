from dataclasses import replace

import pytest

from millrace_operator.scaling.decision import steps
from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.decision.limits import Limit, Limits
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Costs, Guard, Mode, Settings
from millrace_operator.scaling.decision.steps import SMALL
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.simulation.traces import constant
from unit.scaling.deciding import BOUNDS, HandMade, run, scenario

IDLE = {"rate": 5_000.0, "plan": Shape(4, 8, 8)}


def scaler(*off, bounds=BOUNDS, **settings):
    return Scaler(Settings(guards=frozenset(Guard) - set(off), **settings), bounds, state_partitions=8)


def calm(**more):
    """A job at a W of 0.8 that its scaler knows, and the scaler."""
    return HandMade(**{"rate": 20_000.0, "plan": Shape(2, 4, 4)} | more)


def overloaded(mind, **situation):
    """The first change within two minutes after the rate doubles, or the last decision."""
    job = calm()
    assert not any(decision.changed for decision in job.steps(mind, 8))
    job.rate *= 2
    return job.until(mind, 12, **situation)


def underused(mind, **situation):
    """The first change within five minutes of a job that needs little, or the last decision."""
    return HandMade(**IDLE).until(mind, 30, **situation)


def test_without_anything_that_holds_it_back_a_job_gets_what_it_needs():
    decision = overloaded(scaler())
    assert decision.plan.executors in (4, 5)
    assert decision.guard is None
    decision = underused(scaler())
    assert (decision.reason, decision.plan.executors) == (Reason.SCALE_IN, 1)
    assert decision.guard is None


def test_a_plan_stays_within_the_bounds():
    most = replace(BOUNDS, executors=replace(BOUNDS.executors, high=3))
    decision = overloaded(scaler(bounds=most))
    assert (decision.plan.executors, decision.guard) == (3, Guard.BOUNDS)
    assert overloaded(scaler(Guard.BOUNDS, bounds=most)).plan.executors > 3
    least = replace(BOUNDS, executors=replace(BOUNDS.executors, low=3))
    decision = underused(scaler(bounds=least))
    assert (decision.plan.executors, decision.guard) == (3, Guard.BOUNDS)


def test_a_plan_outside_the_bounds_comes_back_even_without_an_answer():
    mind = scaler(bounds=replace(BOUNDS, executors=replace(BOUNDS.executors, low=3)))
    decision = calm().step(mind)
    assert (decision.reason, decision.plan) == (Reason.OUT_OF_BOUNDS, Shape(3, 4, 4))


def test_a_plan_stays_within_the_quota():
    decision = overloaded(scaler(), executors_quota=3)
    assert (decision.plan.executors, decision.guard) == (3, Guard.QUOTA)
    assert "quota allows 3 executors" in decision.sentence
    assert overloaded(scaler(Guard.QUOTA), executors_quota=3).plan.executors > 3


def test_a_quota_below_the_present_plan_takes_nothing_away():
    assert overloaded(scaler(), executors_quota=1).plan.executors == 2


def test_the_reason_of_a_quota_is_part_of_the_sentence():
    decision = overloaded(scaler(), executors_quota=3, quota_reason="6 of 6 pods in ResourceQuota few are used")
    assert "the quota allows 3 executors: 6 of 6 pods in ResourceQuota few are used" in decision.sentence


def test_executors_that_a_quota_keeps_away_are_not_the_clusters_fault():
    """A quota is known: more are asked for as soon as it has room, without the pause after a full cluster."""
    mind, job = scaler(patience=100.0), calm(plan=Shape(4, 8, 8), rate=30_000.0)
    job.ready = 2
    decision = job.until(mind, 40, executors_quota=2)
    assert (decision.reason, decision.guard, decision.plan.executors) == (Guard.QUOTA, Guard.QUOTA, 2)
    assert "the quota allows 2 executors" in decision.sentence
    job.ready = None
    assert job.until(mind, 40).plan.executors > 2


def pending(mind, steps):
    """Decisions while the executors of a scale-out do not come."""
    job = calm()
    job.steps(mind, 8)
    job.rate *= 2
    job.until(mind)
    job.ready = 2
    job.rate /= 1.9  # two executors are just enough, so that batches end
    return job, job.steps(mind, steps, executors_pending_since=job.now)


def test_the_cluster_has_no_more():
    _, decisions = pending(scaler(patience=100.0), 14)
    assert {decision.reason for decision in decisions[2:10]} <= {Guard.COOLDOWN, Reason.NO_ANSWER}
    capped = next(decision for decision in decisions if decision.changed)
    assert (capped.reason, capped.plan.executors) == (Guard.CLUSTER, 2)
    assert "are still not ready after 100 s" in capped.sentence


def test_what_the_cluster_did_not_have_is_asked_for_again_after_a_while():
    mind = scaler(patience=100.0)
    job, _ = pending(mind, 14)
    job.rate *= 1.3
    held_back = job.steps(mind, 20)
    assert all(decision.plan.executors == 2 for decision in held_back)
    assert Guard.CLUSTER in {decision.guard for decision in held_back}
    again = job.until(mind, 80)
    assert again.plan.executors > 2


def within_cooldown(factor, *off):
    """The decisions that follow a scale-out at once, while the load changes by a factor."""
    mind, job = scaler(*off, grace=30), calm()
    job.steps(mind, 8)
    job.rate *= 1.5
    assert job.until(mind).changed
    job.rate *= factor
    return job.steps(mind, 6)


@pytest.mark.parametrize("factor", [1.0, 1.04, 0.3])
def test_no_change_follows_another_within_the_cooldown_unless_the_load_outgrows_it(factor):
    reasons = {decision.reason for decision in within_cooldown(factor)}
    assert reasons <= {Guard.COOLDOWN, Reason.NO_ANSWER}
    assert Guard.COOLDOWN not in {decision.reason for decision in within_cooldown(factor, Guard.COOLDOWN)}


def test_a_load_that_outgrows_a_change_is_not_kept_waiting_for_its_effect():
    before, *_ = decisions = within_cooldown(1.6)
    (more,) = [decision for decision in decisions if decision.changed]
    assert more.plan.executors > before.before.executors
    assert more.time - before.time <= 40


@pytest.mark.parametrize("pause", ["paused", "scale_out_paused"])
def test_a_pause_stops_scale_out(pause):
    guard = Guard.PAUSED if pause == "paused" else Guard.SCALE_OUT_PAUSED
    decision = overloaded(scaler(), **{pause: True})
    assert decision.plan.executors == 2
    assert decision.guard is guard
    assert "paused" in decision.sentence
    assert overloaded(scaler(guard), **{pause: True}).plan.executors > 2
    assert underused(scaler(), scale_out_paused=True).plan.executors == 1


@pytest.mark.parametrize("pause", ["paused", "scale_in_paused"])
def test_a_pause_stops_scale_in(pause):
    guard = Guard.PAUSED if pause == "paused" else Guard.SCALE_IN_PAUSED
    decision = underused(scaler(), **{pause: True})
    assert decision.plan.executors == 4
    assert decision.guard is guard
    assert underused(scaler(guard), **{pause: True}).plan.executors == 1
    assert overloaded(scaler(), scale_in_paused=True).plan.executors > 2


def test_mode_advise_names_the_best_plan_and_changes_nothing():
    decision = overloaded(scaler(mode=Mode.ADVISE))
    assert (decision.reason, decision.plan) == (Guard.ADVISE, decision.before)
    assert decision.chosen.plan.executors in (4, 5)
    assert f"-> {decision.chosen.plan} would be best" in decision.sentence
    assert overloaded(scaler(Guard.ADVISE, mode=Mode.ADVISE)).changed


def test_mode_off_decides_nothing():
    assert overloaded(scaler(mode=Mode.OFF)).reason is Reason.OFF


def test_a_job_that_is_calibrating_is_scaled_with_care():
    def first_change(*off):
        return calm(rate=40_000.0).until(scaler(*off))

    careful = first_change()
    assert (careful.reason, careful.plan) == (Guard.CALIBRATING, Shape(4, 7, 7))  # W is 1.5, the target 0.9
    assert calm(rate=45_000.0).until(scaler(), executors_quota=3).plan.executors == 3
    assert first_change(Guard.CALIBRATING).reason is not Guard.CALIBRATING


def test_no_cores_are_given_back_while_calibrating():
    reasons = [decision.reason for decision in HandMade(**IDLE).steps(scaler(), 4)]
    assert reasons == [Reason.NO_ANSWER, Reason.NO_ANSWER, Guard.CALIBRATING, Guard.CALIBRATING]


def test_no_cores_are_given_back_while_the_model_is_uncertain():
    # all that is fixed is as long as what cores share: one plan alone does not tell
    job = {"rate": 13_000.0, "plan": Shape(2, 4, 4)}
    held_back = HandMade(**job).until(scaler(), 30)
    assert (held_back.reason, held_back.changed) == (Guard.UNCERTAIN, False)
    assert HandMade(**job).until(scaler(Guard.UNCERTAIN)).plan.executors == 1


def test_scale_in_is_delayed():
    job, mind = HandMade(**IDLE), scaler(scale_in_delay=300.0)
    before = job.steps(mind, 28)
    assert not any(decision.changed for decision in before)
    assert before[-1].reason is Guard.SCALE_IN_DELAYED
    assert job.until(mind).reason is Reason.SCALE_IN
    assert HandMade(**IDLE).until(scaler(Guard.SCALE_IN_DELAYED)).time < 100


def released_while_it_falls():
    """The seconds after which executors leave a job whose rate falls to a tenth within 15 minutes, and their share."""
    mind, job = scaler(), calm(plan=Shape(8, 16, 16), rate=80_000.0)
    job.steps(mind, 30)
    since, decision = job.now, None
    while job.now < since + 900 and not (decision and decision.changed):
        job.rate = 80_000.0 * (1 - 0.9 * (job.now - since) / 900)
        decision = job.step(mind)
    return job.now - since, 1 - job.plan.executors / 8


def test_a_load_that_still_falls_is_followed_only_by_releases_that_are_worth_a_step_of_their_own(monkeypatch):
    seconds, share = released_while_it_falls()
    assert seconds < 800
    assert share >= SMALL
    monkeypatch.setattr(steps, "SMALL", 0.0)
    sooner, less = released_while_it_falls()
    assert sooner < seconds
    assert less < SMALL


def test_scale_in_is_limited():
    bounds = replace(BOUNDS, executors=replace(BOUNDS.executors, high=16))
    job = {"rate": 5_000.0, "plan": Shape(12, 24, 24)}
    limited = HandMade(**job).until(scaler(bounds=bounds))
    assert (limited.plan.executors, limited.guard) == (3, Guard.SCALE_IN_LIMITED)
    assert HandMade(**job).until(scaler(Guard.SCALE_IN_LIMITED, bounds=bounds)).plan.executors < 3


def test_as_few_executors_as_have_run_before_are_no_limit():
    bounds = replace(BOUNDS, executors=replace(BOUNDS.executors, high=16))
    mind, job = scaler(Guard.FLAPPING, bounds=bounds), HandMade(rate=5_000.0, plan=Shape(2, 4, 4))
    job.steps(mind, 8)
    job.rate *= 12
    while job.plan.executors < 9:
        job.until(mind)
    job.rate /= 12
    assert job.until(mind, 100).plan.executors <= 2


def seconds_until_they_leave(*off, rate, rise=2, work=1 / 3, **settings):
    """From when executors came until the first leaves: then records have become so much less work."""
    mind, job = scaler(*off, **settings), calm()
    job.steps(mind, 8)
    job.rate *= rise
    changed = job.until(mind)
    job.core_seconds *= work
    job.rate *= rate
    left = job.until(mind, 500)
    assert left.plan.executors < left.before.executors
    return left.time - changed.time


def test_executors_that_were_just_added_stay_as_long_as_their_return_would_cost():
    costly = Costs(rescale=1.0)
    assert seconds_until_they_leave(rate=1.0) < 360 < seconds_until_they_leave(rate=1.0, costs=costly)
    assert seconds_until_they_leave(Guard.FLAPPING, rate=1.0, costs=costly) < 360


def test_a_plan_that_is_a_little_too_large_stays_for_long_while_the_load_does():
    assert seconds_until_they_leave(rate=1.0, rise=1.5, work=0.65) >= 3600
    assert seconds_until_they_leave(Guard.FLAPPING, rate=1.0, rise=1.5, work=0.65) < 3600
    assert seconds_until_they_leave(rate=0.75, rise=1.5, work=0.65) < 3600


def test_executors_that_were_just_added_leave_when_the_load_is_lower():
    assert 120 <= seconds_until_they_leave(rate=0.6) < 360


def test_executors_that_were_too_few_do_not_come_back_until_the_load_is_lower():
    mind, job = scaler(), calm()
    job.steps(mind, 8)
    job.rate = 24_000.0
    assert job.until(mind).plan.executors == 3
    job.core_seconds /= 2  # two would do now, but nobody can know
    kept = job.until(mind, 50)
    assert (kept.guard, kept.plan.executors) == (Guard.FLAPPING, 3)
    job.rate *= 0.95
    assert job.until(mind, 100).plan.executors < 3


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_of_several_limits_the_tightest_is_reported(order):
    most = (Limit(Guard.BOUNDS, 8, ""), Limit(Guard.QUOTA, 5, ""), Limit(Guard.CLUSTER, 6, ""))[order]
    least = (Limit(Guard.BOUNDS, 1, ""), Limit(Guard.FLAPPING, 3, ""), Limit(Guard.SCALE_IN_LIMITED, 2, ""))[order]
    limits = Limits(4, most, least, failures=())
    assert limits.broken(Shape(9, 4, 4)).guard is Guard.QUOTA
    assert limits.broken(Shape(6, 4, 4)).guard is Guard.QUOTA
    assert limits.broken(Shape(1, 4, 4)).guard is Guard.FLAPPING
    assert limits.broken(Shape(4, 4, 4)) is None


def test_a_release_has_to_pay_for_the_return_of_its_executors():
    def released_after(costs):
        mind, job = scaler(costs=costs), HandMade(**IDLE)
        decisions = [job.step(mind)]
        while not decisions[-1].changed:
            decisions.append(job.step(mind))
        return decisions[-1].time, [decision for decision in decisions if decision.guard is Guard.FLAPPING]

    at_once, held = released_after(Costs(0.0, 0.0))
    assert held == []
    later, held = released_after(Costs(rescale=2.0, late_minute=0.0))  # four executor hours, for three executors
    assert later - at_once == pytest.approx(4 * 3600 / 3 - 2400, abs=60)
    assert held[0].sentence.endswith("and has to be spared for more than 80 min to pay for its return.")


@pytest.mark.parametrize("costs", [{"rescale": -1.0}, {"late_minute": float("nan")}, {"rescale": float("inf")}])
def test_costs_that_are_no_costs_are_refused(costs):
    with pytest.raises(ValueError, match="costs are 0 or more"):
        Costs(**costs)


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5])
def test_a_lost_executor_that_was_replaced_is_no_reason_for_more(seed):
    """Batches were long while it was missing; at the moment in which another one came, that used to count."""
    bounds = replace(BOUNDS, executors=replace(BOUNDS.executors, high=8))
    scene = scenario(constant(700e3, 3 * 3600), Shape(4, 16, 8), bounds)
    scene = replace(scene, cluster=replace(scene.cluster, lost_every=3600.0, start_seconds=40.0))
    found, policy = run(scene, seed)
    assert {batch.executors for batch in found.batches} >= {3, 4}, "one was lost"
    assert policy.changes == []
