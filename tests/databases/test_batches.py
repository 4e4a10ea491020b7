"""Batches are in the table exactly once: replays, other drivers, other sinks before, and checkpoints that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lab.mariadb import MariaDbServer
from lab.postgres import PostgresServer
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.changes import WEIGHT
from millrace_jobs.sinks.base import ADMITTED, LastBatch, ResultKeys

from .sinks import FRESH, open_sink, rows, write

pytestmark = [pytest.mark.spark]

COUNTED = {
    PostgresServer: "id bigint, at timestamptz DEFAULT now(), place bigint GENERATED ALWAYS AS IDENTITY",
    MariaDbServer: "id bigint, at datetime DEFAULT now(), place bigint AUTO_INCREMENT PRIMARY KEY",
}
COUNTS = "k {text} PRIMARY KEY, n bigint"


@pytest.fixture
def counts(spark: SparkSession) -> Callable[..., DataFrame]:
    """Return a function that makes results of keys with counts."""
    return lambda **values: spark.createDataFrame(list(values.items()), "k STRING, n BIGINT")


def test_a_result_replaces_the_row_with_its_key_and_a_batch_without_rows_counts(server, make_table, counts):
    table = make_table(COUNTS)
    server.execute(f"INSERT INTO {table} VALUES ('theirs', 7), ('a', -1)")
    sink = open_sink(server, table, counts(a=1), ["k"])
    sink.prepare(FRESH)
    assert write(sink, counts(a=1, b=2), 0) == 2
    assert write(sink, counts(a=1).where("n > 1"), 1) == 0
    assert write(sink, counts(b=3), 2) == 1
    assert rows(server, table) == [("a", 1), ("b", 3), ("theirs", 7)]
    schema = table.split(".")[0]
    record = server.execute(f"SELECT b.table, checkpoint, query, batch, epoch FROM {schema}.millrace_batches b")
    assert record == [("results", "a-checkpoint", "counts", 2, 1)]
    sink.close()


def test_the_last_row_of_a_key_counts_in_the_order_of_the_partitions(spark, server, make_table):
    table = make_table(COUNTS)
    results = spark.range(0, 10_000, 1, 4).selectExpr("concat('k', id % 3) AS k", "id AS n")
    sink = open_sink(server, table, results, ["k"])
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 3
    assert rows(server, table) == [("k0", 9999), ("k1", 9997), ("k2", 9998)]
    sink.close()


def test_results_without_a_key_are_appended_in_their_order(spark, server, make_table):
    table = make_table(COUNTED[type(server)])
    results = spark.range(0, 25_000, 1, 3)
    sink = open_sink(server, table, results)
    sink.prepare(FRESH)
    assert write(sink, results, 0) == 25_000
    assert write(sink, results, 0) == 0
    assert write(sink, results.where("id < 2"), 1) == 2
    assert server.execute(
        f"SELECT count(*), count(DISTINCT id), min(CASE WHEN place = id + 1 OR place > 25000 THEN 1 ELSE 0 END) FROM {table}"
    ) == [(25_002, 25_000, 1)]
    sink.close()


def test_a_table_of_key_columns_only_keeps_each_key_once(spark, server, make_table):
    table = make_table("k {text}, l {text}, PRIMARY KEY (l, k)")
    results = spark.sql("SELECT 'a' AS k, 'b' AS l")
    sink = open_sink(server, table, results, ["k", "l"])
    sink.prepare(FRESH)
    for number in range(2):
        write(sink, results, number)
    assert rows(server, table) == [("a", "b")]
    sink.close()


def test_rows_that_having_no_longer_admits_are_deleted(spark, server, make_table, counts):
    table = make_table(COUNTS)
    marked = counts(a=1).selectExpr("*", f"true AS {ADMITTED}")
    sink = open_sink(server, table, marked, keys=ResultKeys(("k",), retracts=True), hidden=[ADMITTED])
    sink.prepare(FRESH)
    write(sink, counts(a=5, b=6, c=1).selectExpr("*", f"n > 2 AS {ADMITTED}"), 0)
    assert rows(server, table) == [("a", 5), ("b", 6)]
    write(sink, counts(a=1, b=7, d=0).selectExpr("*", f"n > 2 AS {ADMITTED}"), 1)
    assert rows(server, table) == [("b", 7)]
    sink.close()


def test_changes_are_netted_and_a_key_of_two_rows_is_refused(spark, server, make_table):
    table = make_table(COUNTS)

    def changes(*values: tuple[str, int, int]) -> DataFrame:
        return spark.createDataFrame(list(values), f"k STRING, n BIGINT, {WEIGHT} BIGINT")

    sink = open_sink(server, table, changes(), keys=ResultKeys(("k",), weighted=True), hidden=[WEIGHT])
    sink.prepare(FRESH)
    write(sink, changes(("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("d", 4, -1)), 0)
    assert rows(server, table) == [("a", 1), ("b", 1), ("c", 1)]
    write(
        sink, changes(("a", 2, 1), ("a", 1, -1), ("b", 1, -1), ("c", 1, -1), ("c", 1, 1), ("e", 1, 1), ("e", 1, -1)), 1
    )
    assert rows(server, table) == [("a", 2), ("c", 1)]
    with pytest.raises(MillraceError, match="two rows of the result have the key a, so one of them would be lost"):
        write(sink, changes(("a", 3, 1), ("a", 4, 1)), 2)
    assert rows(server, table) == [("a", 2), ("c", 1)]
    sink.close()


@pytest.mark.parametrize("key", [["k"], []], ids=["upserted", "appended"])
def test_a_batch_that_runs_again_is_written_once(server, make_table, counts, key):
    table = make_table("k {text} PRIMARY KEY, n bigint" if key else "k {text}, n bigint")
    first = open_sink(server, table, counts(a=1), key)
    first.prepare(FRESH)
    for number in range(3):
        write(first, counts(**{f"k{number}": number}), number)
    first.close()
    second = open_sink(server, table, counts(a=1), key)
    second.prepare(LastBatch(2, 1))  # Spark had begun batch 2, and not committed it
    assert write(second, counts(other=9), 2) == 0
    assert write(second, counts(k3=3), 3) == 1
    assert rows(server, table) == [("k0", 0), ("k1", 1), ("k2", 2), ("k3", 3)]
    second.close()


def test_a_driver_that_was_followed_writes_nothing(server, make_table, counts):
    table = make_table(COUNTS)
    old, new = (open_sink(server, table, counts(a=1), ["k"]) for _ in range(2))
    old.prepare(FRESH)
    write(old, counts(a=1), 0)
    new.prepare(LastBatch(0, 0))
    with pytest.raises(MillraceError, match="another driver has taken over writing the results of counts") as raised:
        write(old, counts(a=2), 1)
    assert not isinstance(raised.value, TransientError)
    assert write(new, counts(a=3), 1) == 1
    with pytest.raises(MillraceError, match="another driver has taken over"):
        write(old, counts(a=2), 1)
    assert rows(server, table) == [("a", 3)]
    old.close()
    new.close()


def test_of_two_drivers_that_begin_at_once_one_writes(server, make_table, counts):
    table = make_table("k {text}, n bigint")
    sinks = [open_sink(server, table, counts(a=1)) for _ in range(4)]
    with ThreadPoolExecutor(len(sinks)) as threads:
        list(threads.map(lambda sink: sink.prepare(FRESH), sinks))
    written = 0
    for sink in sinks:
        with suppress(MillraceError):
            written += write(sink, counts(a=1), 0)
        sink.close()
    assert written == 1
    assert rows(server, table) == [("a", 1)]


def test_another_object_with_the_name_of_the_record_is_named(server, make_table, counts):
    table = make_table("k {text}, n bigint")
    if not isinstance(server, PostgresServer):
        pytest.skip("PostgreSQL alone has types with the names of tables")
    server.execute(f"CREATE TYPE {table.split('.')[0]}.millrace_batches AS (n bigint)")
    sink = open_sink(server, table, counts(a=1))
    with pytest.raises(MillraceError, match='"millrace_batches" is a composite type'):
        sink.prepare(FRESH)
    sink.close()


def test_an_outdated_checkpoint_is_refused_before_it_fences_the_newer_driver(server, make_table, counts):
    table = make_table(COUNTS)
    newer = open_sink(server, table, counts(a=1), ["k"])
    newer.prepare(FRESH)
    for number in range(3):
        write(newer, counts(a=number), number)
    older = open_sink(server, table, counts(a=1), ["k"])
    message = "has results up to batch 2, but the checkpoint knows of no batch after 1; restore the newest checkpoint"
    with pytest.raises(MillraceError, match=message):
        older.prepare(LastBatch(1, 1))
    with pytest.raises(MillraceError, match="the checkpoint knows of no batch;"):
        older.prepare(FRESH)
    write(newer, counts(a=3), 3)
    newer.close()


def test_a_table_that_lacks_committed_batches_is_refused(server, make_table, counts):
    table = make_table(COUNTS)
    sink = open_sink(server, table, counts(a=1), ["k"])
    with pytest.raises(MillraceError, match="has no record of its batches, but the checkpoint has finished batch 4"):
        sink.prepare(LastBatch(4, 4))
    sink.prepare(FRESH)
    write(sink, counts(a=1), 0)
    message = (
        "has results up to batch 0 only, but the checkpoint has finished batch 4; restore the database to a later time"
    )
    with pytest.raises(MillraceError, match=message):
        sink.prepare(LastBatch(4, 4))
    with pytest.raises(MillraceError, match=message):
        sink.prepare(LastBatch(4, 4, results=3))
    sink.prepare(LastBatch(1, 1, results=0))  # the state was repartitioned after batch 0
    assert write(sink, counts(a=2), 2) == 1
    sink.prepare(LastBatch(2, 2))
    sink.close()


@pytest.mark.parametrize(("begun", "committed"), [(4, 4), (5, 4)])
def test_after_another_sink_the_table_begins_with_the_next_batch(server, make_table, counts, begun, committed):
    table = make_table(COUNTS)
    sink = open_sink(server, table, counts(a=1), ["k"])
    sink.prepare(LastBatch(begun, committed, elsewhere=True))
    assert write(sink, counts(a=5), 5) == 1
    sink.prepare(LastBatch(5, 5))  # as after a transient failure
    assert write(sink, counts(a=6), 6) == 1
    assert rows(server, table) == [("a", 6)]
    sink.close()


def test_another_checkpoint_of_the_same_query_is_refused_until_the_record_is_removed(server, make_table, counts):
    table = make_table(COUNTS)
    first = open_sink(server, table, counts(a=1), ["k"])
    first.prepare(FRESH)
    write(first, counts(a=1), 0)
    first.close()
    again = open_sink(server, table, counts(a=1), ["k"], checkpoint="another")
    with pytest.raises(MillraceError, match="has results of an earlier run of counts"):
        again.prepare(LastBatch(4, 4, elsewhere=True))  # as of a query that begins from a snapshot
    with pytest.raises(MillraceError, match="has results of an earlier run of counts") as raised:
        again.prepare(FRESH)
    commands = str(raised.value).partition("its record: ")[2].partition("; or write")[0]
    for command in commands.split("; "):
        server.execute(command)
    again.prepare(FRESH)
    write(again, counts(b=1), 0)
    assert rows(server, table) == [("b", 1)]
    other = open_sink(server, table, counts(a=1), ["k"], checkpoint="third", query="other")
    other.prepare(FRESH)  # several queries may write to one table
    write(other, counts(c=1), 0)
    assert rows(server, table) == [("b", 1), ("c", 1)]
    again.close()
    other.close()


def test_a_run_that_fails_before_its_first_batch_leaves_no_record(server, make_table, counts):
    table = make_table(COUNTS)
    sink = open_sink(server, table, counts(a=1), ["k"])
    sink.prepare(FRESH)
    sink.withdraw()
    sink.close()
    assert server.execute(f"SELECT * FROM {table.split('.')[0]}.millrace_batches") == []


def test_a_failure_in_spark_leaves_nothing_and_says_what_failed(spark, server, make_table):
    table = make_table("id bigint PRIMARY KEY")
    sink = open_sink(server, table, spark.range(1), ["id"])
    sink.prepare(FRESH)
    broken: Any = spark.range(0, 30_000, 1, 3).selectExpr("IF(id = 29999, raise_error('broken'), id) AS id")
    with pytest.raises(Exception, match="broken"):
        write(sink, broken, 0)
    assert rows(server, table) == []
    assert write(sink, spark.range(2), 0) == 2
    sink.close()
