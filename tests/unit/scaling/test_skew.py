import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.scaling.batch_time.skew import Skew, chance, hot_share

NS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def hashed_imbalance(shares, tasks, rng):
    loads = np.bincount(rng.integers(0, tasks, len(shares)), weights=shares, minlength=tasks)
    return loads.max() / loads.mean() - 1


def test_one_hot_key_is_found_at_any_number_of_tasks():
    share = 0.3  # of the records, spread evenly beside it
    for measured in (2, 4, 16):
        largest = share + (1 - share) / measured
        skew = Skew({measured: largest * measured - 1})
        expected = (share + (1 - share) / NS) * NS - 1
        assert skew.imbalance(NS) == pytest.approx(expected)


def test_a_measured_imbalance_is_given_back():
    skew = Skew({2: 0.1, 8: 1.7, 32: 3.0}, keys=500)
    assert skew.imbalance(np.array([2.0, 8.0, 32.0])) == pytest.approx([0.1, 1.7, 3.0], rel=0.02)


def test_nothing_measured_is_even():
    assert Skew().imbalance(NS).tolist() == [0.0] * len(NS)


def test_one_task_has_everything_and_tells_nothing():
    assert hot_share(0.0, 1) == 0
    assert Skew({1: 0.0}).imbalance(NS).tolist() == [0.0] * len(NS)


def test_equal_keys_are_uneven_by_chance_alone():
    rng = np.random.default_rng(3)
    shares = np.ones(2000)
    four = np.mean([hashed_imbalance(shares, 4, rng) for _ in range(200)])
    sixteen = np.mean([hashed_imbalance(shares, 16, rng) for _ in range(200)])
    assert float(Skew({4: four}, keys=2000).imbalance(np.array(16.0))) == pytest.approx(sixteen, abs=0.05)


@pytest.mark.parametrize("exponent", [0.8, 1.2, 2.0])
@pytest.mark.parametrize("measured", [4, 8])
def test_keys_by_zipf_are_about_right_at_twice_the_tasks(exponent, measured):
    rng = np.random.default_rng(5)
    shares = np.arange(1, 5001.0) ** -exponent
    pairs = []
    for _ in range(100):
        skew = Skew({measured: hashed_imbalance(shares, measured, rng)}, keys=5000)
        pairs.append((float(skew.imbalance(np.array(2.0 * measured))), hashed_imbalance(shares, 2 * measured, rng)))
    predicted, real = np.mean(pairs, axis=0)
    assert (1 + predicted) / (1 + real) == pytest.approx(1, abs=0.2)


def test_the_chance_of_few_groups_is_that_of_random_placement():
    rng = np.random.default_rng(4)
    for groups, tasks in ((50, 2), (200, 4), (1000, 16)):
        real = np.mean([hashed_imbalance(np.ones(groups), tasks, rng) for _ in range(300)])
        assert float(chance(np.array(float(groups)), np.array(float(tasks)))) == pytest.approx(real, rel=0.15)


@given(
    st.dictionaries(st.integers(1, 64), st.floats(0, 63), max_size=5),
    st.none() | st.floats(1, 1e9),
    st.integers(1, 512),
)
def test_no_task_has_more_than_everything(measured, keys, tasks):
    found = float(Skew(measured, keys).imbalance(np.array(float(tasks))))
    assert 0 <= found <= tasks - 1
