"""Placement Auto: where replicas run follows what each placement is measured to cost, and does not change often."""

import json
import math
from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.decision import Reason, Situation
from millrace_operator.scaling.decision.placement import (
    AGREE,
    REFUSED_SECONDS,
    SHORT_SECONDS,
    GivenUp,
    PlacedScaler,
)
from millrace_operator.scaling.decision.scaler import SCALE_IN_SECONDS
from millrace_operator.scaling.decision.settings import Guard, Mode, Settings
from millrace_operator.scaling.decision.weighing import BatchCost, CostMeter, Needed, Weighed, weigh
from millrace_operator.scaling.observation import Observation, Stage
from millrace_operator.scaling.shape import Range, Shape
from millrace_research.arena.simulation.job import Noise
from millrace_research.arena.simulation.metrics import Fault, FaultyTime, MetricsProfile
from millrace_research.arena.simulation.run import PlacedShape, simulate
from millrace_research.arena.simulation.traces import constant, step, steps
from unit.scaling.deciding import BOUNDS, SETTINGS, run, scenario

from .placed import COMBINE, DEDICATED, FIRST, HEAVY, RATE, ROUTE

BOTH = {False: BOUNDS, True: DEDICATED}
LIGHT = replace(HEAVY, route=replace(ROUTE, row=3e-7), combine=replace(COMBINE, row=8e-6))
COSTLY = replace(HEAVY, pod_row=2.5e-5)
"""A pod works on a record for much longer than a route task does, as no task can show."""


class Placed:
    """A policy that keeps the decisions of a scaler. With ``restarting``, each step is by a new, restored scaler."""

    name, period = "auto", 5.0

    def __init__(self, scene, settings=SETTINGS, restarting=False, **situation):
        self._make = lambda: PlacedScaler(settings, BOUNDS, DEDICATED, scene.job.state_partitions, "a query")
        self.scaler, self._restarting, self._situation = self._make(), restarting, situation
        self.decisions = []

    def step(self, answer, situation):
        if self._restarting:
            saved = json.loads(json.dumps(self.scaler.save()))
            self.scaler = self._make()
            self.scaler.restore(saved)
        self.decisions.append(self.scaler.step(answer, replace(situation, **self._situation)))
        moves = self.decisions[-1].dedicated
        return PlacedShape(self.decisions[-1].plan, situation.dedicated if moves is None else moves)

    @property
    def moves(self):
        return [decision for decision in self.decisions if decision.dedicated is not None]

    @property
    def reasons(self):
        return [decision.reason for decision in self.moves]


def auto(trace, job, seed=1, initial=FIRST, metrics=None, **more):
    """Simulate a job, and return the run and the policy with its decisions."""
    scene = scenario(trace, initial, job=job, elsewhere=DEDICATED, metrics=metrics or MetricsProfile())
    policy = Placed(scene, **more)
    return simulate(scene, policy, seed), policy


@pytest.mark.parametrize("seed", range(3))
def test_a_job_with_a_heavy_route_stage_ends_with_fewer_cores(seed):
    result, policy = auto(constant(RATE, 3600), HEAVY, seed)
    inline, _ = run(scenario(constant(RATE, 3600), FIRST, job=HEAVY), seed)
    assert policy.reasons == [Reason.TO_DEDICATED]
    before, after = (each.rescales[-1].after for each in (inline, result))
    assert DEDICATED.cores(after) <= 0.9 * BOUNDS.cores(before)
    assert result.core_seconds < 0.95 * inline.core_seconds
    late = [batch for batch in result.batches if batch.planned > 600 and batch.seconds > 2]
    assert len(late) < 20
    assert result.batches[-1].backlog < 2 * RATE * 2


def test_a_job_with_a_light_route_stage_never_tries():
    _, policy = auto(constant(RATE, 3600), LIGHT)
    assert policy.moves == []
    assert "the route stage takes" in policy.decisions[-1].placement
    assert policy.decisions[-1].placement.endswith("less than 20%")


@pytest.mark.parametrize("seed", range(2))
def test_a_try_that_does_not_pay_is_taken_back_and_not_repeated(seed):
    result, policy = auto(constant(RATE, 2 * 3600), COSTLY, seed)
    assert policy.reasons == [Reason.TO_DEDICATED, Reason.TO_INLINE]
    there, back = policy.moves
    assert back.time - there.time < 3600
    assert "of the cores: at 250," in back.sentence
    assert back.plan.executors >= there.before.executors
    inline, _ = run(scenario(constant(RATE, 2 * 3600), FIRST, job=COSTLY), seed)
    assert result.core_seconds < 1.2 * inline.core_seconds


