"""Opening of Parquet files: with many columns, and with a name that is not UTF-8."""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_schemas import a_schema
from millrace_jobs.sources.formats import parquet_format
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.formats.parquet_format import ParquetFormat

WIDE = [f"column_{number}" for number in range(300)]


@pytest.fixture
def conversions(monkeypatch):
    """How often the whole schema of a file was converted; each time takes as long as the file has columns."""
    counted = Counter()

    class Reader:
        def __init__(self, reader):
            self._reader = reader

        def __getattr__(self, name):
            counted[name] += 1
            return getattr(self._reader, name)

    class Counted(pq.ParquetFile):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.reader = Reader(self.reader)

    monkeypatch.setattr(parquet_format.pq, "ParquetFile", Counted)
    return counted


def test_the_schema_of_a_wide_file_is_converted_once(tmp_path, conversions):
    path = str(tmp_path / "wide.parquet")
    pq.write_table(pa.table({name: [1, 2] for name in WIDE}), path)
    ParquetFormat(a_schema([(name, "BIGINT") for name in WIDE]), "iso").check(path)
    assert conversions["schema_arrow"] == 1
    assert conversions["column_paths"] == 1


def test_columns_are_found_by_name_in_any_case_and_among_nested_ones(tmp_path):
    path = str(tmp_path / "a.parquet")
    nested = pa.array([{"b": 1, "c": 2}])
    pq.write_table(pa.table({"n": nested, "B": [3], "b": [4], "D": [5]}), path)
    (batch,) = ParquetFormat(declared_schema("d INT, b INT"), "iso").read(path, 0, 1, lambda *_: None)
    assert batch.to_pylist() == [{"d": 5, "b": 4}]


def test_a_file_whose_name_is_not_utf8_is_read(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.parquet")
    with Path(path).open("wb") as file:
        pq.write_table(pa.table({"a": [1]}), file)
    format = ParquetFormat(declared_schema("a BIGINT"), "iso")
    format.check(path)
    assert [batch.to_pylist() for batch in format.read(path, 0, format.extent(path, 0), lambda *_: None)] == [
        [{"a": 1}]
    ]
