"""SQL that is routed gives what Spark gives for it as it is written: which names stand for what, and which values."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.projection import ArrowProjection
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.routed.merge import finish, merge_partials, single_record_partials
from millrace_jobs.queries.routed.routed import Routed

from .cli import Project

pytestmark = pytest.mark.spark

NAN = float("nan")
MORNING = datetime(2013, 1, 1, 6, tzinfo=UTC)
TABLE = pa.table(
    {
        "a": ["x", "x", "y", "y", None],
        "b": [1, 2, 7, None, 3],
        "v": [1.0, 5.0, NAN, 0.5, None],
        "at": pa.array([MORNING, MORNING, MORNING.replace(hour=9), None, MORNING], pa.timestamp("us", "UTC")),
    }
)
WINDOW = "window(at, '10 minutes')"
QUERIES = [
    "SELECT a /* city */, count(*) -- how many\n FROM T GROUP BY a",
    "SELECT X.a, count(*) FROM `T` AS x GROUP BY x.A",
    "SELECT a, max(v) AS v FROM t GROUP BY a HAVING v > 1",
    "SELECT a, sum(v) * 100 AS v FROM t GROUP BY a HAVING max(v) > 1",
    "SELECT a, min(v) * 100 AS v FROM t GROUP BY a HAVING v > 50",
    "SELECT a, max(b) AS b FROM t GROUP BY a HAVING sum(b) + b > 3",
    "SELECT upper(a) AS a, count(*) FROM t GROUP BY a HAVING a = 'x'",
    "SELECT upper(a) AS a, count(*) FROM t GROUP BY t.a HAVING min(a) = 'x'",
    "SELECT v AS b, b AS v, count(*) FROM t GROUP BY v, b HAVING b > 1",
    "SELECT v AS b, b AS v, count(*) FROM t GROUP BY v, b HAVING v > 1",
    "SELECT a, v AS b, count(*) FROM t GROUP BY a, v HAVING b > 1",
    "SELECT a, count(*) AS a FROM t GROUP BY t.a HAVING a = 'x'",
    "SELECT a, count(*) AS n, n + 1 AS m, m * n FROM t GROUP BY a",
    "SELECT upper(a) AS a, a AS k, lower(k), count(*) FROM t GROUP BY a",
    f"SELECT {WINDOW} AS w, w.start, count(*) FROM t GROUP BY w HAVING w.start > TIMESTAMP '2013-01-01 07:00:00'",
    f"SELECT {WINDOW} AS w, window.end, w.start AS since, a, sum(b) FROM t GROUP BY window, a",
    f"SELECT window.start, window.end, count(*) FROM t GROUP BY ({WINDOW}) HAVING window.start IS NOT NULL",
    "SELECT a, count(*) FROM t WHERE v = double('NaN') GROUP BY a",
    "SELECT v, count(*) FROM t WHERE v >= 5 GROUP BY v HAVING v = double('NaN') OR max(v) = 5",
    "SELECT count(*) FILTER (WHERE v > 1), max(v) FILTER (WHERE v < double('NaN')) FROM t",
]


def spec_of(sql: str, path: Path) -> Spec:
    return StreamQuery.model_validate(
        {
            "apiVersion": "millrace.io/v1alpha1",
            "kind": "StreamQuery",
            "metadata": {"name": "routed"},
            "spec": {
                "sources": {
                    "t": {
                        "files": {"path": str(path), "format": "parquet"},
                        "schema": "a STRING, b BIGINT, v DOUBLE, at TIMESTAMP",
                    }
                },
                "query": {"sql": sql},
                "sink": {"console": {}},
            },
        }
    ).spec


@pytest.mark.parametrize("sql", QUERIES)
def test_a_routed_query_gives_what_spark_gives(spark: SparkSession, workspace: Path, sql: str) -> None:
    path = workspace / "routed.parquet"
    if not path.exists():
        pq.write_table(TABLE, path)
    spec = spec_of(sql, path)
    compiled = compile_query(spark, spec, {"t": TABLE.schema})
    assert isinstance(compiled.execution, Routed), compiled.execution
    assert compiled.execution.aggregation is not None
    records = spark.read.parquet(str(path))
    types = from_arrow_schema(compiled.execution.reduction.schema)
    partials = single_record_partials(records, compiled.execution.aggregation, types)
    merged = merge_partials(partials, compiled.execution.aggregation)
    given = finish(merged, compiled.execution.aggregation, compiled.result, retracts=False)
    records.createOrReplaceTempView("t")
    expected = spark.sql(sql)
    assert given.columns == expected.columns
    assert sorted(map(repr, given.collect())) == sorted(map(repr, expected.collect()))


def test_a_setting_that_changes_what_expressions_mean_leaves_them_to_spark(spark: SparkSession) -> None:
    def compiled() -> Routed:
        plan = compile_query(
            spark, spec_of("SELECT sum(b + 1) FROM t", Path("t.parquet")), {"t": TABLE.schema}
        ).execution
        assert isinstance(plan, Routed)
        return plan

    assert isinstance(compile_projection(compiled().projection, TABLE.schema), ArrowProjection)
    for name, value in (("spark.sql.ansi.enabled", "false"), ("spark.sql.session.timeZone", "Europe/Berlin")):
        usual = spark.conf.get(name)
        spark.conf.set(name, value)
        try:
            assert compile_projection(compiled().projection, TABLE.schema) == f"{name}={value}"
        finally:
            spark.conf.set(name, usual or "")


def test_an_error_in_a_record_is_one_only_if_the_filter_keeps_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.give("0.csv", "at,who,n\n" + "".join(f"2024-01-01T00:00:00Z,a,{n}\n" for n in (0, 3, -5)))
    source = {"files": {"path": "in", "format": "csv"}}
    arrow = "SELECT who, sum(10 DIV n) AS total FROM events WHERE n <> 0 GROUP BY who"
    for number, sql in enumerate([arrow, arrow.replace("10 DIV n", "abs(10 DIV n)")]):
        hashed = project.query(
            sql,
            source=source,
            partitioner={"algorithm": "hash"},
            checkpoint={"uri": (tmp_path / f"state{number}").as_uri()},
            sink={"files": {"path": f"out{number}", "format": "csv"}},
        )
        run = project.millrace("run", hashed, "--once")
        assert run.status == 0, run
        (row,) = project.results(f"out{number}")
        assert row[:2] == ("a", "5" if number else "1")
    all_records = project.query(
        arrow.replace("WHERE n <> 0 ", ""),
        source=source,
        partitioner={"algorithm": "hash"},
        checkpoint={"uri": (tmp_path / "state").as_uri()},
    )
    project.millrace("run", all_records, "--once").assert_failed(
        "the query failed: divide by zero in a record: 10 DIV n", "or exclude such records with WHERE"
    )
