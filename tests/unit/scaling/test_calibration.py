import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.scaling.batch_time.batch_model import BatchLoad
from millrace_operator.scaling.batch_time.calibration import PER_SHAPE, SHAPES, Calibration
from millrace_operator.scaling.observation import Stage
from unit.scaling.true_job import BOUNDS, INTERVAL, PARTITIONS, TrueJob, plan

SEEN = [plan(1, 2, 1), plan(2, 4, 2), plan(4, 8, 2), plan(2, 8, 4), plan(4, 4, 1)]
RATES = (40_000, 120_000, 300_000)
UNSEEN = [plan(1, 4, 2), plan(3, 6, 3), plan(4, 16, 4), plan(8, 8, 4), plan(8, 16, 4), plan(2, 2, 1)]


def calibrated(job, rounds=2, per_plan=3):
    calibration = Calibration(BOUNDS, PARTITIONS)
    for turn in range(rounds):
        for index, shape in enumerate(SEEN):
            for step in range(per_plan):
                calibration.add(job.observe(shape, RATES[(turn + index + step) % len(RATES)]))
    return calibration


def errors(calibration, job, rates=RATES):
    model = calibration.model()
    return np.array(
        [
            model.predict([shape], BatchLoad(rows, INTERVAL)).seconds[0] / job.mean_seconds(shape, rows) - 1
            for shape in UNSEEN
            for rows in rates
        ]
    )


@pytest.mark.parametrize(
    "changes",
    [{}, {"combine_record": 50e-6}, {"merge_group": 60e-6}, {"hot": 0.3}, {"contention": 0.3}, {"fixed": 2.0}],
    ids=str,
)
def test_the_time_of_plans_that_have_not_run_is_predicted(changes):
    job = TrueJob(noise=0.03, **changes)
    off = np.abs(errors(calibrated(job), job))
    assert off.mean() < 0.06
    assert off.max() < 0.25


def test_a_larger_rate_than_any_seen_is_predicted():
    job = TrueJob(noise=0.03)
    assert np.abs(errors(calibrated(job), job, rates=(900_000,))).mean() < 0.1


def test_costs_are_recovered():
    job = TrueJob(noise=0.01, combine_record=20e-6)
    model = calibrated(job, rounds=4).model()
    combine = model.costs[[stage.name for stage in model.stages].index("combine")]
    assert combine[1] == pytest.approx(20e-6, rel=0.1)
    assert model.fixed == pytest.approx(job.fixed, rel=0.35)


def waiting_for_another_server(seed, rates):
    """Return a job of few records of 9 ms each, calibrated by batches of one plan."""
    job = TrueJob(combine_record=9e-3, route_task=0.15, groups=28, noise=0.05, seed=seed)
    calibration = Calibration(BOUNDS, PARTITIONS)
    for rows in rates:
        calibration.add(job.observe(plan(2, 4, 2), rows, batches=1))
    return job, calibration.model()


@pytest.mark.parametrize("seed", range(6))
def test_records_of_milliseconds_are_not_taken_for_long_tasks(seed):
    """The prior is far below: where the search began there, a record had no slope, and a task took all of the time."""
    job, model = waiting_for_another_server(seed, [500.0] * 12 + [533.0, 600.0, 667.0, 733.0])
    for shape in (plan(2, 2, 2), plan(2, 4, 2)):
        for rows in (500.0, 1000.0):
            seconds = model.predict([shape], BatchLoad(rows, INTERVAL)).seconds[0]
            assert seconds == pytest.approx(job.mean_seconds(shape, rows), rel=0.2)


@pytest.mark.parametrize("seed", range(6))
def test_tasks_that_take_long_to_begin_are_not_taken_for_contention(seed):
    """The prior knew no time of a route task of its own; a contention above 1 explained it, against which no executor helps."""
    job, model = waiting_for_another_server(seed, [500.0] * 16)
    assert model.contention < 0.2
    seconds = model.predict([plan(4, 4, 4)], BatchLoad(500.0, INTERVAL)).seconds[0]
    assert seconds == pytest.approx(job.mean_seconds(plan(4, 4, 4), 500.0), rel=0.3)


