"""CSV values as Spark 4.3.0 gives them for the same text and schema with ``escape`` set to a quote, if it gives any."""

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from arrow_schemas import a_schema
from millrace_api.errors import MillraceError
from millrace_jobs.sources.formats.csv_parser import CsvParser, CsvQuotes, header_columns
from millrace_jobs.sources.formats.decoding import decode


def decoded(parser, schema, data, reject):
    return decode(parser, schema, parser.layout(data), reject)


def parse(text, types, delimiter=",", timestamp_format="iso"):
    """(rows, bad records) of CSV text with columns a, b, ..."""
    schema = a_schema([(chr(ord("a") + i), name) for i, name in enumerate(types)])
    bad = []
    data = text if isinstance(text, bytes) else text.encode()
    batch = decoded(CsvParser(schema, schema.names, delimiter, timestamp_format), schema, data, bad.append)
    batch.validate(full=True)
    assert batch.schema == schema
    return [tuple(row.values()) for row in batch.to_pylist()], bad


@pytest.mark.parametrize(
    ("text", "spark_type", "value"),
    [
        ("007", "INT", 7),
        ("-128", "TINYINT", -128),
        ("+5", "INT", 5),
        ("-0", "INT", 0),
        (" 5\t", "INT", 5),
        ("9223372036854775807", "BIGINT", 2**63 - 1),
        ("1e3", "DOUBLE", 1000.0),
        ("+2.5", "DOUBLE", 2.5),
        (".5", "DOUBLE", 0.5),
        ("-Inf", "DOUBLE", float("-inf")),
        ("TRUE", "BOOLEAN", True),
        ("False", "BOOLEAN", False),
        ("tRuE", "BOOLEAN", True),
        ("NaN", "DOUBLE", pytest.approx(float("nan"), nan_ok=True)),
        ("Infinity", "FLOAT", float("inf")),
        ("5.", "DOUBLE", 5.0),
        ("2020-1-2", "DATE", date(2020, 1, 2)),
        (" 2020-01-02", "DATE", date(2020, 1, 2)),
        ("2020-01-02", "DATE", date(2020, 1, 2)),
        ("5", "DECIMAL(6,2)", Decimal("5.00")),
        ("1e2", "DECIMAL(6,2)", Decimal("100.00")),
        ("2.500000", "DECIMAL(6,2)", Decimal("2.50")),
        ("1.235", "DECIMAL(6,2)", Decimal("1.24")),
        ("-1.235", "DECIMAL(6,2)", Decimal("-1.24")),
        ("99999999999999999999999999999999999999", "DECIMAL(38)", Decimal(10**38 - 1)),
        ("99999999999999999999999999999999999999.4", "DECIMAL(38)", Decimal(10**38 - 1)),
        ("0." + "1" * 60, "DECIMAL(6,2)", Decimal("0.11")),
        ("1e-400", "DECIMAL(6,2)", Decimal("0.00")),
        ("0E-18", "DECIMAL(38,18)", Decimal("0E-18")),
        ("+.5", "DECIMAL(6,2)", Decimal("0.50")),
        ("é", "BINARY", "é".encode()),
        ("2020-01-02 03:04:05", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2020-01-02T03:04:05Z", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2020-01-02T03:04:05+01:00", "TIMESTAMP", datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
        ("2020-01-02T03:04:05.5+0100", "TIMESTAMP", datetime(2020, 1, 2, 2, 4, 5, 500000, tzinfo=UTC)),
        ("2020-01-02 03:04:05.1234567", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2020-01-02 03:04", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, tzinfo=UTC)),
        ("2020-01-02", "TIMESTAMP", datetime(2020, 1, 2, tzinfo=UTC)),
        ("2020-1-2 3:4:5", "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2020-01-02 03:04:05 +01:00", "TIMESTAMP", datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
        ("0001-01-01", "TIMESTAMP", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.9999999Z", "TIMESTAMP", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ],
)
def test_a_field_is_read_as_its_column_type(text, spark_type, value):
    assert parse(f"{text}\n", [spark_type]) == ([(value,)], [])


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (' sp ," x "', (" sp ", " x ")),
        ('C:\\temp,"C:\\temp"', ("C:\\temp", "C:\\temp")),
        ('mid"quote,t', ('mid"quote', "t")),
        ('5\\" pipe,5" pipe', ('5\\" pipe', '5" pipe')),
        ('"C:\\data,old\\","q""\\"', ("C:\\data,old\\", 'q"\\')),
        ('"c ""q"" d","""x"""', ('c "q" d', '"x"')),
        ('"a,b",#', ("a,b", "#")),
        ('"a" ,"b"\t', ("a", "b")),
        ('"a\nb","c\r\n\r\n\nd"', ("a\nb", "c\r\n\r\n\nd")),
        ('a\0,"\0"', ("a\0", "\0")),
        (',""', (None, "")),  # NULL and NULL to Spark and DuckDB, which write them like this
    ],
)
def test_quotes_are_read_as_spark_reads_them(line, values):
    assert parse(f"{line}\n", ["STRING", "STRING"]) == ([values], [])


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t", " ", "^", "]", "-"])
def test_a_delimiter_may_be_any_single_character(delimiter):
    text = delimiter.join(['"x"', 'y"', f'"{delimiter}"\n'])
    assert parse(text, ["STRING"] * 3, delimiter) == ([("x", 'y"', delimiter)], [])
    text = delimiter.join(['"x"\\', "y\n"])
    assert [bad.reason[:26] for bad in parse(text, ["STRING"] * 2, delimiter)[1]] == ["text after a closing quote"]


@pytest.mark.parametrize("spark_type", ["STRING", "INT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP", "BINARY", "DECIMAL"])
def test_an_empty_field_is_null_in_every_type(spark_type):
    quoted = {"STRING": "", "BINARY": b""}.get(spark_type)
    assert parse(',x\n"",y\n', [spark_type, "STRING"]) == ([(None, "x"), (quoted, "y")], [])
    assert parse('x,\nx,""\n', ["STRING", spark_type]) == ([("x", None), ("x", quoted)], [])


@pytest.mark.parametrize(
    ("text", "year", "day"),
    [
        ("+10000-01-01T00:00:00.999999Z", 10_000, "2000-01-01T00:00:00.999999"),
        ("10000-1-1", 10_000, "2000-01-01"),
        ("0000-12-31 23:00", 0, "2000-12-31T23:00"),
        ("-0001-03-01T00:00:00+01:00", -1, "1999-02-28T23:00:00"),
        ("+290000-12-31", 290_000, "2000-12-31"),
    ],
)
def test_times_beyond_the_years_of_python_are_read(text, year, day):
    cycles = (year - 1999) // 400  # of 146,097 days each
    micros = int(np.datetime64(day, "us").astype(int)) + cycles * 146_097 * 86_400_000_000
    schema = a_schema([("a", "TIMESTAMP"), ("b", "DATE")])
    line = f"{text},{text[: text.index('-', 4) + 6].rstrip('T ')}\n" if "T" not in text else f"{text},\n"
    batch = decoded(CsvParser(schema, schema.names, ",", "iso"), schema, line.encode(), pytest.fail)
    assert batch.column("a").cast(pa.int64()).to_pylist() == [micros]


def test_timestamps_with_and_without_zones_may_be_in_one_block():
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
        ("seconds", "253402300799.999999", 253402300799_999999),
        ("seconds", "2.53402300799E11", 253402300799_000000),
        ("milliseconds", "-62135337578443.763", -62135337578_443763),
        ("milliseconds", "253402041621553.656", 253402041621_553656),
    ],
)
def test_timestamps_may_be_numbers_in_a_unit(timestamp_format, text, micros):
    ((moment,),), bad = parse(f"{text}\n", ["TIMESTAMP"], timestamp_format=timestamp_format)
    assert (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == micros
    assert not bad


@pytest.mark.parametrize(
    ("line", "types", "reason"),
    [
        ("x", ["INT"], "column a (INT): invalid value 'x'"),
        ("6.0", ["INT"], "column a (INT): invalid value '6.0'"),
        ("99999999999", ["INT"], "column a (INT): invalid value '99999999999'"),
        ("1,f", ["INT", "BOOLEAN"], "column b (BOOLEAN): invalid value 'f'"),
        ("0x10", ["INT"], "column a (INT): invalid value '0x10': write the number in decimal digits"),
        ("-0X1f", ["BIGINT"], "column a (BIGINT): invalid value '-0X1f': write the number in decimal digits"),
        ("1_000", ["INT"], "column a (INT): invalid value '1_000': write the digits without separators"),
        ("\u0661", ["INT"], "column a (INT): invalid value '\u0661': write a number"),
        ('"1,5"', ["DOUBLE"], "column a (DOUBLE): invalid value '1,5': write a decimal point in place of the comma"),
        ("NA", ["DOUBLE"], "column a (DOUBLE): invalid value 'NA': leave the field empty for NULL"),
        ("t", ["BOOLEAN"], "column a (BOOLEAN): invalid value 't': write true or false"),
        ("123456", ["DECIMAL(6,2)"], "column a (DECIMAL(6,2)): invalid value '123456': it has more digits"),
        ("9" * 39, ["DECIMAL(38)"], "column a (DECIMAL(38,0)): invalid value '999"),
        ("1e999999999", ["DECIMAL(6,2)"], "column a (DECIMAL(6,2)): invalid value '1e999999999': it has more digits"),
        ("NaN", ["DECIMAL(6,2)"], "column a (DECIMAL(6,2)): invalid value 'NaN': write a number"),
        ("2020-01-02T00:00:00Z", ["DATE"], "column a (DATE): '2020-01-02T00:00:00Z' is not an ISO 8601 date: declare"),
        ("2020-02-30", ["DATE"], "column a (DATE): '2020-02-30' is not an ISO 8601 date"),
        ("01.05.2024", ["TIMESTAMP"], "column a (TIMESTAMP): '01.05.2024' is not an ISO 8601 timestamp: write it like"),
        ("2024-05-01T24:00:00", ["TIMESTAMP"], "column a (TIMESTAMP): '2024-05-01T24:00:00' is not an ISO 8601"),
        ("2016-12-31 23:59:60", ["TIMESTAMP"], "column a (TIMESTAMP): '2016-12-31 23:59:60' is not an ISO 8601"),
        ("+300000-01-01", ["TIMESTAMP"], "column a (TIMESTAMP): '+300000-01-01' is not an ISO 8601 timestamp"),
        ("12345.1", ["DECIMAL(6,2)"], "column a (DECIMAL(6,2)): "),
        ("9999.999", ["DECIMAL(6,2)"], "column a (DECIMAL(6,2)): "),
        ("yesterday", ["TIMESTAMP"], "column a (TIMESTAMP): 'yesterday' is not an ISO 8601 timestamp"),
        (
            "1577934245",
            ["TIMESTAMP"],
            "column a (TIMESTAMP): '1577934245' is not an ISO 8601 timestamp: set timestampFormat: seconds",
        ),
        (
            "1577934245000",
            ["TIMESTAMP"],
            "column a (TIMESTAMP): '1577934245000' is not an ISO 8601 timestamp: set timestampFormat: milliseconds",
        ),
        (
            "1577934245000000",
            ["TIMESTAMP"],
            "column a (TIMESTAMP): '1577934245000000' is not an ISO 8601 timestamp: set timestampFormat: microseconds",
        ),
        ("a", ["STRING", "INT"], "1 field where 2 are expected"),
        ("a\t1", ["STRING", "INT"], '1 field where 2 are expected: set delimiter: "\\t"'),
        ("a;1", ["STRING", "INT"], '1 field where 2 are expected: set delimiter: ";"'),
        ("a,1,2", ["STRING", "INT"], "3 fields where 2 are expected"),
        ('x,"open', ["STRING", "STRING"], "a quote is not closed"),
        ('"open', ["STRING"], "a quote is not closed"),
        ('"a"b', ["STRING"], "text after a closing quote"),
        ('""a""', ["STRING"], "text after a closing quote"),
        ('"e \\"q\\" f"', ["STRING"], "text after a closing quote"),
        (' "a"', ["STRING"], "a blank before an opening quote"),
        ("a\rb", ["STRING"], "a carriage return inside the line"),
        (b"a\xff", ["STRING"], "the text is not UTF-8: write it in UTF-8"),
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


def test_lines_may_end_in_either_way_and_blank_lines_are_skipped():
    text = "a,1\n\n   \n \t\nb,2\r\n\r\nc,3\r\n\nd,4"
    assert parse(text, ["STRING", "INT"]) == ([("a", 1), ("b", 2), ("c", 3), ("d", 4)], [])
    assert parse("", ["STRING"]) == ([], [])
    assert parse("\n\r\n ", ["STRING"]) == ([], [])


def test_a_byte_order_mark_inside_the_text_belongs_to_the_value_however_the_block_is_cut():
    line = "\ufeffa,1\n"
    assert parse(line, ["STRING", "INT"])[0] == parse("b,2\n" + line, ["STRING", "INT"])[0][1:] == [("\ufeffa", 1)]


def test_a_header_gives_the_order_and_may_have_more():
    schema = a_schema([("b", "INT"), ("a", "STRING")])
    columns = header_columns(b'a,"x,y",b,x\r\n', schema, ",", "f.csv")
    batch = decoded(CsvParser(schema, columns, ",", "iso"), schema, b"one,?,1,?\n", pytest.fail)
    assert batch.to_pylist() == [{"b": 1, "a": "one"}]


def test_ignored_columns_may_share_a_name():
    schema = a_schema([("a", "INT")])
    columns = header_columns(b"x,a,x,\n", schema, ",", "f.csv")
    batch = decoded(CsvParser(schema, columns, ",", "iso"), schema, b"?,1,?,?\n", pytest.fail)
    assert batch.to_pylist() == [{"a": 1}]


def test_a_bad_value_is_of_the_column_that_the_header_says():
    schema = a_schema([("b", "INT"), ("a", "STRING")])
    bad = []
    decoded(CsvParser(schema, ["x", "a", "y", "b"], ",", "iso"), schema, b"?,one,?,NA\n", bad.append)
    assert [record.reason for record in bad] == ["column b (INT): invalid value 'NA': leave the field empty for NULL"]


def test_a_header_without_a_column_names_file_and_columns():
    schema = a_schema([("a", "INT"), ("b", "INT"), ("c", "INT")])
    with pytest.raises(MillraceError, match=r"^f\.csv:1: the header has no column a, c; it has b, d;"):
        header_columns(b"b,d\n", schema, ",", "f.csv")
    with pytest.raises(MillraceError, match=r"^f\.csv:1: the header has the column b more than once"):
        header_columns(b"a,b,c,b\n", schema, ",", "f.csv")
    with pytest.raises(MillraceError, match=r"^f\.csv:3: the header is not a line of CSV: it has a carriage return"):
        header_columns(b"a,b,c\r1,2,3\r", schema, ",", "f.csv", 3)
    with pytest.raises(MillraceError, match=r'it has a;b;c; set delimiter: ";"$'):
        header_columns(b"a;b;c\n", schema, ",", "f.csv")
    with pytest.raises(MillraceError, match=r'remove this line, which only Excel knows, and set delimiter: ";"$'):
        header_columns(b"sep=;\r\n", schema, ",", "f.csv")
    with pytest.raises(MillraceError, match=r"as in the file, where case and blanks count$"):
        header_columns(b"A, b,c\n", schema, ",", "f.csv")


def test_an_empty_field_at_the_end_of_the_text_is_null_also_after_quotes():
    for text in ('"x",', '"x",\n', '"x",\r\n', '"x",\r', 'y,"z"\n"x",'):
        assert parse(text, ["STRING", "STRING"])[0][-1] == ("x", None), text


def test_lines_after_an_open_quote_are_bad_one_by_one():
    rows, bad = parse('a,1\nb,"2\nc,3\n\nd,4\n', ["STRING", "INT"])
    assert rows == [("a", 1)]
    assert [(record.line, record.text) for record in bad] == [(2, 'b,"2'), (3, "c,3"), (5, "d,4")]
    assert bad[1].reason == "part of the record that begins above, which is bad"


def test_line_numbers_count_the_lines_within_values():
    rows, bad = parse('"a\n\nb",1\nc,x\n"d\ne",y\nf,2', ["STRING", "INT"])
    assert rows == [("a\n\nb", 1), ("f", 2)]
    assert [(record.line, record.text) for record in bad] == [(4, "c,x"), (5, '"d\ne",y')]


@pytest.mark.parametrize("delimiter", ["\t", " "])
def test_a_line_of_delimiters_alone_is_a_record_of_nulls(delimiter):
    lines = [delimiter, f"1{delimiter}2", "", f"{delimiter}3", "\r", delimiter]
    rows, bad = parse("\n".join(lines) + "\n", ["INT", "INT"], delimiter)
    assert (rows, bad) == ([(None, None), (1, 2), (None, 3), (None, None)], [])


def test_a_line_of_blanks_is_no_record():
    assert parse(" \t\n1,2\n  \n", ["INT", "INT"]) == ([(1, 2)], [])


def test_irregular_quotes_far_apart_leave_the_records_between_them_as_they_are():
    lines = [f'{i},"t ""{i}"", u\nv"' for i in range(1000)]
    irregular = ['5" pipe,x', '"q" ,"r"\t', '"a"b,c', ' "a",b', '"x" "y",z', 'a",b"', '"","5"""', 'a"b"c,"d"']
    for place, line in zip(range(0, 1000, 120), irregular, strict=False):
        lines[place] = line
    alone = [parse(f"{line}\n", ["STRING", "STRING"]) for line in lines]
    rows, bad = parse("\n".join(lines) + "\n", ["STRING", "STRING"])
    assert rows == [row for found, _ in alone for row in found]
    assert [(record.text, record.reason) for record in bad] == [(b.text, b.reason) for _, found in alone for b in found]
    assert len(bad) == 3


def test_one_irregular_quote_does_not_slow_down_its_block():
    text = "".join(f'{i},"t{i}"\n' for i in range(5000)).encode() + b'5" pipe,x\n'
    calls = []
    sys.setprofile(lambda _, event, function: calls.append(function) if event == "c_call" else None)
    try:
        CsvQuotes(",").layout(text)
    finally:
        sys.setprofile(None)
    assert len(calls) < 1000


@pytest.mark.parametrize("line", ['2,"q" ,', '"a" ,"open', '"q"\t,"r" ,s', '"q" ,x\ry'])
def test_a_bad_record_has_its_own_text(line):
    rows, (bad,) = parse(f'"a" ,"b"\n{line}', ["STRING", "STRING"])
    assert rows == [("a", "b")]
    assert (bad.text, bad.line) == (line, 2)
