"""Formats of times by column: numbers in a unit, and patterns, which DuckDB reads alike."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_api.sql.time_formats import TimePatternError, time_pattern
from millrace_jobs.sources.formats.avro_records import AvroDecoder, read_avro_schema
from millrace_jobs.sources.formats.column_types import declared_schema, with_time_formats
from millrace_jobs.sources.formats.file_formats import file_format
from millrace_jobs.sources.formats.text_conversions import pattern_timestamps

PATTERNS = {
    "dd.MM.yyyy": "%d.%m.%Y",
    "yyyyMMdd": "%Y%m%d",
    "MM/dd/yyyy HH:mm:ss": "%m/%d/%Y %H:%M:%S",
    "d/M/yyyy H:m": "%-d/%-m/%Y %-H:%-M",
    "dd-MMM-yyyy HH:mm:ss.SSSSSS": "%d-%b-%Y %H:%M:%S.%f",
    "yyyy-MM-dd'T'HH:mm:ss.SSS": "%Y-%m-%dT%H:%M:%S.%g",
    "'at' HH 'o''clock on' yyyy.MM.dd": "at %H o'clock on %Y.%m.%d",
}
"""Patterns of Java, each with that of DuckDB."""

MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)) | st.sampled_from(
    [datetime(1582, 10, 10), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1900, 2, 28)]
)


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(st.lists(st.none() | MOMENTS, min_size=1, max_size=20))
def test_duckdb_writes_and_reads_the_same(pattern, moments):
    table = pa.table({"t": pa.array(moments, pa.timestamp("us"))})  # noqa: F841 - DuckDB reads it
    theirs = PATTERNS[pattern].replace("'", "''")
    with duckdb.connect() as connection:
        sql = f"SELECT s, strptime(s, '{theirs.replace('%-', '%')}') FROM (SELECT strftime(t, '{theirs}') AS s FROM table)"
        found = connection.execute(sql.replace("FROM table", 'FROM "table"')).fetchall()
    texts, expected = zip(*found, strict=True)
    read = pattern_timestamps(pa.array(texts, pa.string()), pattern)
    assert [value and value.replace(tzinfo=None) for value in read.to_pylist()] == list(expected)


@pytest.mark.parametrize(
    ("pattern", "message", "hint"),
    [
        ("dd.MM", 'the pattern "dd.MM" has no year', "add yyyy"),
        ("dd.MM.yy", 'the pattern "dd.MM.yy" has "yy"', "write yyyy, M, MM, MMM"),
        ("MM.yyyy", 'the pattern "MM.yyyy" has no day', "add dd"),
        ("dd.MM.yyyy mm", 'the pattern "dd.MM.yyyy mm" has the minute without the hour', "add the hour"),
        ("dd.MM.yyyy HH:mm.SSS", "has the fraction without the second", "add the second"),
        ("dMyyyy", 'has "d" right before "M"', "write dd, or a separator"),
        ("dd.MM.yyyy 'x", "has a single quote that is not closed", "close it"),
        ("dd.MM.yyyy dd", "has the day twice", "write it once"),
        ("yyyy-MM-ddTHH", 'has "T"', "other letters in single quotes"),
    ],
)
def test_a_text_that_is_no_pattern_is_refused_with_a_hint(pattern, message, hint):
    with pytest.raises(TimePatternError) as refused:
        time_pattern(pattern)
    assert message in refused.value.message
    assert hint in refused.value.hint


FORMATS = {"a": "milliseconds", "day": "dd.MM.yyyy", "s.at": "dd/MMM/yyyy:HH:mm:ss XX", "l.at": "seconds"}
COLUMNS = "a TIMESTAMP, day DATE, s STRUCT<at: TIMESTAMP>, l ARRAY<STRUCT<at: TIMESTAMP>>, b TIMESTAMP"
RECORD = {"a": 1_714_566_600_123, "day": "15.03.0044", "s": {"at": "01/May/2024:12:00:01 +0200"},
          "l": [{"at": -62_135_596_800}, None], "b": 5}  # fmt: skip
READ = {
    "a": datetime(2024, 5, 1, 12, 30, 0, 123_000, tzinfo=UTC),
    "day": date(44, 3, 15),
    "s": {"at": datetime(2024, 5, 1, 10, 0, 1, tzinfo=UTC)},
    "l": [{"at": datetime(1, 1, 1, tzinfo=UTC)}, None],
    "b": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=5),
}


def read(path, format):
    schema = with_time_formats(declared_schema(COLUMNS), FORMATS)
    reader = file_format(format, schema, timestamp_format="microseconds")
    reader.check(str(path))
    (batch,) = reader.read(str(path), 0, reader.extent(str(path), path.stat().st_size), lambda *_: None)
    return batch.to_pylist()


def test_each_column_of_a_file_may_have_its_own_time_format(tmp_path):
    lines, rows = tmp_path / "x.json", tmp_path / "x.parquet"
    lines.write_text(json.dumps(RECORD) + "\n", encoding="utf-8")
    pq.write_table(pa.Table.from_pylist([RECORD]), rows)
    assert read(lines, "json") == read(rows, "parquet") == [READ]


def test_what_a_format_says_of_a_column_is_in_its_refusal(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.Table.from_pylist([RECORD | {"day": "2024-05-01"}]), path)
    with pytest.raises(
        MillraceError, match=r"column day \(DATE\): row 1: '2024-05-01' is no time that is written like dd"
    ):
        read(path, "parquet")


def test_numbers_and_texts_of_avro_are_read_by_their_time_formats():
    fields = [{"name": "a", "type": "long"}, {"name": "day", "type": ["null", "string"]}]
    writer = {"type": "record", "name": "r", "fields": fields}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(writer), {"a": RECORD["a"], "day": RECORD["day"]})
    schema = with_time_formats(declared_schema("a TIMESTAMP, day DATE"), FORMATS)
    decoder = AvroDecoder(schema, "iso", read_avro_schema(json.dumps(writer)))
    found, _ = decoder.decode([stream.getvalue()], lambda *_: None)
    assert found.to_pylist() == [{"a": READ["a"], "day": READ["day"]}]
