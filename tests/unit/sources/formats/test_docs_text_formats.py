"""docs/formats.md, the text formats: each row of the tables about what comes in, through the decoder that it is about."""

import base64
import json
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from arrow_schemas import a_schema
from millrace_jobs.sources.formats.column_types import declared_schema, with_time_formats
from millrace_jobs.sources.formats.csv_parser import CsvParser
from millrace_jobs.sources.formats.decoding import decode
from millrace_jobs.sources.formats.json_parser import JsonParser

PAGE = (Path(__file__).parents[4] / "docs/formats.md").read_text("utf-8")
NUMBERS = {"BOOLEAN": json.loads, "INT": int, "BIGINT": int, "DOUBLE": float, "BINARY": str.encode, "STRING": str}


def rows(before):
    """The rows of the first table after a text, without the backquotes."""
    table = PAGE.partition(before)[2].partition("|---|")[2].partition("\n\n")[0]
    lines = [re.fullmatch(r"\| (.*) \|", line)[1].split(" | ") for line in table.split("\n")[1:]]
    assert lines, before
    return [tuple(cell.removeprefix("`").removesuffix("`") for cell in line) for line in lines]


def read(parser, schema, text):
    bad = []
    text = text.replace("↵", "\n").replace("→", "\t")
    batch = decode(parser, schema, parser.layout(text.encode()), bad.append)
    return batch, " ".join(record.reason for record in bad)


def check(parser, schema, text, value, expected):
    batch, reason = read(parser, schema, text)
    if value.startswith("refused"):
        assert batch.num_rows == 0
        assert value.removeprefix("refused: ") in reason
    else:
        assert not reason
        assert exactly(batch) == [expected]


def exactly(batch):
    """The rows, with times in microseconds since 1970 and dates in days, and floats as text."""
    columns = []
    for column in batch.columns:
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
        columns.append([str(v) if isinstance(v, float) else v for v in column.to_pylist()])
    return [list(row) for row in zip(*columns, strict=True)]


def value_of(kind, text):
    if kind.startswith("DECIMAL"):
        return Decimal(text)
    if kind in ("TIMESTAMP", "DATE"):
        return int(np.datetime64(text, "us" if kind == "TIMESTAMP" else "D").astype(int))
    value = NUMBERS[kind](text)
    return str(value) if isinstance(value, float) else value


@pytest.mark.parametrize(("record", "value"), rows("columns are `a STRING, b STRING`."))
def test_records_of_csv_are_read_as_the_page_says(record, value):
    schema = a_schema([("a", "STRING"), ("b", "STRING")])
    expected = None if value.startswith("refused") else json.loads(value)
    check(CsvParser(schema, schema.names, ",", "iso"), schema, record, value, expected)


@pytest.mark.parametrize(("record", "value"), rows("and other fields are ignored."))
def test_records_of_json_are_read_as_the_page_says(record, value):
    schema = a_schema([("a", "INT"), ("b", "STRING")])
    expected = None if value.startswith("refused") else json.loads(value)
    check(JsonParser(schema, "iso"), schema, record, value, expected)


@pytest.mark.parametrize(("record", "value"), rows("`user.country`, `items[].price`, `labels[value]`."))
def test_nested_records_of_json_are_read_as_the_page_says(record, value):
    schema = declared_schema("u STRUCT<a: INT, b: STRING>, l ARRAY<INT>, m MAP<STRING, INT>")
    batch, reason = read(JsonParser(schema, "iso"), schema, record)
    if value.startswith("refused"):
        assert value.removeprefix("refused: ") in reason
    else:
        assert not reason
        assert json.loads(json.dumps(exactly(batch))) == [json.loads(value)]


@pytest.mark.parametrize(("kind", "text", "value"), rows("In a field of CSV, where blanks"))
def test_texts_of_csv_are_read_as_the_page_says(kind, text, value):
    schema = a_schema([("x", kind), ("end", "INT")])
    expected = None if value.startswith("refused") else [value_of(kind, value), 1]
    check(CsvParser(schema, schema.names, ",", "iso"), schema, f"{text},1", value, expected)
    if kind in ("TIMESTAMP", "DATE"):  # the same texts as strings
        check(JsonParser(schema, "iso"), schema, json.dumps({"x": text, "end": 1}), value, expected)


@pytest.mark.parametrize(("kind", "text", "value"), rows("are the same texts as strings. The others:"))
def test_values_of_json_are_read_as_the_page_says(kind, text, value):
    schema = a_schema([("x", kind)])
    expected = None if value.startswith("refused") else [value_of(kind, value)]
    check(JsonParser(schema, "iso"), schema, f'{{"x": {text}}}', value, expected)


@pytest.mark.parametrize(("pattern", "text", "value"), rows("nothing may be missing or follow."))
def test_times_are_read_by_patterns_as_the_page_says(pattern, text, value):
    schema = with_time_formats(declared_schema("x TIMESTAMP, end INT"), {"x": pattern})
    expected = None if value.startswith("refused") else [value_of("TIMESTAMP", value), 1]
    check(CsvParser(schema, schema.names, ",", "seconds"), schema, f"{text},1", value, expected)
    check(JsonParser(schema, "seconds"), schema, json.dumps({"x": text, "end": 1}), value, expected)


def test_binary_is_base64_only_in_json():
    assert base64.b64decode("w6k=").decode() == "é"
