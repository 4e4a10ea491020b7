"""Ask Spark whether it would run a query as a stream, without running it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.pipeline.analysis import CompiledQuery, sql_problem
from millrace_jobs.pipeline.build import RunContext, build
from millrace_jobs.pipeline.front_end import Native
from millrace_jobs.sources.base import Source

_CHECKED = "spark.sql.streaming.unsupportedOperationCheck"


def output_mode(query: CompiledQuery, spec: Spec) -> Literal["update", "append"]:
    """Return the Spark output mode that matches when the results of a query are emitted."""
    return "update" if spec.emit is Emit.ON_UPDATE and query.aggregates else "append"


def check_streaming(query: CompiledQuery, spec: Spec, spark: SparkSession, sources: Mapping[str, Source]) -> None:
    """Run the plan check with which Spark starts every stream; nothing is started or written.

    A query that can be routed is not checked: Spark's part of it is always the same, and is known to run.

    Raises:
        MillraceError: Spark supports the query on tables, but not on streams.
    """
    if not isinstance(query.plan, Native) or spark.conf.get(_CHECKED) != "true":
        return
    nowhere = Path("nowhere")  # no folder is read before the first batch
    around = RunContext(spark, sources, nowhere, nowhere, nowhere, everything=True)
    jvm = spark._jvm
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = modes.Update() if output_mode(query, spec) == "update" else modes.Append()
    try:
        plan = build(query, spec, around, routed=False)._jdf.queryExecution().analyzed()
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode)
    except AnalysisException as error:
        raise MillraceError(sql_problem(error)) from None