def test_a_try_is_made_again_at_another_rate_only_if_measurement_says_that_it_pays():
    trace = steps([RATE, 0.4 * RATE, RATE], [0, 1800, 3600], 5400)
    _, policy = auto(trace, COSTLY)
    assert policy.reasons == [Reason.TO_DEDICATED, Reason.TO_INLINE]


def test_a_job_whose_load_falls_goes_back():
    result, policy = auto(step(RATE, 15e3, 2400, 7200), HEAVY)
    assert policy.reasons == [Reason.TO_DEDICATED, Reason.TO_INLINE]
    assert 2400 < policy.moves[1].time < 3000
    assert "it no longer saved 5% of the cores" in policy.moves[1].sentence
    assert result.rescales[-1].after.executors == 1
    placement = policy.decisions[-1].placement
    assert "the minimum of executors" in placement or "less than 20%" in placement


@pytest.mark.parametrize("seed", range(2))
def test_noise_moves_nothing_back_and_forth(seed):
    trace = constant(RATE, 2 * 3600).noisy(0.05, 10.0, seed)
    _, policy = auto(trace, replace(HEAVY, noise=Noise(task=0.2, batch=0.1, slow=0.01)), seed)
    assert policy.reasons == [Reason.TO_DEDICATED]


def test_a_restart_at_every_step_changes_no_decision():
    """It may release executors somewhat sooner, as it does not know when it last searched for fewer."""
    trace = step(RATE, 15e3, 1200, 2400)
    (first, _), (second, _) = (auto(trace, HEAVY, restarting=restarting) for restarting in (False, True))
    assert [each._replace(time=0.0) for each in second.rescales] == [each._replace(time=0.0) for each in first.rescales]
    for one, other in zip(first.rescales, second.rescales, strict=True):
        assert abs(one.time - other.time) <= SCALE_IN_SECONDS
    assert [each.dedicated for each in first.rescales].count(True) >= 2


def test_replicas_that_start_are_no_reason_for_more():
    _, policy = auto(constant(RATE, 600), HEAVY)
    (move,) = policy.moves
    after = [each for each in policy.decisions if 0 < each.time - move.time < 60]
    assert {each.reason for each in after} >= {Guard.COOLDOWN}
    assert not any(each.changed for each in after)


@pytest.mark.parametrize("fault", [Fault.GAP, Fault.ABSENT, Fault.FROZEN, Fault.DELAYED, Fault.NOT_A_NUMBER])
def test_an_answer_that_is_no_answer_moves_nothing(fault):
    metrics = MetricsProfile(faults=(FaultyTime(fault, 120.0, 900.0),))
    _, policy = auto(constant(RATE, 900), HEAVY, metrics=metrics)
    assert policy.moves == []


@pytest.mark.parametrize("held", ["paused", "scale_in_paused", "scale_out_paused"])
def test_a_pause_keeps_replicas_where_they_are(held):
    _, policy = auto(constant(RATE, 1200), HEAVY, **{held: True})
    assert policy.moves == []


def test_a_mode_that_changes_nothing_moves_nothing():
    _, policy = auto(constant(RATE, 1200), HEAVY, settings=Settings(mode=Mode.ADVISE))
    assert policy.moves == []


def test_a_driver_that_does_not_follow_has_refused_for_good():
    _, policy = auto(constant(RATE, 3600), HEAVY, applied_epoch=0)
    assert policy.reasons == [Reason.TO_DEDICATED, Reason.TO_INLINE]
    there, back = policy.moves
    assert REFUSED_SECONDS < back.time - there.time <= REFUSED_SECONDS + 10
    assert "the driver has not followed the plan for" in back.sentence
    assert back.plan.executors >= there.before.executors


def test_a_driver_that_has_just_started_has_refused_nothing():
    _, policy = auto(constant(RATE, 900), HEAVY, applied_epoch=None)
    assert policy.reasons == [Reason.TO_DEDICATED]


def test_pods_that_do_not_come_are_given_up():
    _, policy = auto(constant(RATE, 1800), HEAVY, replicas_ready=0)
    assert policy.reasons == [Reason.TO_DEDICATED, Reason.TO_INLINE]
    there, back = policy.moves
    assert back.time - there.time < SHORT_SECONDS + 20
    assert "0 of 5 replicas' pods are ready" in back.sentence


def test_a_plan_that_goes_back_by_itself_is_not_tried_again_at_once():
    scaler = PlacedScaler(SETTINGS, BOUNDS, DEDICATED, 8, "a query")
    for epoch, dedicated in ((1, True), (2, False)):
        decision = scaler.step(None, Situation(10.0 * epoch, FIRST, epoch, 4, dedicated=dedicated, applied_epoch=epoch))
    assert decision.placement.startswith("Dedicated was given up: the plan went back to Inline")


