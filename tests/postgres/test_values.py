"""Values of every type come to PostgreSQL as they are: by drawn rows, which the server compares in its own terms."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from databases.sinks import FRESH, open_sink, rows, write
from lab.postgres import PostgresServer
from millrace_api.errors import MillraceError, TransientError

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

FIRST_TIME = -210_863_520_000_000_000
"""Begin of 4713 BC, as early as PostgreSQL's times, in microseconds since 1970."""
LAST_TIME = 9_223_371_331_200_000_000 - 1
FIRST_DAY, LAST_DAY = -2_440_588, 2_145_031_948
SPARK_LAST_DAY = 106_751_991


class Type(NamedTuple):
    """A type of results, its values, the column's type, and an expression that the server computes from a value."""

    name: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    column: str
    expression: str
    expected: Callable[[Any], Any] = lambda value: value


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
SPECIAL_TEXTS = st.sampled_from(
    ["", "\\N", "\\.", "\t", "\n", "\r\n", "\\t", "NULL", '"', "'", "a\\", "\\x41", "💧", "\u2028"]
)
DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308])

TYPES = [
    Type("a_boolean", pa.bool_(), st.booleans(), "boolean", "{}"),
    Type("a_tinyint", pa.int8(), st.integers(-(2**7), 2**7 - 1), "smallint", "{}"),
    Type("a_smallint", pa.int16(), st.integers(-(2**15), 2**15 - 1), "smallint", "{}"),
    Type("a_int", pa.int32(), st.integers(-(2**31), 2**31 - 1), "integer", "{}"),
    Type("a_int_wider", pa.int32(), st.integers(-(2**31), 2**31 - 1), "numeric(10,0)", "{}"),
    Type("a_bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1), "bigint", "{}"),
    Type("a_double", pa.float64(), DOUBLES, "double precision", "encode(float8send({}), 'hex')",
         lambda value: "7ff8000000000000" if value != value else struct.pack(">d", value).hex()),
    Type("a_float", pa.float32(), st.floats(width=32), "real", "encode(float4send({}), 'hex')",
         lambda value: "7fc00000" if value != value else struct.pack(">f", value).hex()),
    Type("a_decimal", pa.decimal128(38, 18), st.decimals(-(10**20) + 1, 10**20 - 1, places=18, allow_nan=False),
         "numeric(38,18)", "{}", Decimal),
    Type("a_small_decimal", pa.decimal128(4, 4), st.decimals(Decimal("-0.9999"), Decimal("0.9999"), places=4), "numeric", "{}"),
    Type("a_text", pa.string(), TEXTS | SPECIAL_TEXTS, "text", "{}"),
    Type("a_varchar", pa.string(), TEXTS | SPECIAL_TEXTS, "varchar(20)", "{}"),
    Type("a_binary", pa.binary(), st.binary(max_size=20), "bytea", "{}"),
    Type("a_date", pa.date32(), st.integers(FIRST_DAY, SPARK_LAST_DAY), "date", "{} - DATE '1970-01-01'"),
    Type("a_timestamp", pa.timestamp("us", "UTC"), st.integers(FIRST_TIME, LAST_TIME), "timestamptz",
         "(extract(epoch FROM {}) * 1000000)::bigint"),
    Type("a_timestamp_ntz", pa.timestamp("us"), st.integers(FIRST_TIME, LAST_TIME), "timestamp",
         "(extract(epoch FROM {}) * 1000000)::bigint"),
    Type("a_array", pa.list_(pa.string()), st.lists(TEXTS | SPECIAL_TEXTS | st.none(), max_size=4), "jsonb", "{}"),
    Type("a_struct", pa.struct([("a", pa.string()), ("b", pa.int64())]),
         st.fixed_dictionaries({"a": TEXTS | st.none(), "b": st.integers(-(2**63), 2**63 - 1)}), "jsonb", "{}::text",
         json.loads),
]  # fmt: skip
ROWS = st.lists(st.tuples(*(st.none() | each.values for each in TYPES)), min_size=1, max_size=30)


def array(kind: Type, values: list[Any]) -> pa.Array:
    """Return values as Arrow has them: times are numbers, so that they can be of any year."""
    if pa.types.is_temporal(kind.arrow):
        number = pa.int32() if pa.types.is_date(kind.arrow) else pa.int64()
        return pa.array(values, number).cast(kind.arrow)
    return pa.array(values, kind.arrow)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=ROWS)
