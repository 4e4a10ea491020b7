"""What ``millrace validate`` says of structs, arrays and maps: in schemas, in SQL, and as event time."""

from __future__ import annotations

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import Emit, StreamQuery
from millrace_api.sql.checks import check_sql
from millrace_api.sql.nested_times import with_flat_times
from millrace_api.sql.schema_ddl import parse_schema, type_problem
from millrace_api.sql.source_table import SourceTable
from millrace_api.validation.checking import check_query
from millrace_api.validation.evolution import compare
from millrace_api.validation.loading import read_query

SCHEMA = """event STRUCT<time: TIMESTAMP, kind: STRING>, user STRUCT<country: STRING, age: INT, home: STRUCT<city: STRING>>,
items ARRAY<STRUCT<sku: STRING>>, labels MAP<STRING, INT>, at TIMESTAMP, fare DOUBLE"""


def query(sql="SELECT user.country, count(*) AS n FROM orders GROUP BY user.country", emit="OnUpdate", **source):
    orders = {"files": {"path": "in", "format": "json"}, "schema": SCHEMA,
              "watermark": {"column": "event.time", "delay": "1s"}} | source  # fmt: skip
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "q"},
        "spec": {
            "sources": {"orders": {name: value for name, value in orders.items() if value is not None}},
            "query": {"sql": sql},
            "sink": {"files": {"path": "out"}},
            "emit": emit,
        },
    }


def said(document):
    parsed = StreamQuery.model_validate(document, by_name=False)
    return [f"{each.field}: {each.message}; {each.hint}" for each in check_query(parsed)]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("a STRUCT<x INT, X INT>", 'field "X" of "a" is defined twice (line 1, column 17 of the schema)'),
        ("a MAP<INT, INT>", "the key of a MAP is INT (line 1, column 7 of the schema)"),
        ("a INT,\nb STRUCT<x: ARRAY<BLOB>>", '"BLOB" is not a type that a schema can have (line 2, column 19 of the schema)'),
        ("a STRUCT x", '"x" stands where "<" should (line 1, column 10 of the schema)'),
        ("a " + "ARRAY<" * 17 + "INT" + ">" * 17, "ARRAY is within 16 other nested types (line 1, column 99 of the schema)"),
        ("a " + "ARRAY<" * 5000 + "INT" + ">" * 5000, "ARRAY is within 16 other nested types"),
    ],
)  # fmt: skip
def test_mistakes_in_nested_types_have_a_position(schema, message):
    with pytest.raises(MillraceError) as refused:
        parse_schema(schema)
    assert message in refused.value.problems[0].message


def test_sixteen_levels_are_enough():
    (column,) = parse_schema("a " + "ARRAY<" * 16 + "INT" + ">" * 16)
    assert type_problem(column) is None


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("a STRUCT<x: CHAR(3)>", "column a.x has the type CHAR(3)"),
        ("a ARRAY<TIMESTAMP_NTZ>", "column a[] has the type TIMESTAMP_NTZ"),
        ("a MAP<STRING, STRUCT<y: VARCHAR(2)>>", "column a[value].y has the type VARCHAR(2)"),
    ],
)
def test_a_part_that_no_source_can_read_is_named(schema, message):
    (column,) = parse_schema(schema)
    assert type_problem(column)[0] == f"{message}, which a source cannot have"


def test_names_that_need_backquotes_keep_them():
    (column,) = parse_schema("s STRUCT<`a.b`: INT, `c``d`: STRUCT<x: INT>, end: INT>")
    assert column.type == "STRUCT<`a.b`: INT, `c``d`: STRUCT<x: INT>, end: INT>"
    assert parse_schema(f"s {column.type}") == (column,)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT user.contry FROM orders", '"user" has no field "contry" (line 1, column 13 of the SQL); did you mean "country"?'),
        ("SELECT o.user.home.town FROM orders o", '"user.home" has no field "town" (line 1, column 20 of the SQL)'),
        ("SELECT fare.x FROM orders", '"fare" is DOUBLE, which has no field "x" (line 1, column 13 of the SQL)'),
        ("SELECT sum(user.country) FROM orders", "SUM(user.country) is over user.country, which is a text"),
        ("SELECT * FROM orders", 'SELECT * reads "orders", whose event time event.time is a field of a struct'),
        ("SELECT o.* FROM orders o", 'SELECT * reads "orders"'),
        ("SELECT buyer.country FROM orders", 'there is no table or column "buyer"'),
    ],
)  # fmt: skip
def test_mistakes_in_sql_about_nested_columns_have_a_position(sql, message):
    tables = {"orders": SourceTable(parse_schema(SCHEMA), "event.time")}
    found = [str(problem) for problem in check_sql(sql, tables, emit=Emit.ON_UPDATE)]
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT USER.Country, event.Time, items.sku, items[0].sku, labels.a, labels['a'], size(items) FROM orders",
        "SELECT count(*) FROM orders WHERE user.home.city IS NULL AND event.time > TIMESTAMP '2024-01-01'",
        "SELECT i.sku, count(*) FROM orders LATERAL VIEW explode(items) t AS i GROUP BY i.sku",
        "SELECT sku.sku FROM orders LATERAL VIEW explode(items) AS sku",
        "SELECT s.w.country FROM (SELECT user AS w FROM orders) s",
        "SELECT s.t FROM (SELECT event.time AS t, * EXCEPT (user) FROM (SELECT event, user FROM orders)) s",
    ],
)
def test_sound_sql_about_nested_columns_has_no_problem(sql):
    tables = {"orders": SourceTable(parse_schema(SCHEMA), "event.time")}
    assert check_sql(sql, tables, emit=Emit.ON_UPDATE) == []


