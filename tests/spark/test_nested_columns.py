"""Structs, arrays and maps as columns of a source: routed and native alike, the answer is DuckDB's over the same files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from millrace_jobs.partitioners.registry import ALGORITHMS
from millrace_jobs.pipeline.expressions.compiler import compile_expression
from millrace_jobs.sources.formats.column_types import declared_schema

from .answers import assert_same, latest, rows_of
from .questions import Both, Hop, Question
from .streams import FOREVER, Placing, Stream
from .tables import parquet

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

HOME = pa.struct([("city", pa.string()), ("since", pa.date32())])
WHO = pa.struct([("country", pa.string()), ("age", pa.int32()), ("home", HOME), ("paid", pa.decimal128(20, 2))])
ITEMS = pa.list_(pa.struct([("sku", pa.string()), ("amount", pa.int64())]))
SCHEMA = pa.schema(
    [
        ("event", pa.struct([("time", pa.timestamp("us")), ("kind", pa.string())])),
        ("who", WHO),
        ("items", ITEMS),
        ("labels", pa.map_(pa.string(), pa.int64())),
        ("size", pa.int64()),
    ]
)
COLUMNS = """event STRUCT<time: TIMESTAMP, kind: STRING>,
who STRUCT<country: STRING, age: INT, home: STRUCT<city: STRING, since: DATE>, paid: DECIMAL(20,2)>,
items ARRAY<STRUCT<sku: STRING, amount: BIGINT>>, labels MAP<STRING, BIGINT>, size BIGINT"""
DUCKDB_COLUMNS = {
    "event": "STRUCT(time TIMESTAMP, kind VARCHAR)",
    "who": "STRUCT(country VARCHAR, age INTEGER, home STRUCT(city VARCHAR, since DATE), paid DECIMAL(20,2))",
    "items": "STRUCT(sku VARCHAR, amount BIGINT)[]",
    "labels": "MAP(VARCHAR, BIGINT)",
    "size": "BIGINT",
}
Row = tuple[Any, ...]
Batches = Sequence[tuple[Placing, Sequence[Row]]]

START = datetime(2020, 2, 29, 23, 59, 30)
TEXTS = st.sampled_from([None, "", "a", "A", "é", "日本", "\U0001f600", 'x"y', "a,b"])
LONGS = st.none() | st.integers(-3, 3) | st.sampled_from([2**53 + 1, -(2**53) - 1])
TIMES = st.sampled_from([0, 1, 59_999_999, 60_000_000]) | st.integers(0, 300_000_000)
DATES = st.sampled_from([date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(2024, 2, 29)])


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any] | None]:
    """A struct that is NULL, or has fields that may all be NULL."""
    return st.none() | st.fixed_dictionaries(fields)


ROWS = st.tuples(
    maybe(time=st.none() | TIMES.map(lambda us: START + timedelta(microseconds=us)), kind=TEXTS),
    maybe(
        country=TEXTS,
        age=st.none() | st.integers(-3, 3),
        home=maybe(city=TEXTS, since=st.none() | DATES),
        paid=st.none() | st.integers(-(10**12), 10**12).map(lambda cents: Decimal(cents) / 100),
    ),
    st.none() | st.lists(maybe(sku=TEXTS, amount=LONGS), max_size=3),
    st.none() | st.dictionaries(st.sampled_from(["a", "b", "", "é"]), LONGS, max_size=3).map(lambda m: [*m.items()]),
    LONGS,
)
PLACINGS = st.tuples(st.sampled_from(ALGORITHMS), st.sampled_from([1, 2, 7]), st.sampled_from([1, 3]))


@st.composite
def batches(draw: st.DrawFn) -> Batches:
    """A table of 20 to 60 rows with repetitions, cut at random places into three files, some of them empty."""
    rows = draw(st.lists(ROWS, min_size=20, max_size=40))
    rows += draw(st.lists(st.sampled_from(rows), max_size=20))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=2)))
    pieces = [rows[low:high] for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    return [(draw(PLACINGS), piece) for piece in pieces]


UNKNOWN_USER = {"country": None, "age": None, "home": None, "paid": None}
SOMEONE = {"country": "a", "age": 2, "home": {"city": "x", "since": date(1582, 10, 10)}, "paid": Decimal("0.10")}
AT = {"time": START, "kind": "k"}
ODD: Batches = [
    (("pkg", 7, 3), [(None, None, None, None, None)] * 4),
    (
        ("native", 2, 1),
        [
            (AT, UNKNOWN_USER, [], [], 1),
            (AT, SOMEONE, [None, {"sku": None, "amount": None}], [("a", None)], 2**53 + 1),
            ({"time": None, "kind": "k"}, SOMEONE, [{"sku": "s", "amount": 2**53 + 1}], [("", 1), ("a", 2)], None),
        ],
    ),
    (("hash", 2, 1), [(AT, {**SOMEONE, "home": {"city": None, "since": None}}, None, None, -1)] * 3),
]
VALUES = {
    "rows": "count(*)",
    "ages": "sum(who.age)",
    "cities": "count(who.home.city)",
    "earliest": "min(who.home.since)",
    "last": "max(event.time)",
    "paid": "sum(who.paid)",
    "label": "sum(labels['a'])",
    "bought": Both("sum(size(items))", "sum(len(items))"),
    "amount": Both("max(get(items, 0).amount)", "max(items[1].amount)"),
    "without_user": "count(*) FILTER (WHERE who IS NULL)",
}
WINDOWED = Question(keys={"country": "who.country"}, values=VALUES, window=Hop("event.time", size=60, slide=25))
KEYED = Question(
    keys={"city": "who.home.city", "first": Both("get(items, 0).sku", "items[1].sku"), "kind": "upper(event.kind)"},
    values=VALUES,
    where="who.age > -2 OR who.country IS NULL",
)
BY_FIELDS = Question(
    keys={"country": "who.country", "since": "who.home.since"},
    values={"rows": "count(*)", "ages": "sum(who.age)", "last": "max(event.time)"},
    where="who.age >= 0 AND event.kind <> 'b'",
)

STREAMS = settings(
    max_examples=2,
    phases=[Phase.explicit, Phase.generate],  # an example takes seconds: as it was found is small enough
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def json_lines(rows: Sequence[Row]) -> bytes:
    """Return rows as JSON, in which every second record leaves out the fields that are NULL."""
    lines = []
    for number, row in enumerate(rows):
        record = dict(zip(SCHEMA.names, row, strict=True))
        if record["labels"] is not None:
            record["labels"] = dict(record["labels"])
        if number % 2:
            record = _without_nulls(record)
        text = json.dumps(record, default=lambda value: str(value), ensure_ascii=number % 3 == 0)
        lines.append(text + "\n")
    return "".join(lines).encode()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return value


def fed(spark: Any, folder: Any, batches: Batches, format: str, **query: Any) -> Stream:
    """A stream that has got all batches, each as a file."""
    query = {"watermark": ("event.time", FOREVER), "format": format} | query
    stream = Stream(spark, folder, schema=COLUMNS, **query)
    written = [(placing, json_lines(rows) if format == "json" else parquet(SCHEMA, rows)) for placing, rows in batches]
    reports = stream.feed([(placing, content) for placing, content in written if content])
    assert [report.rows for report in reports if report.rows] == [len(rows) for _, rows in batches if rows]
    return stream


def answer(batches: Batches, format: str, sql: str, folder: Any) -> list[Row]:
    """Return DuckDB's answer over the same files."""
    for number, (_, rows) in enumerate(batches):
        content = json_lines(rows) if format == "json" else parquet(SCHEMA, rows)
        (folder / f"{number}.{format}").write_bytes(content)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if format == "json":
            types = ", ".join(f"{name}: '{kind}'" for name, kind in DUCKDB_COLUMNS.items())
            source = f"read_json('{folder}/*.json', format = 'newline_delimited', columns = {{{types}}})"
        else:
            source = f"read_parquet('{folder}/*.parquet')"
        connection.execute(f"CREATE TABLE events AS SELECT * FROM {source}")
        return connection.execute(sql).fetchall()


