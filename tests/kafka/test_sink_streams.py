"""Streaming queries into a real topic: what is in it is what DuckDB says, batch by batch, also after a crash."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime, timedelta

import pytest

from lab.kafka import Broker
from lab.topics import Message, admin, committed
from lab.topics import table_of as table_in
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from spark.streams import Stream
from spark.tables import parquet

from .sink_streams import COLUMNS, POSITIVE, SCHEMA, SPARK_WINDOW, UPDATES, WINDOWS, answer, crash, given, into, made

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark]

DELAY = timedelta(seconds=30)
WINDOW = timedelta(minutes=1)

SPREAD = {
    "aggregator": "spark.aggregators:Spread",
    "options": {"column": "value"},
    "groupBy": ["key"],
    "window": {"column": "moment", "size": "1m"},
}


def by_batch(messages: list[Message]) -> dict[int, list[Message]]:
    """The messages of each batch, which stand by each other in a partition and in their order."""
    found = defaultdict(list)
    for message in messages:
        found[int(message.headers["millrace-batch"])].append(message)
    assert [number for m in found.values() for number in {int(each.headers["millrace-batch"]) for each in m}] == [
        *found
    ]
    return dict(found)


def test_every_update_is_a_message_once_also_when_batches_are_run_again(
    spark, broker, make_topic, tmp_path, monkeypatch
):
    topic = make_topic(partitions=3)
    batches = made(seed=1, batches=6)
    files = given(batches)
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=UPDATES, sink=into("kafka", broker, topic))
    stream.feed(files[:2])
    for batch, after_writing in ((2, True), (3, False)):
        crash(monkeypatch, stream, files[batch], batch, after_writing=after_writing)
    stream.feed(files[4:])
    written = by_batch(committed(broker, topic))
    assert sorted(written) == [0, 1, 2, 3, 4, 5]
    for number, messages in written.items():
        keys = {key for _, key, _ in batches[number]}
        state = {key: (n, total) for key, n, total in answer(batches[: number + 1], UPDATES) if key in keys}
        assert {json.loads(message.key)["key"] for message in messages} == keys
        assert len(messages) == len(keys)
        assert {tuple(json.loads(message.value).values()) for message in messages} == {
            (k, *v) for k, v in state.items()
        }
        assert {message.headers["millrace-query"] for message in messages} == {b"stream"}
        assert {message.headers["millrace-epoch"] for message in messages} == {str(number + 1).encode()}


def test_final_rows_of_windows_come_once(spark, broker, make_topic, tmp_path):
    topic = make_topic(partitions=2)
    batches = made(seed=2)
    stream = Stream(
        spark,
        tmp_path,
        schema=COLUMNS,
        sql=WINDOWS.format(window=SPARK_WINDOW),
        watermark=("moment", "30s"),
        emit="OnWindowClose",
        sink=into("kafka", broker, topic),
    )
    stream.feed(given(batches))
    stream.close_windows(("hash", 2, 2))
    messages = committed(broker, topic)
    rows = [json.loads(message.value) for message in messages]
    sql = WINDOWS.format(window="date_trunc('minute', moment)")
    expected = sorted((stamp(start), stamp(start + WINDOW), *rest) for start, *rest in answer(batches, sql))
    assert (
        sorted((r["window"]["start"], r["window"]["end"], r["key"], r["records"], r["total"]) for r in rows) == expected
    )
    assert [json.loads(message.key) for message in messages] == [{k: row[k] for k in ("window", "key")} for row in rows]


def test_a_table_holds_the_groups_that_having_admits_after_every_batch(
    spark, broker, make_topic, tmp_path, monkeypatch
):
    topic = make_topic(partitions=3, cleanup_policy="compact")
    batches = made(seed=3, batches=7, rows=60)
    files = given(batches)
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=POSITIVE, sink=into("table", broker, topic))
    stream.feed(files[:4])
    crash(monkeypatch, stream, files[4], 4, after_writing=True)
    stream.feed(files[5:])
    written = by_batch(committed(broker, topic))
    so_far = []
    for number in range(len(batches)):
        so_far += written.get(number, [])
        table = sorted(tuple(json.loads(row).values()) for row in table_in(so_far).values())
        assert table == sorted(answer(batches[: number + 1], POSITIVE)), f"after batch {number}"
    tombstones = [message for message in so_far if message.value is None]
    assert tombstones, "no group was retracted, so the test shows nothing"
    seen = set()
    for message in so_far:
        assert message.value is not None or message.key in seen  # no tombstone for what never was there
        seen.add(message.key)


@pytest.mark.parametrize("kind", ["sql", "python"])
def test_rows_of_a_table_expire_with_their_windows(spark, broker, make_topic, tmp_path, kind):
    topic = make_topic(partitions=3, cleanup_policy="compact")
    batches = made(seed=4)
    sql = WINDOWS.format(window=SPARK_WINDOW).replace(SPARK_WINDOW, "window.end AS until", 1)
    stream = Stream(
        spark,
        tmp_path,
        schema=COLUMNS,
        watermark=("moment", "30s"),
        sink=into("table", broker, topic),
        **({"sql": sql} if kind == "sql" else {"python": SPREAD}),
    )
    routed = [("pkg", 2, 2), ("hash", 3, 1), ("pkg", 3, 2), ("shuffle", 2, 1), ("hash", 2, 2)]
    files = [(placing, parquet(SCHEMA, batch)) for placing, batch in zip(routed, batches, strict=True)]
    stream.feed(files[:3])
    stream.feed(files[3:])  # which has to learn from the topic what rows there are
    expected_sql = {
        "sql": "SELECT date_trunc('minute', moment) AS start, key, count(*), sum(value) FROM events GROUP BY ALL",
        "python": "SELECT date_trunc('minute', moment) AS start, key, max(value) - min(value), count(*) FROM events GROUP BY ALL",
    }[kind]
    written = by_batch(committed(broker, topic))
    log = Checkpoint(checkpoint_root(stream.query))
    last = log.last_batch().committed
    seen, so_far, expired = 0, [], 0
    for number in range(last + 1):
        so_far += written.get(number, [])
        batch = log.batch(number)
        seen += bool(written.get(number) and any(message.value for message in written[number]))
        watermark = datetime(1970, 1, 1) + timedelta(milliseconds=batch.watermark)
        live = [row for row in answer(batches[:seen], expected_sql) if row[0] + WINDOW > watermark]
        rows = [json.loads(row) for row in table_in(so_far).values()]
        assert sorted(plain(row, kind) for row in rows) == sorted((stamp(start + WINDOW), *r) for start, *r in live)
        expired += sum(message.value is None for message in written.get(number, []))
    assert seen == len(batches)
    assert expired > 20


def plain(row, kind):
    if kind == "sql":
        return row["until"], row["key"], row["records"], row["total"]
    return row["window_end"], row["key"], row["spread"], row["seen"]


def test_targets_that_do_not_suit_are_refused_before_anything_is_done(spark, broker, make_topic, tmp_path):
    deleting, compacted = make_topic(cleanup_policy="delete"), make_topic(cleanup_policy="compact")
    cases = {
        "table-on-log": (UPDATES, into("table", broker, deleting), f"topic {deleting} is not compacted: as a table"),
        "no-key": ("SELECT value FROM events", into("kafka", broker, compacted), "and the results have no key"),
        "no-topic": (UPDATES, into("kafka", broker, "absent"), f"Kafka at {broker.bootstrap} has no topic absent"),
        "having": (
            "SELECT key, collect_set(value) AS v FROM events GROUP BY key HAVING count(*) > 1",
            into("table", broker, compacted),
            "a table cannot take back rows that HAVING no longer admits, because the query is not routed: ",
        ),
        "maps": (
            "SELECT key, map(max(moment), 1) AS m FROM events GROUP BY key",
            into("kafka", broker, deleting),
            "column m cannot be written as JSON: it has a map<timestamp,int>",
        ),
    }
    for name, (sql, sink, said) in cases.items():
        stream = Stream(spark, tmp_path / name, schema=COLUMNS, sql=sql, sink=sink)
        with pytest.raises(MillraceError) as refused:
            stream.feed(given(made(seed=5, batches=1)))
        assert said in str(refused.value), name
    assert "absent" not in admin(broker).list_topics(timeout=30).topics
    assert committed(broker, deleting) == committed(broker, compacted) == []


def test_a_group_that_lost_its_offset_is_refused_while_a_batch_is_unfinished(
    spark, broker, topic, tmp_path, monkeypatch
):
    files = given(made(seed=6, batches=3))
    stream = Stream(spark, tmp_path, schema=COLUMNS, sql=UPDATES, sink=into("kafka", broker, topic))
    stream.feed(files[:1])
    crash(monkeypatch, stream, files[1], 1, after_writing=True)
    before = committed(broker, topic)
    forget_offsets(broker)
    with pytest.raises(MillraceError, match=r"batch 1 was begun and not finished, and the consumer group .* has lost"):
        stream.feed(files[2:])
    assert committed(broker, topic) == before


def forget_offsets(broker: Broker) -> None:
    """Delete the groups of all queries, as the broker itself does after a week without a batch."""
    client = admin(broker)
    groups = [g.group_id for g in client.list_consumer_groups().result(30).valid if g.group_id.startswith("millrace-")]
    for deleted in client.delete_consumer_groups(groups).values():
        deleted.result(30)


def stamp(moment: datetime) -> str:
    """As it stands in a message."""
    return moment.isoformat(timespec="microseconds") + "Z"