def test_a_window_over_the_event_time_closes_and_another_does_not():
    window = "SELECT window.start AS since, count(*) AS n FROM orders GROUP BY window({}, '1 minute')"
    assert said(query(window.format("event.time"), emit="OnWindowClose")) == []
    assert said(query(window.format("Orders.Event.TIME"), emit="OnWindowClose")) == []
    [problem] = said(query(window.format("at"), emit="OnWindowClose"))
    assert 'the window is over "at", but the watermark of "orders" is on "event.time"' in problem


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"watermark": {"column": "event.tim", "delay": "1s"}}, '"event" has no field "tim"; did you mean "time"?'),
        ({"watermark": {"column": "event.kind", "delay": "1s"}}, '"event.kind" is STRING, not TIMESTAMP; write event.time or at'),
        ({"watermark": {"column": "items.sku", "delay": "1s"}}, '"items" has no field "sku"'),
        ({"files": {"path": "in", "format": "csv"}, "schema": "a STRUCT<x: INT>", "watermark": None},
         "column a has the type STRUCT<x: INT>, which CSV cannot hold"),
        ({"kafka": {"bootstrapServers": "k:9092", "topic": "t"}, "files": None, "table": {"keys": ["user"]},
          "watermark": {"column": "at", "delay": "1s"}}, '"user" is STRUCT<'),
        ({"timeFormats": {"event.tim": "iso"}}, '"event" has no field "tim"'),
        ({"timeFormats": {"fare": "iso"}}, '"fare" is DOUBLE, which has no format of times'),
        ({"timeFormats": {"at": "dd.MM.yy"}}, 'the pattern "dd.MM.yy" has "yy"'),
        ({"schema": f"{SCHEMA}, day DATE", "timeFormats": {"day": "dd.MM.yyyy HH"}}, '"day" is a DATE, and its format has'),
        ({"schema": f"{SCHEMA}, day DATE", "timeFormats": {"day": "seconds"}}, '"day" is a DATE, which is not seconds'),
    ],
)  # fmt: skip
def test_mistakes_in_a_source_about_nested_columns_are_reported(source, message):
    document = query("SELECT count(*) AS n FROM orders", **source)
    found = said(document)
    assert any(message in problem for problem in found), found


def test_a_table_needs_an_event_time_of_its_own():
    kafka = {"kafka": {"bootstrapServers": "k:9092", "topic": "t"}, "files": None, "table": {"keys": ["fare"]}}
    with pytest.raises(MillraceError, match="the event time of a table is a field of a struct"):
        read_query(query(**kafka))


@pytest.mark.parametrize(
    ("sql", "flat"),
    [
        ("SELECT event.time FROM orders", "SELECT millrace_event_time AS `time` FROM orders"),
        ("SELECT o.Event.`TIME` AS t FROM orders o", "SELECT o.millrace_event_time AS t FROM orders o"),
        ("SELECT max(event.time) FROM orders WHERE event.time > at AND event.kind = 'event.time'",
         "SELECT max(millrace_event_time) FROM orders WHERE millrace_event_time > at AND event.kind = 'event.time'"),
        ("SELECT s.event.time FROM (SELECT event FROM orders) s", "SELECT s.event.time FROM (SELECT event FROM orders) s"),
        ("SELECT count(*) FROM orders /* event.time */ GROUP BY window(event.time,\n '1 hour')",
         "SELECT count(*) FROM orders /* event.time */ GROUP BY window(millrace_event_time,\n '1 hour')"),
    ],
)  # fmt: skip
def test_what_reads_an_event_time_reads_its_column(sql, flat):
    spec = with_flat_times(read_query(query(sql)).spec)
    assert spec.query.sql == flat
    assert spec.sources["orders"].watermark.column == "millrace_event_time"


def test_a_struct_may_get_fields_and_none_may_change():
    before = read_query(query())
    more = SCHEMA.replace("age: INT", "age: INT, name: STRING").replace("<sku: STRING>", "<sku: STRING, n: INT>")
    assert compare(before, read_query(query(schema=more))) == ((), ())
    (forbidden,), _ = compare(before, read_query(query(schema=SCHEMA.replace("age: INT", "age: BIGINT"))))
    assert forbidden.difference == "with user.age INT, not with user.age BIGINT"
    (forbidden,), _ = compare(before, read_query(query(schema=SCHEMA.replace("<STRING, INT>", "<STRING, DATE>"))))
    assert forbidden.difference == "with labels.value INT, not with labels.value DATE"


def test_the_column_that_holds_an_event_time_is_not_for_a_schema():
    assert said(query(schema=f"{SCHEMA}, Millrace_Event_Time TIMESTAMP")) == [
        'spec.sources.orders.schema: "Millrace_Event_Time" is a name that Millrace uses itself; rename the column'
    ]
