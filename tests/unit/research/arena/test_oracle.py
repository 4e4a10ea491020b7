"""The oracle: a bound of what any policy can do, by dynamic programming over the batches."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from millrace_operator.scaling.shape import Bounds, Range
from millrace_research.arena.comparison import compare
from millrace_research.arena.known_job import KnownJob
from millrace_research.arena.policies.oracle import Batches, bound
from millrace_research.arena.scenarios import KEYS, ScenarioSetting, recorded, synthetic
from millrace_research.arena.simulation import traces
from millrace_research.arena.simulation.keys import always
from millrace_research.arena.simulation.run import Scenario

RIVALS = ["millrace", "cpu", "lag", "fixed-peak"]


def few(seed=0, sizes=3, batches=7, **cluster):
    """A scenario of a few batches whose rates jump, for up to three executors."""
    rates = np.random.default_rng(seed).uniform(1e5, 8e5, batches + 1)
    trace = traces.trace("few", [(2.0 * number, rate) for number, rate in enumerate(rates)])
    bounds = Bounds(Range(1, sizes), Range(2, 24), Range(1, 24), 2)
    initial = bounds.nearest(KnownJob(Scenario("", trace, always(KEYS), bounds, None).job, bounds).shape(1, KEYS))
    scenario = Scenario("few", trace, always(KEYS), bounds, initial)
    return replace(scenario, cluster=replace(scenario.cluster, **cluster))


def by_trying_all(batches, interval):
    """The fewest late batches, and the least core-seconds with them, over all ways to choose executors."""
    found = []
    for sizes in product(range(len(batches.executors)), repeat=len(batches.rows)):
        late = cost = 0
        for number, size in enumerate(sizes):
            before = sizes[number - 1] if number else size
            seconds = batches.seconds if size == before else batches.warming if size > before else batches.draining
            late += seconds[number, size] > interval
            cost += batches.paid[before, size] + interval * batches.executors[size] * 2
        found.append((late, cost))
    return min(found)


@pytest.mark.parametrize(("seed", "start"), [(0, 0.5), (1, 2.0), (2, 0.0), (3, 20.0), (4, 1.0)])
def test_it_is_the_best_of_all_ways_to_choose_executors(seed, start):
    scenario = few(seed, start_seconds=start, drain_seconds=start / 4)
    run = bound(scenario, KnownJob(scenario.job, scenario.bounds), seed)
    batches = Batches(scenario, KnownJob(scenario.job, scenario.bounds), seed)
    late, cost = by_trying_all(batches, scenario.job.interval)
    assert int((run.seconds > run.interval).sum()) == late
    assert run.core_seconds == pytest.approx(cost)


@pytest.mark.parametrize("name", ["step-down", "ramp"])
def test_no_batch_is_late_in_it_that_any_number_of_executors_could_have_kept_in_time(name):
    scenario = synthetic(name, ScenarioSetting())
    run = compare(scenario, ["oracle"], 0).runs[0]
    batches = Batches(scenario, KnownJob(scenario.job, scenario.bounds), 0)
    hopeless = (batches.seconds > run.interval).all(axis=1)
    assert (run.seconds > run.interval).sum() == hopeless.sum() < 10


@pytest.mark.parametrize("seed", [0, 1])
def test_no_policy_with_as_few_late_batches_costs_less(seed):
    trace = traces.diurnal(1.0, 5.0, duration=3600.0, period=3600.0)
    comparison = compare(recorded(trace, ScenarioSetting(max_executors=4, seed=seed)), [*RIVALS, "oracle"], seed)
    *rivals, oracle = comparison.figures
    assert all(found.violations >= oracle.violations for found in rivals)
    assert all(found.over_oracle > 1 for found in rivals if found.violations <= 0.01)
    assert any(found.violations <= 0.01 for found in rivals)


def test_executors_that_are_soon_needed_again_are_kept():
    scenario = synthetic("spike", ScenarioSetting())
    run = compare(scenario, ["oracle"], 0).runs[0]
    slow = replace(scenario, cluster=replace(scenario.cluster, start_seconds=600.0))
    kept = bound(slow, KnownJob(slow.job, slow.bounds), 0)
    assert len(kept.rescales) < len(run.rescales)
    assert kept.core_hours > run.core_hours
