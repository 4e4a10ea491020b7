import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.scaling.batch_time.partials import ObservedPartials, learn


def occupied(rows, groups):
    return groups * -np.expm1(-rows / groups)


def predicted(seen, rows, parallelism):
    return float(learn(seen).predict(np.array(float(rows)), np.array(float(parallelism))))


def test_what_was_seen_is_predicted():
    assert predicted([ObservedPartials(1000, 4, 300)], 1000, 4) == pytest.approx(300)


def test_equal_groups_fill_up():
    for groups in (100, 1000, 50_000):
        seen = [ObservedPartials(10_000, 4, occupied(10_000, groups))]
        assert predicted(seen, 15_000, 4) == pytest.approx(occupied(15_000, groups), rel=0.08)


def test_a_measured_growth_counts_more_than_the_prior():
    seen = [ObservedPartials(rows, 4, 10 * rows**0.5) for rows in (1e3, 4e3, 16e3)]
    assert predicted(seen, 64e3, 4) == pytest.approx(10 * 64e3**0.5, rel=0.1)


def test_a_partitioner_that_splits_keys_makes_more_partial_results_at_more_tasks():
    seen = [ObservedPartials(1e6, n, 1000 * n) for n in (2, 8)]
    assert predicted(seen, 1e6, 16) == pytest.approx(16_000, rel=0.15)
    assert predicted([ObservedPartials(1e6, n, 1000) for n in (2, 8)], 1e6, 16) == pytest.approx(1000)


def test_keys_that_have_changed_are_believed_at_once():
    seen = [ObservedPartials(1e5, 4, 100)] * 5 + [ObservedPartials(1e5, 4, 5000)]
    assert predicted(seen, 1e5, 8) == pytest.approx(5000)


@given(
    st.lists(
        st.builds(ObservedPartials, st.floats(1, 1e9), st.integers(1, 64), st.floats(0, 1e9)), min_size=1, max_size=5
    ),
    st.floats(0, 1e10),
    st.integers(1, 64),
)
def test_partial_results_are_at_most_one_for_each_record(seen, rows, n):
    found = predicted(seen, rows, n)
    assert 0 <= found <= rows
    assert predicted(seen, rows * 2, n) >= found * (1 - 1e-9)