def test_what_was_decided_for_another_query_is_not_restored():
    scaler = PlacedScaler(SETTINGS, BOUNDS, DEDICATED, 8, "a query")
    scaler.step(None, Situation(1.0, FIRST, 1, 4, dedicated=True))
    scaler.step(None, Situation(2.0, FIRST, 2, 4))
    saved = json.loads(json.dumps(scaler.save()))
    for subject, found in (("a query", True), ("another query", False)):
        restored = PlacedScaler(SETTINGS, BOUNDS, DEDICATED, 8, subject)
        restored.restore(saved)
        assert bool(restored.step(None, Situation(3.0, FIRST, 2, 4)).placement) is found


def test_state_fits_in_a_config_map():
    scaler = PlacedScaler(SETTINGS, BOUNDS, DEDICATED, 8, "a query")
    rows, stage = 500_000.123456789, Stage(16, 1.23456789012345)
    optional = ("keys", "partials", "updates", "imbalance", "merge_seconds", "dedicated_busy", "routed")
    sizes = dict.fromkeys((*optional, "input_bytes", "route_bytes", "combine_bytes"), rows)
    for number in range(32 * 16):
        shape = Shape(1 + number % 32, 16, 16)
        times = {"since": 1.7e9 + number / 7, "until": 1.7e9 + number / 3, "seconds": 1.2345678901234567}
        seen = Observation(epoch=number, plan=shape, batches=3, interval=2.0, rows=rows, arrival=rows, lag=rows,
                           route=stage, combine=stage, **times, **sizes)  # fmt: skip
        scaler._scaler.calibration.add(seen)
        scaler._kept.add(seen)
    assert 500_000 < len(json.dumps(scaler.save(), separators=(",", ":"))) < 900_000


def test_a_rate_is_similar_within_half_as_much_again():
    assert [GivenUp(100.0, "").holds(rate) for rate in (66.0, 67.0, 149.0, 151.0)] == [False, True, True, False]
    assert GivenUp(None, "").holds(1e9)


def metered(**cost):
    meter = CostMeter()
    values = {"work": 1e-5, "route": 0.0, "placing": 0.0, "share": 0.0, "fixed": 0.2, "pod": 0.0} | cost
    meter.restore([list(values.values())] * AGREE)
    return meter


def test_both_placements_are_weighed_by_whole_executors_and_pods():
    meters = {False: metered(work=1e-5), True: metered(work=2e-6, pod=6e-6)}
    weighed = weigh(meters, BOTH, 200e3, 2.0, 0.9)
    # 2 core-seconds a second of work in 0.8 of the interval: 2.5 cores; 0.4 in 0.8: 1 executor, and 1.33 of a pod
    assert weighed.inline == Needed(2, 0, 4, measured=True)
    assert weighed.dedicated == Needed(1, 2, 4, measured=True)
    assert weighed.saving == 0
    assert str(weighed) == (
        "at 200,000 records/s Inline needs 4 cores (2 executors), and Dedicated 4 cores (1 executor and 2 pods)"
    )


def test_what_was_never_measured_follows_from_the_other_placement():
    inline = BatchCost(work=1e-5, route=5e-6, placing=4e-6, share=0.4, fixed=0.2, pod=0.0)
    assert inline.dedicated() == BatchCost(6e-6, 0.0, 0.0, 0.0, 0.2, 4e-6)
    assert inline.dedicated().inline().work == pytest.approx(6e-6 + 0.8 * 4e-6)
    only = weigh({False: CostMeter(), True: metered(work=2e-6, pod=6e-6)}, BOTH, 200e3, 2.0, 0.9)
    assert (only.inline.measured, only.dedicated.measured) == (False, True)
    assert weigh({False: CostMeter(), True: CostMeter()}, BOTH, 200e3, 2.0, 0.9) is None


def test_a_load_that_more_pods_than_allowed_would_take_is_no_saving():
    few = {False: BOUNDS, True: replace(DEDICATED, replicas=Range(1, 1))}
    meters = {False: metered(work=1e-5), True: metered(work=2e-6, pod=6e-6)}
    weighed = weigh(meters, few, 200e3, 2.0, 0.9)
    assert math.isinf(weighed.dedicated.cores)
    assert weighed.saving < 0
    assert "Dedicated more than there may be" in str(weighed)


def test_a_plan_that_stays_large_costs_what_it_has():
    weighed = Weighed(1.0, Needed(5, 0, 10, measured=True), Needed(2, 3, 7, measured=True), 0.4)
    assert weighed.at_least(Shape(4, 8, 4), 12.0).saving == pytest.approx(-0.2)
    assert weighed.at_least(Shape(1, 2, 1), 3.0) is weighed