def test_a_few_wrong_observations_do_no_harm():
    job = TrueJob(noise=0.03)
    calibration = calibrated(job)
    good = np.abs(errors(calibration, job)).mean()
    for shape in SEEN[:3]:
        calibration.add(job.observe(shape, 120_000, seconds=30.0))
        calibration.add(job.observe(shape, 120_000, seconds=0.01))
        calibration.add(job.observe(shape, 120_000, combine=Stage(shape.parallelism, 500.0)))
    assert np.abs(errors(calibration, job)).mean() < good + 0.03


def test_an_observation_of_the_former_plan_under_the_new_ones_name_does_no_harm():
    job = TrueJob(noise=0.03, combine_record=50e-6)
    calibration = calibrated(job)
    good = np.abs(errors(calibration, job)).mean()
    old, new = plan(1, 2, 1), plan(8, 16, 4)
    for _ in range(2):
        calibration.add(job.observe(old, 300_000))
        of_old = job.seconds(old, 300_000)
        calibration.add(job.observe(new, 300_000, seconds=of_old))
        calibration.add(job.observe(new, 300_000))
    assert np.abs(errors(calibration, job)).mean() < good + 0.03


def test_stages_with_more_tasks_than_the_plan_has_are_of_another_plan_and_the_batch_still_counts():
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    calibration.add(job.observe(plan(2, 4, 2), 1e5, combine=Stage(8, 1.0)))
    calibration.add(job.observe(plan(2, 4, 2), 1e5, route=Stage(3, 1.0)))
    kept = [one["seen"] for one in calibration.save()["observations"]]
    assert [(one["route"] is None, one["combine"] is None) for one in kept] == [(False, True), (True, False)]


