"""Values of every type come to MySQL as they are, and none is changed silently, by a server that is not strict."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from databases.sinks import FRESH, dialect, open_sink, rows, write
from lab.mariadb import MariaDbServer
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.databases.mysql import MySqlSession

pytestmark = [pytest.mark.spark, pytest.mark.mysql]

MakeTable = Callable[[str], str]
EPOCH = datetime(1970, 1, 1)
UTF8 = "CHARACTER SET utf8mb4"


class Kind(NamedTuple):
    """A type of results, its values, the column's type, and what the client finds for a value."""

    name: str
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    column: str
    expected: Callable[[Any], Any] = lambda value: value


def bits(number: float) -> str:
    """Return the bits of a number; MariaDB keeps no sign of zero."""
    return struct.pack(">d", number or 0.0).hex()


def days(number: int) -> date:
    return date(1970, 1, 1) + timedelta(number)


def instant(number: int) -> datetime:
    return EPOCH + timedelta(microseconds=number)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SPECIAL_TEXTS = st.sampled_from(
    ["", "\\N", "\\", "\0", "\t", "\r\n", "NULL", '"', "'", "''", "a\\'", "%s", "a ", " ", "💧", "\u2028", "\x1a"]
)
ALL_TEXTS = TEXTS | SPECIAL_TEXTS
DOUBLES = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 5e-324, 1.7976931348623157e308]
)
FIRST_TIME = (datetime(1, 1, 1) - EPOCH) // timedelta(microseconds=1)
LAST_TIME = (datetime.max - EPOCH) // timedelta(microseconds=1)

KINDS = [
    Kind("a_boolean", pa.bool_(), st.booleans(), "tinyint(1)", int),
    Kind("a_tinyint", pa.int8(), st.integers(-(2**7), 2**7 - 1), "tinyint"),
    Kind("a_smallint", pa.int16(), st.integers(-(2**15), 2**15 - 1), "mediumint"),
    Kind("a_int", pa.int32(), st.integers(-(2**31), 2**31 - 1), "int"),
    Kind("a_int_wider", pa.int32(), st.integers(-(2**31), 2**31 - 1), "decimal(10,0)"),
    Kind("a_bigint", pa.int64(), st.integers(-(2**63), 2**63 - 1), "bigint"),
    Kind("a_double", pa.float64(), DOUBLES, "double", bits),
    Kind("a_float", pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False), "float",
         bits),
    Kind("a_decimal", pa.decimal128(38, 18), st.decimals(-(10**20) + 1, 10**20 - 1, places=18, allow_nan=False),
         "decimal(38,18)"),
    Kind("a_small_decimal", pa.decimal128(20, 20), st.decimals(Decimal("-0.9999"), Decimal("0.9999"), places=20),
         "decimal(65,30)"),
    Kind("a_text", pa.string(), ALL_TEXTS, f"longtext {UTF8}"),
    Kind("a_varchar", pa.string(), ALL_TEXTS, f"varchar(20) {UTF8}"),
    Kind("a_binary", pa.binary(), st.binary(max_size=20), "varbinary(20)"),
    Kind("a_blob", pa.binary(), st.binary(max_size=20), "longblob"),
    Kind("a_date", pa.date32(), st.integers((date(1, 1, 1) - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days),
         "date", days),
    Kind("a_datetime", pa.timestamp("us", "UTC"), st.integers(FIRST_TIME, LAST_TIME), "datetime(6)", instant),
    Kind("a_timestamp", pa.timestamp("us", "UTC"), st.integers(1_000_000, 2**31 * 1_000_000 - 1_000_001),
         "timestamp(6) NULL", instant),
    Kind("a_timestamp_ntz", pa.timestamp("us"), st.integers(FIRST_TIME, LAST_TIME), "datetime(6)", instant),
    Kind("a_array", pa.list_(pa.string()), st.lists(ALL_TEXTS | st.none(), max_size=4), "json"),
    Kind("a_array_of_doubles", pa.list_(pa.float64()), st.lists(DOUBLES | st.none(), max_size=4), "json"),
    Kind("a_struct", pa.struct([("a", pa.string()), ("b", pa.int64())]),
         st.fixed_dictionaries({"a": TEXTS | st.none(), "b": st.integers(-(2**63), 2**63 - 1)}), "json"),
]  # fmt: skip
ROWS = st.lists(st.tuples(*(st.none() | each.values for each in KINDS)), min_size=1, max_size=30)


