"""Earlier versions of rows in the store, against tables that are lists of versions: live, and read again from messages."""

import json
from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.changes import FOREVER, FROM, TO, WEIGHT
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.lookups import history as module
from millrace_jobs.lookups.history import NO_TIMES, HistoryTimes
from millrace_jobs.lookups.store import TableStore
from millrace_jobs.sinks.kafka.messages import NO_END, netted
from millrace_jobs.sinks.kafka.producer import Outgoing
from millrace_jobs.sinks.kafka.table_results import TableHistory, split_newest, with_starts
from millrace_jobs.sinks.kafka.table_view import PendingBatch, ReadChanges, _split
from millrace_jobs.sinks.kafka.topic import LastWritten, TargetTopic

from .tables import CELL, ask, filled, served, text

KEYS = ("a", "b", "a" * 500, "a" * 501)
RETENTION, LAST = 12, 60
HISTORY = TableHistory(TargetTopic("old", Connection("nowhere:1"), "spec.sink.table.history.topic"), RETENTION)
UPDATES = st.tuples(st.sampled_from(KEYS), st.integers(0, 9), st.none() | st.integers(0, 3))
BATCHES = st.lists(st.tuples(st.lists(UPDATES, max_size=6), st.integers(0, 8)), max_size=10)
"""Batches: updates of a key, so long after the watermark, by a value or its removal; and how far the watermark moves."""


@dataclass
class EvolvingRows:
    """A table as a list of versions, each by its key and its start."""

    values: dict[str, dict[int, int | None]]
    watermark: int = 0

    def rows(self):
        """The versions with their periods; a deleted one is no row."""
        found = set()
        for key, values in self.values.items():
            starts = sorted(values)
            for start, end in zip(starts, [*starts[1:], FOREVER], strict=True):
                if values[start] is not None:
                    found.add((key, values[start], start, end))
        return found

    def at(self, key, time):
        return next((value for k, value, start, end in self.rows() if k == key and start <= time < end), None)

    def update(self, updates):
        """Apply a batch, and return its changes as the sink fetches them."""
        before = self.rows()
        for key, after, value in updates:
            self.values[key][self.watermark + after] = value
        changed = [(row, -1) for row in before - self.rows()] + [(row, 1) for row in self.rows() - before]
        rows = [row for row, _ in changed]
        return pa.table(
            {
                "key": pa.array([text(cell=key).decode() for key, *_ in rows], pa.string()),
                "value": pa.array([text(cell=key, n=value).decode() for key, value, *_ in rows], pa.string()),
                "end": pa.array([NO_END] * len(rows), pa.int64()),
                FROM: pa.array([start for _, _, start, _ in rows], pa.int64()),
                TO: pa.array([end for *_, end in rows], pa.int64()),
                WEIGHT: pa.array([weight for _, weight in changed], pa.int64()),
            }
        )


class ConsumedMessage:
    """A message as a consumer gets it."""

    def __init__(self, sent):
        self._sent = sent

    def key(self):
        return self._sent.key

    def value(self):
        return self._sent.value

    def headers(self):
        return list(self._sent.headers)


def assert_same(store, table):
    with store.reader().snapshot() as snapshot:
        for key in KEYS:
            for time in range(max(table.watermark - RETENTION, 0), LAST):
                row = snapshot.get_at(text(cell=key), time)
                assert (None if row is None else json.loads(row)["n"]) == table.at(key, time), (key, time)


@given(batches=BATCHES, data=st.data())
def test_a_row_at_a_time_is_the_version_of_that_time(tmp_path_factory, batches, data):
    table = EvolvingRows(defaultdict(dict))
    store = TableStore(tmp_path_factory.mktemp("live"), has_history=True)
    store.publish(None)
    rows, versions, times = [], [], NO_TIMES
    for number, (updates, step) in enumerate(batches):
        newest, earlier = split_newest(table.update(updates))
        newest = netted(newest)
        table.watermark += step
        times = HISTORY.times(table.watermark, times)
        store.apply(number, *_split(PendingBatch(LastWritten(number), times, newest, None, earlier)), times)
        assert_same(store, table)
        sent = [
            Outgoing(key, value)
            for key, value in zip(*newest.select(["key", "value"]).to_pydict().values(), strict=True)
        ]
        rows += with_starts(sent, newest)
        versions += HISTORY.messages(earlier)
    store.close()

    again = TableStore(tmp_path_factory.mktemp("again"), has_history=True)
    again.start_over()
    topics = {True: list(map(ConsumedMessage, rows)), False: list(map(ConsumedMessage, versions))}
    while any(topics.values()):
        changes = ReadChanges(times.since)
        for is_row in data.draw(st.permutations([True, False])):
            count = data.draw(st.integers(0, 5)) or len(topics[is_row])
            for message in topics[is_row][:count]:
                changes.note(message, is_row=is_row)
            del topics[is_row][:count]
        again.load(changes.upserts, changes.deletes, changes.history)
    again.publish(len(batches), times)
    assert_same(again, table)
    again.close()


