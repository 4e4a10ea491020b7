"""Tables whose batches are larger than the driver takes at once hold what they hold otherwise, also after a crash."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from lab.kafka import Broker
from lab.topics import committed, table_of
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.checkpoint import Checkpoint, checkpoint_root
from millrace_jobs.kafka.headers import VALID_FROM, VALID_TO
from millrace_jobs.sinks import fetching
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.kafka.table import TableSink
from spark.streams import Stream
from spark.tables import parquet

from .sink_streams import COLUMNS, POSITIVE, SCHEMA, SPARK_WINDOW, UPDATES, WINDOWS, answer, crash, made

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

COUNTS = (
    "SELECT records, count(*) AS keys FROM (SELECT key, count(*) AS records FROM events GROUP BY key) GROUP BY records"
)
QUESTIONS: dict[str, dict[str, Any]] = {
    "groups that HAVING admits at times": {"sql": POSITIVE},
    "windows, until they end": {"sql": WINDOWS.format(window=SPARK_WINDOW), "watermark": ("moment", "30s")},
    "changes of groups of groups": {"sql": COUNTS, "watermark": ("moment", "30d")},
    "groups with their history": {"sql": UPDATES, "watermark": ("moment", "30s"), "history": True},
}
BATCHES = made(seed=21, batches=6)
FILES = [(("hash", 2, 2), parquet(SCHEMA, batch)) for batch in BATCHES]


@pytest.mark.parametrize("question", QUESTIONS)
def test_large_batches_write_what_small_ones_write(
    spark: Any, broker: Broker, make_topic: Any, tmp_path: Any, monkeypatch: Any, question: str
) -> None:
    """The large ones are interrupted before they are written, half way, and before Spark knows that they are."""
    few, many = ([make_topic(3, cleanup_policy="compact"), make_topic(2)] for _ in range(2))
    small = stream(spark, tmp_path / "few", broker, few, question)
    small.feed(FILES)
    small.close_windows(FILES[0][0])

    divided = []
    of_partitions = fetching._by_partition
    monkeypatch.setattr(fetching, "_by_partition", lambda results: divided.append(results) or of_partitions(results))
    monkeypatch.setattr(fetching, "MOST_AT_ONCE", 1)
    large = stream(spark, tmp_path / "many", broker, many, question)
    large.feed(FILES[:2])
    crash(monkeypatch, large, FILES[2], next_of(large), after_writing=False)
    crash_half_way(monkeypatch, large, FILES[3], next_of(large))
    crash(monkeypatch, large, FILES[4], next_of(large), after_writing=True)
    large.feed(FILES[5:])
    large.close_windows(FILES[0][0])
    assert len(divided) >= len(FILES)
    assert {results.rdd.getNumPartitions() for results in divided[:1]} == {fetching.PARTS}

    for one, other in zip(few, many, strict=True):
        assert written(broker, other) == written(broker, one)
    removed = [message.key for message in committed(broker, many[0]) if message.value is None]
    assert bool(removed) == (question != "groups with their history")
    if question != "windows, until they end":
        rows = sorted(tuple(json.loads(row).values()) for row in table_of(committed(broker, many[0])).values())
        assert rows == sorted(answer(BATCHES, QUESTIONS[question]["sql"]))


def stream(spark: Any, folder: Any, broker: Broker, topics: list[str], question: str) -> Stream:
    asked = dict(QUESTIONS[question])
    sink: dict[str, Any] = {"bootstrapServers": broker.bootstrap, "topic": topics[0]}
    if asked.pop("history", False):
        sink["history"] = {"topic": topics[1], "retention": "1d"}
    return Stream(spark, folder, schema=COLUMNS, sink={"table": sink}, **asked)


def next_of(large: Stream) -> int:
    """The number of the batch after the last one that was begun."""
    begun = Checkpoint(checkpoint_root(large.query)).last_batch().begun
    assert begun is not None
    return begun + 1


def crash_half_way(monkeypatch: Any, large: Stream, file: Any, batch: int) -> None:
    """Run a batch that fails when some of its parts have been sent, and some not."""
    write = TableSink._write

    def breaking(sink: TableSink, fetched: Iterable[pa.Table], of: ResultBatch) -> int:
        return write(sink, some(fetched) if of.number == batch else fetched, of)

    def some(fetched: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for number, table in enumerate(fetched):
            if number == 2:
                raise OSError("half way, as the test wants it")
            yield table

    with monkeypatch.context() as patch:
        patch.setattr(TableSink, "_write", breaking)
        with pytest.raises(MillraceError, match="half way, as the test wants it"):
            large.feed([file])


def written(broker: Broker, topic: str) -> Counter[tuple[object, ...]]:
    """The messages of a topic, with the headers that say for which time they are.

    Their batches have other numbers: with a watermark, there may be one without records between any two.
    """
    return Counter(
        (message.key, message.value, *(message.headers.get(name) for name in (VALID_FROM, VALID_TO)))
        for message in committed(broker, topic)
    )
