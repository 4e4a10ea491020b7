"""``auto`` for joins: hot keys leave their buckets when that is worth it, and come back when they are no longer hot."""

import pytest

from millrace_jobs.partitioners.hash import Hash
from millrace_jobs.partitioners.hot_key_units import CHUNK
from millrace_jobs.selection.costs import JoinLoad, MeasuredBatch, Resources
from millrace_jobs.selection.join_forecast import JOIN_CANDIDATES, JOIN_MARGIN, JoinForecaster
from millrace_jobs.selection.selector import Selector

TASKS, BUCKETS = 4, 16


def loads(hot=(), *, rows=1000, pairs=1000, stage=0):
    """The loads of all buckets of a join; the first one also has hot keys."""
    even = [JoinLoad(stage, bucket % TASKS, bucket, rows, pairs) for bucket in range(1, BUCKETS)]
    return (JoinLoad(stage, 0, 0, rows, pairs + sum(hot), tuple(hot)), *even)


def batch(number, algorithm, joins, seconds=1.0, merge=0.0):
    return MeasuredBatch(number, algorithm, 8, 2, 16_000, seconds, 0.0, merge, 0, (), None, joins=joins)


def forecast(joins, seconds=12.0, cores=8):
    return JoinForecaster().forecast([batch(1, "hash", joins, seconds)], Resources(cores, TASKS))


def selector(first="hash", cores=8):
    return Selector(JoinForecaster(), Resources(cores, TASKS), first, apart=Hash.NAME, margin=JOIN_MARGIN)


def switches(chosen, joins, batches, seconds, start=0):
    """Run batches that take the given seconds under each algorithm; return the switches."""
    made = []
    for number in range(start, start + batches):
        switch = chosen.observe(batch(number, chosen.algorithm, joins, seconds(chosen.algorithm)))
        if switch is not None:
            made.append(switch)
    return made


def test_uniform_keys_stay_in_their_buckets():
    found = forecast(loads(rows=100_000, pairs=300_000), cores=TASKS)
    assert min(found.values(), key=lambda candidate: candidate.time.total).algorithm == "hash"


def test_a_hot_key_is_better_spread():
    found = forecast(loads([200 * CHUNK]))
    assert set(found) == set(JOIN_CANDIDATES)
    assert found["shuffle"].time.total < found["pkg"].time.total < found["hash"].time.total
    assert found["hash"].imbalance > 3 > 1 > found["shuffle"].imbalance
    assert (found["hash"].aggregation_cost, found["shuffle"].aggregation_cost) == (0, 8)
    assert found["hash"].time.total == pytest.approx(12.0), "the rest is what the batch really took"


@pytest.mark.parametrize("algorithm", ["shuffle", "pkg"])
def test_two_cores_share_a_hot_key_evenly(algorithm):
    found = forecast(loads([200 * CHUNK]), cores=2)
    assert found["hash"].imbalance > 0.8
    assert found[algorithm].imbalance < 0.1
    assert found[algorithm].time.total < found["hash"].time.total


def test_on_one_core_nothing_is_gained():
    found = forecast(loads([200 * CHUNK]), cores=1)
    assert min(found.values(), key=lambda candidate: candidate.time.total).algorithm == "hash"


def test_the_time_of_the_tasks_with_state_sets_the_costs():
    joins = loads([200 * CHUNK])
    forecaster, resources = JoinForecaster(), Resources(8, TASKS)
    expected = forecaster.forecast([batch(1, "hash", joins, 12.0)], resources)["hash"].time.combine
    found = forecaster.forecast([batch(2, "hash", joins, 3.0, merge=1.0)], resources)
    assert found["hash"].time.combine < expected / 5
    assert found["hash"].time.rest > 0
    assert found["shuffle"].time.total < found["pkg"].time.total < found["hash"].time.total


def test_joins_of_a_chain_add_up():
    one, two = forecast(loads([50 * CHUNK]), 0.0), forecast(loads([50 * CHUNK]) + loads([50 * CHUNK], stage=1), 0.0)
    assert two["shuffle"].time.stages == pytest.approx(2 * one["shuffle"].time.stages)


def test_a_join_is_split_when_a_key_becomes_hot_and_back():
    chosen = selector()
    even = loads(rows=20_000, pairs=20_000)
    assert not switches(chosen, even, 10, lambda _: 1.0)
    (switch,) = switches(chosen, loads([200 * CHUNK]), 40, lambda name: 10.0 if name == "hash" else 2.0, start=10)
    assert (switch.before.algorithm, switch.reason) == ("hash", "imbalance")
    assert "the busiest core has 6" in str(switch)
    assert switch.after.algorithm == chosen.algorithm != "hash"
    back = switches(chosen, even, 40, lambda name: 1.0 if name == "hash" else 1.5, start=50)
    assert [switch.after.algorithm for switch in back] == ["hash"]


def test_an_algorithm_that_disappoints_is_left():
    chosen = selector()
    made = switches(chosen, loads([200 * CHUNK]), 60, lambda name: 10.0 if name == "hash" else 14.0)
    assert [switch.after.algorithm == "hash" for switch in made] == [False, True]


def test_memory_is_bounded():
    forecaster = JoinForecaster()
    for number in range(500):
        forecaster.forecast([batch(number, "hash", loads())], Resources(4, TASKS))
    assert len(forecaster._works) == len(forecaster.residuals.batches) == 64
