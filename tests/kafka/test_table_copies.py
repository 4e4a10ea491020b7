"""The local copies of a table beside a real topic: continued where they are right, and read again wherever they are not."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, TopicPartition

from lab.kafka import Broker
from lab.topics import PATIENCE, admin, committed, make, partitions, table_of
from lab.waiting import wait_until
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.lookups.check import StoreCheck
from millrace_jobs.lookups.store import NotReadyError, TableStore
from millrace_jobs.sinks.base import LastBatch, ResultBatch, ResultKeys, WindowColumn
from millrace_jobs.sinks.kafka import table, table_view
from millrace_jobs.sinks.kafka.messages import NO_END
from millrace_jobs.sinks.kafka.table import TableSink
from millrace_jobs.sinks.kafka.table_view import TableView
from millrace_jobs.sinks.kafka.topic import TargetTopic

from .faults.kinds import driver_killed
from .faults.queries import TABLE
from .faults.scene import scene

pytestmark = pytest.mark.kafka

KEYS = ResultKeys(("k", "until"), WindowColumn("until", "end", 0), retracts=True)
MINUTE = 60_000_000
Row = tuple[str, int]
"""A name, and the minute that its window ends at."""


class Killed(BaseException):
    """The process dies here."""


class Driver:
    """One life of a driver: a sink with a view and copies in a folder, without Spark; ``reads`` says what it reads."""

    def __init__(self, broker: Broker, topic: str, folder: Path, last: LastBatch) -> None:
        check = StoreCheck(folder / "table")
        check.wait()
        self.folder = folder
        self.store = TableStore(folder / "table", stays=True)
        self.view = TableView(self.store)
        target = TargetTopic(topic, Connection(broker.bootstrap), "spec.sink.table.topic")
        self.sink = TableSink(target, KEYS, "trips", "id", self.view, None, folder)
        self.sink.prepare(last)

    def write(self, number: int, rows: Mapping[Row, int | None], watermark: int = 0) -> None:
        """Write a batch; a value of None is a row that HAVING does not admit. The watermark is in minutes."""
        values = [None if value is None else json.dumps({"k": k, "v": value}) for (k, _), value in rows.items()]
        fetched = pa.table(
            {
                "key": pa.array([key(*row) for row in rows], pa.string()),
                "value": pa.array(values, pa.string()),
                "end": pa.array([end * MINUTE or NO_END for _, end in rows], pa.int64()),
            }
        )
        self.sink._write([fetched], ResultBatch(number, 1, watermark * 60_000))

    def seen(self, batch: int | None) -> list[bytes]:
        """The rows that look-ups see at this batch."""
        found: list[bytes] = []

        def is_there() -> bool:
            with suppress(NotReadyError), self.store.reader().snapshot() as snapshot:
                found[:] = sorted(row for _, row in snapshot.scan(b""))
                return snapshot.batch == batch
            return False

        wait_until(is_there, f"the view is at {batch}", PATIENCE)
        return found


def key(name: str, end: int) -> str:
    until = f"1970-01-01T{end // 60:02}:{end % 60:02}:00.000000Z" if end else None
    return json.dumps({"k": name, "until": until}, separators=(",", ":"))


class Model:
    """The rows that the topic should have."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, int]] = {}
        self.watermark = 0

    def write(self, rows: Mapping[Row, int | None], watermark: int) -> None:
        for (name, end), value in rows.items():
            if value is None:
                self.rows.pop(key(name, end), None)
            else:
                self.rows[key(name, end)] = value, end
        self.watermark = watermark
        self.rows = {k: row for k, row in self.rows.items() if not row[1] or row[1] > watermark}

    def check(self, broker: Broker, topic: str, *, after_compaction: bool = False) -> None:
        """Compare with an independent reader, who also finds that every tombstone took a row away.

        After a compaction, the row may be gone and the tombstone still be there.
        """
        there: set[bytes | None] = set()
        for message in committed(broker, topic):
            if message.value is None:
                assert message.key in there or after_compaction, f"a tombstone without a row: {message}"
                there.discard(message.key)
            else:
                there.add(message.key)
        found = {(k or b"").decode(): json.loads(v)["v"] for k, v in table_of(committed(broker, topic)).items()}
        assert found == {k: value for k, (value, _) in self.rows.items()}


class Lives:
    """The lives of a driver on one topic; ``reads`` are the copies that were made from it: "keys" and "rows"."""

    def __init__(self, broker: Broker, topic: str, folder: Path) -> None:
        self.broker, self.topic, self.folder = broker, topic, folder
        self.reads: list[str] = []
        self.drivers: list[Driver] = []
        self.model = Model()

    def start(self, begun: int | None = None, done: int | None = None) -> Driver:
        wait_until(lambda: len(partitions(self.broker, self.topic)) == 3, "the broker knows the topic", PATIENCE)
        self.reads.clear()
        self.drivers.append(Driver(self.broker, self.topic, self.folder, LastBatch(begun, done)))
        return self.drivers[-1]

    def kill(self, driver: Driver) -> None:
        """Leave the files as they are now to the next life."""
        copy = self.folder.with_name(f"life {len(self.drivers)}")
        shutil.copytree(self.folder, copy)
        self.folder = copy


