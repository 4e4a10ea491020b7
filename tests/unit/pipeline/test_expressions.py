"""Which SQL a replica computes by itself. That it computes what Spark does is shown on Spark, in tests/spark."""

import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from millrace_api.sql import parse_expression, to_sql
from millrace_jobs.pipeline.expressions import compile_expression, compile_projection
from millrace_jobs.pipeline.programs import evaluate
from millrace_jobs.pipeline.projection import KEEP, ArrowProjection, Projection, SparkProjection

SCHEMA = pa.schema(
    [("t", pa.int8()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
     ("s", pa.string()), ("p", pa.bool_()), ("q", pa.bool_()), ("y", pa.date32()), ("At", pa.timestamp("us", "UTC")),
     ("c", pa.decimal128(10, 2)), ("xs", pa.list_(pa.int32())), ("a b", pa.int32())]
)  # fmt: skip

COMPILE = [
    "i", "I", "`a b`", "at", "xs", "5", "-5", "2147483648", "'x'", "true", "1L",
    "i = 1", "i == 1", "i <> -1", "i != 1", "t < l", "i >= 5000000000", "d > 1", "d = 0.5", "d < -.5",
    "s = 'é'", "s < 'it\\'s'", "p = true", "p = q", "y = y", "c <= c", "at = at",
    "at > TIMESTAMP '2013-01-01'", "at > TIMESTAMP '2013-01-01 05:15:00.25'", "at > CAST('2013-01-01' AS TIMESTAMP)",
    "p AND q", "p OR q", "NOT p", "!p", "NOT (p OR i = 1)", "p AND q OR NOT p AND i < 1",
    "i IS NULL", "xs IS NOT NULL", "i IN (1, 2)", "s NOT IN ('a')", "d IN (1, 2.5)",
    "i BETWEEN 1 AND 2", "d NOT BETWEEN -1 AND 0.5", "CASE WHEN p THEN i END", "CASE WHEN d > 1 THEN 1L END",
    "CAST(i AS DOUBLE)", "double(l)", "d::double", "CAST(f AS DOUBLE)", "(p = q) = (i = 1)",
    "CAST(i AS DOUBLE) > 1", "r'a'", "CASE WHEN p THEN xs END",
]  # fmt: skip

LEFT_TO_SPARK = [
    "i + 1", "-i", "upper(s)", "s LIKE 'a%'", "i <=> 1", "p IS TRUE", "t.i", "xs[0]", "missing", "NULL",
    "f > 1", "f = f", "d = d", "d > i", "d > CAST('1' AS DOUBLE)", "1 < d", "d > 1e3", "i > 1.5", "i = '1'", "c > 1",
    "y > '2013-01-01'", "y = DATE '2013-01-01'", "at > '2013-01-01'", "at > TIMESTAMP_NTZ '2013-01-01'",
    "at > TIMESTAMP '2013-1-1'", "at > TIMESTAMP '2013-01-01 05:15:00Z'", "at > CAST('2013-02-30' AS TIMESTAMP)",
    "at > CAST('0000-01-01' AS TIMESTAMP)", "at > TIMESTAMP '2013-01-01 25:00:00'", "xs = xs",
    "i IN (1, NULL)", "i IN (1, 2.5)", f"i IN ({', '.join(map(str, range(17)))})",
    "CASE WHEN p THEN 1 ELSE 2 END", "CASE WHEN p THEN 1 WHEN q THEN 2 END", "CASE i WHEN 1 THEN 2 END", "IF(p, 1, 2)",
    "CAST(s AS DOUBLE)", "CAST(c AS DOUBLE)", "CAST(p AS DOUBLE)", "CAST(i AS BIGINT)", "CAST('5' AS BIGINT)",
    "TRY_CAST(i AS DOUBLE)", "9999999999999999999", "p < q = p < q", "p = q BETWEEN p AND q",
]  # fmt: skip


def rewritten(sql):
    """As the front end hands it on."""
    return to_sql(parse_expression(sql))


@pytest.mark.parametrize("sql", COMPILE)
def test_replicas_compute(sql):
    compiled = compile_expression(rewritten(sql), SCHEMA)
    assert compiled is not None
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert evaluate(pickle.loads(pickle.dumps(compiled.program)), empty).type == compiled.type


@pytest.mark.parametrize("sql", LEFT_TO_SPARK)
def test_spark_computes(sql):
    assert compile_expression(rewritten(sql), SCHEMA) is None


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("i IN (1, 2)", [True, False, None]),
        ("i NOT IN (1, 2)", [False, True, None]),
        ("d > 1", [True, True, None]),
        ("d <= 1", [False, False, None]),
        ("d <> 2", [True, False, None]),
        ("d BETWEEN 0 AND 9", [False, True, None]),
        ("p OR d > 1", [True, True, True]),
        ("p AND d > 1", [None, False, None]),
        ("i IS NULL", [False, False, True]),
        ("CASE WHEN p THEN i END", [None, None, None]),
        ("CASE WHEN d > 1 THEN 's' END", ["s", "s", None]),
        ("CAST(l AS DOUBLE)", [2.0**53, -(2.0**63), None]),
        ("at >= TIMESTAMP '2013-01-01'", [True, False, None]),
    ],
)
def test_three_valued_logic_and_nan_are_spark_s(sql, value):
    moment = datetime(2013, 1, 1, tzinfo=UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "i": pa.array([1, 3, None], pa.int32()),
            "d": [float("nan"), 2.0, None],
            "p": [None, False, True],
            "l": [2**53 + 1, -(2**63), None],
            "at": pa.array([moment, moment.replace(year=2012), None], pa.timestamp("us", "UTC")),
        }
    )
    assert evaluate(compile_expression(sql, batch.schema).program, batch).to_pylist() == value


