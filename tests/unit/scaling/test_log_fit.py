import numpy as np
import pytest

from millrace_operator.scaling.batch_time.cost_fit import fit_logs, prior_fit

TRUE = np.array([0.5, 2e-3, 1e-6])
PRIOR = np.log([1.0, 1e-3, 3e-6])
DOUBT = np.eye(3) / 2.0**2
NOISE = 0.05


def measured(work, costs=TRUE, noise=0.0, seed=0):
    return work @ costs * np.exp(noise * np.random.default_rng(seed).standard_normal(len(work)))


def residuals(work, seconds):
    def of(logs):
        modeled = work @ np.exp(logs)
        return np.log(modeled / seconds) / NOISE, work * np.exp(logs) / modeled[:, None] / NOISE

    return of


def fit(work, seconds, precision=DOUBT, weights=None):
    weights = np.ones(len(work)) if weights is None else weights
    return fit_logs(residuals(work, seconds), weights, PRIOR, precision, PRIOR)


@pytest.fixture
def work():
    rng = np.random.default_rng(1)
    return np.stack([np.ones(60), rng.integers(1, 500, 60), rng.uniform(1e4, 2e6, 60)], axis=1)


def test_costs_that_made_the_measurements_are_found(work):
    assert np.exp(fit(work, measured(work)).logs) == pytest.approx(TRUE, rel=0.05)


def test_measurements_that_are_far_off_move_little(work):
    seconds = measured(work, noise=0.03)
    seconds[::8] *= 20
    assert np.exp(fit(work, seconds).logs) == pytest.approx(TRUE, rel=0.25)


def test_measurements_without_weight_do_not_count(work):
    seconds = measured(work)
    seconds[:20] *= 3
    weights = np.r_[np.zeros(20), np.ones(40)]
    assert np.exp(fit(work, seconds, weights=weights).logs) == pytest.approx(TRUE, rel=0.05)


def test_the_prior_settles_what_has_always_grown_together():
    work = np.outer([1.0, 2.0, 5.0, 9.0], [0.0, 100.0, 1e5])
    costs = np.exp(fit(work, measured(work)).logs)
    assert work @ costs == pytest.approx(work @ TRUE, rel=0.02)
    assert costs[2] / costs[1] == pytest.approx(3e-3, rel=0.3)  # the prior's ratio, not the true one
    assert costs[0] == pytest.approx(1.0)  # nothing was measured of it


def test_the_covariance_tells_what_is_not_known():
    work = np.outer([1.0, 2.0, 5.0, 9.0], [0.0, 100.0, 1e5])
    found = fit(work, measured(work))
    covariance = found.factor @ found.factor.T
    share = work[0] * np.exp(found.logs) / (work[0] @ np.exp(found.logs))
    assert covariance[0, 0] == pytest.approx(2.0**2, rel=0.01)
    assert share @ covariance @ share < 0.06**2


def test_costs_scatter_as_the_covariance_says(work):
    fits = [fit(work, measured(work, noise=NOISE, seed=seed)) for seed in range(200)]
    spread = np.std([found.logs for found in fits], axis=0)
    assert spread == pytest.approx(np.sqrt(np.diag(fits[0].factor @ fits[0].factor.T)), rel=0.25)


def test_before_any_measurement_the_prior_stands():
    found = prior_fit(PRIOR, DOUBT)
    assert found.logs.tolist() == PRIOR.tolist()
    assert found.factor @ found.factor.T == pytest.approx(np.eye(3) * 4)
