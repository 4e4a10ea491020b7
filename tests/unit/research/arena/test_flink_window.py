import math

import pytest

from millrace_research.arena.policies.flink_metrics import Collector, FlinkMetric, FlinkOptions, MetricWindow

OPTIONS = FlinkOptions(stabilization=300, metrics_window=900)


def sample(lag=1.0):
    return {"route": {FlinkMetric.LAG: lag}}


def test_a_window_is_full_after_the_job_has_settled_and_its_length_has_passed():
    collector = Collector(100.0, OPTIONS)
    full = [time for time in range(160, 2000, 60) if collector.add(float(time), sample())]
    assert full[0] == 400 + 900  # the first sample of the settled job, and the window
    assert full == list(range(1300, 2000, 60))


def test_what_is_older_than_the_window_is_dropped_when_it_is_full():
    collector = Collector(0.0, OPTIONS)
    windows = [collector.add(float(time), sample()) for time in range(60, 1261, 60)]
    assert windows[-3] is None
    assert windows[-2].times == tuple(range(300, 1201, 60))
    assert windows[-1].times == tuple(range(360, 1261, 60))
    assert len(windows[-1].samples["route"]) == 16


def test_after_a_gap_a_window_fills_again():
    collector = Collector(0.0, OPTIONS)
    assert collector.add(300.0, sample()) is None
    assert collector.add(5000.0, sample()) is None  # the only one that is not too old
    assert collector.add(5899.0, sample()) is None
    assert collector.add(5900.0, sample()).times == (5000.0, 5899.0, 5900.0)


def test_rates_and_means_leave_out_what_is_unknown():
    window = MetricWindow(
        (0.0, 10.0, 20.0, 40.0),
        {"route": [{}, {FlinkMetric.LAG: 5.0}, {FlinkMetric.LAG: math.nan}, {FlinkMetric.LAG: 35.0}]},
    )
    assert window.rate("route", FlinkMetric.LAG) == 1.0
    assert window.average("route", FlinkMetric.LAG) == 20.0
    assert math.isnan(window.average("route", FlinkMetric.LAG, at_least=3))
    assert math.isnan(window.rate("route", FlinkMetric.LOAD))
    assert window.latest("route", FlinkMetric.LOAD, 7.0) == 7.0


@pytest.mark.parametrize(("values", "mean"), [((math.inf, math.inf), math.inf), ((math.inf, 3.0), 3.0)])
def test_an_idle_time_is_no_part_of_a_mean_unless_there_is_nothing_else(values, mean):
    window = MetricWindow((0.0, 1.0), {"route": [{FlinkMetric.OBSERVED: value} for value in values]})
    assert window.average("route", FlinkMetric.OBSERVED) == mean
