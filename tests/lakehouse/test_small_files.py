"""Thousands of commits leave few small files in a partition, and each batch is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from millrace_api.model.lakehouse import DeltaSinkSpec, Maintenance
from millrace_api.model.values import PositiveDuration
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.lakehouse.data_files import FileWriter, reported_files
from millrace_jobs.sinks.lakehouse.delta_files import add_actions
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaTarget
from millrace_jobs.sinks.lakehouse.iceberg_sink import Changes, IcebergTarget

from .iceberg_tables import iceberg_content, iceberg_spec, iceberg_table
from .tables import FRESH, content, delta_table

pytestmark = pytest.mark.timeout(3600)

COLUMNS = pa.schema([("part", pa.int64()), ("n", pa.int64())])
PARTS = 2
SMALL_BYTES = 100_000_000
MOST_SMALL = 16
EVERY = Maintenance().compact_every


def commits(minutes: float) -> pytest.MarkDecorator:
    """Run a test with a few commits, and with many as a slow one, which takes these minutes."""
    many = pytest.param(5_000, marks=pytest.mark.slow(minutes=minutes))
    return pytest.mark.parametrize("commits", [pytest.param(EVERY, marks=pytest.mark.in_turn), many])


def batch_of(number: int) -> pa.RecordBatch:
    """A row for each partition."""
    return pa.RecordBatch.from_pylist([{"part": part, "n": number * PARTS + part} for part in range(PARTS)], COLUMNS)


def committed(commits: int, commit: Callable[[int], None], compact: Callable[[], None]) -> None:
    """Commit batches, and compact as the sink does by default."""
    for number in range(commits):
        commit(number)
        if (number + 1) % EVERY == 0:
            compact()


def all_once(rows: pa.Table, commits: int) -> bool:
    numbers = duckdb.sql("SELECT count(*), count(DISTINCT n), max(n) FROM rows").fetchall()
    return numbers == [(commits * PARTS, commits * PARTS, commits * PARTS - 1)]


@commits(minutes=6)
def test_many_commits_to_a_delta_table_leave_few_files(tmp_path: Path, commits: int) -> None:
    place = tmp_path / "table"
    spec = DeltaSinkSpec.model_validate({"path": str(place), "partitionBy": ["part"]})
    to = DeltaTarget(place, spec, COLUMNS, "counts", "a-checkpoint")
    to.take(FRESH)
    files = pa.schema([COLUMNS.field("n")])

    def commit(number: int) -> None:
        reports = FileWriter(place, "batch-", files, ("part",))(iter([batch_of(number)]))
        to.append(add_actions(reported_files(pa.Table.from_batches(reports)), files), ResultBatch(number, 1, 0))

    committed(commits, commit, to.compact)
    assert all_once(content(str(place)), commits)
    actions = pa.table(delta_table(str(place)).get_add_actions(flatten=True)).to_pylist()
    small = Counter(each["partition.part"] for each in actions if each["size_bytes"] < SMALL_BYTES)
    assert max(small.values()) <= MOST_SMALL, small


@commits(minutes=15)
@pytest.mark.parametrize("iceberg", ["file"], indirect=True)
def test_many_commits_to_an_iceberg_table_leave_few_files(iceberg: dict[str, Any], commits: int) -> None:
    spec = iceberg_spec(iceberg, partitionBy=["part"])
    # Shorter than a query may have it, so that snapshots are as few as with fewer commits an hour.
    kept = spec.maintenance.model_copy(update={"retention": TypeAdapter(PositiveDuration).validate_python("2m")})
    to = IcebergTarget(spec.model_copy(update={"maintenance": kept}), COLUMNS, "counts", "a-checkpoint")
    to.take(FRESH)

    def commit(number: int) -> None:
        reports = FileWriter(to.folder, "batch-", to.columns, ("part",))(iter([batch_of(number)]))
        to.write(Changes(reported_files(pa.Table.from_batches(reports))), ResultBatch(number, 1, 0))

    committed(commits, commit, to.compact)
    assert all_once(iceberg_content(iceberg), commits)
    files = [task.file for task in iceberg_table(iceberg).scan().plan_files()]
    small = Counter(str(each.partition) for each in files if each.file_size_in_bytes < SMALL_BYTES)
    assert max(small.values()) <= MOST_SMALL, small
