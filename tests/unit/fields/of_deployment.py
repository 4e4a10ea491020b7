"""Probes of how a query runs: its plan, its pods, its scaling, its checkpoint, and Spark's settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import yaml

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import Emit, StreamQuery
from millrace_jobs import session
from millrace_jobs.aggregates.reducing import ColumnarReduction
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.checkpoint.marker import Marker, Versions
from millrace_jobs.checkpoint.snapshot_manifest import SnapshotReason
from millrace_jobs.partitioners.registry import is_routed, make
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.plan.plan_source import FixedPlan, partitioner_problem, pin_of
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.run.automatic_snapshots import AutomaticSnapshots
from millrace_jobs.run.job import Job
from millrace_jobs.run.platform import OneProcess
from millrace_jobs.run.steering import Steering
from millrace_operator.lifecycle.autoscaling.scaling_inputs import (
    bounds_of,
    settings_of,
    shape_of,
    situation_of,
    state_partitions,
    weighs_placements,
)
from millrace_operator.lifecycle.autoscaling.scaling_status import MetricsReason, scaling_conditions
from millrace_operator.resources.driver_config import grace, spark_defaults
from millrace_operator.resources.manifests import objects
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.resources.pods import driver_pod, executor_pod, partitioner_pod
from millrace_operator.resources.restrictions import problems
from millrace_operator.resources.spec_changes import REVISION
from unit.lifecycle.cluster import KEY, SET, Cluster

from .documents import FILES, KAFKA, ON_CLUSTER, query
from .of_kafka import OWNER
from .probe import ABSENT, Probe, See, probes, written

DEFAULTS = PodDefaults("example.org/jobs")


def plan(asked: StreamQuery) -> object:
    """Return what the first plan pins batches to."""
    return pin_of(Plan.initial(asked.spec))


def shape(asked: StreamQuery) -> object:
    """Return the shape of the first plan."""
    return shape_of(Plan.initial(asked.spec))


def bounds(asked: StreamQuery) -> object:
    """Return the bounds of scaling."""
    return bounds_of(asked.spec)


def placements(asked: StreamQuery) -> object:
    """Return the placement of the first plan, and whether the operator weighs it against the other one."""
    return Plan.initial(asked.spec).placement, weighs_placements(asked.spec)


def partitions(asked: StreamQuery) -> object:
    """Return the number of state partitions of a new checkpoint."""
    return state_partitions(SimpleNamespace(applied=None), asked.spec)


def chosen(asked: StreamQuery) -> object:
    """Return whether a job stays with its first algorithm, and what places records at first; None for Spark."""
    at = pa.field("at", pa.timestamp("us", tz="UTC"))
    routed = Routed(
        "trips",
        None,
        Projection("", (("k0", "city"),), pa.schema([("k0", pa.string())]), 1),
        ColumnarReduction((at,), None, ()),
        Aggregation("trips", "", (), None, (), (), ""),
    )
    with Job(asked) as job:
        setup = SimpleNamespace(given=None, display=SimpleNamespace(message=lambda _: None))
        opened = SimpleNamespace(
            checkpoint=SimpleNamespace(last_pin=lambda: None, state_partitions=4),
            spark=SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2)),
        )
        plans = job._plans(setup, opened, CompiledQuery(routed, None, True))
        current = plans.current()
    assert current is not None
    first = current.algorithm.value
    made = make(first, workers=4, replica=0, replicas=1, seed=0, parameters={}) if is_routed(first) else None
    return isinstance(plans, FixedPlan), type(made).__name__


def parameters(asked: StreamQuery) -> object:
    """Return the parameters of the first plan; raise what a job says against those of the spec."""
    if (problem := partitioner_problem(asked.spec)) is not None:
        raise MillraceError(problem)
    return pin_of(Plan.initial(asked.spec)).parameters


def driver(asked: StreamQuery) -> object:
    """Return the spec of the driver's pod, and what is forbidden in it."""
    made = driver_pod(asked, OWNER, DEFAULTS, {})
    return made["spec"], [str(problem) for problem in problems(asked)]


def driver_memory(asked: StreamQuery) -> object:
    """Return the limit of the driver's memory."""
    return driver_pod(asked, OWNER, DEFAULTS, {})["spec"]["containers"][0]["resources"]["limits"]


def raised_memory(asked: StreamQuery) -> object:
    """Return the memory of pods after the driver, and then its executors, have run out of it."""
    cluster = deployed(asked)
    cluster.pod_fails(code=137, reason="OOMKilled")
    cluster.pod_is_ready()
    for number in range(3):
        cluster.executor_ends(cluster.executor(number), code=52)
    return cluster.pass_time(seconds=10).memory


def executors(asked: StreamQuery) -> object:
    """Return the template of the executors' pods, and what is forbidden in it."""
    return executor_pod(asked, OWNER, DEFAULTS, {}), [str(problem) for problem in problems(asked)]


