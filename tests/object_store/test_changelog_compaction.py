"""Compaction of a changelog below a prefix of S3: a reader finds the table at each step of it, whatever ends a driver."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from pyspark.sql import SparkSession

from lab.s3_server import BUCKET, S3Server
from millrace_api.model.sinks import FilesSinkSpec
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys
from millrace_jobs.sinks.files.object_sink import ObjectFilesSink
from millrace_jobs.stores.objects import ObjectPath
from spark.compacted import KEY, ChangingTable, KilledError, Kills, assert_read, columns

pytestmark = [pytest.mark.spark, pytest.mark.in_turn]

KEYS = ResultKeys(KEY, weighted=True)
BATCHES = 12


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_a_reader_finds_the_table_at_each_step_of_a_compaction(
    store: S3Server, place: ObjectPath, spark: SparkSession, format: str
) -> None:
    chance = random.Random(44)
    table, out = ChangingTable(chance), f"{place}/results"
    files = f"{store.folder}/objects/{BUCKET}/{out.removeprefix(f's3a://{BUCKET}/')}/*.{format}"
    kills = Kills(chance, lambda: assert_read(files, format, table))
    spec = FilesSinkSpec.model_validate(
        {"path": out, "format": format, "key": list(KEY), "filesPerPartition": 1, "compactEvery": 3}
    )

    def sink(last: LastBatch) -> ObjectFilesSink:
        opened = ObjectFilesSink(spec, columns(), "a", updates=True, keys=KEYS)
        opened.prepare(last)
        return opened

    to = sink(LastBatch(None, None))
    for number in range(BATCHES):
        changes = table.change(spark, number).persist()
        while True:
            steps = [(ObjectPath, "copy_to"), (ObjectPath, "remove"), (ObjectPath, "replace_version")]
            with kills.at(ObjectFilesSink, "_compact", *steps), suppress(KilledError):
                to.write(changes, ResultBatch(number, 1, 0))
                break
            kills.again()
            to = sink(LastBatch(number, number - 1 if number else None))
        rows = assert_read(files, format, table)
    assert kills.count > 2
    assert kills.steps > 8
    left = [key for key, _ in ObjectPath.of(out).objects() if not key.startswith("_millrace/")]
    assert len(left) <= 8
    assert rows < table.changes
