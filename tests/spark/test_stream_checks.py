"""Spark itself about the SQL that the checks without it accept and refuse: they are right in both."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from sqlglot import exp

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Spec
from millrace_api.sql.dialect import ANONYMOUS_AGGREGATES, BUILTIN, SYNTAX, parse_query
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.sql_scope import sql_problem
from millrace_jobs.sources.base import Source
from millrace_jobs.sources.connector import open_source
from stream_queries import COLUMNS, ONLY_SPARK, REFUSED, RUNS, Refused, Setting

pytestmark = pytest.mark.spark


def described(folder: Path, setting: Setting, sql: str) -> tuple[Spec, dict[str, Source]]:
    """Return the spec of a query over two streams, and the streams."""
    source = {"replay": {"path": str(folder / "in.csv"), "format": "csv", "timeColumn": "at"}, "schema": COLUMNS}
    if setting != "bare":
        source["watermark"] = {"column": "at", "delay": "10s"}
    (folder / "in.csv").write_text("at,who,n\n", encoding="utf-8")
    emit = "OnWindowClose" if setting == "close" else "OnUpdate"
    spec = Spec.model_validate(
        {"sources": {"e": source, "c": source}, "query": {"sql": sql}, "sink": {"console": {}}, "emit": emit},
        by_name=False,
    )
    return spec, {name: open_source(name, each, folder / name, folder / "cache") for name, each in spec.sources.items()}


def check(spark: SparkSession, folder: Path, setting: Setting, sql: str) -> None:
    """Plan the SQL and let Spark check it, as ``millrace explain`` does, whether it could be routed or not."""
    spec, sources = described(folder, setting, sql)
    planned = compile_query(spark, spec, {name: each.schema for name, each in sources.items()})
    native = CompiledQuery(Native(parsed_query(sql), ""), planned.result, planned.aggregates)
    native.check_streaming(spec, spark, sources)


def check_by_spark_alone(spark: SparkSession, folder: Path, setting: Setting, sql: str) -> None:
    """Let Spark check SQL that the planner refuses before."""
    spec, sources = described(folder, setting, sql)
    for name, source in sources.items():
        spark.createDataFrame([], from_arrow_schema(source.schema)).createOrReplaceTempView(name)
    try:
        result = spark.sql(sql).schema
    except (AnalysisException, ParseException) as error:
        raise MillraceError(sql_problem(error)) from None
    query = parsed_query(sql)
    CompiledQuery(Native(query, ""), result, query.aggregates).check_streaming(spec, spark, sources)


@pytest.mark.parametrize(("setting", "sql"), RUNS)
def test_what_the_checks_accept_is_accepted(spark: SparkSession, tmp_path: Path, setting: Setting, sql: str) -> None:
    check(spark, tmp_path, setting, sql)


@pytest.mark.parametrize(
    "query", [query for query in [*REFUSED, *ONLY_SPARK] if not query.when_planned], ids=lambda query: query.sql
)
def test_what_the_checks_refuse_is_refused(spark: SparkSession, tmp_path: Path, query: Refused) -> None:
    with pytest.raises(MillraceError):
        check(spark, tmp_path, query.setting, query.sql)
    with pytest.raises(MillraceError) as refused:
        check_by_spark_alone(spark, tmp_path, query.setting, query.sql)
    [problem] = refused.value.problems
    assert problem.message.startswith("Spark does not accept the SQL")
    if query in ONLY_SPARK:
        assert query.said in problem.message


@pytest.mark.parametrize("alias", ["AS w", "w"])
def test_spark_takes_no_alias_in_group_by_either(spark: SparkSession, alias: str) -> None:
    columns = "SELECT timestamp'2026-01-01 00:00:00' AS at"
    with pytest.raises(ParseException, match="extra input"):
        spark.sql(f"SELECT count(*) FROM ({columns}) GROUP BY window(at, '1 minute') {alias}")


def test_the_functions_are_those_of_spark(spark: SparkSession) -> None:
    listed = {row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    assert {name for name in listed if name[0].isalpha()} == BUILTIN
    written = {
        "identifier": "identifier('upper')('x')",
        "timediff": "timediff(DAY, now(), now())",
        "timestampadd": "timestampadd(DAY, 1, now())",
        "timestampdiff": "timestampdiff(DAY, now(), now())",
        "try_cast": "try_cast('x' AS INT)",
    }
    assert written.keys() == SYNTAX
    spark.sql(f"SELECT {', '.join(written.values())}")


def test_the_aggregates_are_those_that_sqlglot_does_not_know(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    known = {name: registry.lookupFunction(identifier(name)) for name in BUILTIN}
    groups = {name: info.get().getGroup() for name, info in known.items() if info.isDefined()}
    aggregates = {name for name, group in groups.items() if group == "agg_funcs"} - {"any"}  # a comparison, too
    assert {name for name in aggregates if not _is_known_to_sqlglot(name)} == ANONYMOUS_AGGREGATES


def _is_known_to_sqlglot(aggregate: str) -> bool:
    for arguments in ("a", "a, b"):
        with suppress(MillraceError):
            return parse_query(f"SELECT {aggregate}({arguments}) FROM t").find(exp.AggFunc) is not None
    return False