@pytest.mark.parametrize("field", ["seconds", "rows", "partials", "imbalance", "merge_seconds", "interval"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_no_number_that_is_none_gets_in(field, wrong):
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    seen = job.observe(plan(2, 4, 2), 1e5)
    calibration.add(replace(seen, **{field: wrong}))
    calibration.add(replace(seen, combine=Stage(4, wrong)))
    assert calibration.save() == {"observations": []}


def test_costs_that_change_are_followed():
    job = TrueJob(noise=0.03)
    calibration = calibrated(job)
    job.combine_record *= 4
    for _ in range(8):
        for shape in SEEN:
            calibration.add(job.observe(shape, 300_000))
    assert np.abs(errors(calibration, job, rates=(300_000,))).mean() < 0.1


def test_intervals_hold_what_they_promise():
    covered = []
    for seed in range(12):
        job = TrueJob(
            noise=0.05, hot=0.1, seed=seed, combine_record=3e-6 * (1 + seed), merge_group=4e-6 * (1 + seed % 4)
        )
        model = calibrated(job, rounds=1, per_plan=2).model()
        for shape in UNSEEN:
            for rows in (40_000, 300_000, 600_000):
                seconds = job.observe(shape, rows, batches=1).seconds
                predicted = model.predict([shape], BatchLoad(rows, INTERVAL))
                covered.append(predicted.low[0] <= seconds <= predicted.high[0])
    assert 0.85 <= np.mean(covered) <= 1.0


def test_one_observation_leaves_wide_intervals_elsewhere():
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    calibration.add(job.observe(plan(2, 4, 2), 1e5))
    near, far = plan(2, 4, 2), plan(16, 64, 16)
    predicted = calibration.model().predict([near, far], BatchLoad(1e5, INTERVAL))
    width = np.log(predicted.high / predicted.low)
    assert width[1] > 1.5 * width[0]


def test_memory_is_bounded():
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    one = job.observe(plan(1, 1, 1), 1e5)
    for n in range(1, SHAPES + 9):
        for _ in range(PER_SHAPE + 3):
            calibration.add(replace(one, epoch=n, plan=plan(1, n, 1), combine=Stage(n, 1.0)))
    stored = calibration.save()["observations"]
    assert len(stored) == SHAPES * PER_SHAPE
    assert len(json.dumps(calibration.save())) < 500_000
    assert {entry["seen"]["plan"]["parallelism"] for entry in stored} == set(range(9, SHAPES + 9))


def test_a_calibration_survives_a_restart():
    job = TrueJob(noise=0.05)
    before = calibrated(job)
    stored = json.loads(json.dumps(before.save()))
    after = Calibration(BOUNDS, PARTITIONS)
    after.restore(stored)
    assert after.save() == before.save()
    loads = BatchLoad(2e5, INTERVAL)
    assert after.model().predict(UNSEEN, loads).seconds == pytest.approx(
        before.model().predict(UNSEEN, loads).seconds, rel=0.01
    )


def test_a_calibration_is_ready_after_a_few_observations():
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    states = []
    for _ in range(4):
        states.append(calibration.ready)
        calibration.add(job.observe(plan(2, 4, 2), 1e5))
    assert states == [False, False, False, True]


def test_the_model_is_recreated_only_after_an_observation():
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    calibration.add(job.observe(plan(2, 4, 2), 1e5))
    model = calibration.model()
    assert calibration.model() is model
    calibration.add(job.observe(plan(2, 4, 2), 1e5))
    assert calibration.model() is not model


def test_another_epoch_of_a_plan_that_has_run_for_long_is_fitted_even_if_its_first_observation_was_not():
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    for _ in range(PER_SHAPE + 1):
        calibration.add(job.observe(plan(2, 4, 2), 1e5))
    model = calibration.model()
    calibration.add(job.observe(plan(2, 4, 2), 1e5))
    assert calibration.model() is model
    job.epoch += 1
    for _ in range(2):
        calibration.add(job.observe(plan(2, 4, 2), 1e5))
    assert calibration.model() is not model


def test_partitioners_in_pods_of_their_own_are_no_stage_of_a_batch():
    bounds = replace(BOUNDS, replica_cores=0.5)
    job, calibration = TrueJob(), Calibration(bounds, PARTITIONS)
    for replicas in (1, 2, 4):
        seen = job.observe(plan(2, 4, replicas), 1e5, dedicated_busy=0.4 / replicas, route=None)
        calibration.add(seen)
    model = calibration.model()
    assert [stage.name for stage in model.stages] == ["combine", "merge"]
    few, many = model.predict([plan(2, 4, 1), plan(2, 4, 8)], BatchLoad(1e5, INTERVAL)).seconds
    assert few == many
    assert model.partitioner_load(np.array([1, 2, 8]), 2e4) == pytest.approx([0.8, 0.4, 0.1])


def test_without_pods_there_is_no_load_of_them():
    model = Calibration(BOUNDS, PARTITIONS).model()
    assert model.partitioner_load(np.array([1, 2]), 1e4).tolist() == [0, 0]


numbers = st.floats(0, 1e9) | st.sampled_from([0.0, 1e-9, 1e12])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(numbers, numbers, numbers, numbers, st.integers(0, 4)), min_size=1, max_size=6))
def test_whatever_is_reported_predictions_are_numbers(reports):
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    for seconds, rows, clock, partials, which in reports:
        seen = job.observe(SEEN[which], 1e4)
        combine = Stage(seen.plan.parallelism, clock)
        calibration.add(replace(seen, seconds=seconds, rows=rows, combine=combine, partials=partials))
    predicted = calibration.model().predict([*SEEN, *UNSEEN], BatchLoad(1e5, INTERVAL))
    assert np.isfinite(predicted.seconds).all()
    assert np.isfinite(predicted.high).all()
    assert (predicted.low <= predicted.seconds).all()
    assert (predicted.seconds <= predicted.high).all()
