"""What Arrow computes in place of Spark is what Spark would have computed, whatever the expression and the row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from millrace_api.errors import MillraceError
from millrace_api.sql.dialect import parse_expression, to_sql
from millrace_jobs.pipeline.expressions.compiler import compile_expression, compile_projection
from millrace_jobs.pipeline.expressions.programs import evaluate, lower, upper
from millrace_jobs.pipeline.projection import Projection

from .typed_rows import BATCH, KINDS, ROWS, TABLE

pytestmark = [
    pytest.mark.spark,
    # of Hypothesis, which would show how a list of expressions is made
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
]


@pytest.fixture(scope="session")
def parquet(workspace: Path) -> Path:
    path = workspace / "expressions.parquet"
    pq.write_table(TABLE, path)
    return path


def disagreements(spark: SparkSession, parquet: Path, expressions: list[str]) -> tuple[list[str], int]:
    """Where Arrow's value is not Spark's, in words; and how many of these expressions Arrow computed at all."""
    table = spark.read.parquet(str(parquet))
    names = [f"e{index}" for index in range(len(expressions))]
    answers = table.selectExpr(*(f"{sql} AS {name}" for name, sql in zip(names, expressions, strict=True)))
    expected = in_arrow(answers)
    found, computed = [], 0
    for name, sql in zip(names, expressions, strict=True):
        wanted = expected.column(name)
        schema = pa.schema([(name, wanted.type)])
        text = to_sql(parse_expression(sql))
        project = compile_projection(Projection("", ((name, text),), schema, 0), TABLE.schema)
        if isinstance(project, str):
            continue
        computed += 1
        given = project(BATCH).column(0)
        for row, (ours, theirs) in enumerate(zip(given.to_pylist(), wanted.to_pylist(), strict=True)):
            if repr(ours) != repr(theirs):  # tells 0.0 from -0.0, and not NaN from NaN
                found.append(f"{sql}: {ours!r}, to Spark {theirs!r}, in {BATCH.slice(row, 1).to_pylist()[0]}")
                break
    return found, computed


def in_arrow(answers: DataFrame) -> pa.Table:
    schema = to_arrow_schema(answers.schema, timezone="UTC")
    rows = answers.toArrow()
    assert rows.num_rows == ROWS
    return rows.cast(pa.schema([field.with_nullable(True) for field in schema]))


COMPARISONS = st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">="])
INTEGERS = st.sampled_from(
    ["0", "1", "-1", "7", "- 7", "007", "127", "128", "-129", "32768", "2147483647", "2147483648", "-2147483648",
     "-2147483649", "4294967296", "999999999999999999", "9223372036854775807", "1L", "-1L", "7S", "7Y", "(-(1))"]
)  # fmt: skip
NUMBERS = INTEGERS | st.sampled_from(
    ["0.0", "-0.0", "0.1", "-1.5", ".5", "1.", "1e0", "1.5D", "0.1F", "2BD", "9007199254740993", "16777217",
     "9223372036854775808", "0.1000000000000000055511151231257827", "34028234663852885981170418348451692544"]
)  # fmt: skip
STRINGS = st.sampled_from(
    ["''", "'a'", "'A'", '"ab"', "'é'", "'e\u0301'", "'ß'", "'\U0001f600'", "'it\\'s'", '"it\'s"', "'a '", "'a' 'b'",
     "'a\\\\b'", "'a\\nb'", "'\\u0061'", "'\\141'", "'\\%'", "'a\\b'", "'\\z'", "r'a\\b'", "'it''s'", "'\\0'", "'\\_'"]
)  # fmt: skip
MOMENTS = st.sampled_from(
    ["TIMESTAMP '2013-01-01'", "TIMESTAMP '2013-01-01 05:15:00'", "TIMESTAMP '2013-01-01T05:15:00.5'",
     "TIMESTAMP '2013-01-01 05:15:00.000001'", "timestamp'1969-12-31 23:59:59.999999'", "TIMESTAMP '0001-01-01'",
     "CAST('2013-01-01 05:15:00.50' AS TIMESTAMP)", "TIMESTAMP '2013-01-01 05:15:00+01:00'",
     "TIMESTAMP '1582-10-10 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'", "TIMESTAMP '2013-1-1'",
     "TIMESTAMP '2013-01-01 05:15'", "TIMESTAMP_LTZ '2013-01-01'", "TIMESTAMP_NTZ '2013-01-01 05:15:00'"]
)  # fmt: skip


def column(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from([name, f"{name}2", f"`{name}`", name.upper()])


INTEGER = column("t") | column("h") | column("i") | column("l") | INTEGERS
FLOAT = column("f") | st.sampled_from(["CAST('NaN' AS FLOAT)"])
DOUBLE = st.one_of(
    column("d"),
    st.sampled_from(["double('NaN')", "double('Infinity')", "CAST('-inf' AS DOUBLE)", "1e3", "CAST('0.1' AS DOUBLE)"]),
    st.builds("CAST({} AS DOUBLE)".format, INTEGER | column("f") | column("d") | column("c")),
    st.builds("double({})".format, column("l")),
)
VALUES = {
    "integer": INTEGER,
    "number": DOUBLE | FLOAT | NUMBERS,
    "exact": INTEGER | column("c") | column("k") | NUMBERS.filter(lambda text: not text.endswith(("e0", "D", "F"))),
    "text": column("s") | STRINGS,
    "truth": column("p") | st.sampled_from(["true", "FALSE"]),
    "day": column("y") | st.sampled_from(["DATE '2013-01-01'", "CAST('1582-10-10' AS DATE)", "date('0001-01-01')"]),
    "time": column("at") | MOMENTS | st.just("DATE '2013-01-01'"),
    "money": column("c") | st.sampled_from(["1", "-1.50", "0.005"]),
    "bytes": column("b") | st.just("X'80'"),
}
"""Values which Spark accepts in one comparison; many that only Spark can compute are among them."""


@st.composite
def predicates(draw: st.DrawFn, value: st.SearchStrategy[str]) -> str:
    """One comparison, IN, BETWEEN or test for NULL."""
    negated = draw(st.sampled_from(["", "NOT "]))
    match draw(st.integers(0, 4)):
        case 0 | 1:
            return f"{draw(value)} {draw(COMPARISONS)} {draw(value)}"
        case 2:
            options = draw(st.lists(value | st.just("NULL"), min_size=1, max_size=17))
            return f"{draw(value)} {negated}IN ({', '.join(options)})"
        case 3:
            return f"{draw(value)} {negated}BETWEEN {draw(value)} AND {draw(value)}"
        case _:
            return f"{draw(value)} IS {negated}NULL"


SMALL = st.one_of(
    column("n"), column("m"), st.sampled_from(["0", "1", "-3", "7", "10L", "1000"]),
    st.builds("CAST({} AS BIGINT)".format, column("h") | column("t")),
)  # fmt: skip
SUMS = st.recursive(
    SMALL,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds(
            "{} {} {}".format, inner, st.sampled_from(["%", "DIV"]), st.sampled_from(["7", "-3", "10L", "(-(2))"])
        ),
        st.builds("mod({}, {})".format, inner, st.sampled_from(["7", "-3"])),
        st.builds("-({})".format, inner),
        st.builds("CASE WHEN {0} <> 0 THEN {1} % {0} ELSE {1} END".format, column("n"), inner),
    ),
    max_leaves=4,
)
RATIOS = st.one_of(
    st.builds("{} / {}".format, SUMS, st.sampled_from(["7", "-3", "0.5D"])),
    st.builds("{} {} {}".format, DOUBLE | FLOAT | SMALL, st.sampled_from(["+", "-", "*"]), DOUBLE | FLOAT),
    st.builds("-({})".format, DOUBLE | column("f")),
    st.builds(
        "CASE WHEN {0} <> 0 AND {1} / {0} > 1 THEN {1} / {0} END".format, column("n") | column("d"), SMALL | DOUBLE
    ),
)
EXACT = st.one_of(
    st.builds("{} {} {}".format, column("c") | column("k"), st.sampled_from(["+", "-", "*"]),
              column("c") | column("k") | SMALL | st.sampled_from(["0.5", "-1.005", "2BD"])),
    st.builds("{} {} {}".format, st.sampled_from(["0.5", "100", "7S"]), st.sampled_from(["+", "-", "*"]), column("k")),
    st.builds("-({})".format, column("c")),
)  # fmt: skip
POSITIONS = st.integers(-9, 9).map(str) | st.sampled_from(["2147483647", "-2147483648", "n"])
WORDS = st.recursive(
    VALUES["text"],
    lambda inner: st.one_of(
        st.builds("{}({})".format, st.sampled_from(["upper", "lower", "ucase", "lcase"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["substring", "substr"]), inner, POSITIONS),
        st.builds("substring({}, {}, {})".format, inner, POSITIONS, POSITIONS),
    ),
    max_leaves=3,
)
ISO = st.sampled_from(["'2013-01-01'", "'1582-10-10'", "'2013-01-01 05:15:00'", "'1969-12-31T23:59:59.999999'"])
MIXED = {
    "sum": SUMS,
    "ratio": RATIOS | SUMS,
    "exact": EXACT | SUMS,
    "word": WORDS,
    "day": column("y") | ISO.filter(lambda text: len(text) == 12),
    "time": column("at") | ISO,
}
"""What is computed before it is compared."""

PREDICATES = st.one_of([predicates(value) for value in (*VALUES.values(), *MIXED.values())])
CONDITIONS = st.recursive(
    PREDICATES | VALUES["truth"],
    lambda inner: st.one_of(
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["AND", "OR", "=", "<", "<>"]), inner),
        st.builds("NOT ({})".format, inner),
        st.builds("!({})".format, inner),
        st.builds("({}) IS NULL".format, inner),
        st.builds("CASE WHEN {} THEN {} END".format, inner, inner),
        st.builds("if({}, {}, {})".format, inner, inner, inner | st.just("NULL")),
    ),
    max_leaves=4,
)
BRANCHES = [values for kind, values in (VALUES | MIXED).items() if kind not in ("day", "time")]
EXPRESSIONS = st.one_of(
    CONDITIONS,
    st.one_of(list(VALUES.values())),
    SUMS | RATIOS | EXACT | WORDS,
    st.one_of(
        [
            st.builds(
                "CASE WHEN {} THEN {} WHEN {} THEN {} ELSE {} END".format,
                CONDITIONS,
                value,
                CONDITIONS,
                value,
                value | st.just("NULL"),
            )
            for value in BRANCHES
        ]
    ),
    st.one_of(
        [st.builds("CASE {} WHEN {} THEN {} ELSE {} END".format, value, value, WORDS, WORDS) for value in BRANCHES]
    ),
    st.builds("CASE WHEN {} THEN {} END".format, CONDITIONS, st.one_of(list(VALUES.values()))),
    st.builds("CASE WHEN {0} THEN {1} ELSE {1} END".format, CONDITIONS, st.one_of(list(VALUES.values()))),
)
ENDINGS = st.sampled_from(["", "IS NULL", "IS NOT NULL", "IN (p, true)", "NOT IN (p2)", "BETWEEN p AND p2"])


@st.composite
def unparenthesized(draw: st.DrawFn) -> str:
    """Booleans, so that any grouping has a value and only precedence says which it is."""
    words = []
    for joined in draw(st.lists(st.sampled_from(["AND", "OR"]), min_size=1, max_size=3)):
        words += [joined, draw(st.sampled_from(["", "NOT"])), draw(VALUES["truth"])]
        for sign in draw(st.lists(COMPARISONS, max_size=3)):
            words += [sign, draw(VALUES["truth"])]
        words.append(draw(ENDINGS))
    return " ".join(filter(None, words[1:]))


MUCH_AT_ONCE = settings(
    max_examples=20,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # the message is short, and each step of shrinking is a job
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


@MUCH_AT_ONCE
@given(expressions=st.lists(EXPRESSIONS, min_size=20, max_size=20, unique=True))
def test_arrow_computes_what_spark_does(spark: SparkSession, parquet: Path, expressions: list[str]) -> None:
    found, _ = disagreements(spark, parquet, expressions)
    assert not found, "\n".join(found)


BEYOND_BIGINT = [f"{name} {sign} {number}" for name in "thilc" for sign in ("<", ">=", "=", "<>")
                 for number in ("99999.5", "-99999.0", "9999999999999.5", "9223372036854775807.5", "9223372036854775808",
                                "-99999999999999999999.5")]  # fmt: skip


def test_what_is_beyond_bigint_compares_as_to_spark(spark: SparkSession, parquet: Path) -> None:
    """Spark says that NULL < 9223372036854775808 is true, where the NULL is an integer."""
    found, computed = disagreements(spark, parquet, BEYOND_BIGINT)
    assert not found, "\n".join(found)
    assert computed == len(BEYOND_BIGINT) / 2


@settings(MUCH_AT_ONCE, max_examples=8)
@given(expressions=st.lists(unparenthesized(), min_size=20, max_size=20, unique=True))
def test_precedence_is_spark_s(spark: SparkSession, parquet: Path, expressions: list[str]) -> None:
    found, _ = disagreements(spark, parquet, expressions)
    assert not found, "\n".join(found)


PAIRS = [("d", "d2"), ("f", "f2"), ("d", "i"), ("f", "l"), ("d", "f"), ("c", "k"), ("c", "i"), ("k", "0.5"), ("i", "1.5"),
         ("double('NaN')", "d"), ("d", "double('NaN')"), ("0.1", "f")]  # fmt: skip
FREQUENT = [
    *(f"{name} {sign} {name}2" for name in "thilspycb" for sign in ("=", "<>", "<", "<=", ">", ">=")),
    *(f"d {sign} {number}" for sign in ("=", "<>", "<", "<=", ">", ">=") for number in ("0", "-0.0", "0.1", "-1.5")),
    *(f"CAST({name} AS DOUBLE)" for name in "thilfd"),
    *(f"CAST({name} AS DOUBLE) >= 9007199254740993" for name in "ld"),
    *(f"CASE WHEN p THEN {name} END" for name in KINDS),
    *(f"CASE WHEN d > 1 AND i IS NOT NULL THEN {value} END" for value in ("1", "1L", "'x'", "true", "at", "d")),
    "t < 300", "l > 2147483647", "i = -2147483648", "t = l", "h <= i2",
    "at >= TIMESTAMP '2013-01-01'", "at = TIMESTAMP '2013-01-01 05:15:00.5'", "at < CAST('2013-01-01' AS TIMESTAMP)",
    "s = ''", "s > 'é'", "s < '😀'", "s = 'it\\'s'", "s IN ('a', 'ß', '')", "s NOT IN ('a', 'é')",
    "i IN (0, 1, 100)", "d IN (0, 1.5, -1.5)", "d NOT IN (1, 2)", "t NOT IN (1, 300)", "p IN (true)",
    "d IN (-0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)", "l IN (-0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2147483648)",
    "i BETWEEN -1 AND 7", "d BETWEEN 0 AND 1", "d NOT BETWEEN -1.5 AND 0.1", "s BETWEEN 'A' AND 'b'",
    "NOT p", "NOT (d > 1)", "p AND p2", "p OR p2", "p AND d > 0 OR s IS NULL", "(i = 1) = (p)", "p IS NOT NULL",
    "5", "'x'", "true", "1 < 2", "CASE WHEN true THEN 5 END", "CASE WHEN false THEN 'x' END",
    *(f"{one} {sign} {other}" for one, other in PAIRS for sign in ("=", "<>", "<", "<=", ">", ">=")),
    "d = double('NaN')", "d IN (double('NaN'), 1)", "f = f2 AND d < d2", "d BETWEEN d2 AND double('Infinity')",
    "y > '2013-01-01'", "y = DATE '2013-01-01'", "at >= '2013-01-01'", "at BETWEEN '2013-01-01' AND DATE '2014-01-01'",
    "y IN ('2013-01-01', NULL)", "s IN ('a', NULL)", "s NOT IN ('a', NULL)", "i IN (NULL)", "i IN (1, 2.5)", "p IN (p2)",
    "l IN (9007199254740993, 1.5D)", f"n IN ({', '.join(map(str, range(50)))}, NULL)", "c IN (1, -1.5, NULL)",
    "CASE WHEN p THEN 1 ELSE 2 END", "CASE WHEN p THEN n WHEN p2 THEN m ELSE 0.5 END", "CASE n WHEN 1 THEN s ELSE 'x' END",
    "CASE WHEN n <> 0 THEN m / n ELSE 0 END", "CASE WHEN i > 0 THEN NULL ELSE s END", "IF(d > 1, d, 0)", "IF(p, c, 1)",
    "n + 1", "n * m - 1", "m % 7", "n DIV 2", "n / 2", "-n", "d * 2", "d + n", "f * f2", "-d", "c * 2", "c + k", "k - 0.5",
    "c * k", "n * k", "d * -0.0", "CASE WHEN p THEN d ELSE -0.0 END", "CAST('-0.0' AS DOUBLE)", "n <> 0 AND m % n = 1", "n = 0 OR m DIV n > 0", "h + CAST(t AS INT)",
    "upper(s)", "lower(s)", "upper(s) = 'STRASSE'", "substring(s, 2)", "substring(s, -3, 2)", "substr(s, 0, 1)",
]  # fmt: skip


def test_what_filters_keys_and_inputs_mostly_are_needs_no_spark(spark: SparkSession, parquet: Path) -> None:
    found, computed = disagreements(spark, parquet, FREQUENT)
    assert not found, "\n".join(found)
    assert computed == len(FREQUENT)


OPERATORS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}


def test_errors_of_arithmetic_are_spark_s(spark: SparkSession, parquet: Path) -> None:
    """An operation is an error where Spark's ``try`` of it is NULL and neither operand is."""
    pairs = [
        "t t2",
        "t h",
        "h i",
        "i i2",
        "i l",
        "l l2",
        "l m",
        "n m",
        "m n2",
        "i 7",
        "-3 l",
        "l -1",
        "d n",
        "d d2",
        "f m",
    ]
    cases = [(sign, *pair.split()) for pair in pairs for sign in OPERATORS if sign != "%" or pair[0] not in "df"]
    table = spark.read.parquet(str(parquet))
    expected = in_arrow(
        table.selectExpr(*(f"{OPERATORS[sign]}({a}, {b}) AS e{i}" for i, (sign, a, b) in enumerate(cases)))
    )
    for (sign, a, b), wanted in zip(cases, expected.columns, strict=True):
        sql = f"({a}) {sign} ({b})"
        compiled = compile_expression(sql, TABLE.schema)
        assert compiled is not None, sql
        operands = [evaluate(compile_expression(operand, TABLE.schema).program, BATCH) for operand in (a, b)]  # type: ignore[union-attr]
        known = pc.and_(*(pc.is_valid(operand) for operand in operands))
        wrong = pc.and_(wanted.combine_chunks().is_null(), known)
        rows = BATCH.filter(pc.invert(wrong))
        assert compiled.type == wanted.type, sql
        given = evaluate(compiled.program, rows)
        assert repr(given.to_pylist()) == repr(wanted.combine_chunks().filter(pc.invert(wrong)).to_pylist()), sql
        errors = BATCH.filter(wrong)
        for row in range(errors.num_rows):
            with pytest.raises(MillraceError):
                evaluate(compiled.program, errors.slice(row, 1))
            lazy = compile_expression(f"CASE WHEN s IS NULL AND s IS NOT NULL THEN {sql} END", TABLE.schema)
            assert lazy is not None
            assert evaluate(lazy.program, errors.slice(row, 1)).to_pylist() == [None]


@pytest.mark.in_turn
def test_capitals_of_every_character_are_spark_s(spark: SparkSession) -> None:
    """Alone, and around the one letter whose small form depends on what is before and after it."""
    points = [point for point in range(1, 0x110000) if not 0xD800 <= point < 0xE000]
    characters = pa.array([chr(point) for point in points])
    texts = {"alone": ("", ""), "inside": ("Α", "Σ"), "behind": ("ΑΣ", ""), "between": ("ΑΣ", "Α")}
    made = pa.table({name: [f"{b}{c}{e}" for c in characters.to_pylist()] for name, (b, e) in texts.items()})
    wanted = spark.createDataFrame(made).selectExpr(
        "upper(alone) AS upper", *(f"lower({name}) AS {name}" for name in texts)
    )
    expected = wanted.toArrow()
    given = {"upper": upper(made["alone"].combine_chunks())} | {
        name: lower(made[name].combine_chunks()) for name in texts
    }
    for name, column_given in given.items():
        different = pc.not_equal(column_given, expected[name].combine_chunks())
        assert characters.filter(different).to_pylist() == [], name
