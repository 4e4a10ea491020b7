from dataclasses import replace

import numpy as np
import pytest

from millrace_operator.scaling.shape import Shape
from millrace_research.arena.known_job import KnownJob
from millrace_research.arena.simulation.job import QUIET, JobProfile, Noise
from millrace_research.arena.simulation.keys import Keys, always
from millrace_research.arena.simulation.placement import SimulatedPartitioner
from millrace_research.arena.simulation.run import simulate

from .scenes import BOUNDS, EASY, Patient, rates, scene

KEYS = Keys(2000, exponent=1.0)
ORDINARY = JobProfile(noise=Noise(slow=0.0))


def test_a_batch_takes_the_time_worked_out_by_hand():
    job = KnownJob(EASY, BOUNDS)
    seconds = job.seconds(Shape(1, 2, 1), [0, 200, 1000], KEYS)
    assert seconds == pytest.approx([0.0, 0.5, 1.3])
    assert job.seconds(Shape(2, 2, 1), 1000, KEYS) == pytest.approx(1.2)
    assert job.seconds(Shape(1, 2, 1), 4e9, KEYS) == pytest.approx(4e6, rel=1e-3)


@pytest.mark.parametrize("partitioner", SimulatedPartitioner)
@pytest.mark.parametrize("plan", [Shape(1, 2, 1), Shape(3, 5, 4), Shape(8, 16, 4)])
@pytest.mark.parametrize("rate", [20_000, 150_000])
def test_the_expected_time_is_the_mean_of_simulated_batches(partitioner, plan, rate):
    job = replace(ORDINARY, partitioner=partitioner, max_rows=rate * 2)
    scenario = scene(rates((0, rate), (1500, rate)), job=job, keys=always(KEYS), initial=plan)
    simulated = simulate(scenario, Patient(), 1).seconds.mean()
    assert KnownJob(job, BOUNDS).seconds(plan, rate * 2, KEYS) == pytest.approx(simulated, rel=0.02)


def test_records_between_those_of_the_table_are_as_if_they_were_in_it():
    quiet = replace(ORDINARY, noise=QUIET)
    for rows in (1234, 55_555, 7_654_321):
        scenario = scene(rates((0, rows / 2), (3, rows / 2)), job=quiet, keys=always(KEYS), initial=Shape(2, 7, 3))
        batch = simulate(scenario, Patient(), 1).batches[0]
        expected = KnownJob(quiet, BOUNDS).seconds(Shape(2, 7, 3), rows, KEYS)
        assert expected == pytest.approx(batch.seconds, rel=0.01)


def test_most_rows_is_the_inverse():
    job = KnownJob(ORDINARY, BOUNDS)
    rows = job.most_rows(Shape(4, 8, 4), 1.5, KEYS)
    assert job.seconds(Shape(4, 8, 4), rows, KEYS) == pytest.approx(1.5)
    assert job.most_rows(Shape(4, 8, 4), 0.01, KEYS) == 0


def test_asking_twice_gives_the_same():
    first, second = (KnownJob(ORDINARY, BOUNDS).seconds(Shape(3, 9, 2), np.arange(5) * 1e5, KEYS) for _ in range(2))
    assert (first == second).all()
