"""What no number of executors shortens is found from measurements, named by its cause, and not scaled against."""

from dataclasses import dataclass, field, replace

import pytest

from millrace_operator.scaling.decision import learned
from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.serial_time import SerialCause, SerialMemory, serial_parts
from millrace_operator.scaling.shape import Range, Shape
from millrace_research.arena.simulation.job import JobProfile, StageCost
from millrace_research.arena.simulation.keys import Keys, always
from millrace_research.arena.simulation.run import simulate
from millrace_research.arena.simulation.traces import constant
from unit.scaling.deciding import BOUNDS, SETTINGS, HandMade, Recorder, scenario
from unit.scaling.true_job import TrueJob


@dataclass
class Measured(HandMade):
    """A job that also reports what each batch took apart from its tasks, and how its records are concentrated."""

    each: dict = field(default_factory=dict)
    shares: dict = field(default_factory=dict)

    def step(self, scaler, **situation):
        seconds = self.fixed + self.core_seconds * self.rate * self.interval / (2 * self.plan.executors)
        self.lag += 5 * self.rate * max(seconds - self.interval, 0.0)
        return super().step(scaler, **situation)

    def answer(self, ready):
        counted = {name: seconds * self.totals["batches_total"] for name, seconds in self.each.items()}
        return replace(super().answer(ready), **counted, **self.shares)


def scaler(bounds=BOUNDS, partitions=8):
    return Scaler(SETTINGS, bounds, partitions)


SMALL = {"rate": 2_000.0, "interval": 2.0}
ONE_OF_EACH = {
    SerialCause.SLOW_SINK: Measured(**SMALL, fixed=2.3, each={"sink_seconds_total": 2.1}),
    SerialCause.SLOW_SOURCE: Measured(
        **SMALL, fixed=2.3, each={"latest_offset_seconds_total": 2.0, "get_batch_seconds_total": 0.1}
    ),
    SerialCause.SLOW_CHECKPOINT: Measured(
        **SMALL, fixed=2.3, each={"wal_commit_seconds_total": 1.2, "commit_seconds_total": 0.9}
    ),
    SerialCause.SHORT_INTERVAL: Measured(
        **SMALL, fixed=2.3, each={"planning_seconds_total": 1.9, "wal_commit_seconds_total": 0.1}
    ),
    SerialCause.UNDIVIDED_SOURCE: Measured(
        **SMALL, fixed=2.3, each={"longest_slice_seconds_total": 2.2}, shares={"largest_slice": 0.9}
    ),
}


@pytest.mark.parametrize("cause", ONE_OF_EACH)
def test_what_was_timed_is_named_and_more_executors_are_not_tried(cause):
    job = replace(ONE_OF_EACH[cause], totals={})
    decisions = job.steps(scaler(), 40)
    found = decisions[-1].serial
    assert (found.cause, found.exceeds) == (cause, True)
    assert found.share >= SETTINGS.target
    assert found.seconds == pytest.approx(sum(job.each.values()), rel=0.2)
    named = [each for each in decisions if each.serial is not None and each.serial.exceeds]
    assert not any(each.plan.executors > each.before.executors for each in named)
    assert str(cause) in decisions[-1].sentence


@pytest.mark.parametrize("cause", [each for each in ONE_OF_EACH if each is not SerialCause.SHORT_INTERVAL])
def test_without_the_measurement_nothing_is_said(cause):
    job = replace(ONE_OF_EACH[cause], totals={}, each={}, shares={})
    found = job.steps(scaler(), 40)[-1].serial
    assert found is None or found.cause is not cause or not found.exceeds


STEPS = ("latest_offset", "get_batch", "wal_commit", "commit", "planning", "sink")
TIMED = {f"{name}_seconds_total": 0.01 for name in STEPS}
"""A driver that reports all steps of a batch, none of which takes long."""


def test_what_the_driver_does_unseen_follows_from_what_batches_cost():
    job = Measured(**SMALL, fixed=2.6, each=TIMED)
    decisions = job.steps(scaler(), 40)
    begun = next(each for each in decisions if each.serial and each.serial.exceeds)
    assert (begun.serial.cause, begun.serial.certain) == (SerialCause.SHORT_INTERVAL, False)
    assert begun.serial.seconds < job.fixed
    assert len({each.before.executors for each in decisions if each.time <= begun.time}) > 1  # one plan shows nothing


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_an_older_driver_does_not_time_is_not_taken_for_its_planning(step):
    older = {name: seconds for name, seconds in TIMED.items() if not name.startswith(step)}
    decisions = Measured(**SMALL, fixed=2.6, each=older).steps(scaler(), 25)
    assert len({each.plan.executors for each in decisions}) > 1
    assert not any(each.serial and each.serial.exceeds for each in decisions)


