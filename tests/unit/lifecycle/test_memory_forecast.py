"""Which memory is nearly certain to run out: levels, rises, odd values, and rises that end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.model.memory_use import MOST_SAMPLES, MemoryPart, MemorySample, MemorySeries
from millrace_api.model.status import MemoryShortage
from millrace_operator.lifecycle.pods.memory_forecast import FULL, HORIZON, expected_shortage

LIMIT = 1 << 30
EVERY = 60


def series(shares, part=MemoryPart.HEAP, every=EVERY):
    """Measurements of these shares of the limit, so many seconds apart."""
    samples = [MemorySample(time=10**9 + every * n, used=int(each * LIMIT)) for n, each in enumerate(shares)]
    return MemorySeries(part=part, limit=LIMIT, samples=tuple(samples))


def shortage(*series):
    return expected_shortage(series, "the driver's")


def runs_out(shares, part=MemoryPart.HEAP, every=EVERY):
    return shortage(series(shares, part, every)) is not None


parts = st.sampled_from([MemoryPart.HEAP, MemoryPart.BESIDE_HEAP])
noises = st.lists(st.floats(-0.01, 0.01), min_size=30, max_size=MOST_SAMPLES)


@given(parts, noises, st.floats(0.0, 0.8))
def test_a_level_with_noise_never_runs_out(part, noise, level):
    assert not runs_out([max(level + each, 0.0) for each in noise], part)


@given(parts, noises, st.floats(0.77, 0.84))
def test_a_steady_rise_that_reaches_the_limit_well_within_the_horizon_runs_out(part, noise, last):
    """It has been seen for half an hour, and crosses the limit in two thirds of the horizon."""
    slope = (1 - last) / (HORIZON * 2 / 3 / EVERY)
    count = len(noise)
    assert runs_out([max(last - slope * (count - 1 - n) + each / 10, 0.01) for n, each in enumerate(noise)], part)


@given(parts, noises, st.floats(0.4, 0.6))
def test_a_rise_that_takes_three_times_the_horizon_does_not_run_out_yet(part, noise, first):
    slope = (1 - first) / (3 * HORIZON / EVERY + len(noise))
    assert not runs_out([first + slope * n + each / 10 for n, each in enumerate(noise)], part)


@given(parts, noises, st.floats(0.77, 0.84), st.integers(0, 29))
def test_one_odd_value_neither_makes_nor_hides_a_rise(part, noise, last, odd):
    slope = (1 - last) / (HORIZON * 2 / 3 / EVERY)
    rising = [max(last - slope * (len(noise) - 1 - n), 0.01) for n in range(len(noise))]
    level = [0.5 + each for each in noise]
    rising[min(odd, len(noise) - 2)] = level[odd] = 0.99
    assert runs_out(rising, part)
    assert not runs_out(level, part)


def test_a_rise_that_has_ended_does_not_run_out():
    warm_up = [0.2 + 0.02 * n for n in range(30)]
    assert runs_out(warm_up)
    assert not runs_out([*warm_up, *[0.78] * 12])


@pytest.mark.parametrize("part", MemoryPart)
def test_three_measurements_close_below_the_limit_suffice(part):
    full = FULL[part] + 0.01
    assert not runs_out([full, full], part)
    assert not runs_out([full, full, FULL[part] - 0.01], part)
    assert runs_out([0.1, full, full, full], part)


def test_a_container_is_judged_by_its_level_only():
    rising = [0.5 + 0.01 * n for n in range(40)]
    assert runs_out(rising, MemoryPart.BESIDE_HEAP)
    assert not runs_out(rising, MemoryPart.CONTAINER)


def test_what_is_beside_the_heap_counts_once_the_container_is_filled():
    beside = series([0.99] * 3, MemoryPart.BESIDE_HEAP)
    assert shortage(series([0.7], MemoryPart.CONTAINER), beside) is None
    assert shortage(series([0.8], MemoryPart.CONTAINER), beside) is not None
    assert shortage(series([], MemoryPart.CONTAINER), beside) is not None


def test_a_full_container_says_nothing_where_what_is_beside_the_heap_is_known():
    """The JVM of a healthy driver touches all of its heap in time, and the larger that is, the fuller the container."""
    full = series([0.97] * 40, MemoryPart.CONTAINER)
    assert shortage(full) is not None
    assert shortage(full, series([0.56] * 40, MemoryPart.BESIDE_HEAP)) is None
    assert shortage(full, series([0.96] * 3, MemoryPart.BESIDE_HEAP)) is not None


def test_a_full_heap_comes_before_what_is_beside_it():
    full = [series([0.99] * 3, part) for part in (MemoryPart.CONTAINER, MemoryPart.HEAP)]
    found = shortage(*full)
    assert found is not None
    assert found.what is MemoryShortage.HEAP
    assert found.message == "what the driver's heap keeps after garbage collection is 99% of its limit of 1024 MiB"
    assert shortage(*full[:1]) == (
        MemoryShortage.LIMIT,
        "what the driver's container uses is 99% of its limit of 1024 MiB",
    )


@given(
    st.lists(st.integers(0, 1 << 50), max_size=MOST_SAMPLES),
    st.lists(st.integers(1, 1 << 30), min_size=MOST_SAMPLES, max_size=MOST_SAMPLES),
    st.integers(1, 1 << 50),
    st.sampled_from(MemoryPart),
)
def test_whatever_is_reported_has_an_answer(used, gaps, limit, part):
    times = [sum(gaps[: n + 1]) for n in range(len(used))]
    samples = tuple(MemorySample(time=at, used=each) for at, each in zip(times, used, strict=True))
    shortage(MemorySeries(part=part, limit=limit, samples=samples))


@pytest.mark.parametrize("times", [(2, 1), (1, 1)])
def test_a_report_whose_times_do_not_rise_is_refused(times):
    with pytest.raises(ValueError, match="order"):
        MemorySeries(part=MemoryPart.HEAP, limit=1, samples=tuple(MemorySample(time=at, used=1) for at in times))
