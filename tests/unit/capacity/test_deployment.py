"""Plans for a query that is not deployed yet, against a job whose costs are known."""

from dataclasses import replace

import pytest

from millrace_operator.capacity.deployment import Deployment
from millrace_operator.scaling.shape import Bounds, Range, Shape
from unit.scaling.true_job import INTERVAL, PARTITIONS, TrueJob, plan

BOUNDS = Bounds(Range(1, 8), Range(1, 64), Range(1, 64), executor_cores=2)
TARGET = 0.9


def deployment(job=None, bounds=BOUNDS, plans=None):
    """A query whose costs were measured on up to four cores."""
    job = job or TrueJob(noise=0.02)
    designed = plans or [plan(4, 8, 4), plan(1, 2, 1), plan(4, 16, 4), plan(1, 16, 4)]
    seen = [job.observe(shape, rows, batches=1) for shape in designed for rows in (4e5, 1.2e6, 4e5)]
    return Deployment(seen, PARTITIONS, bounds, Shape(1, 4, 2), INTERVAL, TARGET, PARTITIONS)


def test_a_rate_gets_the_fewest_executors_that_keep_batches_short():
    found = deployment().forecast(5e5)
    true = TrueJob()
    shape = found.plan.plan
    in_cores = replace(shape, executors=shape.executors * 2)
    assert true.mean_seconds(in_cores, 5e5 * INTERVAL) / INTERVAL == pytest.approx(found.plan.utilization, rel=0.15)
    fewer = replace(in_cores, executors=in_cores.executors - 2, parallelism=3 * (in_cores.executors - 2))
    assert true.mean_seconds(fewer, 5e5 * INTERVAL) / INTERVAL > TARGET


def test_certainty_takes_at_least_as_many_executors():
    found = deployment().forecast(5e5)
    assert found.sure.plan.executors >= found.plan.plan.executors
    assert found.sure.high <= TARGET


def test_few_plans_are_less_certain():
    many, one = deployment(), deployment(plans=[plan(4, 8, 4)])
    width = [each.forecast(3e5).nearest for each in (many, one)]
    assert width[1].high / width[1].low > width[0].high / width[0].low


def test_the_highest_rate_of_the_ladder_is_within_the_bounds_and_no_higher_one_is():
    query = deployment()
    rates = query.rates()
    assert rates == sorted(rates)
    assert query.forecast(rates[-1]).plan.plan.executors == 8
    assert query.forecast(rates[-1] * 1.15).plan is None


def test_a_rate_beyond_the_bounds_gets_the_bounds_that_would_do():
    query = deployment()
    found = query.forecast(query.rates()[-1] * 1.5)
    assert found.plan is None
    assert found.beyond.plan.executors > 8
    assert found.nearest.utilization > TARGET


def test_a_batch_that_is_mostly_serial_is_helped_by_no_executor():
    query = deployment(TrueJob(fixed=12.0))
    found = query.forecast(1000.0)
    assert (found.plan, found.beyond) == (None, None)
    assert found.cause == "fixed"
    assert found.shortest == pytest.approx(12.0, rel=0.1)


def test_a_hot_key_sets_the_shortest_batch():
    rate = 4e5
    found = deployment(TrueJob(hot=0.5)).forecast(rate)
    assert found.cause == "combine"
    assert found.shortest > 0.5 * TrueJob().combine_record * rate * INTERVAL * 0.8
    assert found.plan is None


def test_the_costs_are_those_of_the_job():
    costs = {cost.of: cost for cost in deployment().costs()}
    fixed = costs["a batch, whatever it has"]
    assert fixed.low < TrueJob().fixed < fixed.high
    assert costs["a record that is combined"].seconds == pytest.approx(TrueJob().combine_record, rel=0.3)


def test_what_was_not_measured_is_said():
    found = deployment().forecast(8e5)
    assert [text.split(", of ")[1] for text in found.extrapolates] == ["1,200,000 measured", "4 measured"]
    assert deployment().forecast(2e4).extrapolates == ()


def test_fewer_state_partitions_were_measured_than_there_will_be():
    query = deployment()
    more = replace(query, state_partitions=64)
    assert more.forecast(1e4).shortest > query.forecast(1e4).shortest
