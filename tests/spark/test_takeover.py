"""A version of a query that takes over in the process of the one before: every record counts once, crashes included."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

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
    files = {"path": str(folder / "in"), "format": "parquet", "maxFilesPerBatch": 1}
    versions = folder / f"from {numbers.start}"
    versions.mkdir()
    for number in numbers:
        spec = {
            "sources": {"events": {"files": files, "schema": "key STRING, value BIGINT"}},
            "query": {"sql": VERSIONS[number]},
            "sink": {"files": {"path": str(folder / "results")}},
            "batchInterval": "100ms",
            "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
        }
        document = {
            "apiVersion": "millrace.io/v1alpha1", "kind": "StreamQuery", "metadata": {"name": "swap"}, "spec": spec,
        }  # fmt: skip
        (versions / f"{number}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return versions


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
