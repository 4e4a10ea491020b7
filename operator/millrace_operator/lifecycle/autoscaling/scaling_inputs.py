"""What the scaler gets besides metrics: settings, plan and executors from the cluster, and the state saved there.

All functions are pure, apart from ``restore``, which changes the scaler.

``autoscaler`` hands it to ``scaling.decision.scaler``.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from datetime import datetime

from millrace_api.model.dedicated import dedicated_obstacle
from millrace_api.model.deployment import Placement, PlacementSetting, ScalingMode
from millrace_api.model.plan import Plan
from millrace_api.model.schedule import scheduled_minimum
from millrace_api.model.streamquery import Annotation, Spec

from ...resources.bandwidth import executor_network
from ...resources.names import Manifest, Owner
from ...resources.pod_defaults import PodDefaults
from ...resources.spec_changes import placement_subject
from ...scaling.batch_time.calibration import Calibration
from ...scaling.batch_time.cost_prior import CostPrior
from ...scaling.decision.decision import Decision, Situation
from ...scaling.decision.placement import PlacedScaler
from ...scaling.decision.scaler import Scaler
from ...scaling.decision.settings import Costs, Mode, Settings
from ...scaling.seasons import Seasons
from ...scaling.shape import Bounds, Range, Shape
from ..observed_query import ObservedQuery
from ..pods.driver_health import created, ready_since
from ..pods.missing_pods import expected_executor
from .quota_room import Room, room_for

DECISION, LEARNED = "decision.json", "learned.json"
"""Keys of the ConfigMap with the saved state; ``millrace explain`` shows the first entry."""

log = logging.getLogger(__name__)

AnyScaler = Scaler | PlacedScaler
"""The scaler of a query: the second kind also decides where replicas run."""


def settings_of(spec: Spec) -> Settings:
    """Return the user's scaling settings; mode Off maps to Advise, so that the status still shows the load."""
    scaling = spec.scaling
    return Settings(
        mode=Mode.ACTIVE if scaling.mode is ScalingMode.ACTIVE else Mode.ADVISE,
        target=scaling.target,
        step=scaling.step,
        window=scaling.window,
        grace=scaling.grace,
        costs=Costs(rescale=scaling.costs.rescale, late_minute=scaling.costs.late_minute),
    )


def bounds_of(spec: Spec, placement: Placement | None = None) -> Bounds:
    """Return the spec's bounds for shapes, and what replicas cost under a placement, by default the first plan's."""
    partitioner = spec.partitioner
    dedicated = (placement or partitioner.placement.at_start) is Placement.DEDICATED
    return Bounds(
        executors=Range(max(spec.executors.min, 1), spec.executors.max),
        rests=spec.executors.min == 0,
        parallelism=Range(spec.parallelism.min, spec.parallelism.max),
        replicas=Range(partitioner.replicas.min, partitioner.replicas.max),
        executor_cores=spec.executors.cores.slots,
        network=executor_network(spec.executors),
        replica_cores=float(partitioner.pod.cores) if dedicated else 0.0,
    )


def weighs_placements(spec: Spec) -> bool:
    """Return whether the placement follows measurement: not in modes that change nothing, and not if only one works."""
    auto, active = spec.partitioner.placement is PlacementSetting.AUTO, spec.scaling.mode is ScalingMode.ACTIVE
    return auto and active and dedicated_obstacle(spec) is None


def new_scaler(
    spec: Spec, plan: Plan, partitions: int, seasons: Seasons | None = None, prior: CostPrior | None = None
) -> AnyScaler:
    """Return the scaler of a query under ``plan``.

    ``partitions`` is the number of state partitions, ``seasons`` what was learned of the load under another spec, and
    ``prior`` what is expected of the costs, with replicas where ``begins_dedicated`` says.
    """
    settings = settings_of(spec)
    if not weighs_placements(spec):
        bounds = bounds_of(spec, plan.placement)
        return Scaler(settings, bounds, partitions, Calibration(bounds, partitions, prior), seasons)
    inline, dedicated = (bounds_of(spec, each) for each in (Placement.INLINE, Placement.DEDICATED))
    return PlacedScaler(settings, inline, dedicated, partitions, placement_subject(spec) or "", seasons, prior)