def projection(columns, where="", **types):
    schema = pa.schema(list(types.items()))
    return Projection(where, tuple(zip(schema.names, columns, strict=True)), schema, 1)


BATCH = pa.RecordBatch.from_pydict(
    {"i": pa.array([3, 1, None, 2], pa.int32()), "s": ["c", "a", None, "b"], "p": [True, None, True, False]}
)


def test_a_projection_filters_and_computes():
    wanted = projection(["i", "s", "'x'", "p"], "i < 3", k0=pa.int64(), i0=pa.string(), i1=pa.string(), i2=pa.bool_())
    compiled = compile_projection(wanted, BATCH.schema)
    assert isinstance(compiled, ArrowProjection)
    projected = pickle.loads(pickle.dumps(compiled))(BATCH)
    assert projected.schema == wanted.schema
    assert projected.to_pydict() == {"k0": [1, 2], "i0": ["a", "b"], "i1": ["x", "x"], "i2": [None, False]}


@pytest.mark.parametrize(("where", "rows"), [("", 4), ("true", 4), ("false", 0), ("p", 2), ("NOT p", 1), ("1 > 2", 0)])
def test_a_filter_keeps_what_is_true(where, rows):
    compiled = compile_projection(projection(["i"], where, k0=pa.int32()), BATCH.schema)
    assert compiled(BATCH).num_rows == rows
    assert compiled(BATCH.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    ("columns", "where", "culprit"),
    [(["i"], "upper(s) = 'A'", "upper(s) = 'A'"), (["i + 1"], "", "i + 1"), (["CASE WHEN p THEN s END"], "", None)],
)
def test_the_expression_that_needs_spark_is_named(columns, where, culprit):
    kind = pa.int32() if culprit else pa.string()
    named = compile_projection(projection(columns, where, k0=kind), BATCH.schema)
    assert named == culprit if culprit else isinstance(named, ArrowProjection)


def test_a_value_that_is_of_another_type_to_spark_is_left_to_it():
    assert compile_projection(projection(["i"], k0=pa.float64()), BATCH.schema) == "i"
    assert compile_projection(projection(["s"], k0=pa.binary()), BATCH.schema) == "s"


def test_what_spark_has_projected_is_only_cut():
    schema = pa.schema([("k0", pa.string()), ("i0", pa.int64())])
    batch = pa.RecordBatch.from_pydict(
        {"k0": ["a", "b", "c"], "i0": pa.array([1, 2, 3], pa.int32()), KEEP: [True, False, True], "control": [None] * 3}
    )
    cut = SparkProjection(schema)(batch)
    assert (cut.schema, cut.to_pydict()) == (schema, {"k0": ["a", "c"], "i0": [1, 3]})
