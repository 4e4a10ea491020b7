"""A writer that is killed at random moments, and compacts, beside another engine that compacts and expires the same table.

What is in the table is counted in its files, by DuckDB and without the libraries that write.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table

from millrace_jobs.lakehouse.errors import MetastoreError

from .commit_until_killed import EACH, rows_of
from .delta_tables import taken
from .iceberg_tables import iceberg_content, iceberg_table
from .listed import files_of_delta
from .tables import delta_table

pytestmark = [pytest.mark.in_turn, pytest.mark.timeout(300)]

BATCHES, KILLS = 40, 5
COMPACT_EVERY = 4
PAUSE = 0.3


@contextmanager
def beside(action: Callable[[], bool]) -> Iterator[list[bool]]:
    """Repeat an action beside the block; give the list of whether each time succeeded."""
    ended, done = threading.Event(), list[bool]()

    def repeat() -> None:
        while not ended.wait(PAUSE):
            done.append(action())

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


def is_filled(place: str) -> bool:
    """Return whether a Delta table has a few commits."""
    return Path(place, "_delta_log", f"{5:020d}.json").exists()


def compact_delta(place: str, *, expires: bool) -> bool:
    """Compact a table as another engine does, and with ``expires`` remove at once what its newest version lacks."""
    if not is_filled(place):
        return False
    try:
        table = delta_table(place)
        table.optimize.compact()
        if expires:
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    except (CommitFailedError, DeltaError, OSError):  # another writer was faster
        return False
    return True


def rewrite_iceberg(fields: dict[str, Any]) -> bool:
    """Write all rows of a table again, as they are, if nothing comes between, and expire all older snapshots."""
    try:
        table = iceberg_table(fields)
        once = table.metadata.model_copy(update={"properties": table.properties | {"commit.retry.num-retries": "0"}})
        own = Table(table.name(), once, table.metadata_location, table.io, table.catalog)
        transaction = own.transaction()
        transaction.overwrite(table.scan().to_arrow())
        transaction.commit_transaction()
        newest = iceberg_table(fields)
        newest.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(days=1)).commit()
    except (CommitFailedException, MetastoreError, NoSuchTableError, OSError, ValueError):
        return False
    return True


def written(tmp_path: Path, kind: str, fields: dict[str, Any], compact_every: int) -> None:
    """Write all batches, killed on the way."""
    given = {
        "kind": kind,
        "fields": fields,
        "log": str(tmp_path / "log"),
        "batches": BATCHES,
        "kills": KILLS,
        "seed": int(os.environ.get("MILLRACE_SEED") or 7),
        "compact_every": compact_every,
    }
    done = subprocess.run(
        [sys.executable, "-m", "lakehouse.commit_until_killed", json.dumps(given)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def expected(key: list[str]) -> list[tuple[str, int]]:
    rows = [row for number in range(BATCHES) for row in rows_of(number)]
    return sorted(dict(rows).items()) if key else sorted(rows)


def found(rows: Any) -> list[tuple[str, int]]:
    return duckdb.sql("SELECT k, n FROM rows ORDER BY k, n").fetchall()


@pytest.mark.parametrize("key", [[], ["k"]], ids=["appended", "by key"])
@pytest.mark.parametrize("compacts", ["ours", "theirs"])
def test_a_delta_table_has_each_row_once_after_kills_beside_compaction(
    tmp_path: Path, key: list[str], compacts: str
) -> None:
    """The library's own compaction runs beside a writer that does not compact: it doubles rows beside any other one."""
    place = str(tmp_path / "table")

    def compact() -> bool:
        if compacts == "theirs":
            return compact_delta(place, expires=not key)
        if not is_filled(place):
            return False
        taken(place, checkpoint="another", query="others").compact()
        return True

    with beside(compact) as done:
        written(tmp_path, "delta", {"path": place, "key": key}, COMPACT_EVERY if compacts == "ours" else 0)
    assert any(done), "another writer has compacted"
    assert found(duckdb.read_parquet(files_of_delta(Path(place)))) == expected(key)
    assert len(expected([])) == BATCHES * EACH


@pytest.mark.parametrize("key", [[], ["k"]], ids=["appended", "by key"])
@pytest.mark.parametrize("iceberg", ["file", "hive"], indirect=True)
def test_an_iceberg_table_has_each_row_once_after_kills_beside_compaction(
    tmp_path: Path, iceberg: dict[str, Any], key: list[str]
) -> None:
    with beside(lambda: rewrite_iceberg(iceberg)) as done:
        written(tmp_path, "iceberg", iceberg | {"key": key}, COMPACT_EVERY)
    assert any(done), "the other engine has rewritten the table"
    assert found(iceberg_content(iceberg)) == expected(key)
