import math
from dataclasses import replace

import numpy as np
import pytest

from millrace_operator.scaling.observation import Answer
from millrace_research.arena.simulation.metrics import COUNTERS, SERIES, Fault, FaultyTime, MetricsPath, MetricsProfile


def true_at(time, **changes):
    """What a job with a batch of 100 records every second says."""
    values = {"batches_total": time, "rows_total": 100 * time, "processing_seconds_total": time / 2, "keys": 50.0}
    return Answer(time, **(values | {"epoch": 0, "parallelism": 4, "replicas": 2, "executors": 3} | changes))


def a_path(*faults, **changes):
    faulty = tuple(FaultyTime(*fault) for fault in faults)
    return MetricsPath(MetricsProfile(faults=faulty, **({"delay_seconds": 0.0} | changes)), np.random.default_rng(0))


def read_at(path, now, answers):
    for answer in answers:
        path.scrape(answer)
    return path.read(now)


def every_five_seconds(until, since=0, **changes):
    return [true_at(time, **changes) for time in range(since, until + 1, 5)]


def test_the_newest_answer_is_read_once_it_has_arrived():
    path = a_path(delay_seconds=2.0)
    assert path.read(0) is None
    path.scrape(true_at(5))
    path.scrape(true_at(10))
    assert path.read(6.9) is None
    assert path.read(11).time == 5
    assert path.read(12).time == 10
    assert path.read(500).time == 10


def test_a_share_of_the_scrapes_fails():
    path = a_path(missing=0.3)
    got = 0
    for time in range(0, 5000, 5):
        path.scrape(true_at(time))
        got += path.read(time).time == time if time > 100 else 0
    assert got == pytest.approx(700, abs=50)


def test_unreachable_metrics_give_no_answer():
    path = a_path((Fault.UNREACHABLE, 20, 40))
    for answer in every_five_seconds(50):
        path.scrape(answer)
    assert path.read(19).time == 15
    assert path.read(20) is None
    assert path.read(40).time == 40


def test_a_gap_lets_the_last_answer_grow_old():
    path = a_path((Fault.GAP, 20, 40))
    assert read_at(path, 39, every_five_seconds(35)) == true_at(15)
    assert read_at(path, 40, [true_at(40)]) == true_at(40)


def test_absent_series_have_no_value():
    assert read_at(a_path((Fault.ABSENT, 20, 40)), 25, every_five_seconds(25)) == Answer(25)
    some = read_at(a_path((Fault.ABSENT, 20, 40, ("keys", "rows_total"))), 25, every_five_seconds(25))
    assert some == true_at(25, keys=None, rows_total=None)


def test_frozen_metrics_have_a_new_time_and_old_values():
    path = a_path((Fault.FROZEN, 20, 40))
    assert read_at(path, 35, every_five_seconds(35)) == replace(true_at(15), time=35)
    assert read_at(path, 40, [true_at(40)]) == true_at(40)


def test_metrics_frozen_from_the_start_keep_their_first_values():
    assert read_at(a_path((Fault.FROZEN, 0, 40)), 35, every_five_seconds(35)) == replace(true_at(0), time=35)


def test_delayed_answers_come_with_their_own_time():
    path = a_path((Fault.DELAYED, 100, 600))
    times = {}
    for time in range(0, 705, 5):
        path.scrape(true_at(time))
        times[time] = path.read(time).time
    assert times[395] == 95
    assert times[500] == 200
    assert times[595] == 295
    assert times[600] == 600
    assert times[700] == 700


def test_faulty_metrics_are_negative_or_not_a_number():
    negative = read_at(a_path((Fault.NEGATIVE, 20, 40, ("rows_total",))), 25, every_five_seconds(25))
    assert negative == true_at(25, rows_total=-2500)
    nan = read_at(a_path((Fault.NOT_A_NUMBER, 20, 40)), 25, every_five_seconds(25))
    present = [name for name in SERIES if getattr(true_at(25), name) is not None]
    assert all(math.isnan(getattr(nan, name)) for name in present)
    assert nan.lag_rows is None
    assert nan.time == 25


def test_counters_start_from_0_and_are_not_set_back():
    path = a_path((Fault.COUNTER_RESET, 20, 21))
    assert read_at(path, 15, every_five_seconds(15)) == true_at(15)
    at_reset = read_at(path, 20, [true_at(20)])
    assert {getattr(at_reset, name) for name in COUNTERS} == {0, None}
    later = read_at(path, 100, every_five_seconds(100, since=25))
    assert (later.batches_total, later.rows_total, later.keys) == (80, 8000, 50)


def test_the_former_plan_goes_on_as_it_did():
    path = a_path((Fault.FORMER_PLAN, 50, 80))
    read_at(path, 40, every_five_seconds(40))
    after = [true_at(time, rows_total=9999, epoch=1, parallelism=8) for time in range(45, 85, 5)]
    assert read_at(path, 75, after[:7]) == true_at(75)
    assert read_at(path, 80, after[7:]) == after[7]


def test_the_first_plan_has_no_former_one():
    assert read_at(a_path((Fault.FORMER_PLAN, 0, 80)), 40, every_five_seconds(40)) == true_at(40)
