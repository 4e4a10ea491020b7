"""Odd and broken files of text made by other programs: pandas, DuckDB, Spark, Python's csv and json, and Excel's CSV.

Each has the rows that its maker meant, or the part of a sentence that says what is wrong.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class OddText:
    """A file, its declared columns, and what reading it gives: rows, or an error that has ``said`` in it."""

    name: str
    data: bytes
    schema: str
    rows: Rows | None = None
    said: str = ""
    format: str = "csv"
    options: dict[str, Any] = field(default_factory=dict)


def by_csv(rows: Rows, header: str = "a,b", **dialect: Any) -> bytes:
    """Python's csv module; line ends are CRLF."""
    text = io.StringIO()
    writer = csv.writer(text, **dialect)
    writer.writerows([header.split(","), *rows])
    return text.getvalue().encode()


def by_pandas(rows: Rows, header: str = "a,b", **options: Any) -> bytes:
    frame = pd.DataFrame(list(rows), columns=header.split(","), dtype=object)
    return str(frame.to_csv(index=False, **options)).encode()


def by_duckdb(select: str, folder: Path, options: str = "HEADER") -> bytes:
    file = folder / "duck"
    duckdb.sql(f"COPY ({select}) TO '{file}' ({options})")
    return file.read_bytes()


NAUGHTY = [
    '5" pipe',
    'q"',
    '"',
    '""',
    "C:\\data,old\\",
    'q"\\',
    "\\",
    "\\N",
    "a,b",
    "a\nb",
    "a\r\nb",
    "a\rb",
    "#x",
    "'",
    " x ",
]
NAUGHTY += ['"x"', ' "x"', "x\ty", "x;y|z", "=1+1", "\x00", "\u2028", "é", "😀"]
TEXT2 = "a STRING, b STRING"


def quotes(folder: Path) -> Iterator[OddText]:
    """Quotes, escapes and delimiters within fields."""
    pairs = list(zip(NAUGHTY, reversed(NAUGHTY), strict=True))
    yield OddText("csv", by_csv(pairs), TEXT2, pairs)
    yield OddText("csv, all quoted", by_csv(pairs, quoting=csv.QUOTE_ALL), TEXT2, pairs)
    short = [pair for pair in pairs if "\r" not in "".join(pair)]  # which it would not quote
    yield OddText("csv, LF", by_csv(short, lineterminator="\n"), TEXT2, short)
    yield OddText("csv, semicolons", by_csv(pairs, delimiter=";"), TEXT2, pairs, options={"delimiter": ";"})
    yield OddText("csv, tabs", by_csv(pairs, delimiter="\t"), TEXT2, pairs, options={"delimiter": "\t"})
    yield OddText("csv, bars", by_csv(pairs, delimiter="|"), TEXT2, pairs, options={"delimiter": "|"})
    yield OddText("pandas", by_pandas(short), TEXT2, short)
    yield OddText("pandas, all quoted", by_pandas(pairs, quoting=csv.QUOTE_ALL), TEXT2, pairs)
    plain = [pair for pair in pairs if "\x00" not in "".join(pair)]
    values = ", ".join(f"({sql_text(a)}, {sql_text(b)})" for a, b in plain)
    select = f"SELECT * FROM (VALUES {values}) AS t(a, b)"
    yield OddText("DuckDB", by_duckdb(select, folder), TEXT2, plain)
    yield OddText("DuckDB, all quoted", by_duckdb(select, folder, "HEADER, FORCE_QUOTE *"), TEXT2, plain)
    # As Spark 4.3.0 writes them, by default and with escape='"'.
    yield OddText("Spark, a backslash before a quote", b'a,b\n"q\\"q",1\n', TEXT2, said="text after a closing quote")
    yield OddText("Spark, two backslashes", b'a,b\n"q\\"\\\\",1\n', TEXT2, said="text after a closing quote")
    yield OddText(
        "Spark, RFC 4180", b'a,b\n"q""\\",""\n,"C:\\data,old\\"\n', TEXT2, [('q"\\', ""), (None, "C:\\data,old\\")]
    )
    escaped = by_csv([('say "hi"', "x")], doublequote=False, escapechar="\\", quoting=csv.QUOTE_ALL)
    yield OddText("csv, escape character", escaped, TEXT2, said="text after a closing quote")
    bare = by_csv([('5" pipe', 'say "hi"')], quoting=csv.QUOTE_NONE, quotechar=None)
    yield OddText("csv, no quoting", bare, TEXT2, [('5" pipe', 'say "hi"')])
    yield OddText("inches", b'a,b\n5\\" pipe,5" pipe\n', TEXT2, [('5\\" pipe', '5" pipe')])
    single = by_csv([("it's, so", "x")], quotechar="'")
    yield OddText("single quotes", single, TEXT2, said="3 fields where 2 are expected")
    yield OddText("a blank after the comma", b'"a","b"\n"x", "y, z"\n', TEXT2, said="a blank before an opening quote")
    yield OddText("a blank after a quote", b'"a" ,"b"\n"x" ,"y"\t\n', TEXT2, said="the header has no column a")
    yield OddText("an open quote", b'a,b\nx,"y\nz,w\n', TEXT2, said="a quote is not closed: close it, or double it")


def sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def lines(folder: Path) -> Iterator[OddText]:
    """Line ends, blank lines, empty files and encodings."""
    two = "a STRING, b INT"
    rows = [("x", 1), ("y", 2)]
    for name, text in {
        "LF": b"a,b\nx,1\ny,2\n",
        "CRLF": b"a,b\r\nx,1\r\ny,2\r\n",
        "LF and CRLF": b"a,b\r\nx,1\ny,2\r\n",
        "no last line break": b"a,b\nx,1\ny,2",
        "a lone CR at the end": b"a,b\r\nx,1\r\ny,2\r",
        "blank lines": b"\n\na,b\n\nx,1\n \t\n\r\ny,2\n\n",
        "BOM": b"\xef\xbb\xbfa,b\nx,1\ny,2\n",
        "BOM and quotes": b'\xef\xbb\xbf"a","b"\r\n"x","1"\r\n"y","2"\r\n',
    }.items():
        yield OddText(name, text, two, rows)
    yield OddText(
        "CR only", b"a,b\rx,1\ry,2\r", two, said="a carriage return inside the line; end each line with LF or CRLF"
    )
    yield OddText("CR in a record", b"a,b\nx\ry,2\n", two, said="a carriage return inside the line")
    yield OddText("empty", b"", two, [])
    yield OddText("only a BOM", b"\xef\xbb\xbf", two, [])
    yield OddText("only a header", by_pandas([]), two, [])
    yield OddText("only blank lines", b"\n \n\r\n", two, [])
    yield OddText(
        "UTF-16", by_csv(rows).decode().encode("utf-16"), two, said="not text in UTF-8 but UTF-16; convert it"
    )
    yield OddText("UTF-16 without a BOM", b"a\0,\0b\0\n\0", two, said="not text in UTF-8 but UTF-16; convert it")
    latin = by_csv([("größe", 1)]).decode().encode("latin-1")
    yield OddText("Latin-1", latin, two, said="the text is not UTF-8: write it in UTF-8, as iconv -f LATIN1")
    header = "größe,b\nx,1\n".encode("latin-1")
    yield OddText(
        "Latin-1 header",
        header,
        "größe STRING, b INT",
        said="the header is not UTF-8; write the file in UTF-8, as iconv",
    )
    long = "x" * 9_000_000
    yield OddText("a long field", by_csv([(long, 1), ('"' * 5_000_000, 2)]), two, [(long, 1), ('"' * 5_000_000, 2)])
    within = [("a\n\nb,1\nx,2", 1), ("\n", 2), ("\r\n", 3), ("x\n", 4)] * 3
    yield OddText("line breaks in values", by_pandas(within), two, within)
    yield OddText("an Excel workbook", b"PK\x03\x04\x14\x00", two, said="a zip archive or an Excel workbook")
    gzip = b"\x1f\x8b\x08\x00"
    yield OddText("gzip under another name", gzip, two, said="not text in UTF-8 but gzip; let its name end in .gz")


