import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.arena.simulation import traces
from millrace_research.arena.simulation.traces import Trace, trace


@st.composite
def any_traces(draw):
    gaps = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0]), min_size=1, max_size=8))
    times = np.concatenate(([0.0], np.cumsum([*gaps, 1.0])))
    rates = draw(st.lists(st.floats(0, 1e4), min_size=len(times), max_size=len(times)))
    return Trace("any", times, np.array(rates))


def test_records_under_a_ramp_are_the_area_of_a_triangle():
    ramp = trace("ramp", [(0, 0), (10, 10)])
    assert ramp.arrived(5) == 12.5
    assert ramp.arrived(10) == ramp.records == 50
    assert ramp.when(12.5) == 5
    assert ramp.mean == 5


def test_a_jump_has_the_later_rate_and_no_records_of_its_own():
    jump = trace("jump", [(0, 1), (4, 1), (4, 3), (6, 3)])
    assert jump.rate(3.9) == 1
    assert jump.rate(4) == 3
    assert jump.arrived(4) == 4
    assert jump.arrived(5) == 7


def test_nothing_comes_before_or_after_a_trace():
    constant = traces.constant(5, 10)
    assert constant.arrived(-1) == 0
    assert constant.rate(-1) == 0
    assert constant.arrived(11) == 50
    assert constant.rate(11) == 0
    assert constant.when(99) == 10


def test_in_a_pause_records_came_before_it():
    assert trace("pause", [(0, 1), (5, 1), (5, 0), (9, 0), (9, 1), (10, 1)]).when(5) == 5


def test_next_to_nothing_comes_in_its_time_too():
    assert trace("next to nothing", [(0, 0), (10, 1e-300)]).when(1e-300) == 10


@given(any_traces(), st.floats(0, 1))
def test_when_is_the_inverse_of_arrived(any_trace, share):
    records = any_trace.records * share
    assert any_trace.arrived(any_trace.when(records)) == pytest.approx(records, rel=1e-6, abs=1e-6)


@given(any_traces(), st.floats(0, 1), st.floats(0, 1))
def test_what_comes_between_two_times_is_what_came_less_what_had_come(any_trace, one, other):
    since, until = sorted((one * any_trace.duration, other * any_trace.duration))
    if until - since > 1e-6:
        part = any_trace.between(since, until)
        wanted = any_trace.arrived(until) - any_trace.arrived(since)
        assert part.records == pytest.approx(wanted, rel=1e-6, abs=1e-3)


def test_a_part_that_ends_at_a_jump_has_the_earlier_rate_until_then():
    part = traces.step(1, 9, at=10, duration=20).between(4, 10)
    assert part.records == 6
    assert part.rate(5.9) == 1


def test_scaling_keeps_the_shape():
    spike = traces.spike(1, 5, at=10, width=2, duration=100)
    assert spike.scaled(1000).peak == 1000
    assert spike.scaled(10).records == 2 * spike.records


def test_noise_leaves_the_mean_and_follows_the_seed():
    constant = traces.constant(100, 10_000)
    noisy = constant.noisy(0.2, every=1, seed=1)
    assert noisy.mean == pytest.approx(100, rel=0.01)
    assert noisy.rates.std() == pytest.approx(20, rel=0.1)
    assert (noisy.rates == constant.noisy(0.2, every=1, seed=1).rates).all()
    assert (noisy.rates != constant.noisy(0.2, every=1, seed=2).rates).any()


def test_noise_keeps_the_jumps():
    noisy = traces.step(10, 1000, at=33.3, duration=60).noisy(0.1, every=10, seed=3)
    assert noisy.rate(33.2) < 20
    assert noisy.rate(33.3) > 500


@pytest.mark.parametrize(
    ("shape", "at", "rate"),
    [
        (traces.step(1, 9, at=10, duration=20), 10, 9),
        (traces.steps([3, 1, 2], [0, 5, 9], 20), 8, 1),
        (traces.ramp(0, 10, since=5, until=15, duration=20), 10, 5),
        (traces.spike(1, 7, at=3, width=2, duration=20), 5, 1),
        (traces.sawtooth(0, 4, period=8, duration=20), 18, 1),
        (traces.sawtooth(0, 4, period=8, duration=20), 8, 0),
        (traces.diurnal(2, 6, duration=100, period=100), 50, 6),
        (traces.diurnal(2, 6, duration=100, period=100), 25, 4),
    ],
)
def test_every_shape_has_its_rates(shape, at, rate):
    assert shape.rate(at) == pytest.approx(rate)


@pytest.mark.parametrize(
    "points", [[(0, 1)], [(1, 1), (2, 1)], [(0, 1), (2, 1), (1, 1)], [(0, -1), (1, 1)], [(0, 1), (0, 1)]]
)
def test_points_that_are_no_trace_are_refused(points):
    with pytest.raises(ValueError, match="trace 'odd'"):
        trace("odd", points)


def test_a_trace_of_nothing_cannot_be_scaled():
    with pytest.raises(ValueError, match="0 throughout"):
        traces.constant(0, 10).scaled(10)
