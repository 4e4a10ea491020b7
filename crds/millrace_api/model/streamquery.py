"""StreamQuery: a streaming query as the user applies it, with its annotations and the labels of its objects."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from millrace_api.model.azure import AzureSpec
from millrace_api.model.base import Model, Rule
from millrace_api.model.changes import FIXED, FREE, IN_PLACE, REPLACED, CheckpointChange
from millrace_api.model.code import CodeFile
from millrace_api.model.deployment import (
    CheckpointSpec,
    ExecutorsSpec,
    Parallelism,
    PartitionerSpec,
    PlacementSetting,
    Scaling,
    SnapshotsSpec,
    SparkPod,
)
from millrace_api.model.lookups import LookupsSpec
from millrace_api.model.metadata import ObjectMeta
from millrace_api.model.query import Query
from millrace_api.model.reporting import LABEL_KEY, LONG_PREFIX, EventLogSpec, LabelKey, LabelValue, LineageSpec
from millrace_api.model.s3 import S3Spec
from millrace_api.model.schedule import WITHIN_MAXIMUM
from millrace_api.model.scheduling import SchedulingSpec
from millrace_api.model.sinks import OutputSinkSpec, SinkSpec
from millrace_api.model.sources import SourceSpec
from millrace_api.model.status import Status
from millrace_api.model.upgrade import UpgradeSpec
from millrace_api.model.values import (
    SOURCE_NAME,
    Flag,
    OutputName,
    PositiveDuration,
    SourceName,
    Text,
    WholeNumber,
)

API_VERSION = "millrace.io/v1alpha1"
KIND = "StreamQuery"

QUERY_LABEL = "millrace.io/query"
"""Label with the name of the query that an object belongs to."""

ROLE_LABEL = "millrace.io/role"
"""Label that says what a pod of a query does: ``DRIVER``, ``EXECUTOR``, ``PARTITIONER`` or ``SHADOW``."""

DRIVER, EXECUTOR, PARTITIONER, SHADOW = "driver", "executor", "partitioner", "shadow"

CANARY_LABEL = "millrace.io/canary"
"""Label of a StreamQuery that no operator deploys."""


class Annotation(StrEnum):
    """Annotations that control the operator temporarily, without a change of the spec."""

    PAUSED = "millrace.io/paused"
    """Nothing is changed: no scaling, no replacement, no repair.

    Whatever runs continues; a deletion is still carried out.
    """
    PAUSED_SCALE_IN = "millrace.io/paused-scale-in"
    """No cores are released."""
    PAUSED_SCALE_OUT = "millrace.io/paused-scale-out"
    """No cores are added."""
    SKIP_DRAIN = "millrace.io/skip-drain"
    """A deletion does not wait for the driver's running batch."""

    def is_set(self, annotations: Mapping[str, str]) -> bool:
        """Return whether the annotation is among these and is not ``"false"``."""
        return annotations.get(self, "false").lower() != "false"


class Emit(StrEnum):
    """When results are emitted: at every change, from the end of their window on, or once they can no longer change."""

    ON_UPDATE = "OnUpdate"
    ON_WINDOW_END = "OnWindowEnd"
    ON_WINDOW_CLOSE = "OnWindowClose"


class OutputSpec(Model):
    """Another output of the same computation, with a strategy and a sink of its own."""

    emit: Emit = Field(description="When these results are emitted; see spec.emit.", examples=["OnWindowClose"])
    sink: OutputSinkSpec = Field(description="Where these results go.", examples=["{files: {path: out/final}}"])


def _python_source_known(spec: Spec) -> bool:
    python = spec.query.python
    return python is None or (len(spec.sources) == 1 if python.source is None else python.source in spec.sources)


def _python_window_closes(spec: Spec) -> bool:
    python = spec.query.python
    if python is None or spec.emit is not Emit.ON_WINDOW_CLOSE:
        return True
    return python.window is not None and all(source.watermark is not None for source in _read_by_python(spec))


def _read_by_python(spec: Spec) -> list[SourceSpec]:
    """Return the source that the aggregator reads, all sources if it names none, and nothing without an aggregator."""
    python = spec.query.python
    if python is None:
        return []
    return [source for name, source in spec.sources.items() if python.source in (None, name)]


