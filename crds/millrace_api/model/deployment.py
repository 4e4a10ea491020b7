"""How a query runs: partitioner, parallelism, executors, scaling, checkpoint."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule, ascending, exactly_one
from millrace_api.model.changes import IN_PLACE, REPLACED, Effect, OnChange
from millrace_api.model.functions import PYTHON_PATH
from millrace_api.model.schedule import ScheduledMinimum
from millrace_api.model.values import (
    ByteSize,
    Cores,
    Count,
    Flag,
    Number,
    Parameters,
    PositiveDuration,
    Text,
    Uri,
    WholeNumber,
)

_BOUND = OnChange(Effect.IN_PLACE, "in place: a bound of the next plan")
_MEMORY_BOUND = OnChange(Effect.IN_PLACE, "in place: how far memory is raised after it ran out")
_DECISION = OnChange(Effect.IN_PLACE, "in place, from the next scaling decision")
_REPLICA_PODS = OnChange(Effect.IN_PLACE, "in place: partitioner replicas in pods of their own are replaced one by one")


class Algorithm(StrEnum):
    """How records are placed on workers; docs/partitioning.md says which algorithm fits when."""

    AUTO = "auto"
    NATIVE = "native"
    SHUFFLE = "shuffle"
    HASH = "hash"
    PKG = "pkg"
    CM = "cm"
    AM = "am"
    CAM = "cam"
    LM = "lm"
    DCHOICES = "dchoices"
    WCHOICES = "wchoices"
    DALTON = "dalton"
    PROMPT = "prompt"
    DAGREEDY = "dagreedy"
    PYTHON = "python"


class Placement(StrEnum):
    """Where the partitioner replicas of a plan run: in the job's own tasks, or as pods of their own."""

    INLINE = "Inline"
    DEDICATED = "Dedicated"


class PlacementSetting(StrEnum):
    """The placement that a spec asks for: one of a plan's, or the one that takes fewer cores by measurement."""

    INLINE = "Inline"
    DEDICATED = "Dedicated"
    AUTO = "Auto"

    @property
    def at_start(self) -> Placement:
        """Placement of the first plan: ``Auto`` begins Inline."""
        return Placement.INLINE if self is PlacementSetting.AUTO else Placement(self.value)


def _between(low: int, preferred: int, high: int) -> int:
    return max(low, min(preferred, high))


class Replicas(Model):
    """Number m of partitioner replicas: tasks that read, decode and route."""

    rules: ClassVar[tuple[Rule, ...]] = (ascending("min", "initial", "max"),)

    min: Count = Field(default=1, description="Minimum number of replicas.")
    initial: Count | None = Field(default=None, description="Replicas at the start; default: 2, within min and max.")
    max: Count = Field(default=8, description="Maximum number of replicas.")

    @property
    def at_start(self) -> int:
        """Replicas of the first plan."""
        return self.initial or _between(self.min, 2, self.max)


class Pod(Model):
    """Size of a pod, and what to add to it."""

    cores: Annotated[Cores, REPLACED] = Field(
        default=Cores(1), description="CPU cores that the pod requests, such as 2 or 500m."
    )
    memory: Annotated[ByteSize, REPLACED] = Field(default=ByteSize("1g"), description="Memory of the JVM.")
    pod_template: Annotated[dict[str, Any] | None, REPLACED] = Field(
        default=None, description="Pod template merged strategically into the generated pod."
    )


