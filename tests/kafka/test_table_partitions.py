"""A table that tasks write by partition of the state has each row as if the driver had written it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.kafka import Broker
from lab.topics import PATIENCE, committed, open_transactions, table_of
from lab.waiting import wait_until
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.lookups.store import NotReadyError, TableStore
from millrace_jobs.sinks.base import ResultKeys
from millrace_jobs.sinks.kafka.sink import TaskWrites
from millrace_jobs.sinks.kafka.table import TableSink
from millrace_jobs.sinks.kafka.table_view import TableView
from millrace_jobs.sinks.kafka.topic import TargetTopic
from spark.streams import Stream

from .partition_attempts import MARKS
from .partition_streams import checkpoint_id, die_in_part, expected, updates
from .sink_streams import COLUMNS, UPDATES, answer, crash, given, into, made

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]


def test_tasks_write_every_row_once_and_look_ups_begin_with_the_first_whole_batch_of_the_driver(
    spark: Any, broker: Broker, make_topic: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    topic = make_topic(partitions=3, cleanup_policy="compact")
    batches = made(seed=31, batches=6)
    files = given(batches)
    stream = Stream(
        spark, tmp_path, schema=COLUMNS, sql=UPDATES, sink=into("table", broker, topic, transaction="Partition")
    )
    stream.feed(files[:1])
    crash(monkeypatch, stream, files[1], 1, after_writing=True)
    crash(monkeypatch, stream, files[2], 2, after_writing=False)
    monkeypatch.setenv(MARKS, str(tmp_path / "turn"))
    stream.feed(files[3:4])
    die_in_part(broker, topic, stream, files[4], expected(batches[:5]))
    in_part = max(updates(broker, topic))

    store = tmp_path / "store"
    store.mkdir()
    view = RecordedView(TableStore(store))
    target = TargetTopic(topic, Connection(broker.bootstrap), "spec.sink.table.topic")
    tasks = TaskWrites(stream.state_partitions)
    sink = TableSink(target, ResultKeys(("key",)), "stream", checkpoint_id(stream), view, tasks=tasks)
    stream.query = by_driver(stream.query)
    ended: list[dict[int, int]] = []
    view.on_rebuild = lambda: ended.append({batch: len(rows) for batch, rows in updates(broker, topic).items()})
    view.before_close = lambda: wait_until(lambda: seen(view)[0] == 5, "the view is at batch 5", PATIENCE)
    stream.feed(files[5:], sink)

    whole = expected(batches)
    assert ended == [{batch: len(whole[batch]) for batch in range(in_part + 1)}], "it read a part of a batch"
    assert updates(broker, topic) == whole
    assert view.last == (5, sorted(answer(batches, UPDATES)))
    rows = sorted(tuple(json.loads(row).values()) for row in table_of(committed(broker, topic)).values())
    assert rows == sorted(answer(batches, UPDATES))
    assert open_transactions(broker, topic) == {}


class RecordedView(TableView):
    """A view that says when it is read from the topic, and what it has at last."""

    on_rebuild: Any
    before_close: Any
    last: Any = None

    def rebuild(self, *given: Any) -> None:
        self.on_rebuild()
        super().rebuild(*given)

    def close(self) -> None:
        if self.last is None:
            self.before_close()
            self.last = seen(self)
        super().close()


def seen(view: TableView) -> tuple[int | None, list[tuple[object, ...]]]:
    """The batch that look-ups see, and its rows."""
    try:
        with view._store.reader().snapshot() as snapshot:
            return snapshot.batch, sorted(tuple(json.loads(row).values()) for _, row in snapshot.scan(b""))
    except NotReadyError:
        return None, []


def by_driver(query: Any) -> Any:
    table = query.spec.sink.table.model_copy(update={"transaction": None})
    sink = query.spec.sink.model_copy(update={"table": table})
    return query.model_copy(update={"spec": query.spec.model_copy(update={"sink": sink})})