def _has_sql_and_event_time(spec: Spec) -> bool:
    return spec.query.sql is not None and any(source.watermark is not None for source in spec.sources.values())


def _may_keep_history(spec: Spec) -> bool:
    alone = spec.emit is Emit.ON_UPDATE and spec.additional_outputs is None
    return alone and _has_sql_and_event_time(spec)


class Spec(Model):
    """What the user wants."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "query.python.source is not one of the sources",
            "write the name of one of spec.sources; it may be left out only if there is just one",
            ("query",),
            "!has(self.query.python) || (has(self.query.python.source) ? "
            "self.query.python.source in self.sources : self.sources.size() == 1)",
            _python_source_known,
        ),
        Rule(
            "query.python reads a table",
            "leave table out of its source, or write query.sql",
            ("query",),
            None,  # as CEL, tools.crd_compatibility could not see that no stored object breaks it
            lambda spec: all(source.table is None for source in _read_by_python(spec)),
        ),
        Rule(
            "every source is a static table, so nothing streams",
            "add a source that is a stream, or leave static out of one",
            ("sources",),
            None,  # as above
            lambda spec: not all(source.is_static for source in spec.sources.values()),
        ),
        Rule(
            "emit OnWindowClose needs a window and a watermark",
            "add query.python.window and the source's watermark, or write emit: OnUpdate",
            ("emit",),
            "self.emit != 'OnWindowClose' || !has(self.query.python) || (has(self.query.python.window) && "
            "self.sources.all(name, has(self.sources[name].watermark) || "
            "(has(self.query.python.source) && self.query.python.source != name)))",
            _python_window_closes,
        ),
        Rule(
            "emit OnWindowEnd needs query.sql and a watermark",
            "add the source's watermark; for a Python aggregator, write emit: OnUpdate or OnWindowClose",
            ("emit",),
            "self.emit != 'OnWindowEnd' || (has(self.query.sql) && "
            "self.sources.exists(name, has(self.sources[name].watermark)))",
            lambda spec: spec.emit is not Emit.ON_WINDOW_END or _has_sql_and_event_time(spec),
        ),
        Rule(
            "additionalOutputs need query.sql and a watermark",
            "add the source's watermark, or leave additionalOutputs out; a Python aggregator has one output",
            ("additional_outputs",),
            "!has(self.additionalOutputs) || (has(self.query.sql) && "
            "self.sources.exists(name, has(self.sources[name].watermark)))",
            lambda spec: spec.additional_outputs is None or _has_sql_and_event_time(spec),
        ),
        Rule(
            "sink.table.history needs query.sql, a watermark, emit OnUpdate and no additionalOutputs",
            "add what is missing, or leave history out",
            ("sink",),
            "!has(self.sink.table) || !has(self.sink.table.history) || (has(self.query.sql) && "
            "self.emit == 'OnUpdate' && !has(self.additionalOutputs) && "
            "self.sources.exists(name, has(self.sources[name].watermark)))",
            lambda spec: not spec.sink.has_history or _may_keep_history(spec),
        ),
        Rule(
            "a changelog in files needs query.sql and a watermark",
            "add the source's watermark, or leave key out",
            ("sink",),
            "!has(self.sink.files) || !has(self.sink.files.key) || self.sink.files.key.size() == 0 || "
            "(has(self.query.sql) && self.sources.exists(name, has(self.sources[name].watermark)))",
            lambda spec: not spec.sink.has_changelog or _has_sql_and_event_time(spec),
        ),
        Rule(
            "lookups are in the table of spec.sink",
            "write sink.table, or leave lookups out",
            ("lookups",),
            "!has(self.lookups) || has(self.sink.table)",
            lambda spec: spec.lookups is None or spec.sink.table is not None,
        ),
        Rule(
            "a table that tasks write by partition cannot be looked up",
            "write sink.table.transaction: Batch, or leave lookups out",
            ("lookups",),
            "!has(self.lookups) || !has(self.sink.table) || !has(self.sink.table.transaction) || "
            "self.sink.table.transaction != 'Partition'",
            lambda spec: spec.lookups is None or spec.sink.table is None or not spec.sink.table.by_partition,
        ),
        Rule(
            "an output's name is part of the names of what it writes",
            "write at most 63 lower-case letters, digits and '_', not a digit first",
            ("additional_outputs",),
            "!has(self.additionalOutputs) || self.additionalOutputs.all(name, name.size() <= 63 && "
            f"name.matches('^{SOURCE_NAME}$'))",
            None,  # the type of the keys says it
        ),
        WITHIN_MAXIMUM,
        Rule(
            "placement Dedicated needs kafka sources",
            "write partitioner.placement: Inline, or read from kafka",
            ("partitioner",),
            "self.partitioner.placement != 'Dedicated' || self.sources.all(name, has(self.sources[name].kafka))",
            lambda spec: (
                spec.partitioner.placement is not PlacementSetting.DEDICATED
                or all(source.kafka is not None for source in spec.sources.values())
            ),
        ),
        Rule(
            "a source's name is a table's name in the SQL",
            "write at most 63 lower-case letters, digits and '_', not a digit first",
            ("sources",),
            f"self.sources.all(name, name.size() <= 63 && name.matches('^{SOURCE_NAME}$'))",
            None,  # the type of the keys says it
        ),
        Rule(
            "a label has a key that Kubernetes does not take",
            "write at most 63 letters, digits, '-', '_' and '.', such as team or example.org/team",
            ("labels",),
            "!has(self.labels) || self.labels.all(name, name.size() <= 317 && "
            f"name.matches('^{LABEL_KEY}$') && !name.matches('^{LONG_PREFIX}'))",
            None,  # the type of the keys says it
        ),
        Rule(
            "checkpoint cannot be changed",
            "to start from another one, delete this StreamQuery and create a new one",
            ("checkpoint",),
            "has(self.checkpoint) == has(oldSelf.checkpoint) && "
            "(!has(self.checkpoint) || self.checkpoint == oldSelf.checkpoint)",
            None,
        ),
    )

    suspend: Annotated[Flag, IN_PLACE, FREE] = Field(
        default=False, description="Stop the query, and keep its state for when it goes on."
    )
    sources: Annotated[dict[SourceName, SourceSpec], REPLACED] = Field(
        min_length=1,
        max_length=16,
        description="Streams of records by name; the names are the tables of the SQL.",
        examples=["{trips: {files: {path: data/*.csv, format: csv}, schema: city STRING}}"],
    )
    query: Annotated[Query, REPLACED] = Field(description="What is computed.", examples=["{sql: SELECT ...}"])
    sink: Annotated[SinkSpec, REPLACED, FREE] = Field(description="Where the results go.", examples=["{console: {}}"])
    emit: Annotated[Emit, REPLACED, CheckpointChange.EMIT] = Field(
        default=Emit.ON_UPDATE,
        description="OnUpdate: every change at once. OnWindowEnd: groups first when event time reaches the window's "
        "end, and rows of outer joins without a partner when it passes the join's range; then every change. "
        "OnWindowClose: final results only.",
    )
    additional_outputs: Annotated[dict[OutputName, OutputSpec] | None, REPLACED, CheckpointChange.EMIT] = Field(
        default=None,
        min_length=1,
        max_length=4,
        description="More outputs of the same groups or joins, by name: each has its own strategy and sink, and the "
        "results are computed once for all.",
    )
    batch_interval: Annotated[PositiveDuration, REPLACED, FREE] = Field(
        default=PositiveDuration("2s"), description="Time from one micro-batch to the next."
    )
    partitioner: Annotated[PartitionerSpec, FREE] = Field(
        default=PartitionerSpec(), description="How records are placed on workers."
    )
    parallelism: Annotated[Parallelism, FREE] = Field(default=Parallelism(), description="Number n of workers.")
    executors: Annotated[ExecutorsSpec, FREE] = Field(
        default=ExecutorsSpec(), description="Number and size of the Spark executors."
    )
    driver: Annotated[SparkPod, FREE] = Field(default=SparkPod(), description="Size of the Spark driver.")
    scaling: Annotated[Scaling, FREE] = Field(default=Scaling(), description="When and whether to scale.")
    checkpoint: Annotated[CheckpointSpec | None, FIXED, FREE] = Field(
        default=None, description="Where offsets, plans and state are stored; cannot be changed later."
    )
    snapshots: Annotated[SnapshotsSpec | None, REPLACED, FREE] = Field(
        default=None,
        description="Snapshots of the checkpoint that are taken without a person; default: none.",
        examples=["{every: 6h}"],
    )
    upgrade: Annotated[UpgradeSpec | None, IN_PLACE, FREE] = Field(
        default=None,
        description="How a changed query takes the place of the one that runs; default: at once.",
        examples=["{mode: Shadow}"],
    )
    s3: Annotated[S3Spec | None, REPLACED, FREE] = Field(
        default=None, description="The S3 that s3a:// places are in, and the login to it."
    )
    azure: Annotated[AzureSpec | None, REPLACED, FREE] = Field(
        default=None, description="The login to the account of an abfss:// checkpoint."
    )
    lookups: Annotated[LookupsSpec | None, FREE] = Field(
        default=None,
        description="Look-ups in the table of spec.sink from other pods; default: only by a forwarded port.",
    )
    image: Annotated[Text | None, REPLACED, FREE] = Field(
        default=None, description="Container image of the job; default: the operator's own."
    )
    code: Annotated[tuple[CodeFile, ...] | None, REPLACED, FREE] = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Own code beside that of the image, fetched at each start: Python modules with the functions, "
        "aggregators, sinks and partitioners that the query names, and jars.",
        examples=["[{uri: s3a://code/routes-1.4.0-py3-none-any.whl, sha256: 9f86d081...}]"],
    )
    service_account_name: Annotated[Text | None, REPLACED, FREE] = Field(
        default=None,
        description="ServiceAccount of driver and executors, whose identity they have in a cloud; default: the driver "
        "has its own.",
    )
    spark_conf: Annotated[dict[str, str], REPLACED, FREE] = Field(
        default={}, description="Spark settings, except those reserved by Millrace."
    )
    labels: Annotated[dict[LabelKey, LabelValue] | None, REPLACED, FREE] = Field(
        default=None,
        max_length=16,
        description="Labels of all pods of the query, by which costs are assigned to a team.",
        examples=["{team: payments, cost-center: cc-4711}"],
    )
    scheduling: Annotated[SchedulingSpec | None, REPLACED, FREE] = Field(
        default=None,
        description="Batch scheduler and queue of all pods of the query; default: pods start as soon as they find a "
        "node.",
        examples=["{scheduler: Kueue, queue: team-a}"],
    )
    event_log: Annotated[EventLogSpec | None, REPLACED, FREE] = Field(
        default=None, description="Where Spark writes its event log; default: it writes none."
    )
    lineage: Annotated[LineageSpec | None, REPLACED, FREE] = Field(
        default=None, description="Where OpenLineage's events go; default: none are sent."
    )
    restart_nonce: Annotated[WholeNumber | None, REPLACED, FREE] = Field(
        default=None, description="Change it to restart the query."
    )

    @property
    def outputs(self) -> dict[str, Spec]:
        """The spec once for each output, with its strategy and its sink alone, by the field that has both.

        The first one is that of ``spec.sink``. The others are in the order of their names, since Kubernetes keeps no
        other order.
        """
        alone = self.model_copy(update={"additional_outputs": None})
        others = sorted((self.additional_outputs or {}).items())
        return {"spec": alone} | {
            f"spec.additionalOutputs.{name}": alone.model_copy(
                update={"emit": output.emit, "sink": SinkSpec.from_json(output.sink.to_json())}
            )
            for name, output in others
        }

    def state_partitions(self, cores: int) -> int:
        """Return the number of merge tasks, each with a state store, for up to ``cores`` cores.

        Each of them costs about 10 ms a batch.
        """
        return min(self.parallelism.max, max(2, cores))


class StreamQuery(Model):
    """A streaming query."""

    api_version: Annotated[Literal["millrace.io/v1alpha1"], FREE] = Field(
        description="Version of the API.", examples=["millrace.io/v1alpha1"]
    )
    kind: Annotated[Literal["StreamQuery"], FREE] = Field(description="Kind of the object.", examples=["StreamQuery"])
    metadata: Annotated[ObjectMeta, FREE] = Field(description="Name and labels.", examples=["{name: trips-by-cell}"])
    spec: Spec = Field(description="What the user wants.", examples=["{sources: ..., query: ..., sink: ...}"])
    status: Annotated[Status | None, FREE] = Field(
        default=None, description="What the operator reports about the query."
    )

    @property
    def name(self) -> str:
        """Name of the query."""
        return self.metadata.name
