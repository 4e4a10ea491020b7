"""What the operator reports about a query, and what a driver reports about its failure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError

from millrace_api.model.base import Model
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.snapshots import SnapshotsReport
from millrace_api.model.upgrade import UpgradeVerdict
from millrace_api.model.values import ByteSize

_Text = Annotated[str, Field(max_length=4096)]
_Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Phase(StrEnum):
    """The stage of a query's life cycle."""

    PENDING = "Pending"
    DEPLOYING = "Deploying"
    RUNNING = "Running"
    DRAINING = "Draining"
    SUSPENDED = "Suspended"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """The aspect of a query that a condition describes."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    UPSTREAM_READY = "UpstreamReady"
    METRICS_AVAILABLE = "MetricsAvailable"
    SCALING_LIMITED = "ScalingLimited"
    SCALING_INEFFECTIVE = "ScalingIneffective"
    SCALING_ACTIVE = "ScalingActive"
    DEGRADED = "Degraded"


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One aspect of the query's state, in Kubernetes' standard form."""

    type: ConditionType = Field(description="The aspect that it describes.")
    status: ConditionStatus = Field(description="Whether it holds.")
    reason: Annotated[str, Field(min_length=1, max_length=256)] = Field(description="Why, in one CamelCase word.")
    message: _Text = Field(default="", description="Why, in a sentence.")
    last_transition_time: _Time = Field(description="When the status last changed.")
    observed_generation: int | None = Field(default=None, description="Generation of the spec that it describes.")


class PlanShape(Model):
    """The parts of a plan that scaling changes."""

    executors: int = Field(description="Executors.")
    parallelism: int = Field(description="Workers n.")
    replicas: int = Field(description="Partitioner replicas m.")

    @property
    def shape(self) -> str:
        """All three as executors/parallelism/replicas, for screens."""
        return f"{self.executors}/{self.parallelism}/{self.replicas}"


class PlanStatus(PlanShape):
    """The plan that was decided, and how far the job follows it."""

    epoch: int = Field(description="Number of the plan.")
    algorithm: Algorithm = Field(description="Partitioning algorithm.")
    placement: Placement = Field(default=Placement.INLINE, description="Where replicas run.")
    applied_epoch: int | None = Field(default=None, description="Epoch of the last plan that the job acknowledged.")


class ObservedLoad(Model):
    """The last observed load of the job; fields without an answer are absent."""

    utilization: float | None = Field(default=None, description="Processing time over batch interval, W.")
    processing_seconds: float | None = Field(default=None, description="Processing time of a batch.")
    input_rate: float | None = Field(default=None, description="Records per second that arrive.")
    processing_rate: float | None = Field(default=None, description="Records per second processed.")
    lag: int | None = Field(default=None, description="Records waiting.")
    imbalance: float | None = Field(default=None, description="Imbalance of the workers, (max - avg) / avg.")
    executors_ready: int | None = Field(default=None, description="Executors that are ready.")
    cores: float | None = Field(
        default=None,
        description="CPU cores that executors request, and partitioner replicas in pods of their own: as many "
        "core-hours in an hour.",
    )
    core_hours_per_million_records: float | None = Field(
        default=None, description="Core-hours for a million of the records that arrive; none while few arrive."
    )
    observed_time: _Time | None = Field(default=None, description="When this was observed.")


class LastScaling(Model):
    """The last scaling decision, its expected effect, and its observed effect."""

    time: _Time = Field(description="When it was decided.")
    from_: PlanShape = Field(validation_alias="from", serialization_alias="from", description="Before.")
    to: PlanShape = Field(description="After.")
    reason: Annotated[str, Field(max_length=256)] = Field(description="Why, in one CamelCase word.")
    message: _Text = Field(default="", description="Why, in a sentence.")
    predicted: float | None = Field(default=None, description="Utilization W that the model predicted.")
    observed: float | None = Field(default=None, description="Utilization W that was then observed.")


