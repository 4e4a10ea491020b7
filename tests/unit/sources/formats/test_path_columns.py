"""Columns in paths: their values by type, what is refused, and which of path and file wins; judged by Spark and DuckDB."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.formats.column_types import declared_schema
from millrace_jobs.sources.formats.format_reader import path_columns
from record_tables import all_rows


def value(kind: str, path: str, name: str = "dt") -> Any:
    return path_columns(declared_schema(f"x INT, `{name}` {kind}"), [name], "iso").values(path)[0][0].as_py()


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("STRING", "a", "a"),
        ("STRING", "", ""),
        ("STRING", "2026-01-01", "2026-01-01"),
        ("STRING", "03", "03"),
        ("STRING", "a%2Fb%3D%25 %C3%BC", "a/b=% ü"),
        ("STRING", "50%", "50%"),
        ("STRING", "%zz", "%zz"),
        ("STRING", "a=b", "a=b"),
        ("STRING", "__HIVE_DEFAULT_PARTITION__", None),
        ("STRING", "%5F_HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        ("INT", "03", 3),
        ("INT", "-3", -3),
        ("INT", "__HIVE_DEFAULT_PARTITION__", None),
        ("BIGINT", "9007199254740993", 9007199254740993),
        ("BOOLEAN", "true", True),
        ("DOUBLE", "0.5", 0.5),
        ("DECIMAL(9,2)", "1.5", Decimal("1.50")),
        ("DATE", "2026-01-01", date(2026, 1, 1)),
        ("TIMESTAMP", "2026-01-01 10%3A30%3A00", datetime(2026, 1, 1, 10, 30, tzinfo=UTC)),
        ("TIMESTAMP", "2026-01-01T10:30:00Z", datetime(2026, 1, 1, 10, 30, tzinfo=UTC)),
    ],
)
def test_values_are_of_the_type_in_the_schema(kind: str, text: str, expected: object) -> None:
    assert value(kind, f"s3a://lake/in/dt={text}/hour=3/a.json") == expected


def test_names_are_found_as_hive_writes_them() -> None:
    assert value("INT", "/in/DAY=3/a.json", "Day") == 3
    assert value("INT", "/in/the day=3/a.json", "the day") == 3
    assert value("INT", "/in/a%3Db=3/a.json", "a=b") == 3


@pytest.mark.parametrize(
    ("kind", "path", "said"),
    [
        ("INT", "/in/a.json", "its path has no folder dt=..., a partition column; move it to a folder dt=VALUE"),
        ("INT", "/in/dt=3", "its path has no folder dt=..."),
        ("INT", "/in/xdt=3/a.json", "its path has no folder dt=..."),
        ("INT", "/in/dt=3/dt=4/a.json", "its path has the partition column dt twice: dt=3 and dt=4"),
        (
            "INT",
            "/in/dt=x/a.json",
            r"the folder dt=x of its path has no value of the schema: column dt \(INT\): invalid",
        ),
        ("INT", "/in/dt=3000000000/a.json", "it is outside the range of the type"),
        ("DATE", "/in/dt=2026-13-01/a.json", "the folder dt=2026-13-01 of its path has no value of the schema"),
        ("STRING", "/in/dt=%FF/a.json", "'%FF' is not UTF-8"),
    ],
)
def test_paths_without_a_value_of_the_column_are_refused(kind: str, path: str, said: str) -> None:
    with pytest.raises(MillraceError, match=f"^{path}: .*{said}"):
        value(kind, path)


SCHEMA = declared_schema("n BIGINT, city STRING, day DATE")


def source(folder: Path, path: str, format: str, **options: Any) -> FilesSource:
    wanted = {"in_path": ["city", "day"]} | options
    return FilesSource("s", f"{folder}/{path}", format, SCHEMA, f"{folder}/log", **wanted)


@pytest.mark.parametrize(
    ("writer", "format"),
    [("duckdb", "parquet"), ("duckdb", "csv"), ("duckdb", "json"), ("pyarrow", "parquet"), ("pyarrow", "csv")],
)
def test_folders_that_duckdb_and_pyarrow_have_partitioned_are_read(tmp_path: Path, format: str, writer: str) -> None:
    cities = ["a/b", "50%", "x=y", "ü q", "plain", "#?&+"]
    rows = pa.table(
        {
            "n": range(60),
            "city": [cities[n % 6] for n in range(60)],
            "day": [date(2026, 1, n % 4 + 1) for n in range(60)],
        }
    )
    if writer == "duckdb":
        duckdb.sql(f"COPY rows TO '{tmp_path}/in' (FORMAT {format}, PARTITION_BY (city, day))")
    else:
        parts = ds.partitioning(pa.schema([("city", pa.string()), ("day", pa.date32())]), flavor="hive")
        ds.write_dataset(rows, f"{tmp_path}/in", format=format, partitioning=parts)
    read = source(tmp_path, f"in/**/*.{format}", format)
    read.check()
    assert sorted(all_rows(read)) == sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_the_path_wins_over_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "in/city=a/day=2026-01-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1], "city": ["other"], "day": ["no day"]}), folder / "a.parquet")
    assert all_rows(source(tmp_path, "in/*/*/*", "parquet")) == [(1, "a", date(2026, 1, 1))]
    assert duckdb.sql(f"SELECT city FROM read_parquet('{folder}/*', hive_partitioning = true)").fetchall() == [("a",)]


def test_files_without_a_header_have_the_other_columns(tmp_path: Path) -> None:
    folder = tmp_path / "in/city=a/day=2026-01-01"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("1\n2\n")
    rows = all_rows(source(tmp_path, "in/*/*/*", "csv", header=False))
    assert rows == [(1, "a", date(2026, 1, 1)), (2, "a", date(2026, 1, 1))]


def test_a_file_without_the_folder_is_refused_before_it_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "in/city=a/day=2026-01-01"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text('{"n": 1}\n')
    read = source(tmp_path, "in/**/*.json", "json")
    assert read.latest({"files": 0}, everything=False) == {"files": 1}
    stray = tmp_path / "in/city=a/b.json"
    stray.write_text('{"n": 2}\n')
    with pytest.raises(MillraceError, match=r"in/city=a/b\.json: its path has no folder day="):
        read.latest({"files": 1}, everything=False)
    stray.rename(folder / "b.json")
    assert read.latest({"files": 1}, everything=False) == {"files": 2}
    assert sorted(all_rows(read)) == [(1, "a", date(2026, 1, 1)), (2, "a", date(2026, 1, 1))]
