"""Streaming queries whose tasks write into a real topic, and batches larger than the driver takes at once."""

from __future__ import annotations

import pytest

from lab.topics import open_transactions
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.run.state import replace_state
from millrace_jobs.sinks import fetching
from spark.streams import Stream
from spark.tables import parquet

from .partition_attempts import MARKS
from .partition_streams import checkpoint_id, die_in_part, expected, number_of, updates
from .sink_streams import COLUMNS, SCHEMA, START, UPDATES, crash, given, into, made

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]


def test_tasks_write_every_update_once_whatever_dies_in_between(spark, broker, make_topic, tmp_path, monkeypatch):
    topic = make_topic(partitions=3)
    batches = made(seed=11, batches=10)
    files = given(batches)
    sink = into("kafka", broker, topic, transaction="Partition")
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=UPDATES, sink=sink)
    stream.feed(files[:2])
    crash(monkeypatch, stream, files[2], 2, after_writing=True)
    crash(monkeypatch, stream, files[3], 3, after_writing=False)
    monkeypatch.setenv(MARKS, str(tmp_path / "turn"))
    die_in_part(broker, topic, stream, files[4], expected(batches[:5]))
    stream.feed(files[5:6])
    assert updates(broker, topic) == expected(batches[:6])

    repartition(spark, stream, 8)
    stream.feed(files[6:7])
    group = f"millrace-stream-{checkpoint_id(stream)}"
    new = [number_of(broker, topic, f"{group}.{partition}")[0] for partition in range(2, 8)]
    assert new.count(8) >= 3, "partitions that the state has got write, too"

    (tmp_path / "turn").rmdir()
    die_in_part(broker, topic, stream, files[7], expected(batches[:8]))
    stream.query = with_transaction(stream.query, None)
    crash(monkeypatch, stream, files[8], 9, after_writing=False)  # the driver begins it once tasks have ended batch 8
    stream.feed(files[9:])
    assert updates(broker, topic) == expected(batches)
    assert open_transactions(broker, topic) == {}
    assert number_of(broker, topic, group)[0] == 11
    by_tasks = [number_of(broker, topic, f"{group}.{partition}")[0] for partition in range(8)]
    assert max(by_tasks) == 9, "what the driver has begun is not written by tasks"


def test_a_query_without_state_has_no_partitions_to_write_by(spark, broker, topic, tmp_path):
    sink = into("kafka", broker, topic, transaction="Partition")
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql="SELECT key, value FROM events WHERE value > 0", sink=sink)
    with pytest.raises(MillraceError) as refused:
        stream.feed(given(made(seed=12, batches=1)))
    assert str(refused.value) == (
        "spec.sink.kafka.transaction: the query keeps no state, so it has no partitions of one to write by; "
        "write transaction: Batch"
    )


def test_a_large_batch_is_fetched_one_part_after_the_other(spark, broker, make_topic, tmp_path, monkeypatch):
    topic = make_topic(partitions=2)
    small, large = [(START, "a", 1)], [(START, f"key {number}", number) for number in range(5_000)]
    batches = [small, large, large, small, small]
    calls = []
    fetch = fetching._by_partition
    monkeypatch.setattr(fetching, "_by_partition", lambda results: calls.append(results) or fetch(results))
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 100_000)
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=UPDATES, sink=into("kafka", broker, topic))
    stream.feed([(("hash", 2, 2), parquet(SCHEMA, batch)) for batch in batches])
    assert updates(broker, topic) == expected(batches)
    assert len(calls) == 3, "the second large batch, and the one after it, are known to be large"
    assert spark.sparkContext._jsc.sc().conf().get("spark.driver.maxResultSize", "1g") == "1g"


def test_a_part_above_the_user_s_own_limit_ends_the_batch_with_the_name_of_the_setting(
    spark, broker, make_topic, tmp_path, monkeypatch
):
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 50_000)
    rows = [(START, f"key {number}", number) for number in range(20_000)] + [(START, "k" * 70_000, 1)]
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=UPDATES, sink=into("kafka", broker, make_topic(partitions=1)))
    settings = spark.sparkContext._jsc.sc().conf()
    settings.set("spark.driver.maxResultSize", "60000")
    try:
        with pytest.raises(MillraceError, match=r"more results to the driver than spark\.driver\.maxResultSize allows"):
            stream.feed([(("hash", 2, 2), parquet(SCHEMA, rows))])
    finally:
        settings.set("spark.driver.maxResultSize", "1g")


def repartition(spark, stream, partitions):
    checkpoint = Checkpoint(checkpoint_root(stream.query))
    checkpoint.open(stream.query)
    replace_state(spark, checkpoint, partitions)
    checkpoint.close()


def with_transaction(query, transaction):
    kafka = query.spec.sink.kafka.model_copy(update={"transaction": transaction})
    sink = query.spec.sink.model_copy(update={"kafka": kafka})
    return query.model_copy(update={"spec": query.spec.model_copy(update={"sink": sink})})