def replicas_of_partitioner(asked: StreamQuery) -> object:
    """Return the spec of the pods of partitioner replicas, and what is forbidden in it."""
    made = partitioner_pod(asked, OWNER, DEFAULTS, {})
    return made["spec"], [str(problem) for problem in problems(asked)]


def spark_file(*names: str) -> See:
    """Return what reads these settings from the file that Spark starts from on a cluster."""

    def see(asked: StreamQuery) -> object:
        text = spark_defaults(asked, OWNER, DEFAULTS, executor_pod(asked, OWNER, DEFAULTS, {}))
        found = dict(line.split(" ", 1) for line in text.splitlines())
        return [found[name] for name in names]

    return see


def made(kind: str) -> See:
    """Return what finds the query's object of a kind, without the revision of the driver."""

    def see(asked: StreamQuery) -> object:
        found = objects(
            asked, OWNER, Plan.initial(asked.spec), DEFAULTS, running=True, auth="trips-by-cell-auth-0123456789"
        )
        each = next(each for each in found if each["kind"] == kind)
        if kind == "StatefulSet":
            del each["spec"]["template"]["metadata"]["annotations"][REVISION]
        return each

    return see


def revised(asked: StreamQuery) -> object:
    """Return the revision of the driver's pod, by which the operator sees that it has to be replaced."""
    return driver_pod(asked, OWNER, DEFAULTS, {})["metadata"]["annotations"][REVISION]


def scaling(asked: StreamQuery) -> object:
    """Return the settings of scaling."""
    return settings_of(asked.spec)


def scheduled(asked: StreamQuery) -> object:
    """Return the minimum of executors that the schedule asks for in each hour of a day."""
    hours = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(24)]
    cluster = deployed(asked)
    observed = cluster.reconciler.observations.of(KEY)
    plan = Plan.initial(asked.spec)
    return [situation_of(observed, asked.spec, plan, hour).scheduled_minimum for hour in hours]


def scaling_shown(asked: StreamQuery) -> object:
    """Return what the status says about scaling."""
    found = (MetricsReason.AVAILABLE, "")
    return scaling_conditions(asked.spec, None, found, 1, datetime(2026, 1, 1, tzinfo=UTC), paused=False)


def admission(asked: StreamQuery) -> object:
    """Return the goal of the time of a batch, and the longest time."""
    watcher = SimpleNamespace(message=lambda _: None)
    with TemporaryDirectory() as folder:
        policies, control = Path(folder, "policies"), Path(folder, "control.json")
        query, require = SimpleNamespace(mode=bool), bool
        steering = Steering(
            asked.spec, ["trips"], None, policies, control, watcher, query=query, require=require, once=False
        )
    return steering._admission._goal, steering._admission._longest


def grace_period(asked: StreamQuery) -> object:
    """Return how long a pod may take to end."""
    return grace(asked)


def root(asked: StreamQuery) -> object:
    """Return the folder of the checkpoint on this machine, and what a cluster says against it."""
    return checkpoint_root(asked), [str(problem) for problem in problems(asked)]


