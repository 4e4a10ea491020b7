"""A job that begins with the costs of another one: it predicts better at first, and its own batches win."""

import json
from dataclasses import replace

import numpy as np
import pytest

from millrace_operator.scaling.batch_time.batch_model import BatchLoad
from millrace_operator.scaling.batch_time.calibration import Calibration
from millrace_operator.scaling.batch_time.cost_prior import CostPrior
from millrace_operator.scaling.batch_time.costs import NAMES
from millrace_operator.scaling.decision.placement import PlacedScaler
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from unit.scaling.true_job import BOUNDS, INTERVAL, PARTITIONS, TrueJob, plan

PLANS = [plan(1, 2, 1), plan(2, 4, 2), plan(4, 8, 2), plan(2, 8, 4)]
UNSEEN = [plan(1, 4, 2), plan(4, 16, 4), plan(8, 8, 4), plan(8, 16, 4)]
ROWS = 200_000.0
PLAIN = {"noise": 0.03, "launch": 0.05, "schedule": 0.01}
DEDICATED = replace(BOUNDS, replica_cores=1.0)


def observed(calibration, job, shapes, each=4):
    for shape in shapes:
        for share in np.linspace(0.5, 1.2, each):
            calibration.add(job.observe(shape, ROWS * share))
    return calibration


def costs_of(**changes):
    """Return what is known of a job after batches of four plans."""
    calibration = observed(Calibration(BOUNDS, PARTITIONS), TrueJob(**{**PLAIN, "seed": 1, **changes}), PLANS)
    calibration.model()
    return calibration.known


def prediction(calibration, shapes=UNSEEN):
    return calibration.model().predict(shapes, BatchLoad(ROWS, INTERVAL))


def error(calibration, job):
    true = [job.mean_seconds(shape, ROWS) for shape in UNSEEN]
    return float(np.abs(prediction(calibration).seconds / true - 1).mean())


def after(shapes, prior=None, seed=2, **changes):
    """Return a job and a calibration that has seen it under some plans, with other noise than the donor."""
    job = TrueJob(**{**PLAIN, "seed": seed, **changes})
    return observed(Calibration(BOUNDS, PARTITIONS, prior), job, shapes), job


@pytest.mark.parametrize("donor", [1.0, 0.5, 2.0], ids="records {}x as dear".format)
def test_plans_that_have_not_run_are_predicted_better_after_the_first(donor):
    prior = costs_of(combine_record=donor * TrueJob.combine_record).for_another()
    without = np.mean([error(*after(PLANS[1:2], seed=seed)) for seed in range(4)])
    with_prior = np.mean([error(*after(PLANS[1:2], prior, seed=seed)) for seed in range(4)])
    assert with_prior < 0.7 * without


def test_what_is_expected_of_another_job_is_less_certain_than_what_is_known_of_the_first():
    known = costs_of()
    prior = known.for_another()
    assert prior.logs == known.logs
    assert all(wider > own for wider, own in zip(prior.deviations, known.deviations, strict=True))
    record = NAMES.index("combine_record")
    assert 1.645 * prior.deviations[record] > np.log(2)  # the interval has records that are twice as dear
    first = Calibration(BOUNDS, PARTITIONS, prior)
    observed(first, TrueJob(**PLAIN), PLANS[:1])
    first.model()
    assert min(first.known.for_another().deviations) > min(prior.deviations)  # of one plan; not from job to job to job


def test_its_own_batches_win():
    """With as many plans as another job is taken for known, even the costs of a very different one change little."""
    wrong = costs_of(combine_record=100e-6, merge_group=80e-6, fixed=2.0, contention=0.1, launch=0.1).for_another()
    own, job = after(PLANS)
    misled, same = after(PLANS, wrong)
    assert error(misled, same) < error(own, job) + 0.03
    shapes = PLANS  # under which it has run
    assert prediction(misled, shapes).seconds == pytest.approx(prediction(own, shapes).seconds, rel=0.03)


def test_the_prior_outlives_a_restart():
    calibration, _ = after(PLANS[:1], costs_of().for_another())
    saved = json.loads(json.dumps(calibration.save()))
    again = Calibration(BOUNDS, PARTITIONS)
    again.restore(saved)
    found, before = prediction(again), prediction(calibration)
    assert found.seconds == pytest.approx(before.seconds, rel=1e-3)
    assert found.high == pytest.approx(before.high, rel=1e-2)
    assert again.save() == calibration.save()


