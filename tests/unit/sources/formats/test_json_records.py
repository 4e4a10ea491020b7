"""JSON values as Spark 4.3.0 gives them for the same text and schema, and the records it finds malformed."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from millrace_jobs.sources.formats.column_types import arrow_schema
from millrace_jobs.sources.formats.decoding import decode
from millrace_jobs.sources.formats.text_parsers import JsonParser


def parse(text, columns, timestamp_format="iso"):
    """(rows, bad records) of JSON lines; ``columns`` is name to Spark type."""
    schema = arrow_schema(list(columns.items()))
    bad = []
    data = text if isinstance(text, bytes) else text.encode()
    batch = decode(JsonParser(schema, timestamp_format), schema, data, bad.append)
    batch.validate(full=True)
    assert batch.schema == schema
    return [tuple(row.values()) for row in batch.to_pylist()], bad


@pytest.mark.parametrize(
    ("value", "spark_type", "expected"),
    [
        ("300", "SMALLINT", 300),
        ("1E2", "DOUBLE", 100.0),
        ("3", "DOUBLE", 3.0),
        ("3", "FLOAT", 3.0),
        ("true", "BOOLEAN", True),
        ("null", "BOOLEAN", None),
        ('"\\u00e9\\ud83d\\ude00"', "STRING", "é😀"),
        ('""', "STRING", ""),
        ('"}null"', "STRING", "}null"),
        ('"} {"', "STRING", "} {"),
        ('"2020-01-02"', "DATE", date(2020, 1, 2)),
        ("1.23", "DECIMAL(6,2)", Decimal("1.23")),
        ("1", "DECIMAL(6,2)", Decimal("1.00")),
        ("1.239", "DECIMAL(6,2)", Decimal("1.24")),
        ('"1.23"', "DECIMAL(6,2)", Decimal("1.23")),
        ('"YWJj"', "BINARY", b"abc"),
        ('"2020-01-02T03:04:05Z"', "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ('"2020-01-02 03:04:05"', "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_one_value(value, spark_type, expected):
    assert parse(f'{{"a": {value}}}\n', {"a": spark_type}) == ([(expected,)], [])


@pytest.mark.parametrize(
    ("timestamp_format", "value"),
    [
        ("seconds", 1577934245),
        ("seconds", 1577934245.0),
        ("milliseconds", 1577934245e3),
        ("microseconds", 1577934245 * 10**6),
    ],
)
def test_timestamps_as_numbers(timestamp_format, value):
    rows, bad = parse(json.dumps({"a": value}), {"a": "TIMESTAMP"}, timestamp_format)
    assert rows == [(datetime.fromtimestamp(1577934245, UTC),)]
    assert not bad


def test_absent_fields_are_null_and_others_are_ignored():
    text = '{"b": "x", "a": 1}\n{}\n{"a": 2, "z": [1, {"k": null}]}\n {"a": null} \n'
    assert parse(text, {"a": "INT", "b": "STRING"}) == ([(1, "x"), (None, None), (2, None), (None, None)], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a": "1"}', "field a: string where INT is expected"),
        ('{"b": 5}', "field b: number where STRING is expected"),
        ('{"b": {"x": 1}}', "field b: object where STRING is expected"),
        ('{"a": 1.0}', "1.0 does not fit its column"),
        ('{"a": 99999999999}', "99999999999 does not fit its column"),
        ('{"a": 3', "invalid JSON: Missing a comma or '}' after an object member."),
        ("7", "number where a JSON object is expected"),
        ('[{"a": 7}]', "array where a JSON object is expected"),
        ("null", "not a JSON object"),
        ('{"a": 1} {"a": 2}', "more than one JSON value"),
        ('{"c": "yesterday"}', "column c (TIMESTAMP): 'yesterday' is not an ISO 8601 timestamp"),
        ('{"d": "a!"}', "column d (BINARY): "),
        (b'{"b": "\xff"}', "invalid UTF-8"),
    ],
)
def test_a_bad_record_says_why(line, reason):
    rows, (bad,) = parse(line, {"a": "INT", "b": "STRING", "c": "TIMESTAMP", "d": "BINARY"})
    assert not rows
    assert bad.reason.startswith(reason)


@pytest.mark.parametrize(
    "line",
    ["null", '{"a": 1} null', '{"a": 1}null{"a": 2}', '{"a": 1} {"a": 2}', '{"a": 1},', "nonsense", "  null"],
)
@pytest.mark.parametrize("before", ["", '{"a": 0}\n', "\n\n"])
def test_more_or_less_than_one_object_is_bad_wherever_it_stands(line, before):
    rows, (bad,) = parse(f'{before}{line}\n{{"a": 9}}\n', {"a": "INT"})
    assert rows == [(0,)] * before.count("a") + [(9,)]
    assert (bad.text, bad.line) == (line, before.count("\n") + 1)


def test_an_object_on_two_lines_is_two_bad_records():
    rows, bad = parse('{"a":\n1}\n{"a": 2}\n', {"a": "INT"})
    assert rows == [(2,)]
    assert [record.line for record in bad] == [1, 2]
