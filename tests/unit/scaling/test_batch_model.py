from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.scaling.batch_time.batch_model import FIXED, BatchLoad, BatchModel
from millrace_operator.scaling.batch_time.partials import ObservedPartials, Partials
from millrace_operator.scaling.batch_time.skew import Skew
from millrace_operator.scaling.batch_time.stage_work import COMBINE, MERGE, ROUTE, JobStage, Skewed, Tasks
from unit.scaling.true_job import list_schedule, plan

#                 task  record block  group
COSTS = np.array([[0.02, 1e-6, 1e-3, 0.0], [0.03, 4e-6, 0.0, 2e-5], [0.05, 0.0, 0.0, 1e-5]])
MODEL = BatchModel(
    stages=(ROUTE, COMBINE, MERGE),
    costs=COSTS,
    fixed=0.3,
    schedule=0.01,
    contention=0.0,
    spread=np.zeros((15, 1)),
    scatter=0.05,
    executor_cores=1,
    state_partitions=4,
    partials=Partials(ObservedPartials(1e5, 4, 8000.0), filled=100.0, bend=1.0, by_tasks=0.0),
)
LOAD = BatchLoad(1e5, 2.0)


def seconds(model, shape, load=LOAD):
    return float(model.predict([shape], load).seconds[0])


def test_a_batch_is_its_stages_one_after_the_other():
    found = MODEL.predict([plan(2, 4, 2)], LOAD)
    route = 0.02 + 50_000 * 1e-6 + 4 * 1e-3  # a replica each on two cores, which sends a block to each of four
    combine = 2 * (0.03 + 25_000 * 4e-6 + 2000 * 2e-5)
    assert found.stages[0, :2] == pytest.approx([route, combine])
    assert found.stages[0, 2] == pytest.approx(2 * (0.05 + 2000 * 1e-5), rel=0.03)  # chance places groups unevenly
    assert found.fixed[0] == pytest.approx(0.3 + 10 * 0.01)
    assert found.seconds[0] == pytest.approx(found.fixed[0] + found.stages[0].sum())


def test_a_record_costs_what_equation_3_8_says():
    model = replace(MODEL, costs=COSTS * [[1], [0], [0]], fixed=0.0, schedule=0.0)
    b_in, b_out = 1e5, 1e5 / 8
    cost = 0.02 / b_in + 1e-6 + 1e-3 / b_out
    assert seconds(model, plan(1, 8, 1)) == pytest.approx(b_in * cost)


def test_the_stage_of_a_hot_key_waits_for_it():
    hot = replace(MODEL, skew=Skew({4: 1.0}))
    assert hot.predict([plan(4, 4, 2)], LOAD).stages[0, 1] == pytest.approx(0.03 + 50_000 * 4e-6 + 2000 * 2e-5)


def test_a_stage_with_a_hot_task_is_as_list_scheduling_has_it():
    hot = replace(MODEL, skew=Skew({8: 3.0}))
    tasks = np.array([0.03 + rows * 4e-6 + 1000 * 2e-5 for rows in (50_000, *[50_000 / 7] * 7)])
    rng = np.random.default_rng(0)
    for cores in (1, 2, 4):
        real = np.mean([list_schedule(rng.permutation(tasks), cores) for _ in range(300)])
        assert hot.predict([plan(cores, 8, 2)], LOAD).stages[0, 1] == pytest.approx(real, rel=0.06)


def test_busy_cores_slow_each_other():
    slow = replace(MODEL, contention=0.5)
    one, two = MODEL.predict([plan(1, 4, 2), plan(2, 4, 2)], LOAD).stages.sum(axis=1)
    found = slow.predict([plan(1, 4, 2), plan(2, 4, 2)], LOAD).stages.sum(axis=1)
    assert found == pytest.approx([one, 1.5 * two])


def test_more_keys_are_more_groups():
    model = replace(MODEL, keys=1000.0)
    double = model.predict([plan(2, 4, 2)], replace(LOAD, keys=2000)).stages[0]
    same = model.predict([plan(2, 4, 2)], replace(LOAD, keys=1000)).stages[0]
    assert double[1] - same[1] == pytest.approx(2 * 2000 * 2e-5)
    assert double[0] == same[0]


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"fixed": 100.0}, FIXED), ({"costs": COSTS * [[50], [1], [1]]}, "route"), ({"costs": COSTS * [[1], [2], [1]]}, "combine"),
     ({"costs": COSTS * [[1], [1], [50]]}, "merge")],
)  # fmt: skip
def test_the_bottleneck_is_what_takes_longest(changes, named):
    assert replace(MODEL, **changes).predict([plan(2, 4, 2)], LOAD).bottleneck(0) == named


def test_intervals_follow_from_how_unsure_the_costs_are():
    spread = np.zeros((15, 2))
    spread[0, 0] = 0.1  # of the fixed time
    spread[3 + 4 + 1, 1] = 1e-6  # of a record at combine
    found = replace(MODEL, spread=spread, scatter=0.0).predict([plan(4, 4, 2)], LOAD)
    deviation = np.hypot(0.1, 1e-6 * 25_000)
    assert np.log(found.high / found.seconds) == pytest.approx(1.645 * deviation / found.seconds)
    assert found.high / found.seconds == pytest.approx(found.seconds / found.low)


def test_without_plans_there_are_no_predictions():
    assert MODEL.predict([], LOAD).seconds.shape == (0,)


def test_fifty_stages_are_predicted_for_a_thousand_plans():
    kinds = list(Tasks)
    stages = tuple(JobStage(f"s{i}", kinds[i % 3], list(Skewed)[i % 3]) for i in range(50))
    costs = np.random.default_rng(0).uniform(0, 1e-5, (50, 4))
    model = replace(MODEL, stages=stages, costs=costs, spread=np.zeros((203, 13)), skew=Skew({4: 1.0}, 1000))
    plans = [plan(e, n, m) for e in range(1, 11) for n in range(1, 11) for m in range(1, 11)]
    found = model.predict(plans, LOAD)
    assert found.stages.shape == (1000, 50)
    assert found.seconds[123] == pytest.approx(seconds(model, plans[123]))


costs = st.lists(st.floats(0, 1e-2), min_size=12, max_size=12).map(lambda flat: np.reshape(flat, (3, 4)))
shapes = st.builds(plan, st.integers(1, 32), st.integers(1, 64), st.integers(1, 16))


@given(costs, shapes, st.floats(0, 5))
def test_more_executors_are_never_slower(costs, shape, hot):
    model = replace(MODEL, costs=costs, skew=Skew({4: hot}))
    more = replace(shape, executors=shape.executors + 1)
    assert seconds(model, more) <= seconds(model, shape) * (1 + 1e-9)


@given(costs, shapes, st.floats(0, 3), st.floats(1, 1e7), st.floats(1, 10))
def test_more_records_are_never_quicker(costs, shape, hot, rows, times):
    model = replace(MODEL, costs=costs, skew=Skew({4: hot}), contention=0.1)
    assert seconds(model, shape, BatchLoad(rows * times, 2.0)) >= seconds(model, shape, BatchLoad(rows, 2.0)) * (
        1 - 1e-6
    )