class SparkPod(Pod):
    """Size of a pod that runs Spark, how far its memory may be raised, and what to add to it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "memory <= maxMemory does not hold",
            "write a maxMemory that is at least memory, such as memory: 2g and maxMemory: 8g",
            ("memory", "max_memory"),
            # 2g and 2Gi are both 2Gi, as which CEL reads it
            "!has(self.maxMemory) || quantity(self.memory.replace('i', '').upperAscii() + 'i')"
            ".compareTo(quantity(self.maxMemory.replace('i', '').upperAscii() + 'i')) <= 0",
            lambda pod: pod.max_memory is None or pod.memory.bytes <= pod.max_memory.bytes,
        ),
    )

    max_memory: Annotated[ByteSize | None, _MEMORY_BOUND] = Field(
        default=None,
        description="Up to which the operator raises memory when it ran out, each time by half; default: it does not.",
    )


class PartitionerPod(Pod):
    """Size of a partitioner replica's pod while the plan's placement is Dedicated, and what to add to it."""

    cores: Cores = Field(
        default=Cores(1),
        description="CPU cores that the pod requests, such as 2 or 500m.",
    )
    memory: ByteSize = Field(default=ByteSize("1g"), description="Memory of the pod, all of it: it runs no JVM.")


def _is_path(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(PYTHON_PATH, value) is not None


CPU_LIMIT_VARIABLE = "MILLRACE_CPU_LIMIT"
"""Environment variable with the CPU that the container of a partitioner replica may use, in thousandths of a core."""


class PartitionerSpec(Model):
    """How records are placed on workers."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "algorithm python needs the class that places records",
            'write parameters: {class: "module:Class"}, such as "mypackage.placing:Sticky"',
            ("algorithm",),
            None,  # as CEL, tools.crd_compatibility could not see that no stored object breaks it
            lambda spec: spec.algorithm is not Algorithm.PYTHON or _is_path(spec.parameters.get("class")),
        ),
        Rule(
            "algorithm python runs in the job's own tasks",
            "write placement: Inline, or leave it out",
            ("placement",),
            None,  # as above
            lambda spec: spec.algorithm is not Algorithm.PYTHON or spec.placement is PlacementSetting.INLINE,
        ),
    )

    algorithm: Annotated[Algorithm, IN_PLACE] = Field(
        default=Algorithm.AUTO,
        description="Partitioning algorithm; auto chooses and switches, python is a class of your own.",
    )
    parameters: Annotated[Parameters, IN_PLACE] = Field(
        default={},
        description="Settings of the algorithm, such as choices: 2 for pkg; of python, class: module:Class, and "
        "arguments of the class.",
    )
    placement: Annotated[PlacementSetting, IN_PLACE] = Field(
        default=PlacementSetting.INLINE,
        description="Inline: in the job's tasks. Dedicated: in pods of their own, for Kafka. Auto: begins Inline, and "
        "the operator changes to Dedicated while that takes fewer cores, by measurement.",
    )
    replicas: Annotated[Replicas, IN_PLACE] = Field(default=Replicas(), description="Number m of partitioner replicas.")
    pod: Annotated[PartitionerPod, _REPLICA_PODS] = Field(
        default=PartitionerPod(), description="Pod of a replica, where it has one of its own."
    )


class Parallelism(Model):
    """Number n of workers: combine tasks that records are placed on."""

    rules: ClassVar[tuple[Rule, ...]] = (ascending("min", "initial", "max"),)

    initial: Annotated[Count | None, IN_PLACE] = Field(
        default=None, description="Workers at the start; default: 8, within min and max."
    )
    min: Annotated[Count, _BOUND] = Field(default=1, description="Minimum number of workers.")
    max: Annotated[Count, _BOUND] = Field(
        default=16,
        description="Maximum number of workers; also fixes the number of state partitions, each of which costs time.",
    )

    @property
    def at_start(self) -> int:
        """Workers of the first plan."""
        return self.initial or _between(self.min, 8, self.max)


class ExecutorsSpec(SparkPod):
    """Number and size of the Spark executors."""

    rules: ClassVar[tuple[Rule, ...]] = (*SparkPod.rules, ascending("min", "initial", "max"))

    # /scale reads and writes this field, so it always has a value
    initial: Annotated[Count, IN_PLACE] = Field(
        default=1,
        description="Executors at the start, and of the next plan when it is changed, as by kubectl scale. Scaling "
        "goes on from there.",
    )
    min: Annotated[WholeNumber, Field(le=1_000_000), _BOUND] = Field(
        default=1,
        description="Minimum number of executors. With 0, a query without records releases all of them, and its first "
        "records wait until executors have started again.",
    )
    max: Annotated[Count, _BOUND] = Field(default=8, description="Maximum number of executors.")
    cores: Annotated[Cores, REPLACED] = Field(
        default=Cores(2),
        description="CPU cores that each executor requests, such as 2 or 500m. Spark runs as many tasks at once, "
        "rounded up: 2 for 1500m, 1 for 500m.",
    )
    memory: Annotated[ByteSize, REPLACED] = Field(default=ByteSize("2g"), description="Memory of each executor's JVM.")


