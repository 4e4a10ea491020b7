"""Functions of a query's own have the same values wherever they are called: by a replica, by Spark, and by DuckDB."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.own_code.functions import ScalarFunction
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.pipeline.projection import ArrowProjection, Projection
from millrace_jobs.queries.compile import compile_query
from millrace_jobs.queries.own_functions import register
from millrace_jobs.queries.routed.merge import finish, merge_partials, single_record_partials
from millrace_jobs.queries.routed.routed import Routed

from . import own_functions
from .cli import Project
from .typed_rows import BATCH, KINDS, TABLE

pytestmark = pytest.mark.spark

HERE = own_functions.__name__
FUNCTIONS = {
    "initial": {"python": f"{HERE}:initial", "returns": "STRING"},
    "halved": {"python": f"{HERE}:halved", "returns": "DOUBLE"},
    "known": {"python": f"{HERE}:known", "returns": "BOOLEAN"},
    "joined": {"python": f"{HERE}:joined", "returns": "STRING"},
}
LOADED = (
    ScalarFunction("initial", f"{HERE}:initial", pa.string()),
    ScalarFunction("halved", f"{HERE}:halved", pa.float64()),
    ScalarFunction("known", f"{HERE}:known", pa.bool_()),
    ScalarFunction("joined", f"{HERE}:joined", pa.string()),
    *(ScalarFunction(f"same_{name}", f"{HERE}:same", kind) for name, (kind, _) in KINDS.items()),
)
EXPRESSIONS = [
    *(f"same_{name}({name})" for name in KINDS),
    "CASE WHEN known(s) THEN upper(initial(s)) ELSE '-' END",
    "known(d) AND halved(d) > 1",
    "halved(CASE WHEN p THEN d END) * 2",
    "joined(initial(s), n) = 'a1' OR NOT known(n)",
    "joined('x', n)",
    "halved(halved(d))",
]
QUERIES = [
    "SELECT initial(a) AS i, count(*), sum(halved(v)) AS v FROM t GROUP BY initial(a)",
    "SELECT Initial(a) AS i, count(*) FROM t WHERE known(b) AND halved(v) < 2 GROUP BY 1 HAVING max(halved(v)) > 0.5",
    "SELECT known(b) AS k, initial(max(a)) AS i FROM t GROUP BY known(b)",
    "SELECT max(joined(a, b)) FROM t",
    "SELECT initial(reverse(a)) AS i, count(*) FROM t GROUP BY initial(reverse(a))",
]


def query_of(sql: str) -> StreamQuery:
    source = {"files": {"path": "t.parquet", "format": "parquet"}, "schema": "a STRING, b BIGINT, v DOUBLE"}
    spec = {"sources": {"t": source}, "query": {"sql": sql, "functions": FUNCTIONS}, "sink": {"console": {}}}
    document = {"apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "own"}, "spec": spec}
    return StreamQuery.model_validate(document)


def test_a_replica_gives_what_spark_gives_for_each_type(spark: SparkSession, workspace: Path) -> None:
    register(spark, LOADED)
    path = workspace / "own-functions.parquet"
    pq.write_table(TABLE, path)
    names = [f"e{index}" for index in range(len(EXPRESSIONS))]
    columns = tuple(zip(names, EXPRESSIONS, strict=True))
    answers = spark.read.parquet(str(path)).selectExpr(*(f"{sql} AS {name}" for name, sql in columns))
    schema = to_arrow_schema(answers.schema, timezone="UTC")
    project = compile_projection(Projection("", columns, schema, 0, functions=LOADED), TABLE.schema)
    assert isinstance(project, ArrowProjection)
    given, expected = project(BATCH), answers.toArrow().cast(schema)
    for name, sql in columns:
        assert list(map(repr, given.column(name).to_pylist())) == list(map(repr, expected.column(name).to_pylist())), (
            sql
        )


@pytest.mark.parametrize("sql", QUERIES)
def test_a_routed_query_gives_what_spark_gives(spark: SparkSession, sql: str) -> None:
    table = pa.table({"a": ["xa", "xb", "ya", "", None], "b": [1, None, 3, 4, 5], "v": [1.0, None, 2.5, 5.0, 0.25]})
    compiled = compile_query(spark, query_of(sql).spec, {"t": table.schema})
    assert isinstance(compiled.execution, Routed), compiled.execution
    assert compiled.execution.aggregation is not None
    records = spark.createDataFrame(table)
    partials = single_record_partials(
        records, compiled.execution.aggregation, from_arrow_schema(compiled.execution.reduction.schema)
    )
    merged = merge_partials(partials, compiled.execution.aggregation)
    given = finish(merged, compiled.execution.aggregation, compiled.result, retracts=False)
    records.createOrReplaceTempView("t")
    expected = spark.sql(sql)
    assert given.columns == expected.columns
    assert sorted(map(repr, given.collect())) == sorted(map(repr, expected.collect()))


NUMBERS = st.none() | st.floats(allow_nan=False, width=32)
TEXTS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(TEXTS, st.none() | st.integers(-(2**31), 2**31 - 1), NUMBERS), min_size=1, max_size=20))
def test_a_replica_gives_what_duckdb_gives(rows: list[tuple[str | None, int | None, float | None]]) -> None:
    schema = pa.schema([("s", pa.string()), ("n", pa.int32()), ("d", pa.float64())])
    pairs = zip(zip(*rows, strict=True), schema, strict=True)
    records = pa.table([pa.array(column, field.type) for column, field in pairs], schema=schema)
    wanted = pa.schema([("e0", pa.string()), ("e1", pa.float64()), ("e2", pa.string()), ("e3", pa.bool_())])
    calls = ("initial(s)", "halved(d)", "joined(initial(s), n)", "halved(d) > 1 AND initial(s) = 'a'")
    columns = tuple(zip(wanted.names, calls, strict=True))
    project = compile_projection(Projection("", columns, wanted, 0, functions=LOADED), schema)
    assert isinstance(project, ArrowProjection)
    (batch,) = records.combine_chunks().to_batches()
    with duckdb.connect() as connection:
        for name, types, result in (("initial", ["VARCHAR"], "VARCHAR"), ("halved", ["DOUBLE"], "DOUBLE"),
                                    ("joined", ["VARCHAR", "INTEGER"], "VARCHAR")):  # fmt: skip
            connection.create_function(
                name, getattr(own_functions, name), types, result, type="arrow", null_handling="special"
            )
        expected = connection.sql(f"SELECT {', '.join(calls)} FROM records").fetchall()
    assert list(zip(*(column.to_pylist() for column in project(batch).columns), strict=True)) == expected


def test_a_function_that_fails_in_sparks_own_plan_is_named_with_its_words(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.give("1.csv", "at,who,n\n2024-01-01T00:00:01Z,a,1\n2024-01-01T00:01:05Z,b,3\n")
    declared = {"checked": {"python": f"{HERE}:halts_at_three", "returns": "INT"}}
    query = project.query(query={"sql": "SELECT who, checked(n) AS n FROM events", "functions": declared})
    result = project.millrace("run", query, "--once")
    said = f"the function checked ({HERE}:halts_at_three) failed: ValueError: three is one too many (own_functions.py"
    result.assert_failed("spec.query.functions.checked: ", said, "return NULL for values that it cannot use")
