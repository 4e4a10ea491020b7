"""The canary's step: it answers a touch in the status, and does nothing else."""

import pytest

from millrace_operator.lifecycle.canary import TOUCHED, answered_touch
from millrace_operator.lifecycle.reconcile import Reconciler
from millrace_operator.resources.pod_defaults import PodDefaults
from unit.api.documents import MINIMAL, changed

from .cluster import KEY

CANARY = changed(MINIMAL, 12, "  suspend: true")


@pytest.fixture
def canary(cluster):
    """A query with the label of a canary, touched once."""
    cluster.put(CANARY, {TOUCHED: "first"})
    cluster.query["metadata"]["labels"] = {"millrace.io/canary": "true"}
    return cluster


def test_a_touch_is_answered_in_the_status_and_nothing_is_deployed(canary):
    canary.settle()
    assert answered_touch(canary.query) == "first"
    canary.query["metadata"]["annotations"][TOUCHED] = "second"
    canary.settle()
    assert answered_touch(canary.query) == "second"
    assert canary.actions == [("status", "Suspended")] * 2
    assert canary.objects == {}
    assert canary.events == []


def test_a_canary_that_is_answered_is_written_no_more(canary):
    canary.settle()
    writes = canary.writes
    canary.start_operator()
    canary.settle()
    assert canary.writes == writes


def test_a_step_that_fails_is_reported_with_its_error(canary):
    failed = []
    reconciler = Reconciler(
        canary, canary, PodDefaults("image"), on_error=lambda key, error: failed.append((key, error))
    )
    reconciler.observations.query_seen(canary.query)
    canary.dies_at = 0
    reconciler._work_on(KEY)
    ((key, error),) = failed
    assert key == KEY
    assert isinstance(error, ConnectionError)