class ScalingMode(StrEnum):
    """Whether scaling decisions are carried out, only reported, or not made."""

    ACTIVE = "Active"
    ADVISE = "Advise"
    OFF = "Off"


class ScalingCosts(Model):
    """What a release of executors is weighed against, in hours of one executor: taking them back costs both."""

    rescale: Annotated[Number, Field(ge=0, le=100), _DECISION] = Field(
        default=0.2, description="Cost of a change that adds or releases executors, in hours of one executor."
    )
    late_minute: Annotated[Number, Field(ge=0, le=100), _DECISION] = Field(
        default=1.2,
        description="Cost of a minute of batches that take longer than their interval, in hours of one executor.",
    )


class Scaling(Model):
    """When to scale: the zones over utilization W, batch processing time over batch interval."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "step is not less than target",
            "write a smaller step, such as target: 0.9 and step: 0.1",
            ("target", "step"),
            "self.step < self.target",
            lambda s: s.step < s.target,
        ),
    )

    mode: Annotated[ScalingMode, _DECISION] = Field(
        default=ScalingMode.ACTIVE,
        description='Active scales, Advise only reports, "Off", which needs its quotes in YAML, does neither.',
    )
    target: Annotated[Number, Field(gt=0, le=1), _DECISION] = Field(
        default=0.9, description="Utilization above which to scale out."
    )
    step: Annotated[Number, Field(gt=0, lt=1), _DECISION] = Field(
        default=0.1, description="Scale in below target - step; between the two nothing happens."
    )
    window: Annotated[Count, _DECISION] = Field(
        default=6, description="Number of batches that must agree before a decision."
    )
    grace: Annotated[int, Field(strict=True, ge=0, le=1_000_000), _DECISION] = Field(
        default=6, description="Number of batches after a change for which nothing is decided."
    )
    costs: ScalingCosts = Field(
        default=ScalingCosts(), description="What a release of executors has to save more than."
    )
    schedule: Annotated[tuple[ScheduledMinimum, ...] | None, _BOUND] = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Minimums of executors that hold at times, such as before a peak of every morning.",
    )


ANOTHER_CHECKPOINT = "another metadata.name (or spec.checkpoint.uri, where the query has one)"
"""Words for hints that ask for a new checkpoint: its folder has the name of the query, unless a URI is given."""


class CheckpointSpec(Model):
    """Where offsets, plans and state are stored."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one(
            "uri",
            "claim_name",
            hint="write uri: file:///var/lib/millrace, or claimName: the name of a PersistentVolumeClaim",
        ),
    )

    uri: Uri | None = Field(
        default=None,
        description="Folder as a file URI, such as file:///var/lib/millrace, or a prefix in S3 or Azure, such as "
        "s3a://lake/checkpoints/trips or abfss://lake@account.blob.core.windows.net/trips.",
    )
    claim_name: Annotated[Text, Field(max_length=253)] | None = Field(
        default=None, description="Name of a PersistentVolumeClaim in the query's namespace."
    )
    from_snapshot: Uri | None = Field(
        default=None,
        description="Snapshot of another query's checkpoint that this query starts from, such as "
        "s3a://lake/checkpoints/trips/snapshots/monday; without effect once the query has had a batch.",
    )


class SnapshotsSpec(Model):
    """Snapshots of the checkpoint that the driver takes by itself while the query runs."""

    every: PositiveDuration | None = Field(
        default=None, description="Time from one snapshot to the next; default: none is taken by the clock."
    )
    before_change: Flag = Field(
        default=True,
        description="Take one before the first batch of a driver whose query, image or version is another one.",
    )
    keep: Count = Field(
        default=10, description="Number of these snapshots that are kept; those that a person takes do not count."
    )
    max_age: PositiveDuration | None = Field(
        default=None, description="Age at which they are removed, except the newest one; default: no age."
    )
