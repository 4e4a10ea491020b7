"""A query as last observed, with all objects that belong to it.

``observation_cache`` makes one for each step of a query; ``step`` decides by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.driver_waits import WAITS_KEY, DriverWaits
from millrace_api.model.memory_use import MEMORY_KEY, MemoryReport
from millrace_api.model.metadata import ObjectMeta
from millrace_api.model.plan import APPLIED_KEY, PLAN_KEY, Applied, Plan
from millrace_api.model.snapshots import SNAPSHOT_REQUEST_KEY, SNAPSHOTS_KEY, SnapshotsReport
from millrace_api.model.status import Status
from millrace_api.model.streamquery import (
    EXECUTOR,
    PARTITIONER,
    ROLE_LABEL,
    Annotation,
    Spec,
    StreamQuery,
)
from millrace_api.model.takeover import NEXT_VERSION_KEY, RUNNING_VERSION_KEY, RunningVersion
from millrace_api.validation.connections import with_references

from ..resources.auth import mounted_auth
from ..resources.configuration import mounted_configuration
from ..resources.manifests import PLAN_SETTINGS, REFERENCES, to_json
from ..resources.memory import RAISED_MEMORY
from ..resources.names import Manifest, Owner
from ..resources.permissions import Permissions
from ..resources.restrictions import problems
from ..resources.spec_changes import REVISION, revision
from .chains.upstream import Upstream
from .conditions import ReadyReason, parse_time
from .connections.connection_rollouts import Rollout
from .connections.referred_connections import AddedSize, ReferredConnections, Version
from .objects.as_applied import is_as_applied
from .objects.object_sizes import (
    LARGEST_OBJECT,
    LARGEST_QUERY,
    MOST_VALUES,
    MOST_VALUES_OF_QUERY,
    TOO_LARGE,
    TOO_MANY_VALUES,
    mapping_in,
    values_in,
)
from .pods.driver_health import states
from .pods.driver_versions import as_running
from .pods.executor_failures import FailedExecutor

ObjectKey = tuple[str, str]
"""Kind and name of an object in its query's namespace."""

Found = TypeVar("Found")
Report = TypeVar("Report", DriverWaits, MemoryReport)

_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""Times between which a report counts if there is no clock to compare with; sums with them do not overflow."""

_REMOVE = "remove what others have written into it"


class QueryKey(NamedTuple):
    """Namespace and name of a query."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class RefusedPods(NamedTuple):
    """Pods of one role that are missing because the API server refuses them, with the reason of a condition."""

    role: str
    reason: ReadyReason
    message: str


class TooLargeWithConnectionsError(MillraceError):
    """A query that may be as large as it is written is too large with what its Connections lead to."""


