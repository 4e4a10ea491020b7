"""Each batch once from tasks on executors: two attempts of a task that both write, and executors that die after they wrote.

Of each sink whose tasks write files, a batch of a million rows goes past a driver that may not receive 2 MiB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from databases.sinks import PASSWORD_VARIABLE, Server, spec
from lab import postgres
from lab.s3_server import BUCKET, S3Server
from lab.standalone_spark import standalone_spark

from .iceberg_tables import iceberg_content
from .listed import files_of_delta
from .write_on_executors import FAULTS, MANY, ROWS, TASKS

pytestmark = [pytest.mark.spark, pytest.mark.slow(minutes=2), pytest.mark.timeout(1500)]

ALL = "SELECT count(*), count(DISTINCT k), min(n), max(n), sum(n) FROM {rows} WHERE {where}"
FEW, MORE = f"n < {MANY}", f"n >= {MANY}"
DRIVER_MIB = 100
"""What the driver's Python may need for a million rows, of some 145 MB, beyond what it had for a thousand."""


KINDS = ("delta", "delta by key", "iceberg", "iceberg by key", "files")
WRITE_MANY = {"delta", "iceberg", "files"}
"""Kinds of sinks whose tasks write a batch of a million rows."""

TEXTS = {"postgres": "text", "mysql": "longtext CHARACTER SET utf8mb4"}
"""The type of texts in each database."""


def whole(begin: int, end: int) -> list[tuple[Any, ...]]:
    return [(end - begin, end - begin, begin, end - 1, sum(range(begin, end)))]


WRITTEN = whole(0, len(FAULTS) * ROWS)
"""What there is of the batches with faults."""


def asked(rows: Any, where: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(ALL.format(rows="rows", where=where)).fetchall()


def write(folder: Path, kind: str, sink: dict[str, Any], environment: dict[str, str]) -> dict[str, int]:
    """Write all batches; return by how many MiB the driver grew with many rows, if the sink's tasks write these."""
    with standalone_spark(folder) as master:
        given = {"folder": str(folder), "master": master, "sinks": {kind: sink}, "environment": environment}
        path = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-m", "lakehouse.write_on_executors", json.dumps(given)],
            env=os.environ | environment | {"PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: int(mib) for name, mib in (line.rsplit(" ", 1) for line in done.stdout.splitlines())}


@pytest.mark.parametrize("kind", KINDS)
def test_each_batch_is_written_once_whatever_happens_to_attempts(
    kind: str,
    tmp_path: Path,
    shared_s3: S3Server,
    rest_catalog: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prefix = f"s3a://{BUCKET}/{uuid.uuid4().hex[:12]}"
    table = f"t{uuid.uuid4().hex[:12]}"
    in_rest = {"catalog": {"rest": {"uri": rest_catalog}}}
    appended = in_rest | {"table": f"{table}.appended", "location": str(tmp_path / "iceberg")}
    upserted = in_rest | {"table": f"{table}.upserted", "location": f"{prefix}/upserted", "key": ["k"]}
    sinks: dict[str, dict[str, Any]] = {
        "delta": {"delta": {"path": str(tmp_path / "delta")}},
        "delta by key": {"delta": {"path": str(tmp_path / "by key"), "key": ["k"]}},
        "iceberg": {"iceberg": appended},
        "iceberg by key": {"iceberg": upserted},
        "files": {"files": {"path": f"{prefix}/files"}},
    }
    for name, value in shared_s3.environment.items():
        monkeypatch.setenv(name, value)
    grown = write(tmp_path, kind, sinks[kind], shared_s3.environment)
    assert grown.keys() == {kind} & WRITE_MANY
    assert all(each < DRIVER_MIB for each in grown.values()), grown
    objects = shared_s3.folder / "objects" / BUCKET / prefix.removeprefix(f"s3a://{BUCKET}/")
    read: dict[str, Callable[[], Any]] = {
        "delta": lambda: duckdb.read_parquet(files_of_delta(tmp_path / "delta")),
        "delta by key": lambda: duckdb.read_parquet(files_of_delta(tmp_path / "by key")),
        "iceberg": lambda: iceberg_content(appended),
        "iceberg by key": lambda: iceberg_content(upserted),
        "files": lambda: duckdb.sql(f"SELECT * FROM read_parquet('{objects}/files/*.parquet')"),
    }
    found = read[kind]()
    assert asked(found, FEW) == WRITTEN
    if kind in WRITE_MANY:
        assert asked(found, MORE) == whole(MANY, 2 * MANY)
    if kind == "delta":
        files = files_of_delta(tmp_path / "delta")
        lost = set((tmp_path / "delta").glob("*.parquet")) - set(map(Path, files))
        assert len(lost) >= 2, "the files of the attempts that lost are in the folder, and not in the table"
        assert len(files) == 3 * TASKS


@pytest.mark.parametrize("kind", TEXTS)
def test_each_batch_is_in_a_database_once_whatever_happens_to_attempts(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue("postgres_server" if kind == "postgres" else "mariadb_server")
    table = f"t{uuid.uuid4().hex[:12]}"
    server.execute(f"CREATE TABLE {table} (k {TEXTS[kind]}, n bigint, text {TEXTS[kind]})")
    assert write(tmp_path, kind, {kind: spec(server, table)}, {PASSWORD_VARIABLE: postgres.PASSWORD}) == {}
    assert server.execute(ALL.format(rows=table, where=FEW)) == WRITTEN
    assert server.execute(f"SELECT count(*) FROM {table}") == [(len(FAULTS) * ROWS,)]