@pytest.fixture
def lives(
    broker: Broker, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lives]:
    topic = make_topic(partitions=3, cleanup_policy="compact,delete")  # Kafka truncates no other
    found = Lives(broker, topic, tmp_path / "life 0")
    read, build = table.read_changes, TableView._build

    def read_keys(*arguments: Any) -> Any:
        found.reads.append("keys")
        return read(*arguments)

    def build_rows(view: TableView) -> None:
        found.reads.append("rows")
        build(view)

    monkeypatch.setattr(table, "read_changes", read_keys)
    monkeypatch.setattr(table_view.TableView, "_build", build_rows)
    yield found
    for driver in found.drivers:
        driver.sink.close()


def some_rows(chance: random.Random, watermark: int) -> dict[Row, int | None]:
    names = [f"key {chance.randrange(12)}" for _ in range(8)]
    ends = [chance.choice([0, watermark + chance.randrange(1, 4)]) for _ in names]
    return {row: chance.choice([None, chance.randrange(99)]) for row in zip(names, ends, strict=True)}


def run(driver: Driver, lives: Lives, chance: random.Random, batches: range) -> None:
    for number in batches:
        rows, watermark = some_rows(chance, lives.model.watermark), lives.model.watermark + chance.randrange(2)
        driver.write(number, rows, watermark)
        lives.model.write(rows, watermark)


@pytest.mark.in_turn
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_start_reads_nothing_where_the_copies_are_right(lives: Lives, end: str) -> None:
    chance = random.Random(3)
    driver = lives.start()
    driver.seen(None)
    assert sorted(lives.reads) == ["keys", "rows"]
    for life in range(1, 4):
        run(driver, lives, chance, range(4 * life - 4, 4 * life))
        expected = driver.seen(4 * life - 1)
        lives.model.check(lives.broker, lives.topic)
        lives.kill(driver) if end == "killed" else driver.sink.close()
        driver = lives.start(4 * life - 1, 4 * life - 1)
        assert driver.seen(4 * life - 1) == expected
        assert lives.reads == []
        assert driver.sink._live is not None
        assert len(driver.sink._live) == len(lives.model.rows)


