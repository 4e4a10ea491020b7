"""What spec a driver should run: the applied one, or the last healthy one after a failure. Pure functions.

Next, ``next_plan`` has the plan under which it runs; ``step`` asks for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from millrace_api.errors import MillraceError
from millrace_api.model.status import ConnectionUpdate, MemoryStatus, RejectedSpec
from millrace_api.model.streamquery import DRIVER, Annotation, Spec, StreamQuery

from ..resources.memory import AS_SPECIFIED, raises_text
from ..resources.pod_defaults import PodDefaults
from ..resources.spec_changes import revision, with_in_place
from .conditions import format_time, parse_time, shortened
from .connections.connection_rollouts import LOOK_AGAIN_AFTER
from .connections.connection_turns import ConnectionTurn, begun_updates, reports, turn_of
from .observed_query import ObservedQuery
from .pods.driver_health import healthy_from
from .pods.driver_runs import FailedRuns, failed_runs_of, own_pod, pod_missing_since
from .pods.out_of_memory import has_memory, memory_in_force, next_memory
from .rollback import retry_after, setback_at, setback_of
from .shadow import ShadowRun, compared_at, held_comparison, is_compared, is_passed, is_reconsidered, shadow_of
from .undone_raises import with_undone_raise, with_waiting

_POD_MISSING_AFTER = timedelta(minutes=2)
"""Time that the driver's pod may be missing before this is reported."""


@dataclass(frozen=True)
class DriverTarget:
    """Spec that the driver should run, with its failed runs.

    Attributes:
        query: the query with this spec.
        revision: revision of the spec.
        failed: its failed runs.
        rejected: the applied spec, if it did not become healthy and was rolled back.
        retried: the last rejection of this spec, if it was rolled back before and is tried again.
        waits: why a spec that does not become healthy is not rolled back; empty if that is not so.
        turn: the change of Connections that this is about, if it is one: the driver waits for it, or follows it now.
        shadow: the comparison with the last healthy spec that precedes the changed one, if one does.
        updates: how far the driver is from following each Connection; none that it follows.
        requeue_at: when to check the driver's health again.
        memory: the memory of its pods that was raised.
    """

    query: StreamQuery
    revision: str
    failed: FailedRuns
    rejected: RejectedSpec | None = None
    retried: RejectedSpec | None = None
    waits: str = ""
    turn: ConnectionTurn | None = None
    shadow: ShadowRun | None = None
    updates: Mapping[str, ConnectionUpdate] = field(default_factory=dict)
    requeue_at: datetime | None = None
    memory: MemoryStatus = AS_SPECIFIED

    @property
    def is_wanted(self) -> bool:
        """Whether the user wants a driver."""
        return not self.query.spec.suspend

    @property
    def may_run(self) -> bool:
        """Whether the driver is wanted, not given up, and need not wait for its next run."""
        return self.is_wanted and not self.failed.given_up and self.failed.retry_time is None


def target_of(
    observed: ObservedQuery, query: StreamQuery, defaults: PodDefaults, now: datetime, *, raises: bool = True
) -> DriverTarget:
    """Return the spec to follow now; roll back if the applied spec did not become healthy by its own fault.

    A spec that was rolled back for a cause that may pass is tried again, from a driver that is healthy. Where nothing
    but Connections has changed, the last healthy spec is followed until the query's turn has come. Memory that ran out
    is raised first, if ``raises``, and with more of it the count of failures begins again.
    """
    target = _target_of(observed, query, defaults, now)
    memory, is_raised = memory_in_force(observed, target.query.spec), False
    if raises:
        memory, is_raised = _next_memory(observed, target, now)
    failed = replace(target.failed, failures=0) if is_raised else target.failed
    target = replace(target, memory=memory, failed=failed)
    return replace(target, updates=_updates(observed, target))


def _target_of(observed: ObservedQuery, query: StreamQuery, defaults: PodDefaults, now: datetime) -> DriverTarget:
    applied, rejected = revision(query.spec), observed.status.rejected
    if rejected is not None and (rejected.revision != applied or is_reconsidered(observed, rejected, query)):
        rejected = None
    in_force = observed.status.rejects(applied) and observed.healthy is not None
    if rejected is not None and in_force and not _is_retried(observed, query, rejected, now):
        return _rolled_back(observed, query, rejected, now)
    target = DriverTarget(query, applied, failed_runs_of(observed, applied, now), retried=rejected)
    if not target.is_wanted:  # a resumed query gets a fresh start
        return replace(target, failed=replace(target.failed, failures=0), shadow=held_comparison(observed, query))
    if observed.saved_revision in (None, applied) or observed.healthy is None:
        return replace(target, retried=None)
    turn = turn_of(observed, query.spec, now) if rejected is None else None
    if turn is not None and turn.waits is not None:
        return replace(_as_healthy(observed, query, now), turn=turn, requeue_at=now + LOOK_AGAIN_AFTER)
    shadow = shadow_of(observed, query, now) if turn is None and rejected is None else None
    if shadow is not None and (shadow.is_running or not is_passed(shadow.status, query.spec)):
        return _in_shadow(observed, query, shadow, now)
    target = replace(target, turn=turn, shadow=shadow)
    memory, is_raised = _next_memory(observed, target, now)
    if is_raised or (own_pod(observed, applied) is not None and not has_memory(observed, memory)):
        return target  # what its pod shows is of the memory before
    setback = setback_of(observed, query, target.failed, defaults, now)
    if setback is None or setback.waits:
        due = setback_at(observed, applied, target.failed, now)
        return replace(target, waits="" if setback is None else setback.waits, requeue_at=due)
    tries = 1 if rejected is None else rejected.tries + 1
    pause = retry_after(tries) if setback.may_pass else None
    rejected = RejectedSpec(
        revision=applied,
        generation=observed.generation,
        time=format_time(now),
        message=shortened(setback.message, 2048),
        tries=tries,
        retry_time=None if pause is None else format_time(now + pause),
    )
    back = _rolled_back(observed, query, rejected, now)
    return replace(back, failed=replace(back.failed, attempts=target.failed.attempts))


