import statistics

import pytest

from bench.scaling.jobs import JOBS, KEYS
from bench.scaling.points import RECORDED, read_points
from millrace_research.arena.simulation.job import JobProfile, SimulatedJob
from millrace_research.arena.simulation.keys import Keys
from millrace_research.arena.simulation.placement import SimulatedPartitioner

from .real_runs import BOUNDS, PANES, compare


@pytest.fixture(scope="module")
def points():
    return read_points(RECORDED)


def test_batches_take_as_long_as_in_spark(points):
    errors = [one.error for one in compare(points)]
    assert len(errors) >= 60
    assert statistics.mean(errors) < 0.1


def test_batches_have_as_many_keys_and_partial_results_as_in_spark(points):
    keys, partials = [], []
    for point in points:
        setting, measured = point.setting, point.measured
        if setting.job in PANES:
            profile = JobProfile(
                partitioner=SimulatedPartitioner(JOBS[setting.job].algorithm), panes=PANES[setting.job]
            )
            stream = Keys(KEYS, exponent=setting.skew)
            keys.append(stream.appearing(setting.rows) / measured.keys)
            expected = SimulatedJob(profile, BOUNDS).partials(setting.parallelism, stream, setting.rows)
            partials.append(expected / measured.groups)
    assert statistics.mean(abs(ratio - 1) for ratio in keys) < 0.05
    assert statistics.mean(abs(ratio - 1) for ratio in partials) < 0.05
