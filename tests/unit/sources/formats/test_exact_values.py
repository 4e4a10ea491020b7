"""Decimals of 38 digits, integers beyond 2^53, and days and times of other calendars' years lose nothing.

DuckDB reads the same files of CSV and JSON, and fastavro writes the same messages.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_jobs.sources.formats.avro_records import AvroDecoder, read_avro_schema
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.formats.file_formats import file_format

UNSCALED = st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(-99, 99)
LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53 + 1, -(2**53) - 1, 2**63 - 1])
DAYS = st.dates(date(1, 1, 1)) | st.sampled_from([date(1582, 10, 4), date(1582, 10, 10), date(1969, 12, 31)])
TIMES = st.datetimes(datetime(1, 1, 1)) | st.sampled_from(
    [datetime(1582, 10, 10), datetime(1969, 12, 31, 23, 59, 59, 1)]
)
ROWS = st.lists(st.tuples(UNSCALED, LONGS, DAYS, TIMES), min_size=1, max_size=15)
EXACT = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def scaled(unscaled, scale):
    return Decimal(f"{unscaled}E-{scale}")


def read(path, format, ddl):
    reader = file_format(format, declared_schema(ddl), header=False)
    (batch,) = reader.read(str(path), 0, path.stat().st_size, lambda *_: pytest.fail("a bad record"))
    return [tuple(row.values()) for row in batch.to_pylist()]


def expected(rows, scale):
    return [(scaled(number, scale), long, day, time.replace(tzinfo=UTC)) for number, long, day, time in rows]


@pytest.mark.parametrize("scale", [0, 2, 18, 38])
@EXACT
@given(ROWS)
def test_csv_and_json_are_read_as_by_duckdb(tmp_path_factory, scale, rows):
    folder = tmp_path_factory.mktemp("x")
    texts = [
        (f"{scaled(number, scale):f}", str(long), day.isoformat(), time.isoformat()) for number, long, day, time in rows
    ]
    lines, objects = folder / "x.csv", folder / "x.json"
    lines.write_text("".join(",".join(row) + "\n" for row in texts), encoding="utf-8")
    fields = [f'{{"a": {a}, "b": {b}, "c": "{c}", "d": "{d}"}}\n' for a, b, c, d in texts]
    objects.write_text("".join(fields), encoding="utf-8")
    ddl = f"a DECIMAL(38,{scale}), b BIGINT, c DATE, d TIMESTAMP"
    types = f"{{a: 'DECIMAL(38,{scale})', b: 'BIGINT', c: 'DATE', d: 'TIMESTAMP'}}"
    theirs = duckdb.sql(f"SELECT * FROM read_csv('{lines}', header = false, columns = {types})").fetchall()
    assert theirs == [(*row[:3], row[3].replace(tzinfo=None)) for row in expected(rows, scale)]
    assert read(lines, "csv", ddl) == expected(rows, scale)
    assert read(objects, "json", ddl) == expected(rows, scale)


@EXACT
@given(ROWS, st.sampled_from([0, 2, 18, 38]))
def test_avro_is_read_as_fastavro_writes_it(rows, scale):
    fields = [
        {"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}},
        {"name": "b", "type": "long"},
        {"name": "c", "type": {"type": "int", "logicalType": "date"}},
        {"name": "d", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]
    text = json.dumps({"type": "record", "name": "r", "fields": fields})
    messages = []
    for row in expected(rows, scale):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(text)), dict(zip("abcd", row, strict=True)))
        messages.append(stream.getvalue())
    ddl = f"a DECIMAL(38,{scale}), b BIGINT, c DATE, d TIMESTAMP"
    decoder = AvroDecoder(declared_schema(ddl), "iso", read_avro_schema(text))
    found, _ = decoder.decode(messages, lambda index, why: pytest.fail(why))
    assert [tuple(row.values()) for row in found.to_pylist()] == expected(rows, scale)