def runs_healthy(observed: ObservedQuery) -> bool:
    """Return whether the driver was made from the last healthy spec."""
    return observed.healthy is not None and observed.revision == observed.healthy[0]


def spec_to_run(observed: ObservedQuery, spec: Spec) -> Spec:
    """Return the spec that the driver should run: ``spec``, or the last healthy one.

    The latter is so after a rollback, while the driver waits to follow a Connection, and while both are compared. The
    in-place fields are always those of ``spec``.
    """
    rejects = observed.status.rejected is not None and observed.status.rejects(revision(spec))
    waits = reports(observed, ConnectionUpdate.WAITING) or is_compared(observed, spec)
    if not (rejects or waits) or observed.healthy is None:
        return spec
    return with_in_place(observed.healthy[1], spec)


def running_spec(observed: ObservedQuery, query: StreamQuery | MillraceError) -> Spec | None:
    """Return the spec that the driver runs or should run; after an invalid change the last healthy one, or None."""
    if isinstance(query, StreamQuery):
        return spec_to_run(observed, query.spec)
    return observed.healthy[1] if observed.healthy is not None and runs_healthy(observed) else None


def pod_missing_at(observed: ObservedQuery, target: DriverTarget) -> datetime | None:
    """Return when to report that the driver's pod is missing; None if it exists or is not expected."""
    since = pod_missing_since(observed, target.revision, target.failed)
    return None if since is None else since + _POD_MISSING_AFTER


def _next_memory(observed: ObservedQuery, target: DriverTarget, now: datetime) -> tuple[MemoryStatus, bool]:
    """Return the memory of the target's pods, and whether it is changed by this step."""
    spec, memory = target.query.spec, memory_in_force(observed, target.query.spec)
    if observed.driver is None:
        is_refused = observed.refused_pods(DRIVER) is not None and observed.revision_to_run == target.revision
        shows = target.failed.given_up or is_refused
    else:
        shows = observed.revision == target.revision
    if observed.is_set(Annotation.PAUSED) or not target.is_wanted or not shows:
        return memory, False
    memory = with_waiting(observed, memory, now)
    other = with_undone_raise(memory, now) or next_memory(observed, spec, memory, target.failed, now)
    return other, raises_text(other) != raises_text(memory)


def _is_retried(observed: ObservedQuery, query: StreamQuery, rejected: RejectedSpec, now: datetime) -> bool:
    """Return whether to try a rejected spec again: it is due, and the driver of the last healthy spec is well."""
    if rejected.retry_time is None or query.spec.suspend or not runs_healthy(observed):
        return False
    healthy = healthy_from(observed.driver)
    return parse_time(rejected.retry_time) <= now and healthy is not None and healthy <= now


def _rolled_back(observed: ObservedQuery, query: StreamQuery, rejected: RejectedSpec, now: datetime) -> DriverTarget:
    """Return the last healthy spec after a rollback."""
    due = None if rejected.retry_time is None else parse_time(rejected.retry_time)
    return replace(_as_healthy(observed, query, now), rejected=rejected, requeue_at=due)


def _in_shadow(observed: ObservedQuery, query: StreamQuery, shadow: ShadowRun, now: datetime) -> DriverTarget:
    """Return the last healthy spec while another one is compared with it, and if the comparison rejects that."""
    status = shadow.status
    if status.verdict is None:
        healthy = _as_healthy(observed, query, now)
        return replace(healthy, shadow=shadow, requeue_at=compared_at(observed, shadow))
    rejected = RejectedSpec(
        revision=status.revision,
        generation=status.generation,
        time=format_time(now),
        message=shortened(status.message, 2048),
        verdict=status.verdict,
    )
    return replace(_rolled_back(observed, query, rejected, now), shadow=shadow)


def _as_healthy(observed: ObservedQuery, query: StreamQuery, now: datetime) -> DriverTarget:
    """Return the last healthy spec, with the in-place fields of the applied one."""
    assert observed.healthy is not None
    healthy, spec = observed.healthy
    query = query.model_copy(update={"spec": with_in_place(spec, query.spec)})
    return DriverTarget(query, healthy, failed_runs_of(observed, healthy, now))


def _updates(observed: ObservedQuery, target: DriverTarget) -> Mapping[str, ConnectionUpdate]:
    """Return how far the driver is from following each Connection; other queries wait for this one by it."""
    if observed.is_set(Annotation.PAUSED) or not target.is_wanted:
        return {}
    if target.turn is not None:
        return target.turn.updates
    if target.rejected is not None:
        return begun_updates(observed, ConnectionUpdate.ROLLED_BACK)
    begun = begun_updates(observed, ConnectionUpdate.REPLACING)
    return {} if begun and observed.saved_revision == target.revision else begun
