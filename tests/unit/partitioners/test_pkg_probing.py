"""Probing (paper 001, the evaluation's Q2): sources that receive the true loads from time to time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.pkg import PartialKeyGrouping

from .oracles import partial_key_grouping
from .streams import keys, workers, zipf


def pkg(n):
    return PartialKeyGrouping(workers=n, seed=1, choices=2, slides=0)


def simulate(stream, n, sources, period=None):
    """The loads after ``sources`` have taken turns on ``stream``, probing every ``period`` records, if at all."""
    replicas, loads = [pkg(n) for _ in range(sources)], np.zeros(n, np.int64)
    for part in np.split(stream, range(period, len(stream), period) if period else []):
        for at, replica in enumerate(replicas):
            loads += np.bincount(replica.route(part[at::sources]), minlength=n)
        for replica in replicas if period else []:
            replica.probe(loads)
    return loads


@given(keys, keys, workers, st.data())
def test_pkg_goes_on_from_the_true_loads(before, after, n, data):
    loads = data.draw(st.lists(st.integers(0, 2**40), min_size=n, max_size=n))
    partitioner = pkg(n)
    partitioner.route(before)
    partitioner.probe(np.array(loads))
    assert partitioner.loads.tolist() == [load - min(loads) for load in loads]
    assert partitioner.route(after).tolist() == partial_key_grouping(after.tolist(), n, 1, 2, loads)


@given(keys, keys, workers)
def test_a_source_that_probes_its_own_loads_decides_as_before(before, after, n):
    probing, plain = pkg(n), pkg(n)
    probing.probe(np.bincount(probing.route(before), minlength=n))
    plain.route(before)
    assert probing.route(after).tolist() == plain.route(after).tolist()


@given(st.lists(keys, min_size=2, max_size=3), keys, workers)
def test_what_came_by_probing_counts_once_in_a_merge(before, after, n):
    replicas = [pkg(n) for _ in before]
    total = sum(np.bincount(r.route(stream), minlength=n) for r, stream in zip(replicas, before, strict=True))
    for replica in replicas:
        replica.probe(total)
    total = total + np.bincount(replicas[-1].route(after), minlength=n)
    replicas[0].merge(replicas[1:])
    assert replicas[0].loads.tolist() == (total - total.min()).tolist()


def test_the_given_loads_stay_the_callers():
    partitioner, loads = pkg(3), np.array([5, 5, 9])
    partitioner.probe(loads)
    partitioner.route(np.arange(21, dtype=np.uint64))
    assert loads.tolist() == [5, 5, 9]
    loads[:] = 0
    assert partitioner.loads.sum() > 0


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_probing_balances_no_better_than_local_estimates(exponent):
    """With 5 sources, as in the paper: all of them make up at once for the lead that all of them learn of."""
    stream = zipf(rows=100_000, distinct=10_000, exponent=exponent)
    local, probing = simulate(stream, 8, 5), simulate(stream, 8, 5, period=5000)
    assert local.max() - local.mean() < 20
    assert probing.max() - probing.mean() > 5 * (local.max() - local.mean())
    assert probing.max() < 1.1 * probing.mean()


@pytest.mark.parametrize("bad", [[1, 2], [1, 2, -1], [[1, 2, 3]], []])
def test_loads_of_another_form_are_refused_and_leave_no_trace(bad):
    partitioner = pkg(3)
    with pytest.raises(ValueError, match=r"loads are .*; write 3 numbers that are not negative"):
        partitioner.probe(np.array(bad, np.int64))
    assert partitioner.save() == pkg(3).save()