class DriverStatus(Model):
    """The driver pod."""

    pod: str = Field(description="Name of the pod.")
    start_time: _Time | None = Field(default=None, description="When it started.")
    restarts: int = Field(default=0, description="Number of its restarts.")
    revision: str | None = Field(
        default=None,
        description="Revision of the spec that it runs; every change that replaces the driver gives another one.",
    )


class PartitionerStatus(Model):
    """The pods of partitioner replicas, where ``placement`` is Dedicated, or was until the driver followed Inline."""

    replicas: int = Field(description="Replicas that should run.")
    ready: int = Field(description="Replicas that are ready.")
    restarts: int = Field(default=0, description="Number of restarts of the pods that there are.")
    not_ready_since: _Time | None = Field(default=None, description="Since when they are not all ready.")


class Attempt(Model):
    """One run of the driver that failed."""

    time: _Time = Field(description="When it ended.")
    run: str = Field(default="", description="The run: its container, or its pod.")
    reason: Annotated[str, Field(max_length=256)] = Field(description="Class of the failure, in one CamelCase word.")
    message: _Text = Field(default="", description="The driver's own error.")


class UpstreamQuery(Model):
    """A query whose results a source of this query reads."""

    name: str = Field(description="Name of the query; it is in the same namespace.")
    source: str = Field(description="Source that reads its results.")
    reads: Annotated[str, Field(max_length=256)] = Field(description="Topic or files that the source reads.")
    phase: Phase | None = Field(default=None, description="Stage of that query's life cycle.")


class Chain(Model):
    """The queries whose results this query reads, directly or through other queries."""

    order: Annotated[str, Field(max_length=1024)] = Field(
        description="The longest chain that ends here, such as orders -> enriched -> totals; or the cycle in it."
    )
    depth: int | None = Field(
        default=None, description="Queries before this one in the longest chain; none in a cycle."
    )
    upstream: tuple[UpstreamQuery, ...] = Field(
        default=(), max_length=16, description="Queries that its sources read directly, the first 16."
    )


class MemoryShortage(StrEnum):
    """What of a pod's memory ran out, and is therefore raised."""

    HEAP = "HeapFull"
    """The JVM's heap, and with it the limit of the container."""
    LIMIT = "LimitExceeded"
    """The limit of the container: the heap stays, and there is more for Python, state stores and buffers."""


class RejectedSpec(Model):
    """A spec that is not followed: it did not become healthy, or its comparison with the last healthy one says so."""

    revision: str = Field(description="Revision of that spec.")
    generation: int = Field(description="Generation of that spec.")
    time: _Time = Field(description="When it was rolled back, or rejected.")
    message: _Text = Field(default="", description="Why, in a sentence.")
    verdict: UpgradeVerdict | None = Field(
        default=None, description="What its comparison has come to, if that rejected it before its driver was started."
    )
    tries: int = Field(default=1, description="How often it was tried and rolled back.")
    retry_time: _Time | None = Field(
        default=None,
        description="When it is tried again, since the cause may pass; without it, only a spec of another revision is.",
    )


class ConnectionUpdate(StrEnum):
    """How far a query is from following the last change of a Connection, of which drivers are replaced in turns.

    A query has none if it follows it, or takes no part: it need not wait, is paused or suspended, or its spec is not
    followed.
    """

    WAITING = "Waiting"
    """Drivers of other queries are replaced before its own, which goes on with what the Connection led to before."""
    REPLACING = "Replacing"
    """Its driver is replaced, or has not been ready for long enough to count as healthy."""
    ROLLED_BACK = "RolledBack"
    """Its driver did not become healthy, so it goes on with what the Connection led to before."""


class ConnectionStatus(Model):
    """A Connection that the spec names, as last seen."""

    name: str = Field(description="Name of the Connection.")
    generation: int = Field(description="Generation of its spec.")
    brokers: str = Field(description="Kafka brokers that it leads to.")
    update: ConnectionUpdate | None = Field(
        default=None,
        description=(
            "How far the driver is from following it; absent once it does, and while the query takes no part, such as "
            "one that is paused."
        ),
    )


