"""Inputs of scaling besides the metrics, taken from spec, plan and pods; pure functions."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from datetime import datetime
from typing import Any

from millrace_api.model.annotations import PAUSED, PAUSED_SCALE_IN, PAUSED_SCALE_OUT
from millrace_api.model.deployment import ScalingMode
from millrace_api.model.labels import EXECUTOR, ROLE
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import Spec

from ..resources.names import Manifest, Owner
from ..resources.objects import to_json
from ..scaling.decision.decision import Decision, Situation
from ..scaling.decision.scaler import Scaler
from ..scaling.decision.settings import Mode, Settings
from ..scaling.shape import Bounds, Range, Shape
from .conditions import moment
from .driver_health import created, ready_since
from .observe import ObservedQuery


def settings_of(spec: Spec) -> Settings:
    """Return the user's scaling settings; mode Off maps to Advise, so that the status still shows the load."""
    scaling = spec.scaling
    active = scaling.mode is ScalingMode.ACTIVE
    return Settings(
        mode=Mode.ACTIVE if active else Mode.ADVISE,
        target=scaling.target,
        step=scaling.step,
        window=scaling.window,
        grace=scaling.grace,
    )


def bounds_of(spec: Spec) -> Bounds:
    """Return the spec's bounds for plans."""
    return Bounds(
        executors=Range(spec.executors.min, spec.executors.max),
        parallelism=Range(spec.parallelism.min, spec.parallelism.max),
        replicas=Range(spec.partitioner.replicas.min, spec.partitioner.replicas.max),
        executor_cores=spec.executors.cores,
    )


def state_partitions(seen: ObservedQuery, spec: Spec) -> int:
    """Return the merge's state partitions as the driver reports them; before that, the number for a new checkpoint."""
    if seen.applied is not None:
        return seen.applied.state_partitions
    return spec.state_partitions(spec.executors.max * spec.executors.cores)


def situation_of(seen: ObservedQuery, plan: Plan, now: datetime) -> Situation:
    """Return plan, executors and pauses. An executor is ready once it takes tasks, some time after its pod is ready."""
    pods = executors(seen)
    ready = sum(1 for each in pods if ready_since(each) is not None)
    if seen.applied is not None:
        ready = min(ready, seen.applied.executors_ready)
    waiting = [moment(created(each)).timestamp() for each in pods if ready_since(each) is None]
    return Situation(
        now=now.timestamp(),
        plan=shape_of(plan),
        epoch=plan.epoch,
        executors_ready=ready,
        executors_pending_since=min(waiting, default=None),
        paused=seen.is_set(PAUSED),
        scale_in_paused=seen.is_set(PAUSED_SCALE_IN),
        scale_out_paused=seen.is_set(PAUSED_SCALE_OUT),
    )


def executors(seen: ObservedQuery) -> list[Manifest]:
    """Return the executor pods that have not ended and are not being deleted."""
    return [
        each
        for (kind, _), each in seen.objects.items()
        if kind == "Pod"
        and each["metadata"]["labels"].get(ROLE) == EXECUTOR
        and "deletionTimestamp" not in each["metadata"]
        and each.get("status", {}).get("phase") not in ("Failed", "Succeeded")
    ]


def shape_of(plan: Plan) -> Shape:
    """Return the part of a plan that scaling changes."""
    return Shape(plan.executors, plan.parallelism, plan.replicas)


DECISION, LEARNED = "decision.json", "learned.json"
"""Keys of the ConfigMap; ``millrace explain`` shows the first entry."""

log = logging.getLogger(__name__)


def memory(owner: Owner, decision: Decision, scaler: Scaler) -> Manifest:
    """Return the ConfigMap with the decision and the learned state."""
    data = {DECISION: to_json(to_document(decision)), LEARNED: to_json(scaler.save())}
    return owner.manifest("v1", "ConfigMap", owner.scaling, {"data": data})


def recall(scaler: Scaler, seen: ObservedQuery) -> bool:
    """Restore a new scaler from saved state, if there is any.

    Returns whether the scaler can be used; unreadable state, such as another version's, may leave it half restored.
    """
    try:
        text = seen.memory["data"][LEARNED]
    except (KeyError, TypeError):
        return True
    try:
        scaler.restore(json.loads(text))
        return True
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        log.info("what scaling had learned cannot be read and is discarded: %s", error)
        return False


def to_document(decision: Decision) -> dict[str, Any]:
    """Convert a decision with all its inputs to JSON types."""
    return dict(json.loads(json.dumps(asdict(decision), default=sorted)))