def shapes(folder: Path) -> Iterator[OddText]:
    """Headers, delimiters, missing and surplus fields."""
    two = "a STRING, b INT"
    excel = b"\xef\xbb\xbfa;b\r\nx;1\r\n"
    yield OddText("Excel", excel, two, [("x", 1)], options={"delimiter": ";"})
    yield OddText(
        "Excel read with commas", excel, two, said='the header has no column a, b; it has a;b; set delimiter: ";"'
    )
    yield OddText(
        "sep=", b"sep=;\r\na;b\r\nx;1\r\n", two, said='remove this line, which only Excel knows, and set delimiter: ";"'
    )
    yield OddText("tabs read with commas", by_csv([("x", 1)], delimiter="\t"), two, said='set delimiter: "\\t"')
    yield OddText(
        "bars", b"x|1\n", two, said='1 field where 2 are expected: set delimiter: "|"', options={"header": False}
    )
    yield OddText(
        "an index of pandas",
        by_pandas([("x", 1)]).replace(b"a,b\n", b",a,b\n").replace(b"x,1", b"0,x,1"),
        two,
        [("x", 1)],
    )
    yield OddText("another order", by_csv([(1, "x")], "b,a"), two, [("x", 1)])
    yield OddText("more columns", by_csv([(9, "x", "", 1)], "n,a,,b"), two, [("x", 1)])
    yield OddText(
        "a column twice", by_csv([("x", 1, 2)], "a,b,b"), two, said="the header has the column b more than once"
    )
    yield OddText("another column twice", by_csv([("x", 1, 2, 3)], "a,n,n,b"), two, [("x", 3)])
    yield OddText("a column less", by_csv([("x",)], "a"), two, said="the header has no column b; it has a")
    yield OddText("another case", by_csv([("x", 1)], "A,b"), two, said="as in the file, where case and blanks count")
    yield OddText("a blank in the header", b"a, b\nx,1\n", two, said="as in the file, where case and blanks count")
    yield OddText("a line break in the header", by_csv([("x", 7, 1)], "a,two\nlines,b"), two, [("x", 1)])
    yield OddText("no header", b"x,1\n", two, said="the header has no column a, b; it has x, 1")
    yield OddText(
        "a header where none is expected",
        b"a,b\nx,1\n",
        two,
        said="column b (INT): invalid value 'b'",
        options={"header": False},
    )
    yield OddText(
        "a field less", b"a,b\nx,1\ny\n", two, said="f.csv:3: source s cannot decode 'y': 1 field where 2 are expected"
    )
    yield OddText("a field more", b"a,b\nx,1\ny,2,\n", two, said="3 fields where 2 are expected")
    yield OddText("a delimiter at each end of line", b"a,b,\nx,1,\n", two, [("x", 1)])
    yield OddText(
        "empty and absent",
        by_duckdb("SELECT * FROM (VALUES ('', 1), (NULL, NULL)) AS t(a, b)", folder),
        two,
        [("", 1), (None, None)],
    )


def numbers(folder: Path) -> Iterator[OddText]:
    """Spellings of numbers and booleans."""
    doubles = [0.1, -0.0, 1e300, 5e-324, 1e16, 123456789.123456789, math.inf, -math.inf]
    rows = [(value, 1) for value in doubles]
    schema = "a DOUBLE, b INT"
    yield OddText("csv", by_csv(rows), schema, rows)
    yield OddText("pandas", by_pandas(rows, na_rep="NaN"), schema, rows)
    select = (
        "SELECT unnest([0.1::DOUBLE, '-0.0', 1e300, 5e-324, 1e16, 123456789.123456789, 'inf', '-inf']) AS a, 1 AS b"
    )
    yield OddText("DuckDB", by_duckdb(select, folder), schema, rows)
    spark = b"a,b\n0.1,1\n-0.0,1\n1.0E300,1\n4.9E-324,1\n1.0E16,1\n1.2345678912345679E8,1\nInfinity,1\n-Infinity,1\n"
    yield OddText("Spark", spark, schema, rows)
    yield OddText("NULL as NaN", by_pandas([(math.nan, 1)], na_rep="NaN"), schema, [(math.nan, 1)])
    yield OddText(
        "NULL as NA", by_pandas([(None, 1)], na_rep="NA"), schema, said="'NA': leave the field empty for NULL"
    )
    yield OddText("NULL as \\N", b"a,b\n\\N,1\n", schema, said="leave the field empty for NULL")
    yield OddText("NULL as quotes", by_csv([("", 1)], quoting=csv.QUOTE_ALL), schema, [(None, 1)])
    comma = by_pandas([(1.5, 1)], decimal=",", sep=";").replace(b"1.5", b"1,5")
    yield OddText("decimal comma", comma, schema, said="'1,5': write a decimal point", options={"delimiter": ";"})
    yield OddText("thousands", by_csv([("1,234.5", 1)]), schema, said="write the digits without separators")
    yield OddText("hexadecimal", by_csv([(1, hex(255))]), schema, said="'0xff': write the number in decimal digits")
    yield OddText("a plus", b"a,b\n+1.5,+5\n", schema, [(1.5, 5)])
    yield OddText("underscores", b"a,b\n1,1_000\n", schema, said="'1_000': write the digits without separators")
    yield OddText("Arabic digits", "a,b\n1,١\n".encode(), schema, said="invalid value '١': write a number")
    yield OddText(
        "integers of pandas with NULL", by_pandas([(1, 1.0)]), schema, said="'1.0': write a whole number, or declare"
    )
    yield OddText("too large", b"a,b\n1,2147483648\n", schema, said="outside the range of the type")
    decimals = [(Decimal("1234.50"),), (Decimal("-0.01"),), (None,)]
    select = "SELECT unnest([1234.50::DECIMAL(9,2), -0.01, NULL]) AS a"
    yield OddText(
        "decimals of DuckDB", by_duckdb(select, folder).replace(b"\n\n", b'\n""\n'), "a DECIMAL(9,2)", decimals
    )
    yield OddText("more digits", b"a\n123456.7\n", "a DECIMAL(6,2)", said="it has more digits than the type")
    yield OddText(
        "rounded half up",
        b"a\n0.125\n-0.125\n1e-9\n",
        "a DECIMAL(6,2)",
        [(Decimal("0.13"),), (Decimal("-0.13"),), (Decimal("0.00"),)],
    )
    flags = by_pandas([(True, 1), (False, 2), (None, 3)])
    yield OddText("booleans of pandas", flags, "a BOOLEAN, b INT", [(True, 1), (False, 2), (None, 3)])
    yield OddText("booleans as numbers", b"a\n1\n", "a BOOLEAN", said="'1': write true or false")