@dataclass
class BarelyTimed(Measured):
    """A job whose tasks have clocks that see only a ``share`` of their time, as if the rest were reading."""

    share: float = 1.0

    def answer(self, ready):
        reported = super().answer(ready)
        stages = ("route_seconds_total", "combine_seconds_total", "merge_seconds_total")
        return replace(reported, **{name: getattr(reported, name) * self.share for name in stages})


def barely_timed(share):
    """A job that two executors are far too few for: W is 2.2, and only 0.2 s of a batch are fixed."""
    return BarelyTimed(rate=60_000.0, each=TIMED, share=share)


@pytest.mark.parametrize("share", [0.25, 0.1])
def test_what_one_plan_makes_look_fixed_is_no_finding_and_a_lifted_quota_is_used(share):
    mind, job = scaler(), barely_timed(share)
    held = job.steps(mind, 40, executors_quota=2)
    assert {each.plan.executors for each in held} == {2}
    assert not any(each.serial and each.serial.exceeds for each in held)
    free = job.steps(mind, 40)
    assert max(each.plan.executors for each in free) > 4


def test_a_wrong_estimate_of_what_was_not_timed_keeps_no_executors_away(monkeypatch):
    """Only a plan that has not run could disprove it, so that one is tried."""
    monkeypatch.setattr(learned, "least_fixed", lambda model: 3.0)
    mind, job = scaler(), barely_timed(0.25)
    job.plan = Shape(1, 2, 2)
    for rate, steps in ((8_000.0, 20), (14_000.0, 15), (60_000.0, 40)):
        job.rate = rate
        held = job.steps(mind, steps, executors_quota=2)[-1]
    assert mind.calibration.executors == {1, 2}
    assert (held.plan.executors, held.serial.exceeds, held.serial.certain) == (2, True, False)
    assert max(each.plan.executors for each in job.steps(mind, 20)) > 4


def test_what_was_not_timed_is_no_certainty():
    memory, job = SerialMemory(0.9, 0.1, 6), TrueJob()
    for timed, certain in ((6.0, False), (9.5, True), (8.5, False), (6.0, False), (8.5, False)):
        for _ in range(6):
            seen = job.observe(Shape(2, 4, 4), 1000, seconds=12.0)
            memory.add(seen, {SerialCause.SLOW_SINK: timed}, 4.0)
        assert (memory.found.exceeds, memory.found.certain) == (True, certain)
        again = SerialMemory(0.9, 0.1, 6)
        again.restore(memory.save())
        assert again.found == memory.found


def test_a_trial_is_what_happens_without_the_measurement():
    job = replace(ONE_OF_EACH[SerialCause.SLOW_SINK], totals={}, each={})
    assert any(each.plan.executors > each.before.executors for each in job.steps(scaler(), 40))


def test_stages_that_the_spec_allows_too_few_tasks_are_named():
    """Cores beyond the tasks of a stage have nothing to do."""
    few = replace(BOUNDS, parallelism=Range(2, 2))
    job = Measured(plan=Shape(4, 2, 4), rate=22_000.0, fixed=1.7)
    found = job.steps(scaler(few), 30)[-1].serial
    assert (found.cause, found.exceeds) == (SerialCause.FEW_WORKERS, True)
    job = Measured(plan=Shape(4, 4, 1), rate=24_000.0, fixed=1.6)
    found = job.steps(scaler(replace(BOUNDS, replicas=Range(1, 1))), 30)[-1].serial
    assert (found.cause, found.exceeds) == (SerialCause.FEW_REPLICAS, True)
    job = Measured(plan=Shape(8, 16, 4), rate=68_000.0, fixed=1.2)
    found = job.steps(scaler(partitions=1), 30)[-1].serial
    assert (found.cause, found.exceeds) == (SerialCause.FEW_STATE_PARTITIONS, True)


class WithCountedKeys(Recorder):
    """A policy whose job counts the records of its hottest key, as workers do."""

    def __init__(self, scene, share):
        super().__init__(scene)
        self._share = share

    def step(self, answer, situation):
        known = answer is not None and answer.imbalance is not None
        return super().step(replace(answer, hottest_key=self._share) if known else answer, situation)


def hot_run(hot, share):
    """A job of 2 s whose combine tasks take 4 s of one core for each interval."""
    costs = JobProfile(combine=StageCost(task=0.015, row=2e-5, block=3e-4, partial=2e-6))
    scene = replace(scenario(constant(160e3, 1500), Shape(2, 8, 4), job=costs), keys=always(Keys(2000, hot=hot)))
    policy = WithCountedKeys(scene, share)
    return simulate(scene, policy, 1), policy


