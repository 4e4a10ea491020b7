from dataclasses import replace

import numpy as np
import pytest

from millrace_jobs.selection.costs import (
    BATCHES,
    TASK_SECONDS,
    AlgorithmCosts,
    CombineTask,
    MeasuredBatch,
    Measurements,
    Resources,
    TaskLoads,
    python_prior,
    sql_prior,
)
from millrace_jobs.selection.shadow import ShadowPlacement

COSTS = AlgorithmCosts(
    combine=np.array([0.1, 1e-3, 1e-2]),
    merge=np.array([0.4, 1e-2]),
    route={"hash": 2e-3},
    own={"hash": 5e-4, "cam": 1.5e-3},
    route_base=1e-3,
    slice_record=None,
    resources=Resources(cores=2, state_partitions=4),
)
LOADS = TaskLoads(np.array([100.0, 300.0, 100.0]), np.array([10.0, 20.0, 10.0]), 500)
COMBINE = [0.3, 0.6, 0.3]


def batch(algorithm, tasks, **changes):
    plain = MeasuredBatch(0, algorithm, len(tasks), 2, 500, 1.0, 0.5, 0.2, 0, tuple(tasks), None)
    return replace(plain, **changes)


def test_a_routed_batch_is_its_stages_one_after_the_other():
    found = COSTS.predict("hash", LOADS, replicas=2, rest=0.25)
    assert found.route == pytest.approx(250 * 2e-3)  # two slices on two cores
    assert found.combine == pytest.approx(max(0.3 + 0.3 + 2 * TASK_SECONDS, 0.6 + TASK_SECONDS))
    assert found.merge == pytest.approx((0.4 + 40 * 1e-2) / 2)
    assert found.total == pytest.approx(found.route + found.combine + found.merge + 0.25)


def test_slices_are_combined_in_the_tasks_that_read_them():
    found = COSTS.predict("native", LOADS, replicas=3, rest=0.0)
    each = [seconds + rows * 1e-3 for seconds, rows in zip(COMBINE, LOADS.rows, strict=True)]
    assert (found.route, found.combine) == (0, pytest.approx(max(each[0] + each[2], each[1])))
    spark = replace(COSTS, slice_record=4e-3).predict("native", LOADS, replicas=3, rest=0.0)
    assert spark.combine == pytest.approx(300 * 4e-3)


def test_an_algorithm_that_has_not_run_routes_at_its_own_speed():
    assert COSTS.route_record("hash") == 2e-3
    assert COSTS.route_record("cam") == 1e-3 + 1.5e-3
    assert COSTS.route_record("am") == 1e-3


def test_a_prediction_is_never_nothing():
    assert COSTS.predict("hash", LOADS, replicas=2, rest=-100.0).total > 0


def test_costs_are_learned_from_reports():
    measured = Measurements(python_prior())
    for rows, groups in ((100, 5), (200, 50), (4000, 7), (4000, 700)) * 8:
        tasks = [CombineTask(rows, groups, 0.01 + rows * 3e-5 + groups * 2e-4)] * 20
        measured.add(batch("hash", tasks, route_seconds=20 * rows * 4e-6))
        measured.add_merge(groups, 0.1 + groups * 1e-3)
    measured.add_partitioners(
        [ShadowPlacement("hash", *[np.zeros(0)] * 4, 1e-6), ShadowPlacement("cam", *[np.zeros(0)] * 4, 2e-6)]
    )
    costs = measured.costs(Resources(4, 4))
    assert costs.combine == pytest.approx([0.01, 3e-5, 2e-4], rel=0.1)
    assert costs.merge @ [1, 700] == pytest.approx(0.8, rel=0.1)
    assert costs.route_record("hash") == pytest.approx(4e-6)
    assert costs.route_record("cam") == pytest.approx(5e-6)


def test_before_anything_is_measured_there_is_the_prior():
    prior = sql_prior(6)
    costs = Measurements(prior).costs(Resources(4, 4))
    assert costs.combine.tolist() == prior.combine.tolist()
    assert costs.merge.tolist() == prior.merge.tolist()
    assert (costs.route_base, costs.slice_record) == (prior.route, prior.slice_record)


def test_what_is_not_measured_goes_at_the_speed_of_what_is():
    prior = sql_prior(1)
    measured = Measurements(prior)
    measured.add(batch("hash", [CombineTask(1000, 10, 0.5)], route_seconds=3 * prior.route * 1000))
    costs = measured.costs(Resources(4, 4))
    assert costs.merge == pytest.approx(3 * prior.merge)
    assert costs.slice_record == pytest.approx(3 * sql_prior(1).slice_record)


def test_slices_tell_of_combining_until_workers_do():
    measured = Measurements(python_prior())
    slices = [CombineTask(rows, 10, rows * 1e-4 + 0.25) for rows in (1000, 2000, 5000)]
    for _ in range(20):
        measured.add(batch("native", slices, route_seconds=0.75))
    assert measured.costs(Resources(4, 4)).combine[1] == pytest.approx(1e-4, rel=0.2)
    workers = [CombineTask(rows, 10, rows * 1e-5) for rows in (1000, 2000, 5000)]
    for _ in range(20):
        measured.add(batch("hash", workers))
    assert measured.costs(Resources(4, 4)).combine[1] == pytest.approx(1e-5, rel=0.2)


def test_old_measurements_are_forgotten():
    measured = Measurements(python_prior())
    for cost in (1e-3, 1e-6):
        for rows in range(1000, 1000 + 100 * BATCHES, 100):
            measured.add(batch("hash", [CombineTask(rows, 10, rows * cost)] * 200))
    assert measured.costs(Resources(4, 4)).combine[1] == pytest.approx(1e-6, rel=0.2)
