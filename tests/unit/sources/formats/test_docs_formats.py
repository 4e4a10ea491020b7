"""docs/formats.md says what Parquet and Avro become: every row of its tables is tested."""

import json
from datetime import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.formats.avro_records import read_avro_schema, spark_type_of
from millrace_jobs.sources.formats.column_types import declared_schema, spark_type
from millrace_jobs.sources.formats.parquet_format import ParquetFormat
from millrace_jobs.sources.formats.typed_columns import TypedColumn

PAGE = Path(__file__).parents[4] / "docs" / "formats.md"
REFUSED = "refused"
PARQUET = {
    "BOOLEAN": pa.bool_(),
    "INT8": pa.int8(),
    "INT16": pa.int16(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "UINT8": pa.uint8(),
    "UINT16": pa.uint16(),
    "UINT32": pa.uint32(),
    "UINT64": pa.uint64(),
    "FLOAT16": pa.float16(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DECIMAL": pa.decimal128(10, 3),
    "STRING": pa.string(),
    "BYTE_ARRAY": pa.binary(),
    "FIXED": pa.binary(4),
    "UUID": pa.uuid(),
    "TIME": pa.time64("us"),
    "TIME_MILLIS": pa.time32("ms"),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
}


def rows(section, columns):
    """The rows of the table in a section that has this many columns, as lists of the texts in their cells."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [
        [cell.replace("`", "").strip() for cell in line] for line in lines if len(line) == columns and "`" in line[0]
    ]


FITS = rows("Parquet", 2)
VALUES = rows("Parquet", 4)
AVRO = rows("Avro", 3)
UNIONS = rows("Avro", 2)


def column(found, declared, timestamp_format="iso"):
    return TypedColumn(found, declared_schema(f"a {declared}").field("a"), timestamp_format)


@pytest.mark.parametrize(("declared", "fitting"), FITS)
def test_the_types_of_a_file_that_fit_a_column_are_those_of_the_page(declared, fitting):
    kinds, _, setting = declared.partition(", timestampFormat: ")
    for kind in kinds.split(", "):
        fits = {name for name, found in PARQUET.items() if column(found, kind, setting or "iso").fits}
        assert fits == set(fitting.split(", ")), kind


def test_every_type_of_a_schema_is_in_the_table():
    told = {kind for declared, _ in FITS for kind in declared.partition(", timestampFormat")[0].split(", ")}
    assert told == {
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10,2)", "STRING", "BINARY", "DATE",
        "TIMESTAMP",
    }  # fmt: skip


@pytest.mark.parametrize(("found", "value", "declared", "expected"), VALUES)
def test_a_value_of_a_file_is_read_as_the_page_says(tmp_path, found, value, declared, expected):
    kind, schema = PARQUET[found], declared_schema(f"a {declared}")
    path = str(tmp_path / "a.parquet")
    values = pa.array([time.fromisoformat(value)], kind) if found == "TIME" else pa.array([value]).cast(kind)
    pq.write_table(pa.table({"a": values}), path)
    read = ParquetFormat(schema, "iso").read(path, 0, 1, lambda *_: None)
    if expected == REFUSED:
        with pytest.raises(MillraceError, match=r"a\.parquet: column a .*row 1: "):
            next(read)
        return
    wanted = expected + "Z" if declared == "TIMESTAMP" else expected
    assert next(read).column("a").to_pylist() == pa.array([wanted]).cast(schema.field("a").type).to_pylist()


MORE = {
    "decimal": {"precision": 10, "scale": 2},
    "fixed": {"name": "F", "size": 16},
    "enum": {"name": "E", "symbols": ["A"]},
}


@pytest.mark.parametrize(("written", "without_schema", "read_as"), AVRO)
def test_types_of_avro_are_read_as_the_page_says(written, without_schema, read_as):
    kind, _, logical = written.partition(", ")
    field = {"type": kind} | MORE.get(kind, {}) | ({"logicalType": logical} | MORE.get(logical, {}) if logical else {})
    found = read_avro_schema(
        json.dumps(
            {
                "type": "record",
                "name": "T",
                "fields": [{"name": "a", "type": field if field.keys() > {"type"} else kind}],
            }
        )
    ).types["a"]
    if without_schema == REFUSED:
        assert isinstance(found, str)
        return
    assert spark_type(spark_type_of(found)) == without_schema
    for declared in (kind for line, _ in FITS for kind in line.partition(", timestampFormat")[0].split(", ")):
        assert column(found, declared).fits == column(PARQUET[read_as], declared).fits


@pytest.mark.parametrize(("union", "without_schema"), UNIONS)
def test_unions_of_avro_are_read_as_the_page_says(union, without_schema):
    fields = [{"name": "a", "type": json.loads(union)}]
    found = read_avro_schema(json.dumps({"type": "record", "name": "T", "fields": fields})).types["a"]
    if without_schema == REFUSED:
        assert isinstance(found, str)
    else:
        assert spark_type_of(found) == declared_schema(f"a {without_schema}").field("a").type