class UpgradeStatus(Model):
    """The last comparison of a changed spec with the one that runs."""

    revision: str = Field(description="Revision of the changed spec.")
    generation: int = Field(description="Generation of that spec.")
    pod: str = Field(description="Name of the pod that compares them; its log has the whole report.")
    start_time: _Time = Field(description="When it was wanted.")
    end_time: _Time | None = Field(default=None, description="When it ended.")
    tries: int = Field(default=1, description="Pods for it so far: one that is lost is followed by another.")
    verdict: UpgradeVerdict | None = Field(default=None, description="What it has come to; absent while it runs.")
    message: Annotated[str, Field(max_length=2048)] = Field(default="", description="Why, in sentences.")


class MemorySizes(Model):
    """Memory of a pod, and how much of it is the JVM's heap."""

    memory: ByteSize = Field(description="The heap, and what was added beside it.")
    heap: ByteSize = Field(description="The JVM's heap.")


class RaisedMemory(Model):
    """Memory that was raised, after it ran out or before."""

    from_: ByteSize = Field(
        validation_alias="from",
        serialization_alias="from",
        description="Memory in the spec; with another one there, this no longer holds.",
    )
    memory: ByteSize = Field(description="Memory in force: the heap, and what was added beside it.")
    heap: ByteSize = Field(description="The JVM's heap.")
    raises: int = Field(description="How often it was raised.")
    time: _Time = Field(description="When it was last raised, or a raise was undone.")
    reason: MemoryShortage = Field(description="What ran out, or was about to.")
    predicted: bool = Field(default=False, description="Whether it was last raised before it ran out.")
    before: MemorySizes | None = Field(
        default=None,
        description="What was in force before it was raised ahead, until pods have a node, or that is in force again.",
    )
    waiting_since: _Time | None = Field(
        default=None, description="Since when there is no room for the pods that were raised ahead."
    )
    no_room_for: ByteSize | None = Field(
        default=None, description="Memory for which there was no room: it was undone, and is not raised to that again."
    )
    message: Annotated[str, Field(max_length=512)] = Field(default="", description="Why, in a sentence.")


class MemoryStatus(Model):
    """Memory of driver and executors where it is not as in the spec, since it ran out or was about to."""

    driver: RaisedMemory | None = Field(default=None, description="The driver's.")
    executors: RaisedMemory | None = Field(default=None, description="That of each executor.")

    @property
    def by_part(self) -> dict[str, RaisedMemory]:
        """What was raised, by the part of the spec that it is about."""
        found = {"driver": self.driver, "executors": self.executors}
        return {part: each for part, each in found.items() if each is not None}

    def raised_since(self, before: MemoryStatus) -> dict[str, RaisedMemory]:
        """Return what was raised since ``before``, as ``by_part``."""
        counts = {part: each.raises for part, each in before.by_part.items()}
        return {part: each for part, each in self.by_part.items() if each.raises > counts.get(part, 0)}


