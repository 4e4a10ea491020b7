"""A job without records that may have no executor at all: when it rests, what keeps it from that, and what ends it."""

from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.decision import Reason, Situation
from millrace_operator.scaling.decision.placement import PlacedScaler
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Guard, Mode, Settings
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.simulation.metrics import Fault, FaultyTime, MetricsProfile
from millrace_research.arena.simulation.traces import steps
from unit.scaling.deciding import BOUNDS, SETTINGS, HandMade, run, scenario

MAY_REST = replace(BOUNDS, rests=True)
STOPPED, BACK, AGAIN = 900.0, 2700.0, 2760.0
STOPS = steps([900_000.0, 0.0, 900_000.0], [0.0, STOPPED, BACK], 3600.0)
"""A load for five executors stops after 15 minutes, and comes back after half an hour."""
FIRST = Shape(5, 16, 8)


def stopping(until=BACK, **more):
    return scenario(STOPS.between(0, until), **({"initial": FIRST, "bounds": MAY_REST} | more))


def at_rest(found):
    """The changes of a run after which there is no executor."""
    return [each for each in found.rescales if not each.after.executors]


def test_a_job_whose_load_stops_rests_in_one_step_and_stays_at_rest():
    found, policy = run(stopping())
    (rest,) = at_rest(found)
    assert rest == found.rescales[-1]
    assert SETTINGS.scale_in_delay <= rest.time - STOPPED < SETTINGS.scale_in_delay + 60
    assert policy.decisions[-1].reason is Reason.AT_REST
    (change,) = [each for each in policy.changes if each.reason is Reason.AT_REST]
    assert change.sentence.startswith(f"{rest.before} -> {rest.after}, since no batch has run for ")
    assert "executors start again when tasks wait" in policy.decisions[-1].sentence


def test_a_load_that_returns_wakes_the_job_with_the_executors_that_it_had_and_every_record_is_computed():
    found, _ = run(stopping(STOPS.duration))
    (rest,) = at_rest(found)
    woken = next(each for each in found.rescales if each.time > rest.time)
    assert woken.after == rest.before
    assert 0 <= woken.time - BACK <= 3  # at the first trigger, without a look at the metrics
    first = next(batch for batch in found.batches if batch.planned >= BACK)
    assert first.planned + first.seconds - BACK < 60
    assert found.rows.sum() + found.unfinished == found.arrived
    assert found.unfinished < 4 * STOPS.peak


def test_a_job_that_was_woken_is_scaled_and_rests_again():
    twice = steps([900_000.0, 0.0, 100_000.0, 0.0], [0.0, STOPPED, BACK, AGAIN], 5400.0)
    found, _ = run(scenario(twice, initial=FIRST, bounds=MAY_REST))
    first, second = at_rest(found)
    assert BACK + SETTINGS.scale_in_delay < second.time < AGAIN + SETTINGS.scale_in_delay + 120
    assert found.unfinished == 0
    assert first.time < BACK


def test_what_rest_saves_is_all_that_the_executors_cost():
    resting, kept = (run(stopping(bounds=bounds))[0] for bounds in (MAY_REST, BOUNDS))
    rest, least = at_rest(resting)[0], next(each for each in kept.rescales if each.after.executors == 1)
    saved = kept.core_seconds - resting.core_seconds
    assert saved == pytest.approx(2 * (BACK - max(rest.time, least.time)), rel=0.1)


def test_a_job_that_may_not_rest_keeps_its_minimum():
    found, _ = run(stopping(bounds=BOUNDS))
    assert found.rescales[-1].after.executors == 1


@pytest.mark.parametrize(
    "situation",
    [{"paused": True}, {"scale_in_paused": True}, {"can_rest": False}, {"scheduled_minimum": 2}],
    ids=lambda each: next(iter(each)),
)
def test_a_pause_a_schedule_and_a_driver_of_an_earlier_version_keep_a_job_from_rest(situation):
    found, _ = run(stopping(), **situation)
    assert not at_rest(found)


def test_a_job_does_not_rest_where_scaling_only_advises():
    found, policy = run(stopping(), settings=Settings(mode=Mode.ADVISE))
    assert not found.rescales
    assert not [each for each in policy.decisions if each.chosen and not each.chosen.plan.executors]


def test_a_job_with_batches_never_rests_though_they_have_no_records():
    """Such batches can be due at any time, and each would have to wait for an executor."""
    mind, job = Scaler(SETTINGS, MAY_REST, 8), HandMade(rate=40_000.0, plan=Shape(4, 8, 8))
    job.steps(mind, 8, can_rest=True)
    job.rate = 0.0
    assert {decision.plan.executors for decision in job.steps(mind, 60, can_rest=True)} == {4, 1}