def begins_dedicated(spec: Spec, plan: Plan) -> bool:
    """Return whether a new scaler begins with replicas in pods of their own."""
    return not weighs_placements(spec) and bounds_of(spec, plan.placement).dedicated


def scaling_inputs(spec: Spec, plan: Plan) -> tuple[object, ...]:
    """Return what a scaler is made for, besides the query's state: another scaler is needed when it changes."""
    placement = None if weighs_placements(spec) else plan.placement
    return settings_of(spec), bounds_of(spec, placement), placement, placement_subject(spec)


def state_partitions(observed: ObservedQuery, spec: Spec) -> int:
    """Return the merge's state partitions as the driver reports them; before that, the number for a new checkpoint."""
    if observed.applied is not None:
        return observed.applied.state_partitions
    return spec.state_partitions(spec.executors.max * spec.executors.cores.slots)


def situation_of(observed: ObservedQuery, spec: Spec, plan: Plan, now: datetime) -> Situation:
    """Return plan, executors, quota and pauses.

    An executor is ready once it takes tasks, some time after its pod is ready.
    """
    pods = observed.live_executors
    pending = [created(each).timestamp() for each in pods if ready_since(each) is None]
    ready = len(pods) - len(pending)
    if observed.applied is not None:
        ready = min(ready, observed.applied.executors_ready)
    room = _room(observed, spec)
    return Situation(
        now=now.timestamp(),
        plan=shape_of(plan),
        epoch=plan.epoch,
        executors_ready=ready,
        executors_pending_since=min(pending, default=None),
        executors_quota=None if room is None else len(pods) + room.pods,
        quota_reason="" if room is None else room.why,
        paused=observed.is_set(Annotation.PAUSED),
        scale_in_paused=observed.is_set(Annotation.PAUSED_SCALE_IN),
        scale_out_paused=observed.is_set(Annotation.PAUSED_SCALE_OUT),
        dedicated=plan.placement is Placement.DEDICATED,
        replicas_ready=sum(ready_since(each) is not None for each in observed.partitioner_pods),
        applied_epoch=None if observed.applied is None else observed.applied.epoch,
        scheduled_minimum=scheduled_minimum(spec.scaling.schedule, now),
        tasks_wait=observed.driver_waits.executors,
        can_rest=observed.applied is not None and observed.applied.can_rest,
    )


def requested_cores(spec: Spec, situation: Situation) -> float:
    """Return the CPU cores that the executors request which are ready, and replicas in pods of their own."""
    replicas = (situation.replicas_ready or 0) * float(spec.partitioner.pod.cores) if situation.dedicated else 0.0
    return situation.executors_ready * float(spec.executors.cores) + replicas


def shape_of(plan: Plan) -> Shape:
    """Return the part of a plan that scaling changes."""
    return Shape(plan.executors, plan.parallelism, plan.replicas)


def saved_state(owner: Owner, decision: Decision, scaler: AnyScaler) -> Manifest:
    """Return the ConfigMap that a restarted operator resumes from: the full last decision and the learned model."""
    documents = {DECISION: asdict(decision), LEARNED: scaler.save()}
    data = {key: json.dumps(each, default=sorted, separators=(",", ":")) for key, each in documents.items()}
    return owner.manifest("v1", "ConfigMap", owner.scaling, {"data": data})


def restore(scaler: AnyScaler, observed: ObservedQuery) -> bool:
    """Restore a new scaler from saved state, and return whether it was restored.

    It was not if there is none, or none that is readable, such as another version's. The latter may leave the scaler
    half restored.
    """
    try:
        text = observed.scaling_state["data"][LEARNED]
    except (KeyError, TypeError):
        return False
    try:
        scaler.restore(json.loads(text))
        return True
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        log.info("the saved scaling state cannot be read and is discarded: %s", error)
        return False


def _room(observed: ObservedQuery, spec: Spec) -> Room | None:
    """Return the room for further executors in the namespace; None if nothing limits them.

    The newest executor shows best what another one counts, since admission may have added containers and defaults.
    """
    if not observed.limits:
        return None
    newest = max(observed.live_executors, key=created, default=None)
    return room_for(newest or expected_executor(observed, spec, PodDefaults("")), observed.limits)
