import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.scaling.trends import Outlook, outlook, present_level, surge, trend

TIMES = [5.0 * number for number in range(40)]


def noisy(values, share, seed=1):
    rng = np.random.default_rng(seed)
    return (np.asarray(values) * (1 + share * rng.standard_normal(len(values)))).tolist()


def step(before, after, ago, length=40):
    return [before] * (length - ago) + [after] * ago


RAMP = [1000 + 5 * time for time in TIMES]
HUMP = [1000 * (1 + 0.5 * np.sin(time / 30)) for time in TIMES]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=2, max_size=12))
def test_the_slope_is_the_median_of_all_pairs(values):
    times = [1.5 * number**1.2 for number in range(len(values))]
    pairs = list(itertools.combinations(zip(times, values, strict=True), 2))
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs]
    found = trend(times, values)
    assert found.slope == pytest.approx(statistics.median(slopes))
    assert min(slopes) - 1e-9 <= found.low <= found.slope + 1e-9
    assert found.slope - 1e-9 <= found.high <= max(slopes) + 1e-9


def inverted(n, inversions):
    """An order of n values in which so many pairs fall."""
    left, order = list(range(n)), []
    for rest in range(n, 0, -1):
        taken = min(inversions, rest - 1)
        order.append(left.pop(taken))
        inversions -= taken
    return order


@pytest.mark.parametrize("n", [8, 9, 10, 11, 12, 15, 20, 30, 40])
def test_significance_is_that_of_kendalls_exact_distribution(n):
    """Of all orders of n values, those with a significant trend are about one in a hundred, and never more."""
    orders = np.ones(1)
    for length in range(2, n + 1):
        orders = np.convolve(orders, np.ones(length)) / length  # Mahonian numbers, as shares
    significant = [trend(range(n), inverted(n, inversions)).significant for inversions in range(len(orders))]
    assert 0.004 < orders[significant].sum() <= 0.01


def test_equal_values_make_it_easier_to_be_significant():
    """Fifteen values of two sizes: S is 50, and its deviation 16.3; without the ties it would be 20.2."""
    assert trend(range(15), [0] * 10 + [1] * 5).significant
    assert not trend(range(12), [0] * 9 + [1] * 3).significant


def test_equal_values_have_no_trend():
    found = trend(TIMES, [7.0] * 40)
    assert (found.slope, found.low, found.high, found.significant) == (0, 0, 0, False)


def test_a_quarter_of_odd_values_does_not_bend_a_trend():
    values = [9e9 if number % 4 == 1 else value for number, value in enumerate(RAMP)]
    found = trend(TIMES, values)
    assert found.significant
    assert found.slope == pytest.approx(5.0)


@pytest.mark.parametrize("ago", range(3, 38))
def test_a_step_is_found_from_three_values_on(ago):
    assert present_level(noisy(step(1000, 1500, ago), 0.03)) == 40 - ago
    assert present_level(noisy(step(1500, 1000, ago), 0.03)) == 40 - ago


def test_of_two_steps_the_last_one_counts():
    assert present_level(noisy([1000] * 15 + [2000] * 15 + [1500] * 10, 0.03)) == 30


@pytest.mark.parametrize(
    "values", [[1000.0] * 40, RAMP, [*RAMP[:-1], 9000.0], [1000.0] * 38 + [4000.0] * 2, [5.0], [1.0, 9.0]]
)
def test_odd_values_and_slopes_are_no_step(values):
    assert present_level(values) == 0


def test_noise_is_no_step():
    assert [present_level(noisy([1000] * 40, 0.1, seed)) for seed in range(100)] == [0] * 100


def test_without_a_trend_everything_stays():
    assert outlook(TIMES, [1000.0] * 40, 60) == Outlook(1000.0, 1000.0, 1000.0)
    assert outlook(TIMES[:1], [1000.0], 60) == Outlook(1000.0, 1000.0, 1000.0)
    assert outlook(TIMES, [0.0] * 40, 60) == Outlook(0.0, 0.0, 0.0)
    assert outlook(TIMES[:3], [1000.0, 1100.0, 1200.0], 60).value == 1100  # too few to tell


