import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.arena.simulation.cluster import ClusterProfile, Fleet

EXACT = ClusterProfile(start_seconds=20, start_scatter=0, drain_seconds=6)


def a_fleet(size=2, seed=0, **changes):
    return Fleet(replace(EXACT, **changes), size, np.random.default_rng(seed))


def test_the_first_pods_are_there_and_others_take_their_time():
    fleet = a_fleet(2)
    assert (fleet.ready, fleet.pending_since) == (2, None)
    fleet.resize(4, now=10)
    assert (fleet.ready, fleet.pending_since, fleet.next_event) == (2, 10, 30)
    fleet.advance(29.9)
    assert fleet.ready == 2
    fleet.advance(30)
    assert (fleet.ready, fleet.pending_since, fleet.started) == (4, None, 2)


def test_pod_seconds_are_those_worked_out_by_hand():
    fleet = a_fleet(2)
    fleet.resize(3, now=10)  # asked for at 10, ready at 30
    fleet.resize(1, now=50)  # two drain until 56
    fleet.advance(100)
    assert (fleet.ready, fleet.draining) == (1, 0)
    assert fleet.seconds(100) == 100 + 56 + (56 - 10)


def test_draining_pods_run_no_tasks_and_still_cost():
    fleet = a_fleet(3)
    fleet.resize(1, now=5)
    assert (fleet.ready, fleet.draining) == (1, 2)
    assert fleet.seconds(8) == 24
    fleet.advance(11)
    assert (fleet.ready, fleet.draining) == (1, 0)
    assert fleet.seconds(20) == 20 + 11 + 11


def test_pods_that_have_not_come_are_cancelled_first():
    fleet = a_fleet(2)
    fleet.resize(5, now=0)
    fleet.resize(2, now=10)
    assert (fleet.ready, fleet.draining, fleet.pending_since) == (2, 0, None)
    fleet.advance(100)
    assert fleet.ready == 2
    assert fleet.seconds(10) == 2 * 10 + 3 * 10
    assert fleet.seconds(100) == 2 * 100 + 3 * 10


def test_starting_times_scatter_around_their_median():
    fleet = a_fleet(1, start_scatter=0.3)
    fleet.resize(2001, now=0)
    fleet.advance(20)
    assert fleet.ready == pytest.approx(1001, abs=80)
    fleet.advance(20 * math.exp(0.3))
    assert fleet.ready == pytest.approx(2001 * 0.841, abs=80)


def test_a_pod_that_never_comes_stays_pending_and_costs_nothing():
    fleet = a_fleet(1, never=1.0)
    fleet.resize(2, now=10)
    fleet.advance(10_000)
    assert (fleet.ready, fleet.pending_since) == (1, 10)
    assert fleet.seconds(10_000) == 10_000
    fleet.resize(1, now=10_000)
    assert fleet.pending_since is None


def test_more_than_the_quota_is_not_created():
    fleet = a_fleet(2, quota=3)
    fleet.resize(8, now=0)
    fleet.advance(100)
    assert (fleet.ready, fleet.pending_since) == (3, None)
    assert a_fleet(9, quota=3).ready == 3


def test_lost_pods_are_replaced():
    fleet = a_fleet(4, lost_every=500)
    for now in range(0, 50_000, 10):
        fleet.advance(now)
        assert fleet.ready <= 4
    assert fleet.lost == pytest.approx(4 * 50_000 / 520, rel=0.15)
    assert fleet.started >= fleet.lost - 4


def test_a_pod_that_leaves_is_not_lost_besides():
    fleet = a_fleet(8, lost_every=50)
    fleet.resize(1, now=0)
    fleet.advance(6)
    before = fleet.lost
    assert fleet.draining == 0
    assert before <= 1


moves = st.lists(st.tuples(st.floats(0, 60), st.integers(1, 9)), max_size=12)


@given(moves, st.integers(0, 99), st.sampled_from([None, 40.0]), st.sampled_from([0.0, 0.5]))
def test_pods_are_never_more_than_asked_for_and_all_come_in_the_end(steps, seed, lost_every, never):
    fleet = a_fleet(3, seed, lost_every=lost_every, never=never, start_scatter=0.5)
    now, wanted = 0.0, 3
    for wait, size in steps:
        now += wait
        fleet.advance(now)
        assert fleet.ready <= wanted
        before = fleet.seconds(now)
        fleet.resize(size, now)
        wanted = size
        assert fleet.seconds(now) == pytest.approx(before)
    if lost_every is None and not never:
        fleet.advance(now + 1000)
        assert (fleet.ready, fleet.pending_since, fleet.draining) == (wanted, None, 0)