@pytest.mark.parametrize("format", ["json", "parquet"])
@STREAMS
@given(batches())
@example(ODD)
def test_windows_can_be_over_an_event_time_in_a_struct(spark, tmp_path_factory, format, batches):
    folder, read = tmp_path_factory.mktemp("s"), tmp_path_factory.mktemp("d")
    stream = fed(spark, folder, batches, format, sql=WINDOWED.spark, emit="OnWindowClose")
    stream.close_windows(("native", 1, 1))
    expected = answer(batches, format, WINDOWED.duckdb, read)
    assert_same(rows_of(stream.results()), expected, WINDOWED.key_columns)


@STREAMS
@given(batches())
@example(ODD)
def test_fields_elements_and_entries_can_be_keys(spark, tmp_path_factory, batches):
    format = "parquet"
    folder, read = tmp_path_factory.mktemp("s"), tmp_path_factory.mktemp("d")
    stream = fed(spark, folder, batches, format, sql=KEYED.spark)
    assert_same(
        latest(stream.results(), KEYED.key_columns),
        answer(batches, format, KEYED.duckdb, read),
        KEYED.key_columns,
    )


@STREAMS
@given(batches())
@example(ODD)
def test_replicas_read_fields_themselves(spark, tmp_path_factory, batches):
    folder, read = tmp_path_factory.mktemp("s"), tmp_path_factory.mktemp("d")
    placed = [(("pkg" if placing[0] == "native" else placing[0], *placing[1:]), rows) for placing, rows in batches]
    stream = Stream(
        spark, folder, schema=COLUMNS, sql=BY_FIELDS.spark, watermark=("event.time", FOREVER), format="json"
    )
    busy = [(placing, rows) for placing, rows in placed if rows]
    reports = stream.feed([(placing, json_lines(rows)) for placing, rows in busy])
    found = [(report.pin.algorithm, report.pin.workers, report.pin.replicas) for report in reports if report.rows]
    assert found == [placing for placing, _ in busy]
    assert_same(
        latest(stream.results(), BY_FIELDS.key_columns),
        answer(batches, "json", BY_FIELDS.duckdb, read),
        BY_FIELDS.key_columns,
    )