@pytest.mark.parametrize("fault", [Fault.FROZEN, Fault.GAP, Fault.ABSENT, Fault.UNREACHABLE, Fault.NEGATIVE])
def test_metrics_that_say_nothing_are_not_taken_for_rest(fault):
    wrong = MetricsProfile(faults=(FaultyTime(fault, 890.0, 1800.0),))
    found, _ = run(stopping(metrics=wrong))
    assert not [each for each in found.rescales if 900.0 < each.time < 1800.0]


def test_a_restarted_operator_lets_a_job_rest_too():
    found, policy = run(stopping())
    restored = Scaler(SETTINGS, MAY_REST, 8)
    restored.restore(policy.scaler.save())
    plan = found.rescales[-1].after
    assert restored.step(None, Situation(4000.0, plan, 9, 0, can_rest=True)).reason is Reason.AT_REST


def pulses(count, length=300.0, period=1500.0):
    """A load that comes for some minutes, and again after each period; it lasts until the next one would begin."""
    rates, times = [0.0], [0.0]
    for number in range(count):
        rates += [900_000.0, 0.0]
        times += [600.0 + period * number, 600.0 + period * number + length]
    return steps(rates, times, 600.0 + period * count)


def test_a_load_that_repeats_has_its_executors_before_it_comes_though_the_job_rested():
    found, policy = run(scenario(pulses(4), initial=FIRST, bounds=MAY_REST))
    woken = [each.time for each in found.rescales if not each.before.executors]
    begins = [600.0 + 1500.0 * number for number in range(4)]
    assert [time - begin > 0 for time, begin in zip(woken, begins, strict=False)] == [True, True, False, False]
    for time, begin in list(zip(woken, begins, strict=False))[2:]:
        assert 0 < begin - time < 180
        first = next(batch for batch in found.batches if batch.planned >= begin)
        assert first.executors >= 1
        assert first.seconds < 4
    (sentence, *_) = [each.sentence for each in policy.changes if each.reason is Reason.WOKEN]
    assert "since a rise that came 25 min ago is expected to come again, to " in sentence
    assert len(at_rest(found)) >= 4
    assert found.unfinished == 0


def test_a_pause_of_scaling_out_leaves_a_job_at_rest_until_its_records_come():
    found, _ = run(scenario(pulses(4), initial=FIRST, bounds=MAY_REST), scale_out_paused=True)
    woken = [each.time for each in found.rescales if not each.before.executors]
    assert [time - 600.0 - 1500.0 * number for number, time in enumerate(woken)] == pytest.approx([1.0] * 4, abs=2)


def situation(**more):
    return Situation(**({"now": 100.0, "plan": Shape(0, 8, 2), "epoch": 3, "executors_ready": 0} | more))


def scaler(bounds=MAY_REST, settings=SETTINGS):
    return Scaler(settings, bounds, 8)


def test_a_job_at_rest_needs_no_metrics():
    decision = scaler().step(None, situation())
    assert (decision.reason, decision.changed) == (Reason.AT_REST, False)


def test_a_schedule_and_a_higher_minimum_end_the_rest():
    decision = scaler().step(None, situation(scheduled_minimum=3))
    assert (decision.reason, decision.plan.executors) == (Reason.SCHEDULED, 3)
    few = replace(BOUNDS, executors=Range(2, 8))
    decision = scaler(few).step(None, situation())
    assert (decision.reason, decision.guard, decision.plan.executors) == (Reason.OUT_OF_BOUNDS, Guard.BOUNDS, 2)


def test_a_job_at_rest_keeps_its_replicas_and_their_placement():
    inline, dedicated = (
        Bounds(Range(1, 8), Range(2, 48), Range(1, 8), replica_cores=c, rests=True) for c in (0.0, 1.0)
    )
    placed = PlacedScaler(SETTINGS, inline, dedicated, 8, "a query")
    for now in (100.0, 2000.0):
        decision = placed.step(None, situation(now=now, dedicated=True, replicas_ready=0, applied_epoch=1))
        assert (decision.reason, decision.changed) == (Reason.AT_REST, False)


def test_bounds_with_rest_have_no_executor_or_those_of_the_range():
    assert Shape(0, 8, 2) in MAY_REST
    assert Shape(0, 8, 2) not in BOUNDS
    assert MAY_REST.nearest(Shape(9, 8, 2)).executors == 8
    assert Shape(0, 8, 2) not in MAY_REST.with_minimum(1)
    assert Shape(0, 8, 2) in MAY_REST.with_minimum(0)
