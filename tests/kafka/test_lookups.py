"""The view of a result table beside a real topic: built from it, in step with it, and right after every kind of crash."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lab.kafka import Broker
from lab.topics import PATIENCE, committed, fill, table_of
from lab.waiting import wait_until
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.lookups.store import NotReadyError, TableStore
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, WindowColumn
from millrace_jobs.sinks.kafka import table, table_view
from millrace_jobs.sinks.kafka.messages import NO_END
from millrace_jobs.sinks.kafka.table import TableSink
from millrace_jobs.sinks.kafka.table_view import TableView
from millrace_jobs.sinks.kafka.topic import TargetTopic

pytestmark = pytest.mark.kafka

KEYS = ResultKeys(("k",), retracts=True)
Rows = Mapping[str, int | None]


class Killed(BaseException):
    """The process dies here."""


class Driver:
    """One life of a driver: a sink with a view, without Spark."""

    def __init__(self, broker: Broker, topic: str, folder: Path, last: LastBatch, keys: ResultKeys = KEYS) -> None:
        folder.mkdir()
        self.store = TableStore(folder)
        self.notices: list[str] = []
        self.view = TableView(self.store, self.notices.append)
        target = TargetTopic(topic, Connection(broker.bootstrap), "spec.sink.table.topic")
        self.sink = TableSink(target, keys, "trips", "id", self.view)
        self.sink.prepare(last)

    def write(self, number: int, rows: Rows, ends: Mapping[str, int] | None = None, watermark: int = 0) -> None:
        values = [None if value is None else json.dumps({"k": k, "v": value}) for k, value in rows.items()]
        fetched = pa.table(
            {
                "key": pa.array([key(k) for k in rows], pa.string()),
                "value": pa.array(values, pa.string()),
                "end": pa.array([(ends or {}).get(k, NO_END) for k in rows], pa.int64()),
            }
        )
        self.sink._write([fetched], ResultBatch(number, 1, watermark))

    def seen(self) -> tuple[int | None, dict[str, int]] | None:
        """The batch and the rows that look-ups see now; None if they see nothing yet."""
        with suppress(NotReadyError), self.store.reader().snapshot() as snapshot:
            rows = [json.loads(row) for _, row in snapshot.scan(b"")]
            return snapshot.batch, {row["k"]: row["v"] for row in rows}
        return None

    def wait_for(self, batch: int | None) -> dict[str, int]:
        wait_until(lambda: (seen := self.seen()) is not None and seen[0] == batch, f"the view is at {batch}", PATIENCE)
        seen = self.seen()
        assert seen is not None
        return seen[1]


def key(name: str) -> str:
    return json.dumps({"k": name}, separators=(",", ":"))


@pytest.fixture
def start(broker: Broker, make_topic: Callable[..., str], tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """``start(last, keys=KEYS)``: the next life of the driver, on a topic with three partitions, ``start.topic``."""
    topic = make_topic(partitions=3, cleanup_policy="compact")
    lives: list[Driver] = []

    def begin(begun: int | None = None, done: int | None = None, keys: ResultKeys = KEYS) -> Driver:
        lives.append(Driver(broker, topic, tmp_path / f"life {len(lives)}", LastBatch(begun, done), keys))
        return lives[-1]

    begin.topic = topic  # type: ignore[attr-defined]
    yield begin
    for life in lives:
        life.sink.close()


def in_topic(broker: Broker, topic: str) -> dict[str, int]:
    rows = [json.loads(value) for value in table_of(committed(broker, topic)).values()]
    return {row["k"]: row["v"] for row in rows}


def random_batch(chance: random.Random) -> dict[str, int | None]:
    return {f"key {chance.randrange(30)}": chance.choice([None, chance.randrange(1000)]) for _ in range(10)}


def test_the_view_is_the_table_after_every_batch_and_after_a_restart(start: Any, broker: Broker) -> None:
    chance, expected = random.Random(1), dict[str, int]()
    for life in range(3):
        last = 4 * life - 1 if life else None
        driver = start(last, last)
        assert driver.wait_for(last) == expected
        for number in range(4 * life, 4 * life + 4):
            batch = random_batch(chance)
            driver.write(number, batch)
            expected |= {k: v for k, v in batch.items() if v is not None}
            expected = {k: v for k, v in expected.items() if batch.get(k, v) is not None}
            assert driver.wait_for(number) == expected
        driver.sink.close()
    assert in_topic(broker, start.topic) == expected


def test_a_driver_that_dies_between_topic_and_view_has_the_batch_when_it_is_back(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    first.write(0, {"a": 1, "b": 1})
    first.wait_for(0)

    def die(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(TableView, "offer", die)
    with pytest.raises(Killed):
        first.write(1, {"a": 2, "b": None, "c": 2})
    monkeypatch.undo()
    assert first.seen() == (0, {"a": 1, "b": 1})  # it says that it is at batch 0, and it is
    second = start(1, 0)
    assert second.wait_for(1) == {"a": 2, "c": 2}
    second.write(2, {"c": 3})  # Spark runs batch 1 again, and the sink finds it in the topic
    assert second.wait_for(2) == {"a": 2, "c": 3}


def test_a_batch_that_is_not_committed_is_never_seen(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = start()
    first.write(0, {"a": 1})
    first.wait_for(0)
    producer = first.sink._transactions._producer

    class Dying:
        def __getattr__(self, name: str) -> Any:
            return getattr(producer, name)

        def send_offsets_to_transaction(self, *_: object) -> None:
            producer.flush(PATIENCE)  # the messages are in the topic, in a transaction that stays open
            raise Killed

        def abort_transaction(self, *_: object) -> None:
            """A dead process aborts nothing."""

    first.sink._transactions._producer = Dying()
    with pytest.raises(Killed):
        first.write(1, {"a": 2, "b": 2})
    assert first.seen() == (0, {"a": 1})
    second = start(1, 0)
    assert second.wait_for(0) == {"a": 1}
    second.write(1, {"a": 2, "b": 2})
    assert second.wait_for(1) == {"a": 2, "b": 2}


def test_after_a_transient_failure_the_rows_stay_visible_until_they_are_read_again(start: Any) -> None:
    driver = start()
    driver.write(0, {"a": 1})
    driver.wait_for(0)
    driver.sink.prepare(LastBatch(1, 0))
    assert driver.seen() == (0, {"a": 1})
    driver.write(1, {"a": 2})
    assert driver.wait_for(1) == {"a": 2}
    assert [bool(notice) for notice in driver.notices[:2]] == [True, False]


def test_rows_whose_windows_have_passed_leave_the_view(start: Any) -> None:
    keys = ResultKeys(("k",), WindowColumn("k", "end", 60_000_000))
    driver = start(keys=keys)
    driver.write(0, {"1970-01-01T00:01:00Z": 1, "1970-01-01T00:02:00Z": 2}, {"1970-01-01T00:01:00Z": 60_000_000})
    assert len(driver.wait_for(0)) == 2
    driver.write(1, {}, watermark=60_000)
    assert driver.wait_for(1) == {"1970-01-01T00:02:00Z": 2}


def test_very_many_rows_that_go_at_once_are_not_handed_over_one_by_one(
    start: Any, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_REMOVED", 2)
    driver = start(keys=ResultKeys(("k",), WindowColumn("k", "end", 60_000_000)))
    ends = {f"1970-01-01T00:0{n}:00Z": n * 60_000_000 for n in range(1, 8)}
    driver.write(0, dict.fromkeys(ends, 1), ends)
    assert len(driver.wait_for(0)) == 7
    applied: list[int] = []
    monkeypatch.setattr(driver.store, "apply", lambda number, *_: applied.append(number))
    driver.write(1, {"1970-01-01T00:07:00Z": 2}, ends, watermark=3 * 60_000)
    assert driver.wait_for(1) == in_topic(broker, start.topic)
    assert applied == []


def test_a_batch_that_takes_much_memory_is_read_from_the_topic(
    start: Any, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_PENDING", 1_000)
    driver = start()
    applied: list[int] = []
    apply = driver.store.apply
    monkeypatch.setattr(driver.store, "apply", lambda number, *rest: applied.append(number) or apply(number, *rest))
    for number, rows in enumerate((2, 200, 2)):
        driver.write(number, {f"key {n}": number for n in range(rows)})
        assert driver.wait_for(number) == in_topic(broker, start.topic)
    assert applied == [0, 2]


class HeldStore:
    """A store whose next change waits until ``go`` is set."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self.go = threading.Event()
        self.waits = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def apply(self, *change: Any) -> None:
        self.waits.set()
        assert self.go.wait(PATIENCE)
        self._store.apply(*change)