@dataclass(frozen=True)
class ObservedQuery:
    """Query as last observed.

    Attributes:
        body: the whole object.
        objects: all objects with its label.
        limits: ResourceQuotas and LimitRanges of its namespace; empty also if they cannot be read.
        upstream: the queries before it.
        refused: its missing pods that the API server refuses.
        permissions: what queries may ask for.
        new_secret: a Secret that was made for its next driver, and that no object names yet.
        failed_executors: its executors that failed of late, oldest first, also those whose pods are gone.
        size: bytes that the whole object counts, see ``KeptObject``.
        no_room: bytes that are kept of a namespace, if there is no room for this query in its own; else None.
        cut: its objects that are not kept as a whole, since they are too large; None if any may be such a one.
        connections: the Connections that it refers to.
        comparison_refused: why the API server refuses an object of its comparison, and when that is tried again.
        reports_until: the latest time that a report of its driver may have, whose clock is about that of the operator.
        rollout: returns whether it may follow a change of a Connection, given by name and generation, at a time.
    """

    body: Mapping[str, Any]
    objects: Mapping[ObjectKey, Manifest] = field(default_factory=dict)
    limits: tuple[Manifest, ...] = ()
    upstream: Upstream = field(default_factory=Upstream)
    refused: tuple[RefusedPods, ...] = ()
    permissions: Permissions = field(default_factory=Permissions)
    new_secret: str | None = None
    failed_executors: tuple[FailedExecutor, ...] = ()
    size: int = 0
    no_room: int | None = None
    cut: tuple[ObjectKey, ...] | None = None
    connections: ReferredConnections = field(default_factory=ReferredConnections)
    comparison_refused: tuple[str, datetime] | None = None
    reports_until: datetime = field(default=_LATEST, compare=False)
    rollout: Callable[[str, int, datetime], Rollout] = field(default=lambda *_: Rollout(), compare=False)

    @property
    def version(self) -> tuple[str, int, Version]:
        """What the result of a check is valid for: the query, the generation of its spec, and its Connections."""
        return self.owner.uid, self.generation, self.connections.version

    @cached_property
    def unreadable(self) -> MillraceError | None:
        """Why the query cannot be acted upon: it, or an object of its own, is not kept; None if all is."""
        if self.no_room is not None:
            most = f"{self.no_room / 2**20:g} MiB"
            message = f"the namespace has more queries and objects than the {most} that the operator keeps of one"
            return MillraceError(Problem(message, "delete some, or let an administrator raise namespaceMiB"))
        if TOO_LARGE in self.body:
            message = (
                f"the query takes {self.body[TOO_LARGE] >> 10} KiB, of {LARGEST_QUERY >> 10} KiB that one may take"
            )
            hint = "shorten its pod templates, texts and annotations, or mount what they contain from a ConfigMap"
            return MillraceError(Problem(message, hint))
        if TOO_MANY_VALUES in self.body:
            message = f"the query has {self.body[TOO_MANY_VALUES]} values, of {MOST_VALUES_OF_QUERY} that one may have"
            return MillraceError(Problem(message, "shorten its pod templates, lists and settings"))
        names = self.owner.object_names
        for kind, name in (key for key in (self.objects if self.cut is None else self.cut) if key[1] in names):
            found = self.objects[kind, name]
            if TOO_LARGE in found:
                size = f"{found[TOO_LARGE] >> 10} KiB, of {LARGEST_OBJECT >> 10} KiB that it may take"
                return MillraceError(Problem(f"{kind} {name} takes {size}", _REMOVE))
            if TOO_MANY_VALUES in found:
                number = f"{found[TOO_MANY_VALUES]} values, of {MOST_VALUES} that it may have"
                return MillraceError(Problem(f"{kind} {name} has {number}", _REMOVE))
        return None

    @cached_property
    def added_size(self) -> AddedSize:
        """What the query takes more, at most, with what its Connections lead to."""
        return self.connections.added_to(self.body)

    @property
    def too_large_with_connections(self) -> TooLargeWithConnectionsError | None:
        """Why the query may not be resolved: it would be larger than a query may be as written; None if it may.

        Each source and sink gets a copy of its Connection, so a few long ones could take any memory. The spec is saved
        as resolved once it is healthy, and one that is too large would not be read again.
        """
        added = self.added_size
        if not added.bytes:
            return None
        spec = to_json(self.body.get("spec")).encode()
        hint = "shorten the Connections that it names most often, or split the query"
        if (size := len(spec) + added.bytes) > LARGEST_QUERY:
            message = (
                f"the query takes {size >> 10} KiB with its Connections, of {LARGEST_QUERY >> 10} KiB that one may take"
            )
            return TooLargeWithConnectionsError(Problem(message, hint))
        if (values := values_in(spec) + added.values) > MOST_VALUES_OF_QUERY:
            message = f"the query has {values} values with its Connections, of {MOST_VALUES_OF_QUERY} that one may have"
            return TooLargeWithConnectionsError(Problem(message, hint))
        return None

    @property
    def owner(self) -> Owner:
        """The query as the owner of its objects."""
        metadata = self.body["metadata"]
        return Owner(metadata["namespace"], metadata["name"], metadata["uid"])

    @property
    def generation(self) -> int:
        """Generation of the spec."""
        return int(self.body["metadata"]["generation"])

    @cached_property
    def status(self) -> Status:
        """Last reported status; empty before the first, and if this version cannot read it."""
        return Status.reported(self.body.get("status") or {})

    @cached_property
    def plan(self) -> Plan | None:
        """Plan that the driver follows; None before the first, and if it cannot be read."""
        return _readable(lambda: Plan.from_json(self._config_map(self.owner.plan)["data"][PLAN_KEY]))

    @cached_property
    def applied(self) -> Applied | None:
        """Driver's report on the plan it follows; None if there is no readable report yet."""
        return _readable(lambda: Applied.from_json(self._config_map(self.owner.plan)["data"][APPLIED_KEY]))

    @cached_property
    def snapshots(self) -> SnapshotsReport | None:
        """Driver's report on the snapshots of the checkpoint; None if there is no readable report yet."""
        return _readable(lambda: SnapshotsReport.from_json(self._config_map(self.owner.plan)["data"][SNAPSHOTS_KEY]))

    @property
    def snapshot_request(self) -> str:
        """The request for a snapshot that the driver finds, as JSON; empty without one."""
        return str((self._config_map(self.owner.plan).get("data") or {}).get(SNAPSHOT_REQUEST_KEY) or "")

    @cached_property
    def plan_settings(self) -> dict[str, Any] | None:
        """Plan settings of the spec for which the plan was written; None if unknown."""
        metadata = self._config_map(self.owner.plan).get("metadata", {})
        return _readable(lambda: dict(json.loads(metadata["annotations"][PLAN_SETTINGS])))

    @property
    def saved_revision(self) -> str | None:
        """Revision of the spec that was saved as healthy, unchecked; None before the first."""
        return _readable(lambda: str(self._config_map(self.owner.healthy)["metadata"]["annotations"][REVISION]))

    @cached_property
    def healthy(self) -> tuple[str, Spec] | None:
        """Revision and spec under which the driver was last healthy; None before it ever was.

        Others may write the ConfigMap, too. So what it has counts only if the revision is that of the spec, and if a
        query may have this spec; one that a stricter policy does not allow any longer counts while it is what runs.
        The names of Connections in it prove nothing: it may have Secrets of a Connection that this has now.
        """
        found = _readable(lambda: _healthy_in(self._config_map(self.owner.healthy)))
        if found is None or revision(found[1]) != found[0]:
            return None
        query = self.query_with(found[1])
        if problems(query):
            return None
        runs = self.revision_to_run == found[0]
        secrets_of = self.connections.secrets_of
        return found if runs or self.permissions.allow(query, self.owner.namespace, secrets_of) else None

    @property
    def revision_to_run(self) -> str | None:
        """Revision of the driver's StatefulSet; None without one."""
        found = self.stateful_set
        template: Manifest = {} if found is None else found["spec"].get("template", {})
        annotations: Mapping[str, str] = template.get("metadata", {}).get("annotations") or {}
        return annotations.get(REVISION)

    @property
    def scaling_state(self) -> Manifest:
        """ConfigMap with the saved scaling state; empty before the first save."""
        return self._config_map(self.owner.scaling)

    @property
    def driver_as_created(self) -> Manifest | None:
        """The driver's pod, whatever version has taken over in it."""
        return self.objects.get(("Pod", self.owner.driver_pod))

    @cached_property
    def driver(self) -> Manifest | None:
        """The driver's pod; after a takeover as if it had been created for the version that it runs since then."""
        pod, running = self.driver_as_created, self.running_version
        return pod if pod is None or running is None else as_running(pod, running)

    @cached_property
    def running_version(self) -> RunningVersion | None:
        """The running version as this pod's driver reports it; None without a report."""
        pod = self.driver_as_created
        data = self._config_map(self.owner.plan).get("data")
        found = _readable(lambda: _running_in((data or {})[RUNNING_VERSION_KEY], self.reports_until))
        return found if pod is not None and found is not None and found.pod == pod["metadata"]["uid"] else None

    @cached_property
    def driver_waits(self) -> DriverWaits:
        """What this pod's driver reports to wait for; nothing without a readable report."""
        return self._reported(WAITS_KEY, DriverWaits(pod=""))

    @cached_property
    def driver_memory(self) -> MemoryReport:
        """The memory in use that this pod's driver reports, of executors too; nothing without a readable report."""
        return self._reported(MEMORY_KEY, MemoryReport(pod=""))

    @property
    def next_version(self) -> str:
        """The version that the driver in a pod is to run, as JSON; empty without one."""
        return str((self._config_map(self.owner.plan).get("data") or {}).get(NEXT_VERSION_KEY) or "")

    @property
    def stateful_set(self) -> Manifest | None:
        """StatefulSet of the driver's pod; None if there is none, or another one has its name."""
        found = self.objects.get(("StatefulSet", self.owner.driver))
        return found if found is not None and self.owner.owns(found) else None

    @property
    def partitioner_set(self) -> Manifest | None:
        """StatefulSet of partitioner replicas; None if the query never had any in pods of their own."""
        return self._own("StatefulSet", self.owner.partitioner) or None

    @property
    def partitioner_pods(self) -> list[Manifest]:
        """Pods of partitioner replicas, in the order of their names."""
        return self._pods(PARTITIONER)

    @property
    def live_executors(self) -> list[Manifest]:
        """Pods of executors that have not ended and are not being deleted, in the order of their names.

        One whose executor has ended has ended itself, although a sidecar may keep its pod running.
        """
        return [
            each
            for each in self._pods(EXECUTOR)
            if "deletionTimestamp" not in each["metadata"]
            and each.get("status", {}).get("phase") not in ("Failed", "Succeeded")
            and not any("terminated" in state.get("state", {}) for state in states(each, EXECUTOR))
        ]

    @property
    def revision(self) -> str | None:
        """Revision that the driver's pod was created from, or that has taken over in it; None without a pod."""
        pod = self.driver
        return None if pod is None else pod["metadata"].get("annotations", {}).get(REVISION, "")

    @property
    def raised_memory(self) -> str | None:
        """Memory that the driver's pod was made with, as ``raises_text`` writes it; None without a pod."""
        pod = self.driver
        return None if pod is None else (pod["metadata"].get("annotations") or {}).get(RAISED_MEMORY, "")

    @property
    def is_suspended(self) -> bool:
        """Whether the spec, valid or not, asks for no driver."""
        return (self.body.get("spec") or {}).get("suspend") is True

    @property
    def auth_secret(self) -> str | None:
        """Name of the Secret that the driver has, or that its StatefulSet mounts; None without one."""
        if self.driver is not None and (name := mounted_auth(self.owner, self.driver)) is not None:
            return name
        return None if self.stateful_set is None else mounted_auth(self.owner, self.stateful_set["spec"]["template"])

    @property
    def configuration(self) -> str | None:
        """Name of the ConfigMap with the configuration of the driver's pod; None without a pod."""
        return None if self.driver is None else mounted_configuration(self.owner, self.driver)

    @property
    def configurations(self) -> list[Manifest]:
        """ConfigMaps with the configurations of drivers, also of earlier ones."""
        names = [name for kind, name in self.objects if kind == "ConfigMap" and self.owner.is_configuration(name)]
        return [found for name in sorted(names) if (found := self._config_map(name))]

    @property
    def wants_pods(self) -> bool:
        """Whether the StatefulSet keeps a driver running."""
        found = self.stateful_set
        return found is not None and found.get("spec", {}).get("replicas", 1) != 0

    @property
    def is_drained(self) -> bool:
        """Whether there is no driver and none will be started."""
        found = self.stateful_set
        if self.driver is not None or found is None:
            return self.driver is None
        return not self.wants_pods and not found.get("status", {}).get("replicas", 0)

    @property
    def deleted_at(self) -> datetime | None:
        """Time when the deletion was requested; None if it was not."""
        text = self.body["metadata"].get("deletionTimestamp")
        return None if text is None else parse_time(text)

    def is_set(self, annotation: Annotation) -> bool:
        """Return whether the annotation is set on the query."""
        return annotation.is_set(self.body["metadata"].get("annotations") or {})

    def missing(self, desired: Iterable[Manifest]) -> list[Manifest]:
        """Return the desired objects that are missing, or that others have changed, in the given order."""
        found = ((self.objects.get((each["kind"], each["metadata"]["name"])), each) for each in desired)
        return [each for there, each in found if not is_as_applied(there, each)]

    def query_with(self, spec: Spec) -> StreamQuery:
        """Return the query with another spec than that of its body, which may be invalid."""
        metadata = ObjectMeta(name=self.owner.name, namespace=self.owner.namespace)
        return StreamQuery(api_version="millrace.io/v1alpha1", kind="StreamQuery", metadata=metadata, spec=spec)

    def refused_pods(self, role: str) -> RefusedPods | None:
        """Return what the API server refuses of the missing pods of a role; None if it refuses none."""
        return next((each for each in self.refused if each.role == role), None)

    def _reported(self, key: str, nothing: Report) -> Report:
        """Return what this pod's driver reports in an entry of the plan's ConfigMap; ``nothing`` if that is unknown."""
        pod, data = self.driver_as_created, self._config_map(self.owner.plan).get("data")
        found = _readable(lambda: type(nothing).from_json((data or {})[key]))
        is_own = pod is not None and found is not None and found.pod == pod["metadata"]["uid"]
        return found if found is not None and is_own else nothing

    def _pods(self, role: str) -> list[Manifest]:
        pods = [self.objects[key] for key in sorted(self.objects) if key[0] == "Pod"]
        return [each for each in pods if each["metadata"]["labels"].get(ROLE_LABEL) == role]

    def _config_map(self, name: str) -> Manifest:
        return self._own("ConfigMap", name)

    def _own(self, kind: str, name: str) -> Manifest:
        """Return an object of this query, not of an earlier one of the same name; empty if it does not exist."""
        found = self.objects.get((kind, name), {})
        owners = found.get("metadata", {}).get("ownerReferences") or ()
        return found if any(each.get("uid") == self.owner.uid for each in owners) else {}


def _healthy_in(saved: Manifest) -> tuple[str, Spec]:
    """Return what a ConfigMap with the last healthy spec has: its revision, and the spec with names of Connections."""
    annotations = saved["metadata"]["annotations"]
    spec = with_references(mapping_in(saved["data"]["spec.json"]), mapping_in(annotations.get(REFERENCES, "{}")))
    return annotations[REVISION], Spec.model_validate(spec, by_name=False)


def _running_in(text: str, until: datetime) -> RunningVersion:
    """Return a driver's report on its version; raise ValueError or OverflowError for an impossible time."""
    found = RunningVersion.from_json(text)
    for time in (found.time, found.computes_since):
        if time is not None and not _EARLIEST <= parse_time(time).astimezone(UTC) <= until:
            raise ValueError(f"not the time of a running pod: {time}")
    return found


def _readable(read: Callable[[], Found]) -> Found | None:
    """Return what ``read`` finds in an object; None if the object lacks it or it is not valid."""
    try:
        return read()
    # pydantic's ValidationError is a ValueError
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