def test_one_key_with_most_records_is_named_in_the_simulator_and_not_scaled_against():
    result, policy = hot_run(hot=0.55, share=0.55)
    found = policy.decisions[-1].serial
    assert (found.cause, found.exceeds) == (SerialCause.HOT_KEY, True)
    assert found.concentration == pytest.approx(0.55)
    first = next(each.time for each in policy.decisions if each.serial and each.serial.exceeds)
    assert not [each for each in result.rescales if each.time > first and each.after.executors > each.before.executors]
    assert policy.reasons[-1] is Reason.AT_CAPACITY


def test_even_keys_and_as_many_records_are_scaled_as_ever():
    result, policy = hot_run(hot=0.0, share=0.001)
    assert not any(each.serial and each.serial.exceeds for each in policy.decisions)
    assert any(each.after.executors > each.before.executors for each in result.rescales)


def parts(hottest, **changes):
    """The parts of a job of which one key has 40 % of the records, whose workers report ``hottest``."""
    seen = TrueJob(hot=0.4, **changes).observe(Shape(4, 16, 4), 400_000, hottest_key=hottest, keys=2000)
    return serial_parts(seen, BOUNDS, 4, 40_000.0), seen


def test_a_key_is_hot_only_if_counts_and_loads_agree():
    found, seen = parts(0.4)
    assert found[SerialCause.HOT_KEY] == pytest.approx(0.4 * seen.combine.seconds, rel=0.15)
    warm, _ = parts(0.02)  # several warm keys on one worker, or chance
    assert SerialCause.HOT_KEY not in warm
    unknown, _ = parts(None)
    assert SerialCause.HOT_KEY not in unknown
    split = replace(seen, imbalance=0.05)  # by an algorithm that splits it
    assert SerialCause.HOT_KEY not in serial_parts(split, BOUNDS, 4, 40_000.0)


def test_records_that_are_only_caught_up_do_not_count():
    _, seen = parts(0.4)
    twice = serial_parts(seen, BOUNDS, 4, seen.rows / seen.interval / 2)
    once = serial_parts(seen, BOUNDS, 4, seen.rows / seen.interval)
    assert twice[SerialCause.HOT_KEY] == pytest.approx(once[SerialCause.HOT_KEY] / 2)


def remembered(*shares, cause=SerialCause.SLOW_SINK, memory=None):
    """A memory of observations whose sink took these shares of the interval."""
    memory = memory or SerialMemory(0.9, 0.1, 6)
    job = TrueJob()
    for share in shares:
        seen = job.observe(Shape(2, 4, 4), 1000, seconds=share * 10.0 + 2.0)
        memory.add(seen, {cause: share * 10.0})
    return memory


def test_it_begins_above_the_target_and_ends_below_the_step():
    memory = remembered(*[0.95] * 5)
    assert memory.found is None
    assert remembered(0.95, memory=memory).found.exceeds
    assert remembered(*[0.85] * 12, memory=memory).found.exceeds
    assert not remembered(*[0.7] * 6, memory=memory).found.exceeds
    assert not remembered(*[0.85] * 12, memory=memory).found.exceeds


def test_odd_observations_neither_begin_nor_end_it():
    memory = remembered(0.5, 0.5, 0.5, 0.5, 3.0, 3.0)
    assert not memory.found.exceeds
    memory = remembered(*[0.95] * 6, 0.1, 0.1)
    assert memory.found.exceeds


def test_the_cause_does_not_change_back_and_forth():
    memory = remembered(*[0.95] * 6)
    for _ in range(6):
        seen = TrueJob().observe(Shape(2, 4, 4), 1000, seconds=30.0)
        memory.add(seen, {SerialCause.SLOW_SINK: 9.0, SerialCause.HOT_KEY: 10.0})
    assert memory.found.cause is SerialCause.SLOW_SINK
    for _ in range(6):
        memory.add(seen, {SerialCause.SLOW_SINK: 7.0, SerialCause.HOT_KEY: 10.0})
    assert memory.found.cause is SerialCause.HOT_KEY


def test_a_restored_memory_finds_the_same():
    memory, again = remembered(*[0.95] * 7), SerialMemory(0.9, 0.1, 6)
    again.restore(memory.save())
    assert again.found == memory.found
    assert again.save() == memory.save()


def test_what_a_version_without_this_has_saved_is_restored():
    mind = scaler()
    HandMade().steps(mind, 10)
    saved = mind.save()
    del saved["serial"]
    again = scaler()
    again.restore(saved)
    assert again.save()["memory"] == saved["memory"]
