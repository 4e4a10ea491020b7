"""A query under the operator's scaling, with simulated metrics."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from millrace_operator.lifecycle.autoscaling.autoscaler import Autoscaler
from millrace_operator.metrics_source.client import PrometheusError
from millrace_operator.scaling.shape import Shape
from millrace_operator.telemetry.metrics import OperatorMetrics
from millrace_research.arena.scenarios import ScenarioSetting, synthetic
from unit.api.documents import MINIMAL, changed

from .cluster import KEY, NOW, Cluster, stamp

_STEP = synthetic("step", ScenarioSetting(max_executors=6))
SCENARIO = replace(_STEP, trace=_STEP.trace.between(3000, 4500))
"""The rate goes up to three times as much after ten minutes."""


def document(mode="Active", **more):
    """The query of the scenario."""
    bounds, first = SCENARIO.bounds, SCENARIO.initial
    spec = {
        "executors": {"initial": first.executors, "max": bounds.executors.high},
        "parallelism": {"initial": first.parallelism, "min": bounds.parallelism.low, "max": bounds.parallelism.high},
        "partitioner": {"replicas": {"initial": first.replicas, "max": bounds.replicas.high}},
        "scaling": {"mode": mode},
        **more,
    }
    return changed(MINIMAL, 12, "\n".join(f"  {name}: {json.dumps(value)}" for name, value in spec.items()))


class Operated:
    """A policy of the simulator: the whole operator, on a cluster in memory."""

    name, period = "operated", 5.0

    def __init__(self, text=None):
        self.cluster = Cluster()
        self.answer = None
        self.trouble = None
        self.cluster.put(text or document())
        self.cluster.settle()
        self.cluster.pod_is_ready()
        self.start()

    def start(self):
        """A new operator process, as far as scaling goes."""
        self.cluster.start_operator()
        objects = self.cluster
        self.autoscaler = Autoscaler(
            self.cluster.reconciler, objects, OperatorMetrics(), self.ask, lambda: self.cluster.time
        )

    def ask(self, key, now, executors):
        if self.trouble:
            raise PrometheusError(self.trouble)
        return self.answer

    def step(self, answer, situation):
        self.answer = None if answer is None else shifted(answer)
        self.cluster.time = NOW + timedelta(seconds=situation.now)
        self._show_executors(situation.executors_ready, situation.executors_pending_since)
        self.cluster.driver_follows(situation.executors_ready, SCENARIO.bounds.parallelism.high)
        self.cluster.show()
        self.autoscaler.check(KEY)
        self.cluster.settle()
        return self.plan

    @property
    def plan(self):
        held = self.cluster.status.plan
        return Shape(held.executors, held.parallelism, held.replicas)

    def _show_executors(self, ready, pending_since):
        pods = [(f"exec-{number}", stamp(NOW), True) for number in range(ready)]
        if pending_since is not None:
            pods.append(("exec-pending", stamp(NOW + timedelta(seconds=pending_since)), False))
        for key in [key for key in self.cluster.objects if key[1].startswith("exec-")]:
            self.cluster.reconciler.observations.object_gone(self.cluster.objects.pop(key))
        for name, created, is_ready in pods:
            labels = {"millrace.io/query": KEY.name, "millrace.io/role": "executor"}
            metadata = {"name": name, "namespace": KEY.namespace, "uid": name, "labels": labels}
            conditions = [{"type": "Ready", "status": str(is_ready), "lastTransitionTime": created}]
            self.cluster.objects["Pod", name] = {
                "kind": "Pod",
                "metadata": metadata | {"creationTimestamp": created},
                "spec": {"containers": [{"name": "executor", "resources": {"requests": {"cpu": "2"}}}]},
                "status": {"conditions": conditions},
            }


def shifted(answer):
    """In the operator's time, and by its epochs, which begin with 1."""
    epoch = None if answer.epoch is None else answer.epoch + 1
    return replace(answer, time=answer.time + NOW.timestamp(), epoch=epoch)
