"""Which SQL a replica computes by itself. That it computes what Spark does is shown on Spark, in tests/spark."""

import pickle
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from millrace_api.errors import MillraceError
from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_jobs.pipeline.expressions.compiler import compile_expression, compile_projection
from millrace_jobs.pipeline.expressions.programs import evaluate
from millrace_jobs.pipeline.projection import KEEP, ArrowProjection, Projection, SparkProjection

SCHEMA = pa.schema(
    [("t", pa.int8()), ("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
     ("s", pa.string()), ("p", pa.bool_()), ("q", pa.bool_()), ("y", pa.date32()), ("At", pa.timestamp("us", "UTC")),
     ("c", pa.decimal128(10, 2)), ("xs", pa.list_(pa.int32())), ("a b", pa.int32())]
)  # fmt: skip

COMPILE = [
    "i", "I", "`a b`", "at", "xs", "5", "-5", "2147483648", "'x'", "true", "1L", "1.50", "1e3",
    "i = 1", "i == 1", "i <> -1", "i != 1", "t < l", "i >= 5000000000", "d > 1", "d = 0.5", "d < -.5",
    "s = 'é'", "s < 'it\\'s'", "p = true", "p = q", "y = y", "c <= c", "at = at", "p = NULL",
    "at > TIMESTAMP '2013-01-01'", "at > TIMESTAMP '2013-01-01 05:15:00.25'", "at > CAST('2013-01-01' AS TIMESTAMP)",
    "p AND q", "p OR q", "NOT p", "!p", "NOT (p OR i = 1)", "p AND q OR NOT p AND i < 1", "p AND NULL",
    "i IS NULL", "xs IS NOT NULL", "i IN (1, 2)", "s NOT IN ('a')", "d IN (1, 2.5)",
    "i BETWEEN 1 AND 2", "d NOT BETWEEN -1 AND 0.5", "CASE WHEN p THEN i END", "CASE WHEN d > 1 THEN 1L END",
    "CAST(i AS DOUBLE)", "double(l)", "d::double", "CAST(f AS DOUBLE)", "(p = q) = (i = 1)",
    "CAST(i AS DOUBLE) > 1", "r'a'", "CASE WHEN p THEN xs END",
    "f > 1", "f = f", "d = d", "d > i", "1 < d", "d > 1e3", "d = double('NaN')", "d < CAST('-Infinity' AS DOUBLE)",
    "i > 1.5", "c > 1", "c = 0.005", "c > i", "CAST('1.5' AS DECIMAL(3, 1)) < c",
    "y > '2013-01-01'", "y = DATE '2013-01-01'", "at > '2013-01-01'", "at > DATE '2013-01-01'",
    "y IN ('2013-01-01', NULL)", "i IN (1, NULL)", "i IN (NULL)", "i IN (1, 2.5)", "p IN (q, true)",
    f"i IN ({', '.join(map(str, range(99)))})",
    "CASE WHEN p THEN 1 ELSE 2 END", "CASE WHEN p THEN 1 WHEN q THEN 2L END", "CASE i WHEN 1 THEN 2 END", "IF(p, 1, 2)",
    "CASE WHEN p THEN i ELSE 0.5 END", "CASE WHEN p THEN NULL ELSE s END", "CASE WHEN p THEN i + 1 ELSE 1 / i END",
    "i + 1", "-i", "-d", "-c", "i * l", "t - 1", "d + i", "f * f", "f - 1", "c + 1", "c - c", "c * 2", "1.5 * i",
    "i / 2", "d / i", "f / f", "i DIV 2", "l DIV t", "i % 10", "mod(t, 7)", "l % i", "- (1 + 1)", "2 * 3 / 4",
    "upper(s)", "lower(upper(s))", "substring(s, 2)", "substr(s, -3, 2)", "substring(s FROM 0 FOR 1)",
    "upper(s) = 'ß'", "CAST(i AS BIGINT)", "CAST(t AS INT) + 1", "CAST(1 + IF(1 > 2, 1, NULL) AS BIGINT)",
]  # fmt: skip

LEFT_TO_SPARK = [
    "9999999999999999999", "i < 9223372036854775808", "l >= -9223372036854775809.5", "s LIKE 'a%'", "i <=> 1", "p IS TRUE", "t.i", "xs[0]", "missing", "NULL", "CASE WHEN p THEN NULL END",
    "i = '1'", "s > 1", "d > c", "CAST(c AS DOUBLE) > d", "f > c", "NULL = NULL", "xs IN (xs)",
    "y > '2013-1-1'", "y > '2013-02-30'", "y > s", "y < at", "at > TIMESTAMP_NTZ '2013-01-01'",
    "at > TIMESTAMP '2013-1-1'", "at > TIMESTAMP '2013-01-01 05:15:00Z'", "at > CAST('2013-02-30' AS TIMESTAMP)",
    "at > CAST('0000-01-01' AS TIMESTAMP)", "at > TIMESTAMP '2013-01-01 25:00:00'", "xs = xs",
    f"d IN ({', '.join(map(str, range(17)))})", "i IN (1, 1 DIV t)",
    "CAST(s AS DOUBLE)", "CAST(c AS DOUBLE)", "CAST(p AS DOUBLE)", "CAST(l AS INT)", "CAST('5' AS BIGINT)",
    "CAST(' 5' AS DOUBLE)", "CAST('5d' AS DOUBLE)", "TRY_CAST(i AS DOUBLE)", "p < q = p < q", "p = q BETWEEN p AND q",
    "c / 2", "c % 2", "d % 2", "c * d", "c DIV 2", "2147483647 + 1", "1 / 0", "1 % 0", "- (-2147483648)",
    "c * CAST('1' AS DECIMAL(30, 2))", "y + 1", "at - at", "i + '1'", "i + NULL",
    "substring(s, i)", "substring(s, '2')", "upper(i)", "lower(NULL)", "CASE WHEN i THEN 1 END",
    "CASE WHEN p THEN y ELSE '2013-01-01' END", "CASE WHEN p THEN s ELSE 1 END", "CASE s WHEN 1 THEN 2 END",
]  # fmt: skip


def rewritten(sql):
    """As the front end hands it on."""
    return to_sql(parse_expression(sql))


@pytest.mark.parametrize("sql", COMPILE)
def test_replicas_compute_expressions_that_compile(sql):
    compiled = compile_expression(rewritten(sql), SCHEMA)
    assert compiled is not None
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    assert evaluate(pickle.loads(pickle.dumps(compiled.program)), empty).type == compiled.type


@pytest.mark.parametrize("sql", LEFT_TO_SPARK)
def test_other_expressions_are_left_to_spark(sql):
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
    [(["i"], "s LIKE 'A'", "s LIKE 'A'"), (["abs(i)"], "", "abs(i)"), (["CASE WHEN p THEN s END"], "", None)],
)
def test_the_expression_that_needs_spark_is_named(columns, where, culprit):
    kind = pa.int32() if culprit else pa.string()
    named = compile_projection(projection(columns, where, k0=kind), BATCH.schema)
    assert named == culprit if culprit else isinstance(named, ArrowProjection)


