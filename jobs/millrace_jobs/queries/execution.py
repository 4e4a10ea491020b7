"""What callers ask of a compiled query, whatever runs it.

``compile`` makes a ``CompiledQuery``; ``run.loop`` builds its DataFrame, which leads to the folder of its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.sinks import SinkSpec, TransactionScope
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.groups import Group
from millrace_jobs.changes import CHANGE, OUTPUT, WEIGHT
from millrace_jobs.plan.control import Pin
from millrace_jobs.queries.reading import RunContext
from millrace_jobs.queries.sql_scope import check_functions, sql_problem
from millrace_jobs.selection.costs import Resources
from millrace_jobs.selection.selector import Selector
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sources.base import Source
from millrace_jobs.windows import Window

_WHEN = {
    Emit.ON_UPDATE: "every change",
    Emit.ON_WINDOW_END: "first at the window's end, then every change",
    Emit.ON_WINDOW_CLOSE: "when a window closes",
}
"""What is emitted when, by the strategy."""


class RoutingMode(Enum):
    """The forms of a query in Spark; it changes from one to another between two batches."""

    NATIVE = auto()
    """Nothing is routed."""
    INLINE = auto()
    """The batch's own tasks route its records."""
    DEDICATED = auto()
    """Replicas in processes of their own have routed the records before the batch."""


@dataclass(frozen=True)
class ResultTraits:
    """What is known of the results of a query, beside their columns; the defaults are those of Spark's own plan.

    ``key`` has the places of the columns that identify a row, where its groups do not; None if nothing does.
    ``other_keys`` are the places of further such columns. ``emits_changes``: operators on tables emit the results, as
    changes. ``takes_back``: these can take a row back. ``waits``: some are held until the watermark has come, even if
    every change is to be emitted, and ``longest`` is how long after the event time of their records that can take, in
    microseconds; None if that follows from what Spark's operators hold. ``closing_window``: under OnWindowClose,
    results come at the end of this window alone. ``versions``: all versions of a row are emitted, of which Spark's own
    plan has none.
    """

    key: tuple[int, ...] | None = None
    other_keys: tuple[tuple[int, ...], ...] = ()
    emits_changes: bool = False
    takes_back: bool = False
    waits: bool = False
    longest: int | None = None
    closing_window: Window | None = None
    versions: bool = False


class AlgorithmChoice(ABC):
    """The choice of ``auto`` for a query that can run under several algorithms, by where the replicas run."""

    @abstractmethod
    def candidates(self, placement: Placement) -> tuple[str, ...]:
        """Return the algorithms to choose among."""

    @abstractmethod
    def first(self, placement: Placement, *, slices_fill_cores: bool = False) -> Algorithm:
        """Return the algorithm to start with; ``slices_fill_cores``: a batch has a slice or more for each core."""

    @abstractmethod
    def selector(self, resources: Resources, first: str, placement: Placement) -> Selector:
        """Return what learns from batches which of the candidates is the best, from the algorithm ``first`` on."""


class Execution(ABC):
    """What runs a query: ``Native``, ``Routed`` or ``TableQuery``."""

    is_spark_plan: ClassVar[bool] = False
    """Whether Spark plans the SQL as it is written, and can refuse it on streams."""

    @abstractmethod
    def build(self, result: StructType, spec: Spec, context: RunContext, *, routed: bool) -> DataFrame:
        """Return the streaming DataFrame of the results, with ``marks`` behind the columns of ``result``.

        ``routed`` chooses the form of a query that can be routed.
        """

    @abstractmethod
    def explain(
        self, result: StructType, spec: Spec, sources: Mapping[str, Source], pin: Pin, partitions: int | None
    ) -> tuple[str, list[str]]:
        """Return how the query runs under a plan, in words, and its steps.

        ``partitions`` is the number of state partitions that results leave in; see ``result_partitions``.
        """

    @abstractmethod
    def layout(self) -> dict[str, Any]:
        """Return how the query lays out its state, as plain values that can be stored and compared."""

    def continued(self, before: Mapping[str, Any]) -> Execution:
        """Return the query as it goes on with a state of layout ``before``, which it can read."""
        return self

    @property
    def results(self) -> ResultTraits:
        """What is known of the results."""
        return ResultTraits()

    @property
    def result_names(self) -> Sequence[str] | None:
        """Names of the result's columns, where not the SQL alone has them."""
        return None

    @abstractmethod
    def result_keys(
        self, columns: tuple[str, ...] | None, names: Sequence[str], groups: Sequence[Group], spec: Spec
    ) -> ResultKeys:
        """Return what the sink of one output has to know of its rows; raises MillraceError for what it cannot keep.

        ``columns`` identify a row, or are None; ``names`` are those of all columns, and ``groups`` those in the result.
        """

    @abstractmethod
    def result_partitions(self, state: int) -> int | None:
        """Return in how many partitions of a state, which has ``state``, results leave; None if it is not in those.

        One group over all records is in one partition.
        """

    @property
    def unpartitioned(self) -> str:
        """Why results do not leave in the partitions of the state, where they do not."""
        return (
            "the results may be shuffled after the state, and a repeated batch would divide them among other partitions"
        )

    def is_weighted(self, spec: Spec) -> bool:
        """Whether the sink has to know the weights of results, since they can be taken back."""
        return spec.sink.replaces_rows and self.results.takes_back

    def marks(self, spec: Spec) -> list[str]:
        """Return the columns that the sink needs beside the results: weights, and the output that a result is for.

        A changelog has the periods of changes, too.
        """
        has_changelog = any(output.sink.has_changelog for output in spec.outputs.values())
        change = list(CHANGE.names) if has_changelog else [WEIGHT]
        if spec.additional_outputs is not None:
            return [OUTPUT, *change]
        return change if self.is_weighted(spec) else []

    def is_routed(self, algorithm: str) -> bool:
        """Whether the algorithm places parts of a batch on workers: records, or the units of a join's hot keys.

        Raises ValueError on an unknown name.
        """
        return False

    def is_per_record(self, sources: Mapping[str, Source], *, routed: bool) -> bool:
        """Whether Spark's own operators process single records, rather than what Millrace has made of many."""
        return True

    @property
    def choice(self) -> AlgorithmChoice | None:
        """The algorithms that the query can run under; None if it runs under ``native`` alone."""
        return None

    @property
    def can_be_native(self) -> bool:
        """Whether Spark's own plan could run the query, too."""
        return True

    @property
    def unplaced(self) -> str:
        """How a query without a ``choice`` runs, after "the query runs"."""
        return "natively"

    @abstractmethod
    def dedicated_problem(self, spec: Spec, schemas: Mapping[str, pa.Schema]) -> Problem | None:
        """Return why replicas in processes of their own cannot place the records of the query; None if they can."""