def test_two_rows_of_one_key_at_one_time_are_refused():
    table = EvolvingRows(defaultdict(dict))
    table.update([("a", 0, 1), ("a", 5, 2)])
    changes = table.update([("a", 0, 3)])
    added = changes.filter(pc.greater(changes.column(WEIGHT), 0))
    twice = pa.concat_tables([changes, added.set_column(1, "value", pa.array(["{}"] * added.num_rows))])
    with pytest.raises(ValueError, match=r'\{"cell":"a"\}'):
        split_newest(twice)


def test_versions_that_ended_before_the_history_are_removed_by_and_by(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SWEPT_PER_BATCH", 3)
    monkeypatch.setattr(module, "_SWEPT_PER_VERSION", 2)
    store = TableStore(tmp_path, has_history=True)
    store.publish(None)
    held, times = [], NO_TIMES
    for batch in range(300):
        versions = [module.Version(b"k%d" % key, batch, batch + 1, b"row") for key in range(4)]
        times = HISTORY.times(batch, times)
        store.apply(batch, [], [], module.VersionChanges((), versions), times)
        with store._environment.begin() as transaction:
            held.append(transaction.stat(store._sides[0].history.versions)["entries"])
    assert max(held[100:]) <= 3 * 4 * RETENTION
    with store.reader().snapshot() as table:
        assert table.get_at(b"k1", 300 - RETENTION) == b"row"
    store.close()


def test_times_only_move_forward():
    history = TableHistory(HISTORY.topic, retention=10, lag=3)
    times = history.times(None, NO_TIMES)
    assert times == NO_TIMES
    times = history.times(100, times)
    assert times == HistoryTimes(since=87, final=97)
    longer = TableHistory(HISTORY.topic, retention=50, lag=3)
    assert longer.times(101, times) == HistoryTimes(since=87, final=98)
    assert longer.times(150, times) == HistoryTimes(since=97, final=147)


def microseconds(minute):
    return 1_709_294_400_000_000 + minute * 60_000_000  # from 2024-03-01T12:00:00Z on


@pytest.fixture(scope="module")
def trips(tmp_path_factory):
    """The port of a table with one row since 12:20, which was another one from 12:05 until 12:10."""
    folder = tmp_path_factory.mktemp("trips")
    store = TableStore(folder, has_history=True)
    key = text(cell="a")
    store.publish(None)
    versions = [module.Version(key, microseconds(5), microseconds(10), text(cell="a", n=1))]
    changes = module.VersionChanges([(key, microseconds(20))], versions)
    store.apply(3, [(key, text(cell="a", n=2))], [], changes, HistoryTimes(microseconds(-45), microseconds(15)))
    with served(folder, CELL) as process:
        yield process.port
    store.close()


@pytest.mark.parametrize(
    ("time", "n"), [("12:04:59", None), ("12:05", 1), ("12:09:59.9", 1), ("12:10", None), ("12:20", 2), ("23:00", 2)]
)
def test_the_endpoint_answers_with_the_rows_of_a_time(trips, time, n):
    status, answer = ask(trips, f"/table?key=a&at=2024-03-01T{time}Z")
    assert (status, [row and row["n"] for row in answer["rows"]]) == (200, [n])
    assert answer["since"] == "2024-03-01T11:15:00.000000Z"
    assert answer["final"] == "2024-03-01T12:15:00.000000Z"
    assert answer["at"].startswith(f"2024-03-01T{time}")


def test_without_a_time_the_endpoint_answers_with_the_latest_rows(trips):
    assert ask(trips, "/table?key=a") == (
        200, {"query": "trips", "batch": 3, "key": ["cell"], "next": None, "rows": [{"cell": "a", "n": 2}]},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ("key=a&at=2024-03-01T11:14:59Z",
         "the history goes back to 2024-03-01T11:15:00.000000Z: 2024-03-01T11:14:59.000000Z is before that"),
        ("key=a&at=noon", "'noon' is not a time: write it like 2024-03-01T12:00:00Z"),
        ("at=2024-03-01T12:00:00Z", "at is for single rows: write key as well"),
        ("prefix=a&at=2024-03-01T12:00:00Z", "at is for single rows: write key as well"),
    ],
)  # fmt: skip
def test_the_endpoint_refuses_times_that_it_cannot_answer(trips, parameters, error):
    assert ask(trips, f"/table?{parameters}") == (400, {"error": error})


def test_a_table_without_a_history_has_no_earlier_rows(tmp_path):
    store = filled(tmp_path, {text(cell="a"): text(cell="a", n=1)})
    with served(tmp_path, CELL) as process:
        status, answer = ask(process.port, "/table?key=a&at=2024-03-01")
    assert status == 400
    assert answer["error"] == "the table has only its latest rows: leave at out, or add history to its sink"
    store.close()