def test_values_of_every_type_come_to_postgres_unchanged(
    spark: SparkSession, server: PostgresServer, make_table: Callable[[str], str], rows: list[tuple[Any, ...]]
) -> None:
    columns = {kind.name: array(kind, [row[place] for row in rows]) for place, kind in enumerate(TYPES)}
    numbered = pa.table({"number": pa.array(range(len(rows)), pa.int32()), **columns})
    table = make_table(", ".join(["number integer", *(f"{kind.name} {kind.column}" for kind in TYPES)]))
    results = spark.createDataFrame(numbered)
    results = results.withColumn("a_timestamp_ntz", results["a_timestamp_ntz"].cast("timestamp_ntz"))
    sink = open_sink(server, table, results)
    sink.prepare(FRESH)
    assert write(sink, results, 0) == len(rows)
    sink.close()
    shown = ", ".join(kind.expression.format(kind.name) for kind in TYPES)
    for row, found in zip(rows, server.execute(f"SELECT {shown} FROM {table} ORDER BY number"), strict=True):
        for kind, given_value, value in zip(TYPES, row, found, strict=True):
            if kind.expected is json.loads and value is not None:
                assert json.loads(value) == given_value, kind.name
            else:
                assert value == (None if given_value is None else kind.expected(given_value)), kind.name


@pytest.mark.parametrize(
    ("value", "column", "problem"),
    [
        (r"'a\0b'", "text", "cannot hold the character NUL in text"),
        (r"array('a\0b')", "jsonb", "cannot hold the character NUL in text"),
        ("'too long'", "varchar(3)", "does not take a value (value too long for type character varying(3)"),
        ("'no uuid'", "uuid", 'does not take a value (invalid input syntax for type uuid: "no uuid", in column v)'),
        ("CAST(-300000000000 AS TIMESTAMP)", "timestamptz", "does not take a value (timestamp out of range"),
        ("CAST(NULL AS STRING)", "text NOT NULL", "does not take NULL"),
        ("'a'", "text CHECK (v <> 'a')", "has a constraint that a row breaks"),
        ("'a'", "text UNIQUE", "has another row with these values"),
    ],
)
def test_a_value_that_the_table_does_not_take_is_an_error_that_does_not_pass(
    spark: SparkSession, server: PostgresServer, make_table: Callable[[str], str], value: str, column: str, problem: str
) -> None:
    table = make_table(f"k integer PRIMARY KEY, v {column}")
    if "UNIQUE" in column:
        server.execute(f"INSERT INTO {table} VALUES (0, 'a')")
    results = spark.sql(f"SELECT 1 AS k, {value} AS v")
    sink = open_sink(server, table, results, ["k"])
    sink.prepare(FRESH)
    with pytest.raises(MillraceError) as raised:
        write(sink, results, 0)
    assert not isinstance(raised.value, TransientError)
    assert problem in str(raised.value)
    assert "while writing batch 0 to table" in str(raised.value)
    assert str(raised.value).startswith("spec.sink.postgres.")
    assert write(sink, spark.sql("SELECT 2 AS k, CAST(NULL AS STRING) AS v").where("k = 3"), 0) == 0
    sink.close()


def test_names_may_be_any_and_are_found_in_other_case(spark, server, make_table):
    table = make_table('"a ""b""" text PRIMARY KEY, "window" jsonb, tripcount bigint, "per%cent" bigint')
    results = spark.sql(
        "SELECT 'x' AS `a \"b\"`, named_struct('start', TIMESTAMP'2024-01-01') AS window, 1L AS tripCount, 2L AS `per%cent`"
    )
    sink = open_sink(server, table, results, ['a "b"'])
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 1
    assert rows(server, table) == [("x", {"start": "2024-01-01T00:00:00.000000Z"}, 1, 2)]
    sink.close()