def test_a_view_that_falls_behind_is_built_again_and_no_batch_waits_for_it(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_view, "MOST_PENDING", 1)
    driver = start()
    driver.wait_for(None)
    held = driver.view._store = HeldStore(driver.store)  # type: ignore[assignment]
    chance, expected = random.Random(2), dict[str, int]()
    for number in range(6):
        batch = {f"key {n}": chance.randrange(100) for n in range(5)}
        driver.write(number, batch)
        expected |= batch
        if number == 0:
            assert held.waits.wait(PATIENCE)  # from here on, one batch may wait, and no more
    assert driver.seen() == (None, {})
    held.go.set()
    assert driver.wait_for(5) == expected
    driver.write(6, {"key 0": None})
    assert driver.wait_for(6) == {k: v for k, v in expected.items() if k != "key 0"}


def test_batches_written_while_the_view_is_built_are_in_it_once_it_is_there(start: Any, broker: Broker) -> None:
    first = start()
    first.write(0, {f"key {n}": n for n in range(2000)})
    first.sink.close()
    second = start(0, 0)
    for number in range(1, 5):
        second.write(number, {f"key {number}": -number})
    assert second.wait_for(4) == {f"key {n}": -n if 1 <= n <= 4 else n for n in range(2000)}


def test_rows_that_are_in_the_topic_before_the_first_run_are_in_the_view(start: Any, broker: Broker) -> None:
    fill(broker, start.topic, [{"k": "a", "v": 5}], keys=[key("a")])
    driver = start(keys=ResultKeys(("k",)))
    assert driver.wait_for(None) == {"a": 5}


def test_a_view_that_has_no_room_says_so_and_the_query_goes_on(
    start: Any, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = start()
    driver.wait_for(None)

    @contextmanager
    def full(*_: object) -> Iterator[None]:
        raise table_view.StoreError("the table takes more than 16 GiB of disk")
        yield

    monkeypatch.setattr(driver.store, "_writing", full)
    driver.write(0, {"a": 1})
    reason = "there are no look-ups any more: the table takes more than 16 GiB of disk; restart the query with a smaller table"
    wait_until(lambda: driver.notices[-1] == reason, "a notice", PATIENCE)
    driver.write(1, {"a": 2})
    assert in_topic(broker, start.topic) == {"a": 2}