class Builder:
    """Collects what a Spark session is built with."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def appName(self, name: str) -> Builder:  # noqa: N802 - Spark's name
        return self

    def config(self, name: str, value: str) -> Builder:
        self.settings[name] = value
        return self

    def getOrCreate(self) -> object:  # noqa: N802 - Spark's name
        return SimpleNamespace(sparkContext=SimpleNamespace(environment={}))


def spark_settings(asked: StreamQuery) -> object:
    """Return the settings of the local Spark session; raise what a cluster says against them."""
    if forbidden := problems(asked):
        raise MillraceError(*forbidden)
    builder = Builder()
    started = SimpleNamespace(folder="/tmp/jvm", announced=TemporaryDirectory)
    with (
        patch.object(session, "SparkSession", SimpleNamespace(builder=builder)),
        patch.object(session.jvm, "start", lambda *_, **__: started),
    ):
        OneProcess().session(asked, 4, Path("workspace"), quiet=False)
    return builder.settings


def deployed(asked: StreamQuery, annotations: dict[str, str] | None = None, cluster: Cluster | None = None) -> Cluster:
    """Return a cluster, by default a new one, on which the operator runs a query."""
    cluster = cluster or Cluster()
    cluster.put(yaml.safe_dump(_named(asked)), annotations)
    cluster.settle()
    return cluster


def drivers(asked: StreamQuery) -> object:
    """Return how many drivers the operator runs."""
    return deployed(asked).objects[SET]["spec"]["replicas"]


def _named(asked: StreamQuery) -> dict[str, Any]:
    return asked.to_short_document() | {"metadata": {"name": KEY.name}}


def orders(asked: StreamQuery) -> object:
    """Return the snapshots that a run orders, on a checkpoint that another query has left, and when."""
    ordered: list[object] = []
    with TemporaryDirectory() as name:
        root = Path(name)
        before = asked.model_copy(update={"spec": asked.spec.model_copy(update={"emit": Emit.ON_WINDOW_CLOSE})})
        Marker("id", before, 2, versions=Versions.present()).write(root)
        snapshots = AutomaticSnapshots(root, asked.spec.snapshots, ordered.append)
        with patch("millrace_jobs.run.automatic_snapshots.SnapshotProcess") as process:
            process.side_effect = lambda _, *order: ordered.append(order)
            snapshots.before(asked)
            ordered.append(snapshots._order(SnapshotReason.SCHEDULE)) if asked.spec.snapshots else None
    return ordered, snapshots.state.interval


TEMPLATE = {"spec": {"priorityClassName": "steady"}}
FORBIDDEN = {"spec": {"hostNetwork": True}}


def of_plan() -> Iterator[Probe]:
    """Yield the probes of the partitioner, the parallelism and the executors."""
    base = ON_CLUSTER
    algorithms = [each.value for each in Algorithm]
    yield Probe("spec.partitioner.algorithm", query(FILES), tuple(algorithms), chosen)
    own = query(FILES, partitioner={"parameters": {"class": "placing:Sticky"}})
    yield Probe("spec.partitioner.algorithm", own, ("auto", "python"), lambda asked: asked.spec.partitioner.algorithm)
    prompt = written(base, "spec.partitioner.algorithm", "prompt")
    values = (ABSENT, {"budget": 5}, {"budgets": 5})
    yield Probe("spec.partitioner.parameters", prompt, values, parameters)
    hashed, values = written(base, "spec.partitioner.algorithm", "hash"), ("Inline", "Dedicated", "Auto")
    yield Probe("spec.partitioner.placement", hashed, values[:2], plan)
    yield Probe("spec.partitioner.placement", hashed, values, placements)
    larger = written(base, "spec.executors.initial", 4)
    yield from probes(base, bounds, "spec.partitioner.replicas", min=(1, 2), max=(8, 7))
    yield from probes(base, shape, "spec.partitioner.replicas", initial=(ABSENT, 3), min=(1, 3), max=(8, 1))
    yield from probes(base, bounds, "spec.parallelism", min=(1, 2), max=(16, 15))
    yield from probes(base, shape, "spec.parallelism", initial=(ABSENT, 3), min=(1, 9), max=(16, 4))
    yield from probes(base, partitions, "spec.parallelism", max=(16, 4))
    yield from probes(larger, bounds, "spec.executors", min=(0, 1, 2, 5), max=(8, 7), cores=(2, 3, "500m"))
    yield from probes(base, shape, "spec.executors", initial=(1, 2))
    yield from probes(base, made("PodDisruptionBudget"), "spec.executors", initial=(2, 3))


def of_pods() -> Iterator[Probe]:
    """Yield the probes of what the pods are."""
    base, templates = ON_CLUSTER, (ABSENT, TEMPLATE, FORBIDDEN)
    yield from probes(base, driver, "spec.driver", cores=(1, 2, "500m"), podTemplate=templates)
    yield from probes(base, driver_memory, "spec.driver", memory=("1g", "3g"))
    yield from probes(base, spark_file("spark.driver.memory"), "spec.driver", memory=("1g", "3g"))
    for part, bounds in (("driver", (ABSENT, "1200m", "4g")), ("executors", (ABSENT, "2200m", "6g"))):
        yield from probes(base, raised_memory, f"spec.{part}", maxMemory=bounds)
    yield from probes(base, executors, "spec.executors", podTemplate=templates)
    sizes = {"cores": (1, 2), "memory": ("1g", "3g")}
    yield from probes(base, replicas_of_partitioner, "spec.partitioner.pod", **sizes, podTemplate=templates)
    yield from probes(base, spark_file("spark.executor.cores"), "spec.executors", cores=(2, 3, "500m"))
    requests = spark_file("spark.kubernetes.executor.request.cores")
    yield from probes(base, requests, "spec.executors", cores=(2, 3, "500m"))
    yield from probes(base, spark_file("spark.executor.memory"), "spec.executors", memory=("1g", "3g"))
    images = (ABSENT, "example.org/mine")
    yield from probes(base, made("StatefulSet"), "spec", image=images)
    yield from probes(base, spark_file("spark.kubernetes.executor.container.image"), "spec", image=images)
    for kind in ("StatefulSet", "RoleBinding"):
        yield from probes(base, made(kind), "spec", serviceAccountName=(ABSENT, "mine"))
    for see in (driver, executors):
        yield from probes(base, see, "spec", checkpoint=(ABSENT, {"claimName": "checkpoints"}))
        yield from probes(base, see, "spec", checkpoint__claimName=("checkpoints", "others"))
    local = query(KAFKA)
    uris = ("file:///one", "file:///two", "s3a://bucket/one")
    yield Probe("spec.checkpoint.uri", written(local, "spec.checkpoint", {"uri": uris[0]}), uris, root)
    yield Probe("spec.checkpoint", local, (ABSENT, {"uri": uris[0]}), root)
    snapshots = (ABSENT, "file:///nowhere/one", "file:///nowhere/two")
    yield Probe("spec.checkpoint.fromSnapshot", written(local, "spec.checkpoint", {"uri": uris[0]}), snapshots, begun)


def begun(asked: StreamQuery) -> str:
    """Return what becomes of an empty place for the query's checkpoint."""
    with TemporaryDirectory() as folder:
        checkpoint = Checkpoint(Path(folder))
        try:
            checkpoint.open(asked)
        except MillraceError as error:
            return str(error)
        checkpoint.close()
        return "a new checkpoint"


