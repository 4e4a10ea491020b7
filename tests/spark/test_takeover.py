"""A version of a query that takes over in the process of the one before: every record counts once, crashes included."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from millrace_jobs.sinks.files.sink import BATCH_ID

from .answers import assert_same, duckdb_rows, latest
from .streams import results_in
from .take_over import STEPS

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

FILES, RECORDS, KEYS = 12, 300, 7
"""One file for each batch, with records of all keys."""

VERSIONS = (
    "SELECT key, count(*) AS records, sum(value) AS total FROM events GROUP BY key",
    "select key, count(*) as records, sum(value) * 2 as total\nfrom events group by key",
    "SELECT key, count(*) + 1000000 AS records, sum(value) AS total FROM events GROUP BY key",
)


@pytest.fixture
def events(tmp_path: Path) -> pa.Table:
    """The records in the folder that the versions read."""
    chance = np.random.default_rng(7)
    parts = [
        pa.table(
            {
                "key": pa.array([f"key {number}" for number in chance.integers(0, KEYS, RECORDS)]),
                "value": pa.array(chance.integers(-1000, 1000, RECORDS)),
            }
        )
        for _ in range(FILES)
    ]
    (tmp_path / "in").mkdir()
    for number, part in enumerate(parts):
        pq.write_table(part, tmp_path / "in" / f"{number:02d}.parquet")
    return pa.concat_tables(parts)


def write(folder: Path, numbers: range) -> Path:
    """Write versions of the query into a folder of their own."""
    versions = {number: specification(folder, VERSIONS[number], "key STRING, value BIGINT") for number in numbers}
    return written(folder, versions)


def specification(folder: Path, sql: str, schema: str, **source: object) -> dict[str, object]:
    files = {"path": str(folder / "in"), "format": "parquet", "maxFilesPerBatch": 1}
    return {
        "sources": {"events": {"files": files, "schema": schema, **source}},
        "query": {"sql": sql},
        "sink": {"files": {"path": str(folder / "results")}},
        "emit": "OnUpdate",
        "batchInterval": "100ms",
        "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
    }


def written(folder: Path, versions: dict[int, dict[str, object]]) -> Path:
    """Write files of versions, by their number, into a folder of their own."""
    place = folder / f"from {min(versions)}"
    place.mkdir()
    for number, spec in versions.items():
        document = {
            "apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "swap"}, "spec": spec,
        }  # fmt: skip
        (place / f"{number}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return place


def run(versions: Path, *step: str) -> subprocess.CompletedProcess[str]:
    # the output ends with the last process that writes to it, which is the JVM
    command = [sys.executable, "-m", "spark.take_over", str(versions), *step]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False
    )


def sessions(output: str) -> int:
    """How often Spark was started."""
    return output.count("1 compiler directives added")


def test_versions_take_over_one_after_the_other_on_the_same_spark(tmp_path: Path, events: pa.Table) -> None:
    ended = run(write(tmp_path, range(3)))
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("another version of the query takes over") == 2
    assert sessions(ended.stdout) == 1
    expected = "SELECT key, count(*) + 1000000, sum(value) FROM events GROUP BY key"
    assert_same(latest(results_in(tmp_path), 1), duckdb_rows(events, expected), 1)
    totals = results_in(tmp_path).to_pydict()["records"]
    assert min(totals) < 1000000 < max(totals), "the first version has written, too"


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_is_killed_at_a_step_leaves_a_checkpoint_for_the_new_version(
    tmp_path: Path, events: pa.Table, step: str
) -> None:
    died = run(write(tmp_path, range(2)), step)
    assert died.returncode == -signal.SIGKILL, died.stdout
    ended = run(write(tmp_path, range(1, 2)))
    assert ended.returncode == 0, ended.stdout
    expected = "SELECT key, count(*), sum(value) * 2 FROM events GROUP BY key"
    assert_same(latest(results_in(tmp_path), 1), duckdb_rows(events, expected), 1)


def test_versions_take_over_with_more_aggregates_and_with_a_wider_type(tmp_path: Path) -> None:
    chance = np.random.default_rng(11)
    (tmp_path / "in").mkdir()
    parts = []
    for number in range(14):
        wide = number >= 12  # only the last version reads them
        values = chance.integers(-1000, 1000, RECORDS) + (5_000_000_000 if wide else 0)
        seconds = 40 * number + chance.integers(0, 40, RECORDS)
        part = pa.table(
            {
                "moment": (np.datetime64("2024-05-01T12:00:00") + seconds).astype("datetime64[us]"),
                "key": [f"key {each}" for each in chance.integers(0, KEYS, RECORDS)],
                "value": pa.array(values, pa.int64() if wide else pa.int32()),
            }
        )
        pq.write_table(part, tmp_path / "in" / f"{number:02d}.parquet")
        parts.append(part.set_column(2, "value", part["value"].cast(pa.int64())))
    columns = "window.start AS start, key, count(*) AS records, max(value) AS most"
    sql = "SELECT {} FROM events GROUP BY window(moment, '1 minute'), key"
    narrow, wide = ("moment TIMESTAMP, key STRING, value " + each for each in ("INT", "BIGINT"))
    watermark = {"column": "moment", "delay": "10m"}
    shape = {"partitioner": {"algorithm": "hash"}}  # aggregates may come in queries that are routed
    first = specification(tmp_path, sql.format(columns), narrow, watermark=watermark) | shape
    with_total = sql.format(f"{columns}, sum(value) AS total")
    second = specification(tmp_path, with_total, narrow, watermark=watermark) | shape
    third = specification(tmp_path, with_total, wide, watermark=watermark) | shape

    ended = run(written(tmp_path, dict(enumerate([first, second, third]))))
    assert ended.returncode == 0, ended.stdout
    assert sessions(ended.stdout) == 1
    newest = re.search(r"counted in windows that start after (\S+)Z", ended.stdout)
    assert newest is not None, ended.stdout
    expected = f"""
        SELECT time_bucket(INTERVAL '1 minute', moment) AS start, key, count(*), max(value),
               CASE WHEN start > '{newest.group(1)}' THEN sum(value) END
        FROM events GROUP BY start, key
    """
    files = sorted((tmp_path / "results").glob("batch-*.parquet"))
    results = pa.concat_tables(map(pq.read_table, files), promote_options="permissive")
    names = ["start", "key", "records", "most", "total", BATCH_ID]
    rows = latest(results.set_column(0, "start", results["start"].cast(pa.timestamp("us"))).select(names), 2)
    assert_same(rows, duckdb_rows(pa.concat_tables(parts), expected), 2)
    assert {row[4] is None for row in rows} == {True, False}