def test_a_trend_goes_on():
    assert outlook(TIMES, RAMP, 60).value == pytest.approx(1000 + 5 * (TIMES[-1] + 60))
    assert outlook(TIMES, RAMP[::-1], 60).value == pytest.approx(1000 - 5 * 60)


def test_a_trend_goes_on_no_longer_than_it_has_been_seen():
    rise = [1000 + 5 * time for time in TIMES[:10]]
    assert outlook(TIMES[:10], rise, 3600).value == pytest.approx(1000 + 5 * 90)


def test_a_trend_at_most_doubles_or_halves():
    assert outlook(TIMES, [10 * time for time in TIMES], 195).value == pytest.approx(2 * 1950)
    steep = [1000.0 * 0.9**number for number in range(40)]
    assert outlook(TIMES, steep, 195).value >= 0.4 * steep[-1]


def test_a_step_is_no_trend():
    """Two levels have a slope between them, which nobody should follow."""
    for ago in range(3, 38):
        found = outlook(TIMES, noisy(step(1000, 2000, ago), 0.03), 60)
        assert found.value == pytest.approx(2000, rel=0.05)


def test_after_a_pulse_everything_is_as_before():
    for width in range(1, 18):
        values = noisy([1000] * (30 - width) + [3000] * width + [1000] * 10, 0.03)
        assert outlook(TIMES, values, 60).value == pytest.approx(1000, rel=0.05)


def test_of_a_curve_the_newest_part_counts():
    found = outlook(TIMES, noisy(HUMP, 0.02), 30)
    assert found.value == pytest.approx(1000 * (1 + 0.5 * np.sin((TIMES[-1] + 30) / 30)), rel=0.2)


@settings(max_examples=100, deadline=None)
@given(at=st.integers(0, 39), odd=st.floats(0, 1e6), seed=st.integers(0, 20))
def test_one_odd_value_changes_little(at, odd, seed):
    for true in ([1000.0] * 40, RAMP):
        values = noisy(true, 0.03, seed)
        plain = outlook(TIMES, values, 60)
        values[at] = odd
        assert outlook(TIMES, values, 60).value == pytest.approx(plain.value, rel=0.06)


@pytest.mark.parametrize("slope", [0.0, 5.0])
def test_nine_of_ten_values_come_as_expected(slope):
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(300):
        values = (1000 + slope * np.array(TIMES)) * (1 + 0.05 * rng.standard_normal(40))
        found = outlook(TIMES, values.tolist(), 60)
        inside += found.low <= (1000 + slope * (TIMES[-1] + 60)) * (1 + 0.05 * rng.standard_normal()) <= found.high
    assert 0.8 <= inside / 300 <= 0.96


def test_a_steady_rise_goes_on_but_to_no_more_than_twice():
    assert surge(TIMES, RAMP, 30.0) == pytest.approx(RAMP[-1] + 5 * 30)
    assert surge(TIMES, RAMP, 1e6) == 2 * RAMP[-1]
    assert surge(TIMES[:4], [1.0, 2.0, 3.0, 3.5], 5.0) == pytest.approx(4.0)


@pytest.mark.parametrize("ago", range(1, 8))
@pytest.mark.parametrize("across", [0.0, 0.2, 0.5, 0.9])
def test_a_step_is_no_surge_wherever_observations_lie_across_it(ago, across):
    values = step(1000.0, 3000.0, ago)
    values[-ago] = 1000 + 2000 * across or 1000.0
    assert surge(TIMES, values, 30.0) is None


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0], [5.0, 3.0, 2.0, 1.0], [0.0] * 9, [2.0, 3.0, 3.0, 4.0]])
def test_what_does_not_rise_four_times_in_a_row_is_no_surge(values):
    assert surge(TIMES[: len(values)], values, 30.0) is None


def test_noise_is_hardly_ever_a_surge():
    found = [surge(TIMES, noisy([1000.0] * 40, 0.05, seed), 30.0) for seed in range(2000)]
    assert sum(each is not None for each in found) <= 2


def test_a_rise_is_seen_through_little_noise():
    found = [surge(TIMES, noisy(np.array(RAMP) * np.exp(np.array(TIMES) / 90), 0.01, seed), 30.0) for seed in range(50)]
    assert sum(each is not None for each in found) >= 40
