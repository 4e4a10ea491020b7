"""Placement Auto in the operator: plan, StatefulSet and status follow what scaling decides, and the spec comes first."""

import json
from dataclasses import asdict, replace

import pytest

from millrace_api.model.deployment import Placement
from millrace_api.model.status import LastScaling
from millrace_operator.lifecycle.autoscaling.scaling_inputs import new_scaler, weighs_placements
from millrace_operator.lifecycle.autoscaling.scaling_status import ScalingResult
from millrace_operator.lifecycle.target import spec_to_run
from millrace_operator.scaling.decision.placement import PlacedScaler
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.simulation.run import PlacedShape, simulate
from millrace_research.arena.simulation.traces import constant
from unit.scaling.deciding import BOUNDS, scenario
from unit.scaling.placed import DEDICATED, FIRST, HEAVY, RATE

from .cluster import KEY, NOW, POD, REPLICAS, stamp
from .dedicated_queries import INLINE, KAFKA, OTHER_SQL, pods, running, wanted
from .operated import Operated

AUTO = KAFKA + "  partitioner: {algorithm: prompt, placement: Auto}\n"
BEFORE, AFTER = Shape(1, 8, 2), Shape(1, 8, 3)
LAST = LastScaling.model_validate(
    {"time": stamp(NOW), "from": asdict(BEFORE), "to": asdict(AFTER), "reason": "ToDedicated", "message": "it pays"}
)


@pytest.fixture
def auto(cluster):
    return running(cluster, AUTO)


def moved(cluster, placement, shape, epoch, last=None):
    """Report a decision to move replicas, as the autoscaler does, and return the plan that follows."""
    result = ScalingResult(last, change=shape, placement=Placement(placement), epoch=epoch)
    cluster.memory.scaling = result
    cluster.settle()
    return cluster.status.plan


@pytest.fixture
def placed(auto):
    """A query that scaling has moved to pods."""
    moved(auto, "Dedicated", AFTER, epoch=1, last=LAST)
    return auto


def weighs(cluster):
    """Return the query's spec and whether its placements are weighed."""
    observed = cluster.reconciler.observations.of(KEY)
    return weighs_placements(spec_to_run(observed, cluster.reconciler.query_of(KEY, observed).spec))


def test_auto_begins_inline_without_objects_for_replicas(auto):
    assert (auto.status.plan.placement, auto.status.plan.epoch) == ("Inline", 1)
    assert [key for key in auto.objects if key[1] == REPLICAS[1]] == []
    assert weighs(auto)


def test_plan_pods_and_status_follow_a_decision_to_move(placed):
    plan = placed.status.plan
    assert (plan.placement, plan.epoch, plan.shape) == ("Dedicated", 2, "1/8/3")
    assert (wanted(placed), len(pods(placed))) == (3, 3)
    assert (placed.status.last_scaling.reason, placed.status.last_scaling.message) == ("ToDedicated", "it pays")
    assert (False, "ToDedicated") in placed.events
    written = json.loads(placed.objects["ConfigMap", "trips-by-cell-plan"]["data"]["plan.yaml"])
    assert written["placement"] == "Dedicated"


def test_replicas_stay_until_the_driver_follows_the_move_back(placed):
    placed.driver_follows(executors=1, partitions=8)
    assert moved(placed, "Inline", Shape(1, 8, 2), epoch=2).placement == "Inline"
    assert wanted(placed) == 3
    placed.driver_follows(executors=1, partitions=8)
    placed.settle()
    assert (wanted(placed), pods(placed)) == (0, [])


def test_a_move_alone_is_a_change(auto):
    plan = moved(auto, "Dedicated", Shape(1, 8, 2), epoch=1, last=LAST)
    assert (plan.placement, plan.epoch, plan.shape) == ("Dedicated", 2, "1/8/2")


def test_a_decision_about_an_earlier_plan_moves_nothing(placed):
    assert moved(placed, "Inline", Shape(1, 8, 2), epoch=1).placement == "Dedicated"


def test_a_new_operator_keeps_the_placement(placed):
    placed.start_operator()
    assert placed.settle().plan.placement == "Dedicated"