def test_fields_are_compiled_for_replicas():
    schema = declared_schema(COLUMNS)
    for text, kind in {
        "who.country": pa.string(),
        "WHO.Home.CITY": pa.string(),
        "who.age + 1 > 2 AND event.kind IN ('a', 'b')": pa.bool_(),
        "who.home.since": pa.date32(),
        "who IS NULL": pa.bool_(),
    }.items():
        compiled = compile_expression(text, schema)
        assert compiled is not None, text
        assert compiled.type == kind
    for text in ("items.sku", "labels.a", "who.none", "who = who", "items[0]", "size.x"):
        assert compile_expression(text, schema) is None, text


NATIVE = {
    "a row for each element": (
        "SELECT item.sku AS sku, count(*) AS n, sum(item.amount) AS total FROM events "
        "LATERAL VIEW explode(items) AS item GROUP BY item.sku",
        "SELECT item.sku, count(*), sum(item.amount) FROM (SELECT unnest(items) AS item FROM events) GROUP BY 1",
        1,
    ),
    "a row for each entry": (
        "SELECT key, count(value) AS n FROM events LATERAL VIEW explode(labels) AS key, value GROUP BY key",
        "SELECT e.key, count(e.value) FROM (SELECT unnest(map_entries(labels)) AS e FROM events) GROUP BY 1",
        1,
    ),
    "a whole struct as key": (
        "SELECT who.home.city AS city, who.home IS NULL AS homeless, count(*) AS n FROM events "
        "GROUP BY who.home, who.home.city, who.home IS NULL",
        "SELECT who.home.city, who.home IS NULL, count(*) FROM events GROUP BY who.home, 1, 2",
        2,
    ),
    "an alias of a struct": (
        "SELECT w.country AS country, max(w.age) AS age FROM (SELECT who AS w FROM events) GROUP BY w.country",
        "SELECT who.country, max(who.age) FROM events GROUP BY 1",
        1,
    ),
}


@pytest.mark.parametrize("name", NATIVE)
def test_nested_columns_that_only_spark_computes_have_the_rows_of_duckdb(spark, tmp_path, name):
    sql, duckdb_sql, keys = NATIVE[name]
    odd = [(("native", 2, 1), rows) for _, rows in ODD]
    (tmp_path / "d").mkdir()
    stream = fed(spark, tmp_path / "s", odd, "json", sql=sql)
    expected = answer(odd, "json", duckdb_sql, tmp_path / "d")
    assert_same(latest(stream.results(), keys), expected, keys)


@pytest.mark.parametrize("algorithm", ["native", "pkg"])
def test_a_join_can_be_within_a_range_of_event_times_in_structs(spark, tmp_path, algorithm):
    sql = (
        "SELECT a.size AS one, b.who.country AS country, a.event.time AS time, count(*) AS n FROM events a "
        "JOIN others b ON a.size = b.size AND b.event.time BETWEEN a.event.time AND a.event.time + INTERVAL 1 MINUTE "
        "GROUP BY a.size, b.who.country, a.event.time"
    )
    odd = [((algorithm, 2, 1), rows) for _, rows in ODD]
    (tmp_path / "d").mkdir()
    sink = {"files": {"path": str(tmp_path / "s" / "results")}}
    others = {"others": {"watermark": {"column": "event.time", "delay": FOREVER}}}
    stream = Stream(
        spark,
        tmp_path / "s",
        schema=COLUMNS,
        sql=sql,
        watermark=("event.time", FOREVER),
        format="json",
        sink=sink,
        others=others,
        emit="OnWindowClose",
    )
    stream.feed([(placing, json_lines(rows)) for placing, rows in odd])
    stream.close_windows((algorithm, 2, 1))
    expected = answer(odd, "json", sql.replace("others b", "events b"), tmp_path / "d")
    assert expected
    assert_same(rows_of(stream.results()), expected, 3)


def test_a_python_aggregator_has_windows_over_an_event_time_in_a_struct(spark, tmp_path):
    python = {
        "aggregator": "spark.aggregators:Spread",
        "options": {"column": "size"},
        "groupBy": ["size"],
        "window": {"column": "event.time", "size": "60s"},
    }
    (tmp_path / "d").mkdir()
    stream = fed(spark, tmp_path / "s", ODD, "json", python=python)
    question = Question(
        keys={"size": "size"},
        values={"spread": "max(size) - min(size)", "seen": "count(size)"},
        window=Hop("event.time", size=60, slide=60),
    )
    assert_same(latest(stream.results(), 3), answer(ODD, "json", question.duckdb, tmp_path / "d"), 3)