def source_step(name: str, source: SourceSpec) -> str:
    """Return the step that reads a source."""
    contents = f", a table by {', '.join(source.table.keys)}" if source.table is not None else ""
    read = ", read at the start" if source.is_static else ""
    if source.table is not None and source.table.refresh_every is not None:
        read += f" and every {source.table.refresh_every}"
    return f"source   {name} ({source.kind}){contents}{read}"


def outputs(spec: Spec, partitions: int | None) -> Iterator[tuple[str, str]]:
    """Yield when each output emits, and its sink with the name of the output."""
    for field, output in spec.outputs.items():
        name = "" if field == "spec" else f" ({field.rpartition('.')[2]})"
        yield _WHEN[output.emit], f"{output.sink.kind}{name}{transactions(output.sink, partitions)}"


def transactions(sink: SinkSpec, partitions: int | None) -> str:
    """Return what one transaction of a sink has; empty for sinks of which all have a batch in one."""
    if sink.kafka is None and not sink.by_partition:
        return ""
    if sink.kafka is not None and sink.kafka.scope(partitions) is TransactionScope.BATCH:
        return ", by the driver in one transaction a batch"
    return f", by the tasks that merge in a transaction for each partition of the state (at most {partitions} a batch)"


def seconds(micros: int) -> str:
    """Return a length of time as text."""
    return f"{micros / 1e6:g} s"


@dataclass(frozen=True)
class CompiledQuery:
    """A query ready to be built, with the schema of its results; ``aggregates`` is whether it has groups."""

    execution: Execution
    result: StructType
    aggregates: bool

    def mode(self, pin: Pin) -> RoutingMode:
        """Return the form in which the query runs under a plan."""
        if not self.execution.is_routed(pin.algorithm):
            return RoutingMode.NATIVE
        return RoutingMode.DEDICATED if pin.is_dedicated else RoutingMode.INLINE

    def build(self, spec: Spec, context: RunContext, *, routed: bool) -> DataFrame:
        """Return the streaming DataFrame of the results; ``routed`` chooses the form of a query that can be routed."""
        results = self.execution.build(self.result, spec, context, routed=routed)
        check_functions(results)
        return results

    def explain(self, spec: Spec, sources: Mapping[str, Source], pin: Pin, partitions: int) -> str:
        """Return the text of ``millrace explain``; ``partitions`` is the number of those of its state."""
        leaving = self.execution.result_partitions(partitions)
        how, steps = self.execution.explain(self.result, spec, sources, pin, leaving)
        drawn = "\n   |\n".join(f"  {step}" for step in steps)
        own = (spec.query.functions or {}).items()
        functions = [f"function {name} -> {each.returns}: {each.python}, over Arrow arrays" for name, each in own]
        called = (spec.query.aggregates or {}).items()
        functions += [f"aggregate {name}: {each.python or each.builtin}, by workers" for name, each in called]
        code = [f"code     {file.place} (sha256 {file.sha256[:12]}...)" for file in spec.code or ()]
        return "\n".join([f"{how}\n\n{drawn}", *([""] if functions or code else []), *functions, *code])

    def output_mode(self, spec: Spec) -> Literal["update", "append"]:
        """Return the Spark output mode that matches when results are emitted."""
        if self.execution.results.emits_changes:
            return "append"  # of changes
        return "update" if spec.emit is Emit.ON_UPDATE and self.aggregates else "append"

    def check_streaming(self, spec: Spec, spark: SparkSession, sources: Mapping[str, Source]) -> None:
        """Run the plan check with which Spark starts every stream; nothing is started or written.

        Only Spark's own plan is checked: Spark's part of the others is always the same, and is known to run.

        Raises:
            MillraceError: Spark supports the query on tables, but not on streams.
        """
        checks = spark.conf.get("spark.sql.streaming.unsupportedOperationCheck") == "true"
        if not self.execution.is_spark_plan or not checks:
            return
        nowhere = Path("nowhere")  # no folder is read before the first batch
        context = RunContext(spark, sources, nowhere, nowhere, nowhere, everything=True)
        jvm = spark._jvm
        assert jvm is not None
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        mode = modes.Update() if self.output_mode(spec) == "update" else modes.Append()
        try:
            plan = self.build(spec, context, routed=False)._jdf.queryExecution().analyzed()
            jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
        except AnalysisException as error:
            raise MillraceError(sql_problem(error)) from None
