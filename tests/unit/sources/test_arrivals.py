"""When the records of each kind of source arrived, as its tasks report it."""

import os
import pickle
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from millrace_jobs.sources import pacing
from millrace_jobs.sources.base import MOST_TIMES
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.formats.column_types import TIMESTAMP
from millrace_jobs.sources.generated.rows import RateSource
from millrace_jobs.sources.kafka.message_records import arrivals
from millrace_jobs.sources.replay.connector import ReplaySource

NOW = 1_800_000_000.0
SCHEMA = pa.schema([("at", TIMESTAMP), ("n", pa.int64())])
ROWS = "at,n\n" + "".join(f"2024-01-01T00:00:0{second}Z,{second}\n" for second in range(8))


def reported(source, start, end, replicas=2):
    """The seconds since 1970 that tasks report for a batch, once for each record that a time stands for."""
    task = pickle.loads(pickle.dumps(source))
    times = []
    for piece in pickle.loads(pickle.dumps(source.slices(start, end, replicas))):
        list(task.read(piece, "0", lambda micros, records: times.extend(np.repeat(micros, records) / 1e6)))
    return times


class Ticks:
    """A monotonic clock that a test sets."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """The time of day, which stands still."""
    monkeypatch.setattr(pacing, "time", SimpleNamespace(time=lambda: NOW))


def ago(times):
    return [NOW - each for each in times]


def test_a_file_arrives_when_it_is_written(tmp_path):
    for name, written in (("a.csv", 1_700_000_000), ("b.csv", 1_700_000_100)):
        (tmp_path / name).write_text(ROWS)
        os.utime(tmp_path / name, (written, written))
    source = FilesSource("s", str(tmp_path), "csv", SCHEMA, str(tmp_path / "log"))
    times = reported(source, source.initial(), source.latest(source.initial(), everything=True))
    assert sorted(times) == [1_700_000_000] * 8 + [1_700_000_100] * 8


def test_a_generated_record_arrives_when_it_is_due():
    clock = Ticks()
    source = RateSource("s", 2.0, clock=clock)
    source.latest(source.initial(), everything=False)
    clock.now += 4.0
    end = source.latest(source.initial(), everything=False)
    assert end["row"] == 8
    # the eight records were due 3.5, 3.0, ..., 0.0 seconds ago
    assert ago(reported(source, source.initial(), end)) == pytest.approx(np.arange(3.5, -0.1, -0.5))


@pytest.mark.parametrize(("pace", "gap"), [({"speed": 2.0}, 0.5), ({"rate": 4.0}, 0.25)], ids=["speed", "rate"])
def test_a_replayed_record_arrives_when_it_is_due(tmp_path, pace, gap):
    (tmp_path / "r.csv").write_text(ROWS)
    clock = Ticks()
    source = ReplaySource(
        "s", str(tmp_path / "r.csv"), "csv", SCHEMA, "at", str(tmp_path / "cache"), clock=clock, **pace
    )
    source.latest(source.initial(), everything=False)
    clock.now += 100.0
    end = source.latest(source.initial(), everything=False)
    times = reported(source, source.initial(), end, replicas=1)
    assert np.diff(times) == pytest.approx([gap] * 7)
    first = gap if "rate" in pace else 0.0
    assert ago(times)[0] == pytest.approx(100.0 - first)


def test_a_replay_without_a_pace_knows_no_arrival(tmp_path):
    (tmp_path / "r.csv").write_text(ROWS)
    source = ReplaySource("s", str(tmp_path / "r.csv"), "csv", SCHEMA, "at", str(tmp_path / "cache"))
    assert reported(source, source.initial(), source.latest(source.initial(), everything=True)) == []


class Message:
    """A message of Kafka with a time in ms, or none."""

    def __init__(self, millis):
        self._millis = millis

    def timestamp(self):
        return (TIMESTAMP_NOT_AVAILABLE, -1) if self._millis is None else (TIMESTAMP_CREATE_TIME, self._millis)


def test_a_message_arrives_at_its_time_and_one_without_a_time_is_left_out():
    micros, records = arrivals([Message(each) for each in (5, None, 7)])
    assert micros.tolist() == [5000, 7000]
    assert records.tolist() == [1, 1]
    assert [len(each) for each in arrivals([Message(None)])] == [0, 0]


def test_of_many_messages_a_sample_is_looked_at():
    micros, records = arrivals([Message(each) for each in range(100_000)])
    assert len(micros) <= MOST_TIMES
    assert records.sum() == 100_000
    assert np.average(micros, weights=records) == pytest.approx(50_000_000, rel=0.01)
