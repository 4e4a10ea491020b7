"""The least cost with the load known, and so many late batches, changes and reversals at most."""

from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import numpy as np
import pytest

from millrace_operator.scaling.shape import Bounds, Range
from millrace_research.arena.known_job import KnownJob
from millrace_research.arena.policies import limited as module
from millrace_research.arena.policies.limited import ChangeLimits, LimitedRun, limited
from millrace_research.arena.policies.oracle import Batches, bound
from millrace_research.arena.scenarios import KEYS, ScenarioSetting, recorded, synthetic
from millrace_research.arena.simulation import traces
from millrace_research.arena.simulation.cluster import ClusterProfile, Fleet
from millrace_research.arena.simulation.keys import always
from millrace_research.arena.simulation.run import Scenario

WITHIN = 5.0
"""Seconds within which a change is a reversal, in a run of a few batches."""


@pytest.fixture
def short(monkeypatch):
    """Makes changes reversals within ``WITHIN`` seconds instead of minutes."""
    monkeypatch.setattr(module, "REVERSED_WITHIN", WITHIN)


@cache
def few(seed, count=7, lost_every=None, start=1.0):
    """Batches whose rates jump, for up to three executors, which may be lost."""
    rates = np.random.default_rng(seed).uniform(1e5, 8e5, count + 1)
    trace = traces.trace("few", [(2.0 * number, rate) for number, rate in enumerate(rates)])
    bounds = Bounds(Range(1, 3), Range(2, 24), Range(1, 24), 2)
    scenario = Scenario("few", trace, always(KEYS), bounds, None)
    cluster = replace(scenario.cluster, start_seconds=start, drain_seconds=0.5, lost_every=lost_every)
    scenario = replace(scenario, cluster=cluster)
    return Batches(scenario, KnownJob(scenario.job, bounds), seed)


def counted(batches, sizes):
    """Late batches, changes, reversals and core-seconds of a run, counted batch by batch."""
    late, cost, changes = 0.0, 0.0, []
    for number, size in enumerate(sizes):
        before = sizes[number - 1] if number else size
        seconds = batches.seconds if size == before else batches.warming if size > before else batches.draining
        if seconds[number, size] > batches.interval:
            late += 1
        elif batches.rows[number] and (size == 0 or seconds[number, size - 1] > batches.interval):
            late += batches.missing[size]
        cost += batches.paid[before, size] + batches.interval * batches.executors[size] * 2
        if size != before:
            requested = number * batches.interval - (batches.starting if size > before else 0.0)
            changes.append((requested, size > before))
    reversals = sum(up != again and later - first <= WITHIN for (first, up), (later, again) in pairwise(changes))
    return (late, len(changes), reversals), cost


@cache
def every_run(seed, **cluster):
    batches = few(seed, **cluster)
    return [counted(batches, sizes) for sizes in product(range(3), repeat=len(batches.rows))]


@pytest.mark.parametrize("cluster", [{}, {"lost_every": 4.0, "start": 4.5}])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("prices", [(0.0, 0.0, 0.0), (30.0, 1.0, 0.0), (8.0, 0.5, 6.0), (1000.0, 4.0, 30.0)])
def test_at_any_prices_it_is_the_best_of_all_runs(short, seed, prices, cluster):
    batches = few(seed, **cluster)
    run = module._Prices(batches).cheapest(np.array(prices))
    counts, cost = counted(batches, run.sizes.tolist())
    assert (run.counts, run.core_seconds) == (pytest.approx(counts), pytest.approx(cost))
    assert cost + np.dot(prices, counts) == pytest.approx(
        min(cost + np.dot(prices, counts) for counts, cost in every_run(seed, **cluster))
    )


def test_the_share_of_the_time_that_executors_are_missing_is_that_of_a_simulated_cluster():
    batches = few(0, lost_every=100.0, start=14.0)
    profile = ClusterProfile(start_seconds=14.0, start_scatter=ClusterProfile().start_scatter, lost_every=100.0)
    for executors, share in zip(batches.executors.tolist(), batches.missing.tolist(), strict=True):
        fleet = Fleet(profile, executors, np.random.default_rng(1))
        lacking = 0
        for second in range(20_000):
            fleet.advance(float(second))
            lacking += fleet.pending_since is not None and second - fleet.pending_since >= 2 * batches.interval
        assert lacking / 20_000 == pytest.approx(share, rel=0.15)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [(0, 2), (1, 0), (2, 1), (8, 8)])
def test_the_best_run_within_limits_lies_between_what_is_proven_and_what_is_found(short, seed, most):
    batches = few(seed)
    limits = ChangeLimits(module._Prices(batches).constant(2).counts.late + 1, *most)
    run, proven = limited(batches, limits)
    least = min(
        cost
        for counts, cost in every_run(seed)
        if all(count <= limit for count, limit in zip(counts, limits, strict=True))
    )
    assert run.within(limits)
    assert proven - 1e-6 <= least <= run.core_seconds + 1e-6
    assert proven > 0.6 * least


def test_without_limits_on_changes_it_costs_what_the_oracle_costs():
    scenario = synthetic("spike", ScenarioSetting())
    job = KnownJob(scenario.job, scenario.bounds)
    oracle = bound(scenario, job, 0)
    late = float((oracle.seconds > oracle.interval).sum())
    run, proven = limited(Batches(scenario, job, 0), ChangeLimits(late, 1e6, 1e6))
    assert run.core_seconds == pytest.approx(oracle.core_seconds, rel=0.01)
    assert proven == pytest.approx(oracle.core_seconds, rel=0.01)


def test_more_limits_cost_more():
    trace = traces.sawtooth(1.0, 5.0, 900.0, 3600.0)
    scenario = recorded(trace, ScenarioSetting(max_executors=4))
    batches = Batches(scenario, KnownJob(scenario.job, scenario.bounds), 0)
    costs = [limited(batches, ChangeLimits(20, most, 0))[0].core_seconds for most in (12, 5, 1)]
    assert costs == sorted(costs)
    assert costs[-1] > costs[0] * 1.02


def test_limits_that_the_most_executors_break_are_refused():
    batches = few(0)
    with pytest.raises(ValueError, match="late on the most executors"):
        limited(batches, ChangeLimits(-1, 8, 8))


def test_a_run_that_breaks_one_limit_is_not_within_them():
    run = LimitedRun(np.zeros(1, dtype=np.int64), ChangeLimits(1, 2, 3), 1.0)
    assert run.within(ChangeLimits(1, 2, 3))
    assert not any(
        run.within(ChangeLimits(1, 2, 3)._replace(**{name: 0.5})) for name in ("late", "changes", "reversals")
    )