def times(folder: Path) -> Iterator[OddText]:
    """Spellings of dates and times."""
    schema = "a TIMESTAMP, b DATE"
    moment, day = datetime(2024, 5, 1, 12, 30, 15, 250_000, UTC), date(2024, 5, 1)
    rows = [
        (moment, day),
        (datetime(1, 1, 1, tzinfo=UTC), date(1, 1, 1)),
        (datetime(9999, 12, 31, tzinfo=UTC), date(9999, 12, 31)),
    ]
    yield OddText("csv", by_csv(rows), schema, rows)
    yield OddText("csv, ISO 8601", by_csv([(m.isoformat(), d.isoformat()) for m, d in rows]), schema, rows)
    frame = pd.DataFrame({"a": pd.to_datetime([moment, None]), "b": [day, None]})
    yield OddText("pandas", frame.to_csv(index=False).encode(), schema, [(moment, day), (None, None)])
    nanos = pd.DataFrame({"a": [pd.Timestamp("2024-05-01 12:30:15.250000999")], "b": [day]})
    yield OddText("pandas, nanoseconds", nanos.to_csv(index=False).encode(), schema, [(moment, day)])
    yield OddText(
        "pandas, a format",
        frame[:1].to_csv(index=False, date_format="%d.%m.%Y").encode(),
        schema,
        said="'01.05.2024' is not an ISO 8601 timestamp",
    )
    select = "SELECT TIMESTAMPTZ '2024-05-01 14:30:15.25+02' AS a, DATE '2024-05-01' AS b"
    duckdb.sql("SET TimeZone = 'Europe/Oslo'")
    yield OddText("DuckDB, in a zone with summer time", by_duckdb(select, folder), schema, [(moment, day)])
    duckdb.sql("SET TimeZone = 'UTC'")
    yield OddText("Spark", b"a,b\n2024-05-01T12:30:15.250Z,2024-05-01\n", schema, [(moment, day)])
    yield OddText("Spark, other zone", b"a,b\n2024-05-01T14:30:15.250+02:00,2024-05-01\n", schema, [(moment, day)])
    yield OddText(
        "zones of two forms",
        b"a,b\n2024-05-01T14:30:15.25+0200,2024-5-1\n2024-05-01 12:30:15.25,\n",
        schema,
        [(moment, day), (moment, None)],
    )
    yield OddText(
        "Excel",
        b"a;b\r\n01.05.2024 12:30;01.05.2024\r\n",
        schema,
        said="write it like 2024-05-01",
        options={"delimiter": ";"},
    )
    yield OddText("America", b"a,b\n5/1/2024,5/1/2024\n", schema, said="'5/1/2024' is not an ISO 8601")
    for unit, digits in (("seconds", 10), ("milliseconds", 13), ("microseconds", 16)):
        number = str(round(moment.timestamp() * 1_000_000))[:digits]
        yield OddText(unit, f"a,b\n{number},\n".encode(), schema, said=f"set timestampFormat: {unit}")
    yield OddText("nanoseconds", b"a,b\n1714566615250000000,\n", schema, said="set timestampFormat: microseconds")
    yield OddText("a leap second", b"a,b\n2016-12-31T23:59:60Z,\n", schema, said="minutes and seconds from 00 to 59")
    yield OddText("24 o'clock", b"a,b\n2024-05-01T24:00:00Z,\n", schema, said="hours go from 00 to 23")
    yield OddText("no such day", b"a,b\n,2023-02-29\n", schema, said="'2023-02-29' is not an ISO 8601 date")
    yield OddText("a time as a date", b"a,b\n,2024-05-01 00:00:00\n", schema, said="declare the column TIMESTAMP")
    yield OddText(
        "the zone's name", b"a,b\n2024-05-01 12:30 Europe/Oslo,\n", schema, said="is not an ISO 8601 timestamp"
    )
    yield OddText(
        "basic format", b"a,b\n20240501T123015Z,\n", schema, said="'20240501T123015Z' is not an ISO 8601 timestamp"
    )