def test_a_value_that_is_of_another_type_to_spark_is_left_to_it():
    assert compile_projection(projection(["i"], k0=pa.float64()), BATCH.schema) == "i"
    assert compile_projection(projection(["s"], k0=pa.binary()), BATCH.schema) == "s"


def test_where_a_setting_gives_expressions_another_meaning_they_are_left_to_spark():
    wanted = replace(projection(["i"], k0=pa.int32()), setting="spark.sql.ansi.enabled=false")
    assert compile_projection(wanted, BATCH.schema) == "spark.sql.ansi.enabled=false"


NUMBERS = pa.RecordBatch.from_pydict(
    {"n": pa.array([6, 0, None, -(2**31)], pa.int32()), "m": pa.array([4, 0, 0, -1], pa.int32())}
)


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("CASE WHEN m > 0 THEN n DIV m ELSE -1 END", [1, -1, -1, -1]),
        ("CASE WHEN m = 0 THEN NULL WHEN n > 0 THEN n / m ELSE n / m END", [1.5, None, None, 2.0**31]),
        ("CASE m WHEN 0 THEN 0 ELSE n % m END", [2, 0, 0, 0]),
        ("m <> 0 AND n / m > 1", [True, False, False, True]),
        ("m = 0 OR n % m = 2", [True, True, True, False]),
        ("n % m = 2 OR m = 0", None),
        ("n + (1 DIV m)", None),
        ("CASE WHEN m > 0 THEN 0 ELSE -n END", None),
        ("-n", None),
        ("n * -1", None),
        ("n - 1", None),
        ("n / m", None),
    ],
)
def test_an_error_is_one_only_where_spark_evaluates(sql, value):
    compiled = compile_expression(sql, NUMBERS.schema)
    if value is not None:
        assert evaluate(compiled.program, NUMBERS).to_pylist() == value
        return
    assert compiled.raises
    with pytest.raises(MillraceError) as raised:
        evaluate(compiled.program, NUMBERS)
    (problem,) = raised.value.problems
    assert problem.message.startswith(("the query failed: overflow in a record: ", "the query failed: divide by zero"))
    assert problem.hint.endswith("or exclude such records with WHERE")


def test_of_a_null_the_other_operand_is_not_evaluated():
    zero = NUMBERS.slice(2, 1)
    for sql in ("n + (1 DIV m)", "n = 1 DIV m", "(1 DIV n) DIV m", "(1 DIV m) / n"):
        assert evaluate(compile_expression(sql, NUMBERS.schema).program, zero).to_pylist() == [None]


def test_an_error_in_a_record_that_the_filter_leaves_out_is_none():
    wanted = projection(["n % m"], "m <> 0", k0=pa.int32())
    assert compile_projection(wanted, NUMBERS.schema)(NUMBERS).to_pydict() == {"k0": [2, 0]}


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("upper(s)", ["STRASSE", "ΟΔΟΣ", "I", None]),
        ("lower(s)", ["straße", "οδος", "i", None]),
        ("lower((upper(s)))", ["straße", "οδος", "i", None]),
        ("CASE WHEN s = 'i' THEN lower(upper('ﬁ')) ELSE lower(upper(lower(s))) END", ["straße", "οδος", "fi", None]),
        ("substring(s, -3, 2)", ["aß", "ΔΟ", "", None]),
        ("substring(s, -5, 2)", ["tr", "Ο", "", None]),
        ("substring(s, 0, 2)", ["St", "ΟΔ", "i", None]),
        ("substring(s, 6)", ["e", "", "", None]),
    ],
)
def test_strings_change_case_as_in_spark(sql, value):
    batch = pa.RecordBatch.from_pydict({"s": ["Straße", "ΟΔΟΣ", "i", None]})
    assert evaluate(compile_expression(sql, batch.schema).program, batch).to_pylist() == value


def test_what_spark_has_projected_is_only_cut():
    schema = pa.schema([("k0", pa.string()), ("i0", pa.int64())])
    batch = pa.RecordBatch.from_pydict(
        {"k0": ["a", "b", "c"], "i0": pa.array([1, 2, 3], pa.int32()), KEEP: [True, False, True], "control": [None] * 3}
    )
    cut = SparkProjection(schema)(batch)
    assert (cut.schema, cut.to_pydict()) == (schema, {"k0": ["a", "c"], "i0": [1, 3]})
