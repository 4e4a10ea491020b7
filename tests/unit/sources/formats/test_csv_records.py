"""CSV values as Spark 4.3.0 gives them for the same text and schema, with its default options."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.formats.column_types import arrow_schema
from millrace_jobs.sources.formats.decoding import decode
from millrace_jobs.sources.formats.text_parsers import CsvParser, header_columns


def parse(text, types, delimiter=",", timestamp_format="iso"):
    """(rows, bad records) of CSV text with columns a, b, ..."""
    schema = arrow_schema([(chr(ord("a") + i), name) for i, name in enumerate(types)])
    bad = []
    data = text if isinstance(text, bytes) else text.encode()
    batch = decode(CsvParser(schema, schema.names, delimiter, timestamp_format), schema, data, bad.append)
    batch.validate(full=True)
    assert batch.schema == schema
    return [tuple(row.values()) for row in batch.to_pylist()], bad


@pytest.mark.parametrize(
    ("text", "spark_type", "value"),
    [
        ("007", "INT", 7),
        ("-128", "TINYINT", -128),
        ("9223372036854775807", "BIGINT", 2**63 - 1),
        ("1e3", "DOUBLE", 1000.0),
        ("+2.5", "DOUBLE", 2.5),
        (".5", "DOUBLE", 0.5),
        ("-Inf", "DOUBLE", float("-inf")),
        ("TRUE", "BOOLEAN", True),
        ("False", "BOOLEAN", False),
        ("2020-01-02", "DATE", date(2020, 1, 2)),
        ("5", "DECIMAL(6,2)", Decimal("5.00")),
        ("1e2", "DECIMAL(6,2)", Decimal("100.00")),
        ("2.500000", "DECIMAL(6,2)", Decimal("2.50")),
        ("1.235", "DECIMAL(6,2)", Decimal("1.24")),
        ("-1.235", "DECIMAL(6,2)", Decimal("-1.24")),
        ("99999999999999999999999999999999999999", "DECIMAL(38)", Decimal(10**38 - 1)),
        ("é", "BINARY", "é".encode()),
        ("2020-01-02 03:04:05", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2020-01-02T03:04:05Z", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2020-01-02T03:04:05+01:00", "TIMESTAMP", datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
        ("2020-01-02T03:04:05.5+0100", "TIMESTAMP", datetime(2020, 1, 2, 2, 4, 5, 500000, tzinfo=UTC)),
        ("2020-01-02 03:04:05.1234567", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2020-01-02 03:04", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, tzinfo=UTC)),
        ("2020-01-02", "TIMESTAMP", datetime(2020, 1, 2, tzinfo=UTC)),
    ],
)
def test_one_value(text, spark_type, value):
    assert parse(f"{text}\n", [spark_type]) == ([(value,)], [])


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (' sp ," x "', (" sp ", " x ")),
        ('C:\\temp,"C:\\temp"', ("C:\\temp", "C:\\temp")),
        ('mid"quote,t', ('mid"quote', "t")),
        ('"e \\"q\\" f",y', ('e "q" f', "y")),
        ('"c ""q"" d",x', ('c "q" d', "x")),  # RFC 4180; Spark wants another escape character for this
        ('"a,b",#', ("a,b", "#")),
        (',""', (None, None)),
    ],
)
def test_quoting(line, values):
    assert parse(f"{line}\n", ["STRING", "STRING"]) == ([values], [])


@pytest.mark.parametrize("spark_type", ["STRING", "INT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "BINARY", "DECIMAL"])
def test_an_empty_field_is_null_in_every_type(spark_type):
    assert parse(',x\n"",y\n', [spark_type, "STRING"]) == ([(None, "x"), (None, "y")], [])


def test_timestamps_with_and_without_zones_in_one_block():
    text = "2020-01-02\n2020-01-02 03:00:00.1234567\n\n2020-01-02T03:00:00-02\n2020-01-02 03:00Z\n"
    rows, bad = parse(text, ["TIMESTAMP"])
    assert [row[0].isoformat() for row in rows] == [
        "2020-01-02T00:00:00+00:00",
        "2020-01-02T03:00:00.123456+00:00",
        "2020-01-02T05:00:00+00:00",
        "2020-01-02T03:00:00+00:00",
    ]
    assert not bad


@pytest.mark.parametrize(
    ("timestamp_format", "text", "micros"),
    [
        ("seconds", "1357016409", 1357016409_000000),
        ("seconds", "1357016409.123457", 1357016409_123457),
        ("seconds", "-1", -1_000000),
        ("milliseconds", "1357016409123", 1357016409_123000),
        ("microseconds", "1357016409123457", 1357016409_123457),
    ],
)
def test_timestamps_as_numbers(timestamp_format, text, micros):
    ((moment,),), bad = parse(f"{text}\n", ["TIMESTAMP"], timestamp_format=timestamp_format)
    assert round(moment.timestamp() * 1e6) == micros
    assert not bad


@pytest.mark.parametrize(
    ("line", "types", "reason"),
    [
        ("x", ["INT"], "column a (INT): invalid value 'x'"),
        ("6.0", ["INT"], "column a (INT): invalid value '6.0'"),
        ("99999999999", ["INT"], "column a (INT): invalid value '99999999999'"),
        ("1,f", ["INT", "BOOLEAN"], "column b (BOOLEAN): invalid value 'f'"),
        ("12345.1", ["DECIMAL(6,2)"], "column a (DECIMAL(6,2)): "),
        ("9999.999", ["DECIMAL(6,2)"], "column a (DECIMAL(6,2)): "),
        ("yesterday", ["TIMESTAMP"], "column a (TIMESTAMP): 'yesterday' is not an ISO 8601 timestamp"),
        ("1577934245", ["TIMESTAMP"], "column a (TIMESTAMP): '1577934245' is not an ISO 8601 timestamp"),
        ("a", ["STRING", "INT"], "1 fields where 2 are expected"),
        ("a,1,2", ["STRING", "INT"], "3 fields where 2 are expected"),
        ('x,"open', ["STRING", "STRING"], "a quote is not closed"),
        ('"open', ["STRING"], "a quote is not closed"),
        ("a\rb", ["STRING"], "a carriage return inside the line"),
        (b"a\xff", ["STRING"], "column a (STRING): invalid UTF8 data"),
    ],
)
def test_a_bad_record_says_why(line, types, reason):
    rows, (bad,) = parse(line, types)
    assert not rows
    assert bad.reason.startswith(reason)
    assert bad.line == 1
    assert bad.text == (line if isinstance(line, str) else "a\\xff")


def test_a_number_in_the_wrong_unit_is_bad():
    _, (bad,) = parse("1357016409123", ["TIMESTAMP"], timestamp_format="seconds")
    assert bad.reason == "column a (TIMESTAMP): outside the years 1 to 9999 when read as seconds"


def test_line_ends_and_blank_lines():
    text = "a,1\n\n   \n \t\nb,2\r\n\r\nc,3\r\n\nd,4"
    assert parse(text, ["STRING", "INT"]) == ([("a", 1), ("b", 2), ("c", 3), ("d", 4)], [])
    assert parse("", ["STRING"]) == ([], [])
    assert parse("\n\r\n ", ["STRING"]) == ([], [])


def test_a_byte_order_mark_inside_the_text_belongs_to_the_value_however_the_block_is_cut():
    line = "\ufeffa,1\n"
    assert parse(line, ["STRING", "INT"])[0] == parse("b,2\n" + line, ["STRING", "INT"])[0][1:] == [("\ufeffa", 1)]


def test_a_header_gives_the_order_and_may_have_more():
    schema = arrow_schema([("b", "INT"), ("a", "STRING")])
    columns = header_columns(b'a,"x,y",b,x\r\n', schema, ",", "f.csv")
    batch = decode(CsvParser(schema, columns, ",", "iso"), schema, b"one,?,1,?\n", pytest.fail)
    assert batch.to_pylist() == [{"b": 1, "a": "one"}]


def test_ignored_columns_may_share_a_name():
    schema = arrow_schema([("a", "INT")])
    columns = header_columns(b"x,a,x,\n", schema, ",", "f.csv")
    batch = decode(CsvParser(schema, columns, ",", "iso"), schema, b"?,1,?,?\n", pytest.fail)
    assert batch.to_pylist() == [{"a": 1}]


def test_a_bad_value_is_of_the_column_that_the_header_says():
    schema = arrow_schema([("b", "INT"), ("a", "STRING")])
    bad = []
    decode(CsvParser(schema, ["x", "a", "y", "b"], ",", "iso"), schema, b"?,one,?,NA\n", bad.append)
    assert [record.reason for record in bad] == ["column b (INT): invalid value 'NA'"]


def test_a_header_without_a_column_names_file_and_columns():
    schema = arrow_schema([("a", "INT"), ("b", "INT"), ("c", "INT")])
    with pytest.raises(MillraceError, match=r"^f\.csv:1: the header has no column a, c; it has b, d;"):
        header_columns(b"b,d\n", schema, ",", "f.csv")
    with pytest.raises(MillraceError, match=r"^f\.csv:1: the header has the column b more than once"):
        header_columns(b"a,b,c,b\n", schema, ",", "f.csv")
    with pytest.raises(MillraceError, match=r"^f\.csv:3: the header is not a line of CSV: it has a carriage return"):
        header_columns(b"a,b,c\r1,2,3\r", schema, ",", "f.csv", 3)