def test_what_was_learned_without_a_prior_goes_on_without_one():
    calibration, _ = after(PLANS[:1])
    saved = calibration.save()
    assert set(saved) == {"observations"}  # as earlier versions wrote it
    again = Calibration(BOUNDS, PARTITIONS, costs_of().for_another())
    again.restore(saved)
    assert prediction(again).seconds == pytest.approx(prediction(calibration).seconds, rel=1e-3)


def test_the_prior_of_a_version_with_other_costs_is_left_out():
    assert CostPrior.restored({"fixed": [0.0, 1.0]}) is None


@pytest.mark.parametrize("number", ["x", None, [], {}, float("nan"), float("inf"), 1e9, 0.0, -1.0], ids=repr)
@pytest.mark.parametrize("at", [0, 1], ids=["log", "deviation"])
def test_a_prior_of_what_are_no_plausible_numbers_is_refused(number, at):
    saved = costs_of().for_another().save()
    if at == 0 and number in (0.0, -1.0):
        number = 1e3
    saved["read"][at] = number
    with pytest.raises((TypeError, ValueError)):
        CostPrior.restored(saved)
    with pytest.raises((TypeError, ValueError)):
        Calibration(BOUNDS, PARTITIONS).restore({"observations": [], "prior": saved})


def test_costs_are_known_from_the_first_fit_on():
    calibration = Calibration(BOUNDS, PARTITIONS)
    calibration.model()
    assert calibration.known is None
    observed(calibration, TrueJob(**PLAIN), PLANS[:3])
    calibration.model()
    assert (calibration.known.plans, calibration.known.observations, calibration.known.dedicated) == (3, 12, False)


def test_a_scaler_of_two_placements_begins_inline_with_the_prior_and_keeps_it():
    prior = costs_of().for_another()
    scaler = PlacedScaler(Settings(), BOUNDS, DEDICATED, PARTITIONS, "subject", prior=prior)
    assert prediction(scaler.calibration).seconds == pytest.approx(
        prediction(Calibration(BOUNDS, PARTITIONS, prior)).seconds
    )
    again = PlacedScaler(Settings(), BOUNDS, DEDICATED, PARTITIONS, "subject")
    again.restore(json.loads(json.dumps(scaler.save(), default=sorted)))
    assert again.calibration.save()["prior"] == scaler.calibration.save()["prior"]


def test_a_scaler_whose_state_is_restored_has_the_prior_of_that_state():
    prior = costs_of().for_another()
    calibration = Calibration(BOUNDS, PARTITIONS, prior)
    saved = json.loads(json.dumps(Scaler(Settings(), BOUNDS, PARTITIONS, calibration).save(), default=sorted))
    again = Scaler(Settings(), BOUNDS, PARTITIONS)
    again.restore(saved)
    assert again.calibration.save() == calibration.save()


@pytest.mark.parametrize(
    "changes", [{"fixed": 6.0}, {"combine_record": 5e-4}, {"launch": 0.5, "merge_task": 0.5}], ids=str
)
def test_a_prior_that_its_own_batches_contradict_is_dropped(changes):
    """It was kept: of jobs with another job's fixed time, intervals then held 45 to 70 % of new plans."""
    misled, _ = after(PLANS[1:2], costs_of(**changes).for_another())
    own, _ = after(PLANS[1:2])
    assert prediction(misled).seconds == pytest.approx(prediction(own).seconds, rel=1e-6)
    assert prediction(misled).high == pytest.approx(prediction(own).high, rel=1e-6)
    assert misled.save() == own.save()


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("shapes", [PLANS[:1], PLANS[1:2], PLANS[3:], PLANS], ids=lambda shapes: f"{len(shapes)} plans")
def test_records_twice_or_half_as_dear_do_not_contradict_it(factor, shapes):
    prior = costs_of(combine_record=factor * TrueJob.combine_record, route_record=factor * TrueJob.route_record)
    calibration, _ = after(shapes, prior.for_another())
    calibration.model()
    assert "prior" in calibration.save()
