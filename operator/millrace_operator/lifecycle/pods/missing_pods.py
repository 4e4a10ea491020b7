"""Pods that should exist and do not, and whether the API server would take them.

StatefulSet controller and driver create the pods of a query, and only they see it when the API server refuses one. So
the operator asks with a dry run for a pod that has been missing for some seconds, and then at growing pauses. Nothing
is asked while no pod is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from millrace_api.model.streamquery import DRIVER, EXECUTOR, PARTITIONER, Spec
from millrace_support.backoff import Backoff

from ...resources.names import Manifest, Owner
from ...resources.pod_defaults import PodDefaults
from ...resources.pods import made_executor
from ..observed_query import ObservedQuery, RefusedPods
from ..refusals import FIRST_PAUSE, LONGEST_PAUSE, RefusedError
from .driver_health import ready_since, started_at
from .out_of_memory import memory_in_force

MISSING_AFTER = timedelta(seconds=5)
"""Time for which a pod must be missing before it is asked about: most are created in less."""

AskPod = Callable[[Manifest], RefusedError | None]
"""Returns why the API server would refuse to create a pod; None if it would not, or does not say."""


class MissingPods(NamedTuple):
    """Pods of one role of which too few exist: ``pod`` is one that is missing."""

    role: str
    wanted: int
    found: int
    pod: Manifest

    def refused(self, error: RefusedError) -> RefusedPods:
        """Return that the API server refuses these pods, in its words."""
        exist = "the driver's pod" if self.role == DRIVER else f"{self.found} of {self.wanted} {self.role} pods exist"
        join = "is refused" if self.role == DRIVER else "and the next one is refused"
        return RefusedPods(self.role, error.reason, f"{exist} {join}: {error}")


def missing_pods(observed: ObservedQuery, spec: Spec | None, defaults: PodDefaults) -> list[MissingPods]:
    """Return the missing pods of a query, the driver's first; ``spec`` is what runs.

    Executors count once the driver serves its probes, since its first batch waits for them. After that batch, they are
    asked about once the driver has acknowledged a plan, or in a namespace that limits pods.
    """
    if observed.deleted_at is not None:
        return []
    owner, missing = observed.owner, []
    if observed.driver is None and observed.wants_pods and observed.stateful_set is not None:
        missing.append(MissingPods(DRIVER, 1, 0, _of_set(owner, observed.stateful_set, owner.driver_pod)))
    wanted, live = 0 if observed.plan is None else observed.plan.executors, len(observed.live_executors)
    runs = observed.driver is not None and started_at(observed.driver) is not None
    ready = observed.driver is not None and ready_since(observed.driver) is not None
    asks = observed.applied is not None or bool(observed.limits) or not ready
    if spec is not None and runs and asks and live < wanted:
        missing.append(MissingPods(EXECUTOR, wanted, live, expected_executor(observed, spec, defaults)))
    replicas = observed.partitioner_set
    if replicas is not None:
        names = [f"{owner.partitioner}-{number}" for number in range(replicas["spec"].get("replicas", 1))]
        absent = [name for name in names if ("Pod", name) not in observed.objects]
        if absent:
            pod = _of_set(owner, replicas, absent[0])
            missing.append(MissingPods(PARTITIONER, len(names), len(names) - len(absent), pod))
    return missing


def expected_executor(observed: ObservedQuery, spec: Spec, defaults: PodDefaults) -> Manifest:
    """Return the pod of a further executor, as far as it is known before it exists."""
    of_query = replace(defaults, raised=memory_in_force(observed, spec))
    return made_executor(observed.query_with(spec), observed.owner, of_query)


def _of_set(owner: Owner, stateful_set: Manifest, name: str) -> Manifest:
    """Return a pod as the controller of a StatefulSet creates it."""
    template: Manifest = stateful_set["spec"]["template"]
    metadata = template.get("metadata", {}) | {"name": name, "namespace": owner.namespace}
    return template | {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


@dataclass
class _PodCheck:
    """When a missing pod is asked about next, and what the API server last said."""

    pod: Manifest
    due: datetime
    error: RefusedError | None = None
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE, LONGEST_PAUSE))


class PodChecks:
    """Answers of the API server about missing pods of a query."""

    def __init__(self) -> None:
        self._checks: dict[str, _PodCheck] = {}
        """Check by role."""

    def refused(self, missing: Iterable[MissingPods], ask: AskPod, now: datetime) -> tuple[RefusedPods, ...]:
        """Return which missing pods are refused, after asking about those that are due.

        Another pod, for example of a new spec, is asked about afresh.
        """
        before, self._checks, found = self._checks, {}, []
        for each in missing:
            check = before.get(each.role)
            if check is None or check.pod != each.pod:
                check = _PodCheck(each.pod, now + MISSING_AFTER)
            self._checks[each.role] = check
            if check.due <= now:
                check.due = now + timedelta(seconds=check.backoff.next())
                check.error = ask(each.pod)
            if check.error is not None:
                found.append(each.refused(check.error))
        return tuple(found)

    @property
    def due(self) -> datetime | None:
        """When a missing pod is to be asked about; None if none is missing."""
        return min((each.due for each in self._checks.values()), default=None)
