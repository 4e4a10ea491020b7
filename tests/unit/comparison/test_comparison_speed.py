"""When a version counts as slower: beyond the bound, beyond noise, and after enough batches."""

from __future__ import annotations

import numpy as np
import pytest

from millrace_jobs.comparison.speed import LEAST_BATCHES, WARM_UP, speed_of

BOUND = 1.5


def seconds(count: int, *, factor: float = 1.0, noise: float = 0.1, seed: int = 0) -> list[float]:
    chance = np.random.default_rng(seed)
    return list(0.5 * factor * np.exp(noise * chance.standard_normal(count)))


def test_a_version_that_takes_twice_as_long_is_slower_and_one_that_takes_as_long_is_not() -> None:
    old = seconds(20, seed=1)
    assert speed_of(old, seconds(20, factor=2, seed=2)).exceeds(BOUND)
    assert not speed_of(old, seconds(20, seed=3)).exceeds(BOUND)
    found = speed_of(old, seconds(20, factor=2, seed=2))
    assert found.low <= found.ratio <= found.high
    assert found.ratio == pytest.approx(2, rel=0.2)


def test_noise_around_the_bound_is_no_judgement() -> None:
    false_alarms = sum(
        speed_of(seconds(20, seed=2 * seed, noise=0.3), seconds(20, factor=1.5, seed=2 * seed + 1, noise=0.3)).exceeds(
            BOUND
        )
        for seed in range(400)
    )
    assert false_alarms <= 400 * 0.05


def test_the_warm_up_does_not_count() -> None:
    old = [1.0] * 20
    new = [9.0] * WARM_UP + [1.0] * (20 - WARM_UP)
    assert speed_of(old, new).high == 1.0


@pytest.mark.parametrize("count", range(WARM_UP + LEAST_BATCHES))
def test_too_few_batches_are_no_judgement(count: int) -> None:
    found = speed_of([1.0] * count, [9.0] * count)
    assert not found.is_known
    assert not found.exceeds(BOUND)


def test_six_batches_are_judged_by_their_fastest() -> None:
    old, new = [1.0] * (WARM_UP + 6), [9.0] * WARM_UP + [2.0, 3.0, 1.6, 9.0, 4.0, 2.5]
    found = speed_of(old, new)
    assert (found.low, found.high) == (1.6, 9.0)
    assert found.exceeds(BOUND)