@pytest.mark.parametrize("point", ["before the commit", "after the commit"])
def test_a_driver_that_dies_at_the_commit_repeats_the_batch_without_reading_its_keys(
    lives: Lives, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    chance = random.Random(4)
    driver = lives.start()
    run(driver, lives, chance, range(3))
    rows, watermark = some_rows(chance, lives.model.watermark), lives.model.watermark + 1
    producer = driver.sink._transactions._producer

    class Dying:
        def __getattr__(self, name: str) -> Any:
            return getattr(producer, name)

        def commit_transaction(self, *timeout: float) -> None:
            if point == "after the commit":
                producer.commit_transaction(*timeout)  # type: ignore[union-attr]
            raise Killed

        def abort_transaction(self, *_: object) -> None:
            """A dead process aborts nothing."""

    driver.sink._transactions._producer = Dying()  # type: ignore[assignment]
    with pytest.raises(Killed):
        driver.write(3, rows, watermark)
    lives.kill(driver)
    driver = lives.start(3, 2)
    assert "keys" not in lives.reads
    assert driver.sink._transactions.has(3) == (point == "after the commit")
    if not driver.sink._transactions.has(3):
        driver.write(3, rows, watermark)
    lives.model.write(rows, watermark)
    run(driver, lives, chance, range(4, 7))
    lives.model.check(lives.broker, lives.topic)
    assert driver.seen(6) == sorted(table_of(committed(lives.broker, lives.topic)).values())


def damage(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for place in range(4096, len(content), 97):
        content[place] ^= 0x55
    file.write_bytes(content)


def truncate(lives: Lives) -> None:
    """Remove all records of a partition, whose rows are gone without a tombstone."""
    end = max(message.offset for message in committed(lives.broker, lives.topic) if message.partition == 0) + 1
    place = TopicPartition(lives.topic, 0, end)
    client = admin(lives.broker)  # which must live until the answer is there
    client.delete_records([place])[place].result(PATIENCE)
    there = {(k or b"").decode() for k in table_of(committed(lives.broker, lives.topic))}
    lives.model.rows = {k: row for k, row in lives.model.rows.items() if k in there}


def recreate(lives: Lives) -> None:
    """Delete the topic and create one with its name."""
    client = admin(lives.broker)
    client.delete_topics([lives.topic])[lives.topic].result(PATIENCE)

    def is_made() -> bool:
        with suppress(KafkaException):
            make(lives.broker, lives.topic, 3, cleanup_policy="compact")
            return True
        return False

    wait_until(is_made, "the topic can be created again", PATIENCE)
    lives.model.rows = {}


@pytest.mark.in_turn
@pytest.mark.parametrize("fault", ["lost", "stale", "damaged", "truncated", "recreated"])
def test_copies_that_are_not_right_are_read_again(lives: Lives, fault: str) -> None:
    chance, last = random.Random(5), 2
    driver = lives.start()
    run(driver, lives, chance, range(3))
    driver.seen(2)
    lives.kill(driver)
    if fault == "stale":  # the batches that follow are not in these files
        driver = lives.start(2, 2)
        stale = lives.folder.with_name("stale")
        shutil.copytree(lives.folder, stale)
        run(driver, lives, chance, range(3, 6))
        lives.folder, last = stale, 5
    elif fault == "lost":
        shutil.rmtree(lives.folder)
    elif fault == "damaged":
        for name in ("keys.sqlite", "keys.sqlite-wal", "table/data.mdb"):
            damage(lives.folder / name)
    elif fault == "truncated":
        truncate(lives)
    else:
        recreate(lives)
    driver = lives.start(last, last)
    run(driver, lives, chance, range(last + 1, last + 4))
    lives.model.check(lives.broker, lives.topic)
    assert driver.seen(last + 3) == sorted(table_of(committed(lives.broker, lives.topic)).values())
    assert sorted(set(lives.reads)) == ["keys", "rows"]


@pytest.mark.in_turn
def test_compaction_changes_no_copy_and_none_that_is_made_of_what_it_left(
    lives: Lives, make_topic: Callable[..., str]
) -> None:
    soon = {"segment_ms": 100, "min_cleanable_dirty_ratio": 0.01, "delete_retention_ms": 0}
    lives.topic = make_topic(partitions=3, cleanup_policy="compact", **soon)
    chance, driver, batches = random.Random(6), lives.start(), itertools.count(6)
    run(driver, lives, chance, range(6))
    before = {(message.partition, message.offset) for message in committed(lives.broker, lives.topic)}

    def is_compacted() -> bool:
        number = next(batches)  # whose messages end the segments before it
        run(driver, lives, chance, range(number, number + 1))
        left = {(message.partition, message.offset) for message in committed(lives.broker, lives.topic)}
        return len(before - left) > len(before) // 2

    wait_until(is_compacted, "the topic is compacted")
    last = next(batches) - 1
    driver.seen(last)
    lives.kill(driver)
    driver = lives.start(last, last)
    assert lives.reads == []
    run(driver, lives, chance, range(last + 1, last + 3))
    lives.model.check(lives.broker, lives.topic, after_compaction=True)
    driver.sink.close()
    shutil.rmtree(lives.folder)
    driver = lives.start(last + 2, last + 2)
    assert "keys" in lives.reads
    run(driver, lives, chance, range(last + 3, last + 5))
    lives.model.check(lives.broker, lives.topic, after_compaction=True)
    assert driver.seen(last + 4) == sorted(table_of(committed(lives.broker, lives.topic)).values())


@pytest.mark.in_turn
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_goes_on_with_the_keys_that_it_had(own_broker: Broker, tmp_path: Path) -> None:
    """A whole job: the file of keys is the same one, as a copy that is made again would not be."""
    with scene(TABLE, own_broker, tmp_path, random.Random(7), iter(()), own_machine=False) as stage:
        assert stage.job.wait_for_batches(), stage.job.report()
        keys = stage.checkpoint / "copies" / "keys.sqlite"
        made = keys.stat().st_ino
        for _ in range(2):
            print(driver_killed(stage), flush=True)
            stage.go_on()
            stage.check()
        stage.end()
        assert keys.stat().st_ino == made


MILLION = Path(__file__).with_name("million_rows.py")
MEMORY = 160 << 20
"""Bytes beyond those of the imported libraries, in which keys of a million rows, at 300 bytes each, have no room."""


@pytest.mark.slow(minutes=2)
def test_a_million_rows_come_and_go_in_bounded_memory(
    broker: Broker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(partitions=3, cleanup_policy="compact")
    counts = []
    for step in ("write", "expire"):
        command = [sys.executable, str(MILLION), broker.bootstrap, topic, str(tmp_path / step), step]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        print(step, found)
        assert found["bytes"] < MEMORY
        counts.append(found["rows"])
    assert counts == [1_000_000, 0]
    assert table_of(committed(broker, topic)) == {}
