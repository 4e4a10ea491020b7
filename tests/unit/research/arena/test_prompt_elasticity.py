import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.scaling.shape import Range
from millrace_research.arena.policies.prompt import PromptElasticity

WIDE = Range(1, 64)


def run(batches, d=3, start=(4, 4), ranges=(WIDE, WIDE)):
    """Tasks after each batch of (W, rate, keys)."""
    prompt = PromptElasticity(*start, *ranges, d=d)
    return [prompt.step(*batch) for batch in batches]


CALM = (0.85, 1000, 100)


@pytest.mark.parametrize(
    ("rate", "keys", "tasks"),
    [(2000, 100, (5, 4)), (1000, 200, (4, 5)), (2000, 200, (5, 5)), (1000, 100, (4, 4)), (500, 50, (4, 4))],
)
def test_what_increased_gets_a_task_after_d_batches_over_the_threshold(rate, keys, tasks):
    assert run([CALM] * 5 + [(1.2, rate, keys)] * 3) == [(4, 4)] * 7 + [tasks]


@pytest.mark.parametrize(
    ("rate", "keys", "tasks"),
    [(500, 100, (3, 4)), (1000, 50, (4, 3)), (500, 50, (3, 3)), (1000, 100, (4, 4)), (2000, 200, (4, 4))],
)
def test_what_decreased_loses_a_task_after_d_batches_a_step_below(rate, keys, tasks):
    assert run([CALM] * 5 + [(0.4, rate, keys)] * 3) == [(4, 4)] * 7 + [tasks]


@pytest.mark.parametrize(
    ("batch", "tasks"),
    [
        ((0.901, 2000, 200), (5, 5)),
        ((0.9, 2000, 200), (4, 4)),
        ((0.801, 500, 50), (4, 4)),
        ((0.8, 500, 50), (3, 3)),
    ],
)
def test_zones_end_at_the_threshold_and_a_step_below(batch, tasks):
    assert run([CALM] * 5 + [batch] * 3)[-1] == tasks


def test_other_batches_restart_the_count():
    over = (1.2, 2000, 200)
    assert run([CALM] * 5 + [over, over, (0.85, 2000, 200)] * 5)[-1] == (4, 4)
    assert run([CALM] * 5 + [over, over, (0.5, 2000, 200)] * 5)[-1] == (4, 4)


def test_tasks_are_added_one_at_a_time_as_long_as_the_load_grows():
    rising = [(1.2, 1000 + 10 * number, 100) for number in range(12)]
    assert run([CALM] * 3 + rising)[3:] == [(4, 4)] * 2 + [(5, 4)] * 3 + [(6, 4)] * 3 + [(7, 4)] * 3 + [(8, 4)]


def test_an_overload_that_outlasts_the_growth_is_not_cured():
    """The paper says nothing of it: after one step the metrics no longer increase."""
    assert run([CALM] * 3 + [(3.0, 5000, 100)] * 100)[-1] == (5, 4)


def test_the_reverse_waits_for_d_batches():
    up, down = [(1.2, 2000, 100)] * 3, [(0.3, 500, 100)] * 6
    found = run([CALM] * 3 + up + down)
    assert found[5] == (5, 4)
    assert found[6:9] == [(5, 4)] * 3  # grace
    assert found[9:] == [(5, 4)] * 3  # due, but the rate is what it was three batches before
    falling = [(0.3, 500 - 10 * number, 100) for number in range(6)]
    assert run([CALM] * 3 + up + falling)[6:] == [(5, 4)] * 3 + [(4, 4)] * 3


@given(
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1e6), st.floats(0, 1e5)), max_size=60),
    st.integers(1, 5),
)
def test_tasks_stay_within_their_ranges_and_change_by_one_every_d_batches_at_most(batches, d):
    ranges = (Range(2, 6), Range(3, 5))
    tasks = [(4, 4), *run(batches, d, (4, 4), ranges)]
    changes = [number for number in range(1, len(tasks)) if tasks[number] != tasks[number - 1]]
    assert all(maps in ranges[0] and reduces in ranges[1] for maps, reduces in tasks)
    for number in changes:
        steps = [after - before for before, after in zip(tasks[number - 1], tasks[number], strict=True)]
        assert set(steps) <= {0, 1} or set(steps) <= {0, -1}
    assert all(after - before >= d for before, after in itertools.pairwise(changes))