def array(kind: Kind, values: list[Any]) -> pa.Array:
    """Return values as Arrow has them: times are numbers, so that they can be of any year."""
    if pa.types.is_temporal(kind.arrow):
        number = pa.int32() if pa.types.is_date(kind.arrow) else pa.int64()
        return pa.array(values, number).cast(kind.arrow)
    return pa.array(values, kind.arrow)


def shown(kind: Kind) -> str:
    """Return what to select of a column, so that the client gets all of it."""
    return f"{kind.name} + 0E0" if kind.column == "float" else kind.name


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(drawn=ROWS)
def test_values_of_every_type_come_to_mysql_unchanged(
    spark: SparkSession, server: MariaDbServer, make_table: MakeTable, drawn: list[tuple[Any, ...]]
) -> None:
    columns = {kind.name: array(kind, [row[place] for row in drawn]) for place, kind in enumerate(KINDS)}
    numbered = pa.table({"number": pa.array(range(len(drawn)), pa.int32()), **columns})
    table = make_table(", ".join(["number int", *(f"{kind.name} {kind.column}" for kind in KINDS)]))
    results = spark.createDataFrame(numbered)
    results = results.withColumn("a_timestamp_ntz", results["a_timestamp_ntz"].cast("timestamp_ntz"))
    sink = open_sink(server, table, results)
    sink.prepare(FRESH)
    assert write(sink, results, 0) == len(drawn)
    sink.close()
    selected = ", ".join(map(shown, KINDS))
    for row, found in zip(drawn, server.execute(f"SELECT {selected} FROM {table} ORDER BY number"), strict=True):
        for kind, given_value, value in zip(KINDS, row, found, strict=True):
            if value is not None and kind.column == "json":
                value = json.loads(value)
            if isinstance(value, float):
                value = bits(value)
            assert value == (None if given_value is None else kind.expected(given_value)), kind.name


@pytest.mark.parametrize(
    ("value", "column", "problem"),
    [
        ("'too long'", "varchar(3)", "does not take a value (Data too long for column 'v'"),
        ("'abc   '", "varchar(4)", "does not take a value (Data truncated for column 'v'"),
        ("'ä€'", "varchar(9) CHARACTER SET latin1", None),
        ("'💧'", "varchar(9) CHARACTER SET latin1", "does not take a value (Incorrect string value"),
        ("'💧'", "text CHARACTER SET utf8mb3", "does not take a value (Incorrect string value"),
        ("'no json'", "json", "has a constraint that a row breaks"),
        ("DOUBLE('NaN')", "double", "cannot hold NaN and infinity"),
        ("CAST('-Infinity' AS FLOAT)", "float", "cannot hold NaN and infinity"),
        ("CAST(253402300800 AS TIMESTAMP)", "datetime(6)", "does not take a value (Incorrect datetime value"),
        ("CAST(-62167305600 AS TIMESTAMP)", "datetime(6)", "does not take a value (Incorrect datetime value"),
        ("CAST(0 AS TIMESTAMP)", "timestamp(6) NULL", "does not take a value (Incorrect datetime value"),
        ("TIMESTAMP'2039-01-01'", "timestamp(6) NULL", "does not take a value (Incorrect datetime value"),
        ("CAST(NULL AS STRING)", "varchar(9) NOT NULL", "does not take NULL"),
        ("'a'", "varchar(9) CHECK (v <> 'a')", "has a constraint that a row breaks"),
        ("'a'", "varchar(9) UNIQUE", "has another row with these values"),
        ("repeat('x', 17000000)", "longtext", "does not take a row of that size"),
    ],
)  # fmt: skip
def test_no_value_is_changed_silently(
    spark: SparkSession, server: MariaDbServer, make_table: MakeTable, value: str, column: str, problem: str | None
) -> None:
    table = make_table(f"k int PRIMARY KEY, v {column}")
    if "UNIQUE" in column:
        server.execute(f"INSERT INTO {table} VALUES (0, 'a')")
    results = spark.sql(f"SELECT 1 AS k, {value} AS v")
    sink = open_sink(server, table, results, ["k"])
    sink.prepare(FRESH)
    if problem is None:
        assert write(sink, results, 0) == 1
    else:
        with pytest.raises(MillraceError) as raised:
            write(sink, results, 0)
        assert not isinstance(raised.value, TransientError)
        assert problem in str(raised.value)
        assert "while writing batch 0 to table" in str(raised.value)
        assert str(raised.value).startswith("spec.sink.mysql.")
        assert write(sink, spark.sql("SELECT 2 AS k, CAST(NULL AS STRING) AS v").where("k = 3"), 0) == 0
    sink.close()


