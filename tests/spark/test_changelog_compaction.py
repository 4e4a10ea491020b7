"""Compaction of a changelog in a folder: a reader finds the table at each step of it, whatever ends the process."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql.types import DecimalType, StructType

from millrace_api.model.files import FileFormat
from millrace_api.model.sinks import BATCH_ID
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.files.changelog import OPERATION
from millrace_jobs.sinks.files.compaction import FOLDER, LINE, OLDEST, newest_rows
from millrace_jobs.sinks.files.folder_compaction import FolderCompaction
from millrace_jobs.sinks.files.sink import FilesSink

from .compacted import KEY, ChangingTable, KilledError, Kills, assert_read

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

KEYS = ResultKeys(KEY, weighted=True)
BATCHES = 12


def sink(folder: Path, format: str, parts: tuple[str, ...], every: int = 3) -> FilesSink:
    return FilesSink(
        str(folder), format, "a", updates=True, keys=KEYS, partition_by=parts, files=1, compact_every=every
    )


@pytest.mark.parametrize(("format", "parts"), [("parquet", ()), ("csv", ()), ("json", ()), ("parquet", ("n_even",))])
def test_a_reader_finds_the_table_at_each_step_of_a_compaction(tmp_path, spark, format, parts):
    chance = random.Random(43)
    table, folder = ChangingTable(chance), tmp_path / "out[1]"  # a pattern for Spark, if it is not escaped
    files = f"{tmp_path}/out*/{'**/' if parts else ''}batch-*.{format}"
    kills = Kills(chance, lambda: assert_read(files, format, table))
    steps = [(Path, "rename"), (Path, "unlink"), (shutil, "rmtree")]
    to = sink(folder, format, parts)
    to.prepare(LastBatch(None, None))
    for number in range(BATCHES):
        changes = table.change(spark, number)
        changes = changes.selectExpr("*", "n % 2 = 0 AS n_even") if parts else changes
        changes.persist()
        while True:
            with kills.at(FolderCompaction, "_compact", *steps), suppress(KilledError):
                to.write(changes, ResultBatch(number, 1, 0))
                break
            kills.again()
            to = sink(folder, format, parts)
            to.prepare(LastBatch(number, number - 1 if number else None))
        rows = assert_read(files, format, table)
    assert kills.count > 2
    assert kills.steps > 20
    left = list(folder.rglob(f"*.{format}"))
    assert len(left) <= 8 * (1 + len(parts))
    assert rows < table.changes


def test_numbers_of_a_key_that_a_double_cannot_hold_stay_apart_in_json(spark):
    keys = ["0.12345678901234567890", "0.12345678901234567891"]
    lines = [f'{{"k":{key},"{OPERATION}":"upsert","{BATCH_ID}":{number}}}' for number, key in enumerate(keys)]
    rows = spark.createDataFrame([(0, True, line) for line in lines], f"{FOLDER} INT, {OLDEST} BOOLEAN, {LINE} STRING")
    schema = StructType().add("k", DecimalType(38, 20))
    assert sorted(row[LINE] for row in newest_rows(rows, schema, ["k"], FileFormat.JSON).collect()) == lines