class Status(Model):
    """What the operator reports about the query."""

    observed_generation: int | None = Field(default=None, description="Generation of the spec that it describes.")
    phase: Phase | None = Field(default=None, description="Stage of the query's life cycle.")
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        description="The state by aspect.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    plan: PlanStatus | None = Field(default=None, description="The plan.")
    load: ObservedLoad | None = Field(default=None, description="The last observed load of the job.")
    last_scaling: LastScaling | None = Field(default=None, description="The last scaling decision.")
    driver: DriverStatus | None = Field(default=None, description="The driver pod.")
    partitioner: PartitionerStatus | None = Field(
        default=None, description="The pods of partitioner replicas; absent while replicas are tasks of the job."
    )
    connections: tuple[ConnectionStatus, ...] = Field(
        default=(), max_length=16, description="The Connections that the spec names and that exist."
    )
    chain: Chain | None = Field(default=None, description="The queries before this one, if it reads results of others.")
    attempts: tuple[Attempt, ...] = Field(
        default=(), max_length=10, description="The last runs that failed, latest last."
    )
    revision: str | None = Field(
        default=None,
        description="Revision of the followed spec; every change that replaces the driver gives another one.",
    )
    revision_time: _Time | None = Field(default=None, description="When that revision was first followed.")
    failures: int = Field(default=0, description="Runs of this revision that failed since it was last healthy.")
    retry_time: _Time | None = Field(default=None, description="When the driver is started again after a failure.")
    memory: MemoryStatus | None = Field(
        default=None,
        description="Memory that was raised, after it ran out or before; absent while it is as in the spec.",
    )
    rejected: RejectedSpec | None = Field(default=None, description="The spec that was rolled back, if one was.")
    upgrade: UpgradeStatus | None = Field(
        default=None, description="The last comparison of a changed spec with the one that runs, if there was one."
    )
    snapshots: SnapshotsReport | None = Field(
        default=None, description="Snapshots of the checkpoint, as the driver has last reported them."
    )
    selector: str | None = Field(default=None, description="Label selector of the executor pods.")
    answered_touch: str | None = Field(
        default=None, description="Of the operator's own canary: the time of the last touch that a worker has seen."
    )

    @classmethod
    def reported(cls, document: Mapping[str, Any]) -> Self:
        """Return the status that an operator, of this version or another, has reported, as far as it can be read.

        Conditions of a type and fields that this version does not know are left out, and so is a part with a value that
        it does not know: all else does not depend on them, and an older operator must not forget it.
        """
        known = tuple(ConditionType)
        conditions = [each for each in document.get("conditions") or () if each.get("type") in known]
        readable = {**document, "conditions": conditions}
        while True:
            try:
                return cls.model_validate(readable, by_name=False, extra="ignore")
            except ValidationError as error:
                unreadable = {each["loc"][0] for each in error.errors() if each["loc"]} & readable.keys()
                if not unreadable:
                    return cls()
                readable = {part: value for part, value in readable.items() if part not in unreadable}

    def rejects(self, revision: str) -> bool:
        """Return whether the spec of this revision was rolled back, and is not being tried again."""
        return self.rejected is not None and self.rejected.revision == revision != self.revision


class FailureClass(StrEnum):
    """Why a run of a driver failed. The operator's restart policy depends on the class."""

    IMAGE = "ImageUnavailable"
    """The container image cannot be pulled."""
    SCHEDULING = "Unschedulable"
    """No node has room for the driver, or none matches its constraints."""
    CONFIG = "InvalidConfiguration"
    """The spec asks for something that does not exist, such as a Secret or a column."""
    USER_CODE = "UserCodeFailed"
    """The query's own Python code raised an error."""
    SOURCE = "SourceFailed"
    """A source cannot be read."""
    SOURCE_MISSING = "SourceMissing"
    """The topic or the files that a source reads do not exist."""
    SINK = "SinkFailed"
    """The sink cannot be written."""
    STATE = "StateUnusable"
    """The checkpoint cannot be read, written, or resumed from."""
    STORE = "StoreUnavailable"
    """The object store of the checkpoint does not answer, or refuses the login."""
    CODE = "CodeUnavailable"
    """A file of the query's own code cannot be fetched."""
    DISK_FULL = "DiskFull"
    """The disk of the checkpoint, or another one that Spark writes to, is full."""
    OUT_OF_MEMORY = "OutOfMemory"
    """The driver needed more memory than it has."""
    LOST_NODE = "NodeLost"
    """The driver's node is gone, or has evicted it."""
    HUNG = "Hung"
    """The driver no longer answered, and was killed."""
    OTHER = "DriverFailed"
    """Anything else."""


REPORT_VARIABLE = "MILLRACE_FAILURE_REPORT"
"""Environment variable that names the file for the failure report of a run; in a pod, the termination message."""

MAX_REPORT_BYTES = 4096
"""Maximum length of a report in bytes: as much as Kubernetes keeps of a termination message."""


class FailureReport(Model):
    """Why a run failed, as the run itself reports it."""

    failure: FailureClass = Field(description="Class of the failure.")
    message: Annotated[str, Field(max_length=4096)] = Field(description="The error, as the command line prints it.")