def test_warnings_are_found_whatever_the_server_shows_of_them(spark: SparkSession, own_server: MariaDbServer) -> None:
    own_server.execute("SET GLOBAL max_error_count = 0")
    own_server.execute("CREATE TABLE results (v varchar(4))")
    results = spark.sql("SELECT 'abc   ' AS v")
    sink = open_sink(own_server, "results", results)
    sink.prepare(FRESH)
    with pytest.raises(MillraceError, match=r"does not take a value \(Data truncated for column 'v'"):
        write(sink, results, 0)
    sink.close()


def test_a_warning_that_the_server_does_not_show_is_an_error(server: MariaDbServer, make_table: MakeTable) -> None:
    table = make_table("v varchar(4)")
    with closing(dialect(server, table).connection.open()) as opened:
        session = cast(MySqlSession, opened)
        session.execute("SET SESSION max_error_count = 0")
        with pytest.raises(pymysql.err.DataError, match="shows 0 of 1 warnings, so it may have changed it"):
            session.write(f"INSERT INTO {table} VALUES ('abc   ')")


def test_keys_that_differ_in_one_character_stay_apart(
    spark: SparkSession, server: MariaDbServer, make_table: MakeTable
):
    keys = ["a", "A", "á", "a ", "a  ", "", " ", "ａ", "a\u200b", "ß", "ss", "x" * 59 + "1", "x" * 59 + "2"]
    table = make_table("k {text} PRIMARY KEY, n bigint")
    results = spark.createDataFrame(list(zip(keys, range(len(keys)), strict=True)), "k STRING, n BIGINT")
    sink = open_sink(server, table, results, ["k"])
    sink.prepare(FRESH)
    for number in range(2):
        assert write(sink, results, number) == len(keys)
    assert dict(rows(server, table)) == {key: number for number, key in enumerate(keys)}
    sink.close()


def test_a_row_of_another_unique_index_is_not_replaced(
    spark: SparkSession, server: MariaDbServer, make_table: MakeTable
):
    table = make_table("k int PRIMARY KEY, email {text} UNIQUE")
    server.execute(f"INSERT INTO {table} VALUES (1, 'one')")
    sink = open_sink(server, table, spark.sql("SELECT 2 AS k, 'two' AS email"), ["k"])
    sink.prepare(FRESH)
    write(sink, spark.sql("SELECT 2 AS k, 'two' AS email"), 0)
    with pytest.raises(MillraceError, match=r"has another row with these values .*'one' for key 'email'"):
        write(sink, spark.sql("SELECT 3 AS k, 'one' AS email"), 1)
    assert rows(server, table) == [(1, "one"), (2, "two")]
    sink.close()


def test_names_may_be_any_and_are_found_in_other_case(
    spark: SparkSession, server: MariaDbServer, make_table: MakeTable
):
    table = make_table(
        '`a "``b` {text} PRIMARY KEY, `window` json, tripcount bigint, `per%%cent` bigint'.replace("%%", "%")
    )
    results = spark.sql(
        "SELECT 'x' AS `a \"``b`, named_struct('start', TIMESTAMP'2024-01-01') AS window, 1L AS tripCount, 2L AS `per%cent`"
    )
    sink = open_sink(server, table, results, ['a "`b'])
    sink.prepare(FRESH)
    for number in range(2):
        assert write(sink, results, number) == 1
    assert rows(server, table) == [("x", '{"start":"2024-01-01T00:00:00.000000Z"}', 1, 2)]
    sink.close()


def test_many_rows_go_in_statements_of_a_megabyte(
    spark: SparkSession, server: MariaDbServer, make_table: MakeTable
) -> None:
    table = make_table("id bigint PRIMARY KEY, text longtext")
    results = spark.range(0, 50_000, 1, 20).selectExpr("id", "repeat(md5(concat(id)), 3) AS text")
    sink = open_sink(server, table, results, ["id"])
    sink.prepare(FRESH)
    before = inserts(server)
    assert write(sink, results, 0) == 50_000
    assert inserts(server) - before <= 50_000 * 110 // 1_000_000 + 5
    expected = [(50_000, sum(range(50_000)), 96 * 50_000)]
    assert server.execute(f"SELECT count(*), sum(id), sum(length(text)) FROM {table}") == expected
    sink.close()


def inserts(server: MariaDbServer) -> int:
    """Return how many statements with VALUES the server has run."""
    return int(server.execute("SHOW GLOBAL STATUS LIKE 'Com_insert'")[0][1])
