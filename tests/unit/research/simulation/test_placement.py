import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.arena.simulation.keys import Keys, frequencies
from millrace_research.arena.simulation.placement import (
    SimulatedPartitioner,
    _filled,
    key_shares,
    merge_shares,
    row_shares,
)

HASH, PKG, SHUFFLE = SimulatedPartitioner
some_keys = st.builds(Keys, st.integers(1, 3000), st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([0.0, 0.4]))


def imbalance(shares):
    return max(shares) * len(shares) - 1


@given(st.sampled_from(SimulatedPartitioner), some_keys, st.integers(1, 20))
def test_shares_are_shares(partitioner, keys, n):
    for shares in (row_shares(partitioner, keys, n), key_shares(partitioner, keys, n), merge_shares(keys, n)):
        assert len(shares) == n
        assert min(shares) >= 0
        assert sum(shares) == pytest.approx(1)


def test_a_hot_key_is_on_one_task_by_hash_and_on_two_by_pkg():
    keys = Keys(5000, hot=0.8)
    assert max(row_shares(HASH, keys, 10)) > 0.8
    two, rest = np.split(np.sort(row_shares(PKG, keys, 10))[::-1], [2])
    assert two == pytest.approx([0.4, 0.4], abs=0.003)
    assert rest == pytest.approx([0.025] * 8, abs=0.003)
    assert row_shares(SHUFFLE, keys, 10) == (0.1,) * 10


@given(some_keys, st.integers(1, 20))
def test_two_choices_are_as_even_as_hash_but_for_a_key_and_no_better_than_the_hottest_one_allows(keys, n):
    hottest = float(frequencies(keys)[0])
    assert max(row_shares(PKG, keys, n)) <= max(row_shares(HASH, keys, n)) + hottest
    assert max(row_shares(PKG, keys, n)) >= max(1 / n, frequencies(keys)[0] / 2) - 1e-9


def test_another_salt_puts_the_hot_key_elsewhere():
    places = {int(np.argmax(row_shares(HASH, Keys(1000, hot=0.5, salt=salt), 8))) for salt in range(20)}
    assert len(places) > 4


def test_hashing_is_about_as_uneven_as_chance():
    loads = np.array(row_shares(HASH, Keys(10_000), 10)) * 10_000
    assert 15 < loads.std() < 60  # a binomial has 30


@pytest.mark.parametrize(
    ("loads", "more", "wanted"),
    [([3, 1, 2], 0, [3, 1, 2]), ([3, 1, 2], 1, [3, 2, 2]), ([3, 1, 2], 2, [3, 2.5, 2.5]), ([3, 1, 2], 6, [4, 4, 4])],
)
def test_what_is_poured_in_fills_the_valleys(loads, more, wanted):
    assert _filled(np.array(loads, dtype=float), more) == pytest.approx(wanted)


def really_placed(partitioner, drawn, n):
    """The task of each record, one after the other; two choices by loads of all records before."""
    rng = np.random.default_rng(6)
    if partitioner is SHUFFLE:
        return np.arange(len(drawn)) % n
    choices = rng.integers(n, size=(drawn.max() + 1, 2))
    choices[:, 1] = np.where(choices[:, 0] == choices[:, 1], (choices[:, 1] + 1) % n, choices[:, 1])
    if partitioner is HASH:
        return choices[drawn, 0]
    loads, tasks = [0] * n, []
    for a, b in choices[drawn].tolist():
        tasks.append(a if loads[a] <= loads[b] else b)
        loads[tasks[-1]] += 1
    return np.array(tasks)


@pytest.mark.parametrize("keys", [Keys(2000), Keys(500, exponent=1.0), Keys(2000, exponent=2.0), Keys(2000, hot=0.5)])
@pytest.mark.parametrize("partitioner", SimulatedPartitioner)
def test_partial_results_are_those_of_records_that_were_really_placed(partitioner, keys):
    rows, n = 20_000, 8
    drawn = np.random.default_rng(5).choice(keys.distinct, size=rows, p=frequencies(keys))
    tasks = really_placed(partitioner, drawn, n)
    partials = len(np.unique(drawn * n + tasks))
    assert partitioner.partials(keys, rows, n) == pytest.approx(partials, rel=0.15)


def test_one_task_has_each_key_once():
    keys = Keys(500, exponent=1.0)
    assert len({partitioner.partials(keys, 1000, 1) for partitioner in SimulatedPartitioner}) == 1


def test_two_choices_leave_the_tasks_of_a_hot_key_to_it():
    keys = Keys(5000, hot=0.8)
    rows, partials = (np.array(shares(PKG, keys, 10)) for shares in (row_shares, key_shares))
    assert set(np.argsort(partials)[:2]) == set(np.argsort(rows)[-2:])
    assert np.sort(partials)[1] < 0.03
