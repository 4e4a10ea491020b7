"""Parquet from Spark: what our own sink writes is read back, value for value, and so is what other releases wrote."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from millrace_api.errors import MillraceError
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.files.sink import FilesSink
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.replay.connector import ReplaySource
from record_tables import all_rows
from unit.sources.formats.typed_values import VALUES, bits

DDL = ", ".join(f"c{i} {kind}" for i, kind in enumerate(VALUES))
SCHEMA = declared_schema(DDL)
RECORDS = st.lists(st.tuples(*(values | st.none() for values in VALUES.values())), max_size=12)
TIME = SCHEMA.names[-1]


def sunk(results: DataFrame, folder: Path) -> list[Path]:
    """Write the rows as a batch of a files sink, and return its files."""
    sink = FilesSink(str(folder), "parquet", "chain", updates=False)
    sink.prepare(LastBatch(None, None))
    sink.write(results, ResultBatch(0, 0, 0))
    return sorted(folder.glob("*.parquet"))


def read(path: Path, ddl: str, log: Path) -> list[tuple]:
    shutil.rmtree(log, ignore_errors=True)
    source = FilesSource("s", str(path), "parquet", declared_schema(ddl), str(log))
    source.check()
    return all_rows(source)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RECORDS)
def test_what_the_sink_writes_is_read_back(spark: SparkSession, tmp_path: Path, records: list[tuple]) -> None:
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    table = pa.table(
        [pa.array(values, field.type) for values, field in zip(columns_of(records), SCHEMA, strict=True)], SCHEMA
    )
    files = sunk(spark.createDataFrame(table).coalesce(1), out)
    assert len(files) == bool(records)
    if not records:
        return
    expected = [tuple(map(bits, record)) for record in records]
    assert [tuple(map(bits, row)) for row in read(out, DDL, tmp_path / "log")] == expected
    (file,) = files
    replay = ReplaySource("r", str(file), "parquet", SCHEMA, TIME, str(tmp_path / "cache"))
    assert [tuple(map(bits, row)) for row in all_rows(replay)] == expected
    assert str(pq.ParquetFile(file).schema.column(len(SCHEMA) - 1).logical_type).startswith(
        "Timestamp(isAdjustedToUTC=true"
    )


def columns_of(records: list[tuple]) -> list[list]:
    return [list(values) for values in zip(*records, strict=True)] or [[] for _ in SCHEMA]


OLD = """SELECT * FROM VALUES
    (timestamp'0001-01-01 00:00:00', timestamp_ntz'0001-01-01 00:00:00', date'0001-01-01'),
    (timestamp'1582-10-04 12:00:00', timestamp_ntz'1582-10-04 12:00:00', date'1582-10-04'),
    (timestamp'1582-10-15 12:00:00', timestamp_ntz'1582-10-15 12:00:00', date'1582-10-15'),
    (timestamp'1965-07-01 06:00:00', timestamp_ntz'1965-07-01 06:00:00', date'1965-07-01'),
    (timestamp'9999-12-31 23:59:59', timestamp_ntz'9999-12-31 23:59:59', date'9999-12-31'),
    (NULL, NULL, NULL) AS t(at, local, day)"""
MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1582, 10, 4, 12, tzinfo=UTC),
    datetime(1582, 10, 15, 12, tzinfo=UTC),
    datetime(1965, 7, 1, 6, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
]
OLD_ROWS = [*((moment, moment, moment.date()) for moment in MOMENTS), (None, None, None)]
PARQUET = "spark.sql.parquet."
LEGACY = {f"{PARQUET}datetimeRebaseModeInWrite": "LEGACY", f"{PARQUET}int96RebaseModeInWrite": "LEGACY"}


def written(spark: SparkSession, sql: str, path: Path, options: dict[str, str]) -> Path:
    """Write the rows of a statement with Spark's own settings, and return the file."""
    before = {name: spark.conf.get(name) for name in options}
    try:
        for name, value in options.items():
            spark.conf.set(name, value)
        spark.sql(sql).coalesce(1).write.parquet(str(path))
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    (file,) = path.glob("part-*.parquet")
    return file


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
@pytest.mark.parametrize("calendar", [{}, LEGACY], ids=["corrected", "legacy"])
def test_times_of_every_kind_that_spark_writes_are_read(
    spark: SparkSession, tmp_path: Path, kind: str, calendar: dict[str, str]
) -> None:
    file = written(spark, OLD, tmp_path / "out", {f"{PARQUET}outputTimestampType": kind} | calendar)
    assert read(file, "at TIMESTAMP, local TIMESTAMP, day DATE", tmp_path / "log") == OLD_ROWS


def test_old_times_of_another_zone_are_refused_and_recent_ones_read(spark: SparkSession, tmp_path: Path) -> None:
    options = LEGACY | {"spark.sql.session.timeZone": "Europe/Oslo"}
    file = written(spark, OLD, tmp_path / "old", options)
    with pytest.raises(MillraceError, match=r"before 1900 is in the old calendar .* which was in Europe/Oslo"):
        read(file, "at TIMESTAMP", tmp_path / "log")
    assert read(file, "day DATE", tmp_path / "log") == [(day,) for _, _, day in OLD_ROWS]
    file = written(spark, "SELECT timestamp'2024-07-01 12:00:00' AS at", tmp_path / "new", options)
    assert read(file, "at TIMESTAMP", tmp_path / "log") == [(datetime(2024, 7, 1, 10, tzinfo=UTC),)]


TYPED = """SELECT 1Y AS tiny, 2S AS small, 1.50BD AS price, 12345678901234567890BD AS huge, X'FF00' AS blob, 'x' AS text,
    CAST('y' AS VARCHAR(5)) AS short, array(1) AS list, named_struct('x', 1) AS part, INTERVAL '1' DAY AS days"""


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_types_are_read_as_parquet_mr_writes_them(spark: SparkSession, tmp_path: Path, legacy: str) -> None:
    file = written(spark, TYPED, tmp_path / "out", {f"{PARQUET}writeLegacyFormat": legacy})
    ddl = "tiny INT, small BIGINT, price DECIMAL(10,1), huge DECIMAL(38,0), blob BINARY, text BINARY, short STRING"
    (row,) = read(file, ddl, tmp_path / "log")
    assert [str(value) for value in row] == ["1", "2", "1.5", "12345678901234567890", r"b'\xff\x00'", "b'x'", "y"]
    for name, found in {"list": "ARRAY", "part": "STRUCT"}.items():
        with pytest.raises(
            MillraceError, match=rf"column {name} \(STRING\): its type is {found}; write {name} {found}<"
        ):
            read(file, f"{name} STRING", tmp_path / "log")


def test_results_beyond_the_year_9999_are_read_back(spark: SparkSession, tmp_path: Path) -> None:
    results = spark.sql("SELECT timestamp'9999-12-31 23:00:00' + INTERVAL 1 HOUR AS at, date'9999-12-31' + 1 AS day")
    sunk(results, tmp_path / "out")
    schema = declared_schema("at TIMESTAMP, day DATE")
    source = FilesSource("s", str(tmp_path / "out"), "parquet", schema, str(tmp_path / "log"))
    (piece,) = source.slices(source.initial(), source.latest(source.initial(), everything=True), 1)
    (block,) = source.read(piece, "0-0")
    assert isinstance(block, pa.RecordBatch)
    assert block.column("at").cast(pa.int64()).to_pylist() == [253_402_300_800_000_000]  # 10000-01-01
    assert block.column("day").cast(pa.int32()).to_pylist() == [2_932_897]