def json_files(folder: Path) -> Iterator[OddText]:
    """Files of JSON."""
    schema = "a DOUBLE, b STRING"
    rows = [(1.5, "x"), (None, 'q"\\\n\t\x00é😀\u2028'), (-0.0, "")]

    def made(dump: Callable[[Any], str], sep: str = "\n") -> bytes:
        return sep.join(dump({"a": a, "b": b}) for a, b in rows).encode()

    def case(name: str, data: bytes, rows: Rows | None = None, said: str = "", schema: str = schema) -> OddText:
        return OddText(name, data, schema, rows, said, "json")

    yield case("json", made(json.dumps), rows)
    yield case("json, not ASCII", made(lambda row: json.dumps(row, ensure_ascii=False)), rows)
    yield case("json, CRLF and blank lines", made(json.dumps, "\r\n\r\n"), rows)
    yield case("json, BOM", b"\xef\xbb\xbf" + made(json.dumps), rows)
    frame = pd.DataFrame(rows[:2], columns=["a", "b"])
    yield case("pandas", frame.to_json(orient="records", lines=True).encode(), rows[:2])
    yield case("pandas, an array", frame.to_json(orient="records").encode(), said="write one object per line")
    yield case("pandas, columns", frame.to_json().encode(), said="field a: object where DOUBLE is expected")
    yield case(
        "DuckDB",
        by_duckdb("SELECT 1.5 AS a, 'x\n' AS b UNION ALL SELECT NULL, 'y'", folder, "FORMAT json"),
        [(1.5, "x\n"), (None, "y")],
    )
    yield case(
        "DuckDB, an array",
        by_duckdb("SELECT 1.5 AS a, 'x' AS b", folder, "FORMAT json, ARRAY true"),
        said="write one object per line",
    )
    yield case("json, indented", json.dumps({"a": 1, "b": "x"}, indent=2).encode(), said="write one object per line")
    yield case("NaN of Python", b'{"a": NaN, "b": "NaN"}\n{"a": Infinity}\n', [(math.nan, "NaN"), (math.inf, None)])
    yield case("NaN of Spark", b'{"a":"NaN","b":"NaN"}\n{"a":"-Infinity"}\n', [(math.nan, "NaN"), (-math.inf, None)])
    yield case("a number as text", b'{"a": "1.5"}\n', said="write the value without quotes")
    yield case("text as a number", b'{"b": 5}\n', said="declare the column as a number, or quote the value")
    yield case("an object as text", b'{"b": {"x": 1}}\n', said="object where STRING is expected")
    yield case("twice", b'{"a": 1, "a": 2}\n', said="field a appears twice")
    yield case("a lone surrogate", b'{"b": "\\ud83d"}\n', said="invalid JSON: The surrogate pair")
    yield case("UTF-16", made(json.dumps).decode().encode("utf-16"), said="not text in UTF-8 but UTF-16")
    yield case("Latin-1", '{"b": "größe"}'.encode("latin-1"), said="invalid UTF-8: write it in UTF-8")
    yield case("null", b"null\n", said="not a JSON object")
    large = 2**63 - 1
    yield case("large", json.dumps({"a": large}).encode(), [(large,)], schema="a BIGINT")
    yield case(
        "larger",
        json.dumps({"a": 2**63}).encode(),
        said="field a: 9223372036854775808 does not fit BIGINT",
        schema="a BIGINT",
    )
    yield case(
        "milliseconds",
        b'{"a": 1714566615250}\n',
        said="set timestampFormat to the unit of the numbers",
        schema="a TIMESTAMP",
    )
    yield case("a CSV", by_csv(rows), said="invalid JSON")


KINDS = {make.__name__: make for make in (quotes, lines, shapes, numbers, times, json_files)}
