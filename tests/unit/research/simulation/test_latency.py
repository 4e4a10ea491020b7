import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.arena.simulation.record import Latencies

groups = st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 50), st.integers(0, 1000)), min_size=1, max_size=20)


def latencies(*groups):
    low, high, records = np.array(groups, dtype=float).T
    return Latencies(low, high, records)


def test_one_group_has_the_quantiles_worked_out_by_hand():
    one = latencies((1, 3, 100))
    assert one.quantiles([0, 0.5, 0.95, 1]) == pytest.approx([1, 2, 2.9, 3])
    assert one.above(2.5) == pytest.approx(25)


def test_two_groups_have_the_quantiles_worked_out_by_hand():
    # 100 records from 0 to 1 s, 300 from 1 to 2 s
    two = latencies((1, 2, 300), (0, 1, 100))
    assert two.quantiles([0.25, 0.5, 1]) == pytest.approx([1, 1 + 1 / 3, 2])
    assert two.above(1) == pytest.approx(300)


def test_records_at_one_time_have_one_latency_and_no_records_have_none():
    assert latencies((2, 2, 10)).quantiles([0.1, 0.9]) == pytest.approx([2, 2])
    assert np.isnan(latencies((2, 3, 0)).quantiles([0.5])).all()
    assert latencies((2, 3, 0)).above(1) == 0


@given(groups, st.floats(0.01, 0.99))
def test_as_many_records_are_above_a_quantile_as_it_says(drawn, share):
    mixture = latencies(*((low, low + width, records) for low, width, records in drawn))
    total = mixture.records.sum()
    if total:
        above = mixture.above(float(mixture.quantiles([share])[0]))
        assert above == pytest.approx((1 - share) * total, rel=1e-3, abs=1e-3 * total)
