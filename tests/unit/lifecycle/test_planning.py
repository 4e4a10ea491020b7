"""The plan that a query follows: the spec's wishes, what scaling decided, and what was announced before a crash."""

import copy
import json

import pytest

from millrace_operator.lifecycle.autoscaling.scaling_status import ScalingResult
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.scaling.shape import Shape
from unit.api.documents import MINIMAL, changed

from .cluster import KEY, ConflictError

PLAN = ("ConfigMap", "trips-by-cell-plan")
NARROW = """\
  executors: {max: 3}
  parallelism: {max: 9}
  partitioner: {replicas: {max: 4}}
"""


def plan(cluster):
    written = json.loads(cluster.objects[PLAN]["data"]["plan.yaml"])
    announced = cluster.status.plan
    assert (announced.epoch, announced.executors) == (written["epoch"], written["executors"])
    return announced


def wants(cluster, executors, epoch, parallelism=8, replicas=2):
    shape = Shape(executors, parallelism, replicas)
    cluster.memory.scaling = ScalingResult(change=shape, epoch=epoch)


@pytest.fixture
def deployed(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    return cluster


def test_what_kubectl_scale_asks_for_is_the_plan(deployed):
    deployed.put(changed(MINIMAL, 12, "  executors: {initial: 5}"))
    deployed.settle()
    assert (plan(deployed).shape, plan(deployed).epoch) == ("5/8/2", 2)
    assert deployed.objects["PodDisruptionBudget", "trips-by-cell-exec"]["spec"]["minAvailable"] == 4


def test_scaling_decides_for_the_plan_that_it_saw(deployed):
    wants(deployed, 4, epoch=1)
    deployed.settle()
    assert (plan(deployed).shape, plan(deployed).epoch) == ("4/8/2", 2)
    wants(deployed, 7, epoch=1)
    deployed.settle()
    assert plan(deployed).shape == "4/8/2"


def test_a_wish_of_the_user_comes_before_a_decision_and_leaves_the_rest_of_the_plan(deployed):
    wants(deployed, 4, epoch=1, parallelism=12)
    deployed.settle()
    wants(deployed, 8, epoch=2, parallelism=16)
    deployed.put(changed(MINIMAL, 12, "  executors: {initial: 3}"))
    deployed.settle()
    assert (plan(deployed).shape, plan(deployed).epoch) == ("3/12/2", 3)


def test_another_algorithm_in_the_spec_is_a_new_plan(deployed):
    deployed.put(changed(MINIMAL, 12, "  partitioner: {algorithm: pkg, parameters: {choices: 3}}"))
    deployed.settle()
    assert (plan(deployed).algorithm, plan(deployed).epoch) == ("pkg", 2)
    assert json.loads(deployed.objects[PLAN]["data"]["plan.yaml"])["parameters"] == {"choices": 3}


@pytest.mark.parametrize("mode", ["Active", "Advise", "Off"])
def test_a_plan_stays_within_the_bounds_of_the_spec(deployed, mode):
    wants(deployed, 8, epoch=1, parallelism=16, replicas=8)
    deployed.settle()
    deployed.put(changed(MINIMAL, 12, f"{NARROW}  scaling: {{mode: '{mode}'}}"))
    deployed.settle()
    assert plan(deployed).shape == "3/9/4"


def test_a_plan_that_somebody_deletes_is_back_as_it_was(deployed):
    wants(deployed, 6, epoch=1)
    deployed.settle()
    deployed.reconciler.observations.object_gone(deployed.objects.pop(PLAN))
    deployed.settle()
    assert (plan(deployed).shape, plan(deployed).epoch) == ("6/8/2", 2)


def test_a_plan_that_was_announced_is_written_after_a_crash(deployed):
    wants(deployed, 6, epoch=1)
    deployed.dies_at = 1  # after the status
    with pytest.raises(ConnectionError):
        deployed.settle()
    deployed.dies_at = None
    assert json.loads(deployed.objects[PLAN]["data"]["plan.yaml"])["executors"] == 1
    deployed.start_operator()  # which knows nothing of the decision
    deployed.settle()
    assert (plan(deployed).shape, plan(deployed).epoch) == ("6/8/2", 2)


def test_a_first_plan_that_was_not_written_before_a_crash_follows_a_later_spec(cluster):
    cluster.put(MINIMAL)
    cluster.dies_at = 1  # after the status
    with pytest.raises(ConnectionError):
        cluster.settle()
    cluster.dies_at = None
    assert (cluster.status.plan.shape, PLAN in cluster.objects) == ("1/8/2", False)
    cluster.put(changed(MINIMAL, 12, "  executors: {initial: 5}"))
    cluster.start_operator()
    cluster.settle()
    assert (plan(cluster).shape, plan(cluster).epoch) == ("5/8/2", 2)


def test_a_plan_that_another_operator_has_written_meanwhile_is_not_overwritten(deployed):
    stale = deployed.reconciler
    stale.observations = _observations(deployed)
    wants(deployed, 6, epoch=1)
    deployed.start_operator()
    wants(deployed, 4, epoch=1)
    deployed.settle()
    with pytest.raises(ConflictError):
        stale.reconcile(KEY)
    assert json.loads(deployed.objects[PLAN]["data"]["plan.yaml"])["executors"] == 4


def test_a_plan_goes_on_above_those_that_a_restored_backup_lacks(deployed):
    deployed.driver_follows(executors=1, partitions=8)
    report = json.loads(deployed.objects[PLAN]["data"]["applied.json"])
    for epoch, planned in ((8, 9), (9, 9), (2**53, 9)):  # the last is nothing that a driver has followed
        deployed.objects[PLAN]["data"]["applied.json"] = json.dumps(report | {"epoch": epoch})
        deployed._changed(deployed.objects[PLAN])
        deployed.settle()
        assert (plan(deployed).epoch, plan(deployed).shape) == (planned, "1/8/2")


def _observations(cluster):
    """As they are now, whatever is seen later."""
    held = ObservationCache()
    held.query_seen(copy.deepcopy(cluster.query))
    for each in cluster.objects.values():
        held.object_seen(copy.deepcopy(each))
    return held
