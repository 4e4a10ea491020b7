"""Placement of the units of a join: by task, and as a partitioner places records."""

import numpy as np
import pytest

from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.hot_key_units import UnitPlacement

from .streams import ROUTED


def placement(algorithm, task=0, workers=4):
    return UnitPlacement(algorithm, workers=workers, task=task, tasks=8, seed=0, parameters={})


def keys(*numbers):
    return seeded_hashes(np.array(numbers, np.uint64), 1)


@pytest.mark.parametrize("algorithm", ROUTED)
def test_a_task_that_runs_again_places_everything_as_before(algorithm):
    def places():
        made = placement(algorithm, task=3)
        return [made.place_bucket(5), *made.place(keys(1, 1, 1, 2)), made.place_bucket(6), *made.place(keys(3))]

    first = places()
    assert places() == first
    assert set(first) <= set(range(4))


def test_chunks_of_one_key_go_to_all_workers():
    for algorithm in ("shuffle", "wchoices", "prompt"):
        assert sorted(placement(algorithm).place(keys(*[7] * 8))) == [0, 0, 1, 1, 2, 2, 3, 3], algorithm
    assert len(set(placement("pkg").place(keys(*[7] * 8)))) == 2


@pytest.mark.parametrize("algorithm", ["shuffle", "prompt"])
def test_buckets_with_one_chunk_each_go_to_all_workers(algorithm):
    made = placement(algorithm)
    assert {made.place_bucket(bucket) for bucket in range(4)} == set(range(4))
    assert {placement(algorithm, task).place_bucket(0) for task in range(8)} == set(range(4))
