import json
from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.demand import Demand
from millrace_operator.scaling.observation import Observation
from millrace_operator.scaling.shape import Shape

SEEN = Observation(0.0, 10.0, 0, Shape(2, 4, 4), 5, 2.0, seconds=1.5, rows=2e4, arrival=1e4, lag=0.0)


def seeing(*rates, delay=180.0):
    demand = Demand(delay)
    for rate in rates:
        demand.add(replace(SEEN, arrival=rate, rows=2 * rate))
    return demand


def underused(demand, required, since=0, until=200, every=5):
    for now in range(since, until + 1, every):
        demand.remember(now, required(now), underused=True)
    return demand


def test_one_odd_rate_is_not_the_level():
    assert seeing(1e4, 1e4, 5e4).level == 1e4
    assert seeing(1e4, 5e4, 5e4).level == 5e4


def test_the_records_of_two_intervals_are_no_backlog():
    demand = seeing(1e4)
    assert demand.backlog == 0
    demand.add(replace(SEEN, lag=2e4))
    assert demand.backlog == 0
    demand.add(replace(SEEN, lag=2.5e4))
    assert demand.backlog == 5e3


def test_records_of_an_overlong_batch_are_backlog_as_those_that_wait():
    demand = seeing(1e4)
    demand.add(replace(SEEN, rows=9e4))
    assert demand.backlog == 5e4


@pytest.mark.parametrize(
    ("lag", "coming", "required"),
    [
        (0, 0, 1e4),
        (0, 1.3e4, 1.3e4),
        (1.4e5, 0, 1.12e4),  # 120,000 records beyond those of two intervals, in 100 s
        (1.4e5, 1.3e4, 1.3e4),
    ],
)
def test_growth_and_backlog_are_required_besides_what_comes(lag, coming, required):
    demand = seeing(1e4)
    demand.add(replace(SEEN, lag=lag))
    assert demand.required(coming, drain_seconds=100) == pytest.approx(required)


def test_the_largest_demand_of_the_delay_counts():
    demand = underused(Demand(180.0), lambda now: 3e4 if now == 100 else 1e4)
    assert demand.largest(200, 180.0) == 3e4


def test_nothing_is_known_before_the_job_has_been_underused_for_the_delay():
    demand = underused(Demand(180.0), lambda now: 1e4, until=175)
    assert demand.largest(175, 180.0) is None
    underused(demand, lambda now: 1e4, since=180, until=180)
    assert demand.largest(180, 180.0) == 1e4


def test_a_moment_of_other_use_does_not_restart_the_delay():
    demand = underused(Demand(180.0), lambda now: 1e4, until=100)
    demand.remember(105, 1e4, underused=False)
    underused(demand, lambda now: 1e4, since=110, until=185)
    assert demand.largest(185, 180.0) == 1e4


def test_longer_use_restarts_the_delay():
    demand = underused(Demand(180.0), lambda now: 1e4, until=100)
    for now in range(105, 125, 5):
        demand.remember(now, 1e4, underused=False)
    underused(demand, lambda now: 1e4, since=125, until=200)
    assert demand.largest(200, 180.0) is None


def test_a_demand_falls_while_its_largest_is_that_of_the_beginning():
    falling = underused(Demand(180.0), lambda now: 3e4 if now < 40 else 1e4)
    assert falling.falling(200, 180.0)
    assert falling.largest(200, 180.0) == 3e4
    underused(falling, lambda now: 1e4, since=205, until=240)
    assert not falling.falling(240, 180.0)
    assert falling.largest(240, 180.0) == 1e4


def test_a_gap_restarts_the_delay():
    demand = underused(Demand(180.0), lambda now: 1e4, until=100)
    underused(demand, lambda now: 1e4, since=400, until=500)
    assert demand.largest(500, 180.0) is None


def test_memory_is_bounded_and_survives_a_restart():
    demand = underused(seeing(1e4, 2e4, 3e4), lambda now: 1e4 + now % 7, until=5000)
    saved = json.loads(json.dumps(demand.save()))
    assert len(json.dumps(saved)) < 1000
    other = Demand(180.0)
    other.restore(saved)
    assert other.largest(5000, 180.0) == demand.largest(5000, 180.0) == 10006
    other.add(SEEN)
    demand.add(SEEN)
    assert other.level == demand.level == 2e4


def test_a_demand_that_has_seen_nothing_can_be_saved():
    other = Demand(180.0)
    other.restore(json.loads(json.dumps(Demand(180.0).save())))
    assert other.largest(0, 180.0) is None