def of_scheduling() -> Iterator[Probe]:
    """Yield the probes of the batch scheduler, by the pods that are announced to it."""
    kueue, volcano = ({"scheduler": name, "queue": "team-a"} for name in ("Kueue", "Volcano"))
    for see in (made("StatefulSet"), executors):
        yield Probe("spec.scheduling", ON_CLUSTER, (ABSENT, kueue), see)
        base = written(ON_CLUSTER, "spec.scheduling", kueue)
        schedulers = ("Kueue", "Volcano", "YuniKorn")
        parts = {"scheduler": schedulers, "queue": ("team-a", "team-b"), "priorityClass": (ABSENT, "streaming")}
        yield from probes(base, see, "spec.scheduling", **parts)
    parts = {"queue": ("team-a", "team-b"), "priorityClass": (ABSENT, "streaming")}
    yield from probes(written(ON_CLUSTER, "spec.scheduling", volcano), made("PodGroup"), "spec.scheduling", **parts)


def of_snapshots() -> Iterator[Probe]:
    """Yield the probes of automatic snapshots."""
    yield Probe("spec.snapshots", ON_CLUSTER, (ABSENT, {}, {"every": "6h"}), orders)
    base = written(ON_CLUSTER, "spec.snapshots", {})
    parts = {"every": (ABSENT, "6h", "1h"), "beforeChange": (True, False), "keep": (10, 3), "maxAge": (ABSENT, "7d")}
    yield from probes(base, orders, "spec.snapshots", **parts)


def of_schedules() -> Iterator[Probe]:
    """Yield the probes of minimums of executors that hold at times."""
    noon = {"start": "0 12 * * *", "duration": "1h", "minExecutors": 3}
    yield Probe("spec.scaling.schedule", ON_CLUSTER, (ABSENT, [noon]), scheduled)
    base = written(ON_CLUSTER, "spec.scaling", {"schedule": [noon]})
    parts = {
        "start": ("0 12 * * *", "0 6 * * *"),
        "duration": ("1h", "2h"),
        "timeZone": ("UTC", "Europe/Oslo"),
        "minExecutors": (3, 4),
    }
    yield from probes(base, scheduled, "spec.scaling.schedule[]", **parts)


def of_deployment() -> Iterator[Probe]:
    """Yield the probes of everything but sources, query and sinks."""
    yield from of_plan()
    yield from of_pods()
    yield from probes(
        ON_CLUSTER,
        scaling,
        "spec.scaling",
        mode=("Active", "Advise"),
        target=(0.9, 0.8),
        step=(0.1, 0.2),
        window=(6, 7),
        grace=(6, 0),
    )
    yield from probes(ON_CLUSTER, scaling, "spec.scaling.costs", rescale=(0.2, 0.5), lateMinute=(1.2, 0.0))
    yield from of_schedules()
    yield Probe("spec.scaling.mode", ON_CLUSTER, ("Active", "Advise", "Off"), scaling_shown)
    yield Probe("spec.scaling.target", ON_CLUSTER, (0.9, 0.8), admission)
    yield Probe("spec.batchInterval", ON_CLUSTER, ("2s", "4s"), admission)
    yield Probe("spec.batchInterval", ON_CLUSTER, ("2s", "4s"), grace_period)
    confs = (ABSENT, {"spark.sql.adaptive.enabled": "false"}, {"spark.master": "local"}, {"spark.sql.session.timeZone":
             "Europe/Oslo"})  # fmt: skip
    yield Probe("spec.sparkConf", ON_CLUSTER, confs, spark_settings)
    yield from of_scheduling()
    yield from of_snapshots()
    yield Probe("spec.suspend", ON_CLUSTER, (False, True), drivers)
    yield Probe("spec.restartNonce", ON_CLUSTER, (ABSENT, 1, 2), revised)
