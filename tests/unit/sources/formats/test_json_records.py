"""JSON values as Spark 4.3.0 gives them for the same text and schema, and the records it finds malformed."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_schemas import a_schema
from millrace_jobs.sources.formats.csv_parser import CsvParser
from millrace_jobs.sources.formats.decoding import decode
from millrace_jobs.sources.formats.json_parser import JsonParser


def parse(text, columns, timestamp_format="iso"):
    """(rows, bad records) of JSON lines; ``columns`` is name to Spark type."""
    schema = a_schema(list(columns.items()))
    bad = []
    data = text if isinstance(text, bytes) else text.encode()
    parser = JsonParser(schema, timestamp_format)
    batch = decode(parser, schema, parser.layout(data), bad.append)
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
        ('""', "BINARY", b""),
        ("1" * 38, "DECIMAL(38)", Decimal("1" * 38)),
        ("-36893488147419103231", "DECIMAL(38)", Decimal("-36893488147419103231")),
        ("1.005000000000000000000000001", "DECIMAL(6,2)", Decimal("1.01")),
        ("1e-30", "DECIMAL(38,38)", Decimal("1e-30")),
        ("9223372036854775807", "BIGINT", 2**63 - 1),
        ("9007199254740993", "BIGINT", 2**53 + 1),
        ("-0.0", "DOUBLE", -0.0),
        ('"Infinity"', "DOUBLE", float("inf")),
        ('"-Infinity"', "FLOAT", float("-inf")),
        ("-Infinity", "DOUBLE", float("-inf")),
        ('"NaN"', "STRING", "NaN"),
        ('"\\u0000\\t\\/"', "STRING", "\0\t/"),
        ('"2020-1-2"', "DATE", date(2020, 1, 2)),
        ('"2020-01-02T03:04:05Z"', "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ('"2020-01-02 03:04:05"', "TIMESTAMP", datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_a_value_is_read_as_its_column_type(value, spark_type, expected):
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
def test_timestamps_may_be_numbers_in_a_unit(timestamp_format, value):
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
        ('{"a": 1.0}', "field a: 1.0 does not fit INT: declare the column DOUBLE or DECIMAL"),
        ('{"a": 99999999999}', "field a: 99999999999 does not fit INT: declare"),
        ('{"a": 3', "invalid JSON: Missing a comma or '}' after an object member."),
        ("7", "number where a JSON object is expected"),
        ('[{"a": 7}]', "array where a JSON object is expected"),
        ("{", "invalid JSON: Missing a name for object member.: write one object per line"),
        ('{"a": 1, "a": 2}', "field a appears twice: write it once"),
        ('{"a": NaN}', "field a: NaN does not fit INT: declare the column DOUBLE or FLOAT"),
        ('{"e": NaN}', "field e: NaN does not fit DECIMAL(6,2): declare the column DOUBLE or FLOAT"),
        ('{"e": "-Infinity"}', 'field e: "-Infinity" does not fit DECIMAL(6,2): declare the column DOUBLE or FLOAT'),
        ('{"e": "1,5"}', 'field e: "1,5" does not fit DECIMAL(6,2): write a number, or declare the column STRING'),
        ('{"b": "", "e": ""}', 'field e: "" does not fit DECIMAL(6,2): write a number, or declare the column STRING'),
        ('{"e": "1e400"}', 'field e: "1e400" does not fit DECIMAL(6,2): write a number, or declare the column STRING'),
        ('{"a": 0x10}', "invalid JSON: "),
        ('{"a": +5}', "invalid JSON: "),
        ('{"c": 1577934245000}', "field c: number where TIMESTAMP is expected: set timestampFormat to the unit"),
        ('{"e": 123456}', "column e (DECIMAL(6,2)): "),
        ('{"e": 12345678901234567890123456789012345678}', "column e (DECIMAL(6,2)): "),
        (
            '{"e": 99999999999999999999999999999999999999999999}',
            "field e: 99999999999999999999999999999999999999999999 does not fit DECIMAL(6,2)",
        ),
        ('{"f": "nan"}', "field f: string where DOUBLE is expected: write the value without quotes"),
        ('{"f": 1e400}', "invalid JSON: Number too big"),
        ('{"b": "\\ud800"}', "invalid JSON: The surrogate pair in string is invalid."),
        ('{"b": "a\tb"}', "invalid JSON: Invalid encoding in string."),
        ('\ufeff{"a": 7}', "invalid JSON: "),
        ("null", "not a JSON object"),
        ('{"a": 1} {"a": 2}', "more than one JSON value"),
        ('{"c": "yesterday"}', "column c (TIMESTAMP): 'yesterday' is not an ISO 8601 timestamp"),
        ('{"d": "a!"}', "column d (BINARY): "),
        (b'{"b": "\xff"}', "invalid UTF-8"),
    ],
)
def test_a_bad_record_says_why(line, reason):
    rows, (bad,) = parse(
        line,
        {"a": "INT", "b": "STRING", "c": "TIMESTAMP", "d": "BINARY", "e": "DECIMAL(6,2)", "f": "DOUBLE"},
    )
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


def test_nan_and_infinities_as_text_in_some_fields_leave_the_others_alone():
    columns = {"d": "DOUBLE", "s": "STRING", 'o"d': "FLOAT"}
    text = (
        '{"d": "NaN", "s": "NaN", "o\\"d": 1.5}\n{"d": 2.0, "s": "\\"d\\": \\"NaN\\"", "o\\"d": "-Infinity"}\n'
        '{"x": {"d": "NaN"}, "s": "d"}\n'
    )
    rows, bad = parse(text, columns)
    assert not bad
    assert str(rows) == str([(float("nan"), "NaN", 1.5), (2.0, '"d": "NaN"', float("-inf")), (None, "d", None)])


@given(
    st.lists(st.decimals(allow_nan=False, allow_infinity=False) | st.integers(-(2**126), 2**126), min_size=1),
    st.sampled_from([(38, 0), (38, 18), (38, 38), (9, 2), (19, 19), (20, 1)]),
)
def test_decimals_are_rounded_half_up_or_refused(numbers, kind):
    """In JSON and CSV alike, against Python's decimals; JSON takes no more than 38 digits."""
    precision, scale = kind
    context = Context(prec=1000, rounding=ROUND_HALF_UP)
    schema = a_schema([("a", f"DECIMAL({precision},{scale})"), ("b", "INT")])
    for number in numbers:
        exact = Decimal(number)
        rounded = exact.quantize(Decimal(1).scaleb(-scale), context=context) if abs(exact.adjusted()) < 400 else None
        fits = rounded is not None and len(rounded.as_tuple().digits) <= precision
        for parser, text in (
            (JsonParser(schema, "iso"), f'{{"a": {number}}}'),
            (CsvParser(schema, schema.names, ",", "iso"), f"{number},"),
        ):
            bad = []
            batch = decode(parser, schema, parser.layout(text.encode()), bad.append)
            if batch.num_rows:
                assert batch.column("a").to_pylist() == [rounded]
            else:
                is_long = (
                    len(exact.as_tuple().digits) > 38 or abs(exact.adjusted()) > 37 or exact.as_tuple().exponent < -38
                )
                assert not fits or (isinstance(parser, JsonParser) and is_long) or abs(exact.adjusted()) >= 400


