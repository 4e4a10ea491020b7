from dataclasses import replace

import pytest

from millrace_operator.scaling.batch_time.calibration import last_keys, partials_of, pod_seconds, same_keys, skew_of
from unit.scaling.true_job import TrueJob, plan


def seen(n, rows=1e5, **said):
    return TrueJob().observe(plan(2, n, 2), rows, **said)


def test_what_was_measured_before_the_keys_changed_does_not_count():
    even = [seen(n, imbalance=0.05 * n) for n in (2, 4, 8)]
    uneven = [seen(16, imbalance=9.0), seen(4, imbalance=2.5)]
    assert skew_of(same_keys([*even, *uneven])).measured == {8: 0.4, 16: 9.0, 4: 2.5}
    assert skew_of(same_keys(even)).measured == {2: 0.1, 4: 0.2, 8: 0.4}


def test_other_plans_and_rates_are_no_change_of_the_keys():
    observations = [seen(2, 1e5, imbalance=0.4), seen(8, 1e5, imbalance=2.8), seen(2, 3e5, imbalance=0.4)]
    assert list(same_keys(observations)) == observations


def test_more_partial_results_at_the_same_rate_are_other_keys():
    observations = [seen(2, partials=1000.0), seen(4, partials=1000.0), seen(4, partials=3000.0)]
    assert list(same_keys(observations)) == observations[2:]
    assert partials_of(same_keys(observations)).newest.partials == 3000.0


def test_imbalance_that_scatters_is_no_change():
    observations = [seen(4, imbalance=0.3 + 0.05 * (turn % 3)) for turn in range(10)]
    assert len(same_keys(observations)) == 10


def test_what_nobody_told_is_unknown():
    silent = [seen(4, partials=None, imbalance=None)]
    assert partials_of(silent) is None
    assert skew_of(silent).measured == {}
    assert last_keys(silent) is None
    assert pod_seconds(silent) is None


def test_the_last_that_was_told_counts():
    assert last_keys([seen(4, keys=10.0), seen(4, keys=20.0), seen(4)]) == 20


def test_pods_are_busy_for_their_share_of_the_records():
    observations = [replace(seen(4), dedicated_busy=busy) for busy in (0.2, 0.9, 0.22)]
    assert pod_seconds(observations) == pytest.approx(0.22 * 2 * 10 / 1e5)