@pytest.mark.parametrize(
    "text",
    [
        INLINE,
        OTHER_SQL.replace("Dedicated", "Auto"),
        AUTO.replace("prompt", "hash"),
        AUTO.replace("prompt", "native"),
        AUTO.replace("Auto}", "Auto, parameters: {cutoff: 2}}"),
    ],
    ids=["inline", "sql", "algorithm", "native", "parameters"],
)
def test_another_query_or_algorithm_begins_inline(placed, text):
    placed.put(text)
    assert placed.settle().plan.placement == "Inline"


@pytest.mark.parametrize(
    "text",
    [
        AUTO + "  executors: {max: 4}\n",
        AUTO + "  scaling: {mode: 'Off'}\n",
        AUTO.replace("Auto}", "Auto, replicas: {max: 5}}"),
        KAFKA + "  partitioner: {algorithm: prompt, placement: Dedicated}\n",
    ],
    ids=["bounds", "mode", "replicas", "dedicated"],
)
def test_other_settings_leave_replicas_where_they_are(placed, text):
    placed.put(text)
    assert placed.settle().plan.placement == "Dedicated"


def test_a_driver_that_fails_runs_inline_next(placed):
    placed.pod_fails('{"failure": "Other", "message": "no"}', key=POD)
    assert placed.settle().plan.placement == "Inline"


@pytest.mark.parametrize("spec", ["  scaling: {mode: Advise}\n", "  scaling: {mode: 'Off'}\n"])
def test_no_placement_is_weighed_in_modes_that_change_nothing(auto, spec):
    auto.put(AUTO + spec)
    auto.settle()
    assert not weighs(auto)


class Moved(Operated):
    """The whole operator on a cluster in memory, whose job has replicas in tasks or in pods."""

    def __init__(self, restarts_at=()):
        self._restarts_at = set(restarts_at)
        bounds = {
            "executors": {"initial": FIRST.executors, "max": BOUNDS.executors.high},
            "parallelism": {"initial": FIRST.parallelism, "min": 2, "max": BOUNDS.parallelism.high},
        }
        replicas = {"initial": FIRST.replicas, "max": BOUNDS.replicas.high}
        partitioner = {"algorithm": "hash", "placement": "Auto", "replicas": replicas}
        spec = bounds | {"partitioner": partitioner}
        super().__init__(KAFKA + "".join(f"  {name}: {json.dumps(value)}\n" for name, value in spec.items()))

    def step(self, answer, situation):
        if situation.now in self._restarts_at:
            self.start()
        for number in range(situation.replicas_ready or 0):
            key = ("Pod", f"{REPLICAS[1]}-{number}")
            if key in self.cluster.objects and "conditions" not in self.cluster.objects[key]["status"]:
                self.cluster.pod_is_ready(key)
        shape = super().step(answer, situation)
        return PlacedShape(shape, self.cluster.status.plan.placement == "Dedicated")


@pytest.mark.parametrize("restarts_at", [(), (100.0, 200.0, 260.0)], ids=["", "restarted"])
def test_the_operator_moves_a_job_and_survives_restarts(restarts_at):
    scene = scenario(constant(RATE, 900), FIRST, job=replace(HEAVY, state_partitions=8), elsewhere=DEDICATED)
    policy = Moved(restarts_at)
    result = simulate(scene, policy, 1)
    assert [each.dedicated for each in result.rescales].count(True) >= 1
    assert policy.cluster.status.plan.placement == "Dedicated"
    assert wanted(policy.cluster) == result.rescales[-1].after.replicas
    assert (False, "ToDedicated") in policy.cluster.events
    state = policy.cluster.memory.scaler
    assert isinstance(state.scaler, PlacedScaler)
    assert "Dedicated saves" in state.last.placement


def test_a_scaler_that_weighs_nothing_has_the_bounds_of_the_plan(placed):
    observed = placed.reconciler.observations.of(KEY)
    spec = placed.reconciler.query_of(KEY, observed).spec
    advised = spec.model_copy(update={"scaling": spec.scaling.model_copy(update={"mode": "Advise"})})
    assert new_scaler(advised, observed.plan, 8).bounds.dedicated
    assert isinstance(new_scaler(spec, observed.plan, 8), PlacedScaler)