@pytest.mark.parametrize(
    ("unit", "number", "micros"),
    [
        ("seconds", "253402300799.999999", 253402300799_999999),
        ("seconds", "2.53402300799E11", 253402300799_000000),
        ("milliseconds", "-62135337578443.763", -62135337578_443763),
        ("milliseconds", "253402041621553.656", 253402041621_553656),
    ],
)
def test_a_time_far_from_1970_keeps_its_microseconds(unit, number, micros):
    text = f'{{"t": {number}, "d": 1.5}}\n{{"t": 1.5, "d": 2}}\n{{"t": "7"}}\n{{"t": null}}'
    rows, bad = parse(text, {"t": "TIMESTAMP", "d": "DECIMAL(5,1)"}, unit)
    near = timedelta(**{unit: 1.5})
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert rows == [
        (epoch + timedelta(microseconds=micros), Decimal("1.5")),
        (epoch + near, Decimal("2.0")),
        (None, None),
    ]
    assert [each.reason for each in bad] == ["field t: string where TIMESTAMP is expected: set timestampFormat: iso"]


def test_an_infinity_as_text_leaves_all_digits_to_a_time_beside_it():
    text = '{"t": 253402300799.999999, "x": "-Infinity", "d": 0.12345678901234567890123456789012345678}\n'
    rows, bad = parse(text, {"t": "TIMESTAMP", "x": "FLOAT", "d": "DECIMAL(38,38)"}, "seconds")
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=253402300799_999999)
    assert (rows, bad) == ([(time, float("-inf"), Decimal("0.12345678901234567890123456789012345678"))], [])
