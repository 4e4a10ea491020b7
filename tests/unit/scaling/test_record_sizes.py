from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.scaling.batch_time.calibration import Calibration
from millrace_operator.scaling.batch_time.record_sizes import RecordSizes, sizes_of
from millrace_operator.scaling.observation import Observation
from unit.scaling.true_job import BOUNDS, PARTITIONS, TrueJob, plan

SEEN = Observation(0, 10, 1, plan(2, 4, 2), 5, 2.0, 1.0, rows=1000, arrival=500, lag=0, partials=50, routed=800)
MEASURED = replace(SEEN, input_bytes=100_000, route_bytes=16_000, combine_bytes=2000)


def test_sizes_are_means_over_all_batches():
    larger = replace(MEASURED, batches=15, rows=3000, routed=2400, input_bytes=500_000, partials=50, combine_bytes=1000)
    found = sizes_of([SEEN, MEASURED, larger])
    assert found is not None
    assert found.read == pytest.approx((5 * 100_000 + 15 * 500_000) / (5 * 1000 + 15 * 3000))
    assert found.partial == pytest.approx((5 * 2000 + 15 * 1000) / (20 * 50))
    assert found.passing == pytest.approx(0.8)


def test_what_was_never_reported_is_unknown():
    assert sizes_of([]) is None
    assert sizes_of([SEEN, replace(MEASURED, rows=0)]) is None
    native = sizes_of([replace(MEASURED, routed=0, route_bytes=0)])
    assert native is not None
    assert (native.routed, native.passing) == (0, 0)


@given(
    executors=st.integers(1, 6),
    slots=st.integers(1, 4),
    read=st.floats(0, 500),
    routed=st.floats(0, 500),
    partial=st.floats(0, 500),
    passing=st.floats(0, 1),
)
def test_traffic_is_what_tasks_on_different_executors_send_each_other(executors, slots, read, routed, partial, passing):
    """Against a count of the bytes between every two tasks, in two shuffles, and of what each task reads."""
    rows, groups = 12_000.0, 700.0
    host = np.repeat(np.arange(executors), slots)
    apart = host[:, None] != host[None, :]
    between = np.where(apart, (rows * passing * routed + groups * partial) / len(host) ** 2, 0.0)
    received = np.bincount(host, between.sum(axis=0) + rows * read / len(host))
    sent = np.bincount(host, between.sum(axis=1))
    sizes = RecordSizes(read, routed, partial, passing)
    found = sizes.traffic(*(np.array([value]) for value in (rows, groups, float(executors))), routes=True)
    assert found[0][0] == pytest.approx(received.max())
    assert found[1][0] == pytest.approx(sent.max())


def test_records_that_were_routed_elsewhere_are_received_and_not_sent():
    sizes = RecordSizes(read=100, routed=20, partial=8, passing=0.5)
    received, sent = sizes.traffic(np.array([1000.0]), np.array([50.0]), np.array([2.0]), routes=False)
    assert (received[0], sent[0]) == (1000 * 0.5 * 20 / 2 + 50 * 8 / 4, 50 * 8 / 4)


def test_a_model_has_the_sizes_of_its_job_and_keeps_them_over_a_restart():
    job, calibration = TrueJob(), Calibration(BOUNDS, PARTITIONS)
    for _ in range(4):
        seen = job.observe(plan(2, 4, 2), 1e5)
        calibration.add(replace(seen, routed=seen.rows, input_bytes=seen.rows * 64, route_bytes=seen.rows * 16))
    again = Calibration(BOUNDS, PARTITIONS)
    again.restore(calibration.save())
    for model in (calibration.model(), again.model()):
        assert model.sizes == RecordSizes(64, 16, 0, 1)
    assert again.newest == calibration.newest
