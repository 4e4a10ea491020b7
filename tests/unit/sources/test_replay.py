"""Replay with a clock that the test turns."""

import hashlib
import itertools
import json
import os
import pickle
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrow_schemas import a_schema
from millrace_api.errors import MillraceError
from millrace_jobs.sources.base import CorruptRecords
from millrace_jobs.sources.formats import file_formats
from millrace_jobs.sources.replay import connector as replay_module
from millrace_jobs.sources.replay.connector import ReplaySource
from record_tables import Collected, all_rows, no_file_above, rows_of

SCHEMA = a_schema([("at", "TIMESTAMP"), ("n", "INT")])
BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.now = 123.0

    def __call__(self):
        return self.now


def record(folder, seconds, name="trips.csv"):
    """A recording with one row per event time, in seconds after BEGIN; None is NULL."""
    file = Path(folder, name)
    times = ["" if s is None else (BEGIN + timedelta(seconds=s)).isoformat() for s in seconds]
    file.write_text("at,n\n" + "".join(f"{time},{i}\n" for i, time in enumerate(times)))
    return str(file)


def replay(folder, path, clock=None, **options):
    return ReplaySource("s", path, "csv", SCHEMA, "at", f"{folder}/cache", clock=clock or Clock(), **options)


def test_a_recording_is_replayed_at_a_multiple_of_its_event_times(tmp_path):
    clock = Clock()
    source = replay(tmp_path, record(tmp_path, [0, 60, 30, 120, 90, 600]), clock, speed=60)
    position, seen = source.initial(), []
    for _ in range(12):
        position = source.latest(position, everything=False)
        seen.append(position["row"])
        clock.now += 1
    assert seen == [1, 3, 5, 5, 5, 5, 5, 5, 5, 5, 6, 6]
    assert source.exhausted(position)


def test_a_restart_goes_on_from_where_it_was(tmp_path):
    path = record(tmp_path, [0, 10, 20, 30])
    clock = Clock()
    source = replay(tmp_path, path, clock)
    clock.now = 5000
    assert source.latest({"row": 2}, everything=False) == {"row": 2}
    clock.now += 9
    assert source.latest({"row": 2}, everything=False) == {"row": 2}
    clock.now += 1
    assert source.latest({"row": 2}, everything=False) == {"row": 3}


def test_a_recording_is_replayed_at_a_rate(tmp_path):
    path = record(tmp_path, range(100))
    for rate, rows in [(10, 20), (2.5, 5)]:
        clock = Clock()
        source = replay(tmp_path, path, clock, rate=rate)
        assert source.latest(source.initial(), everything=False) == {"row": 0}
        clock.now += 2
        assert source.latest(source.initial(), everything=False) == {"row": rows}
        clock.now += 1000
        assert source.latest(source.initial(), everything=False) == {"row": 100}


def test_everything_does_not_wait_but_keeps_to_the_limit(tmp_path):
    path = record(tmp_path, [0, 10**6, 2 * 10**6])
    source = replay(tmp_path, path)
    assert source.latest(source.initial(), everything=True) == {"row": 3}
    source = replay(tmp_path, path, max_rows_per_batch=2)
    assert source.latest({"row": 0}, everything=True) == {"row": 2}
    assert source.lag({"row": 0}) == 3
    assert source.latest({"row": 2}, everything=True) == {"row": 3}
    assert source.latest({"row": 3}, everything=True) == {"row": 3}
    assert source.lag({"row": 3}) == 0


def test_with_a_pace_a_batch_takes_at_most_what_the_capacity_allows(tmp_path):
    clock = Clock()
    path = record(tmp_path, range(100))
    source = replay(tmp_path, path, clock)
    assert source.latest(source.initial(), everything=False, most=7) == {"row": 1}
    clock.now += 200
    assert source.latest({"row": 1}, everything=False, most=7) == {"row": 8}
    assert source.lag({"row": 8}) == 92
    assert source.latest({"row": 8}, everything=True, most=7) == {"row": 100}
    limited = replay(tmp_path, path, clock, max_rows_per_batch=5)
    assert limited.latest({"row": 0}, everything=True, most=7) == {"row": 5}


def test_the_limit_leaves_what_is_due_as_lag(tmp_path):
    clock = Clock()
    source = replay(tmp_path, record(tmp_path, range(100)), clock, max_rows_per_batch=10)
    assert source.lag(source.initial()) == 0
    source.latest(source.initial(), everything=False)
    clock.now += 49
    assert source.latest({"row": 1}, everything=False) == {"row": 11}
    assert source.lag({"row": 11}) == 39


@given(
    times=st.lists(st.integers(0, 100) | st.none(), max_size=60),
    max_rows=st.integers(1, 20),
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
def test_every_row_comes_once_and_in_order_for_any_cut(times, max_rows, cuts):
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(file_formats, "MAX_ROWS", max_rows),
        mock.patch.object(replay_module, "MAX_ROWS", max_rows),
    ):
        source = replay(folder, record(folder, times))
        rows = len(times)
        ends = [{"row": row} for row in sorted({0, rows, *(cut for cut in cuts if cut <= rows)})]
        for replicas in range(1, 8):
            got = []
            for start, end in itertools.pairwise(ends):
                parts = [part.rows for part in rows_of(source, start, end, replicas)]
                assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1
                got += [row for part in parts for row in part]
            assert [row[1] for row in got] == list(range(rows))
            assert [row[0] for row in got] == [s if s is None else BEGIN + timedelta(seconds=s) for s in times]
        assert source.latest(source.initial(), everything=True) == {"row": rows}


@given(
    times=st.lists(st.integers(0, 100) | st.none(), min_size=1, max_size=40),
    waits=st.lists(st.integers(0, 30), max_size=8),
)
def test_what_is_due_is_what_the_running_maximum_of_event_time_says(times, waits):
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        source = replay(folder, record(folder, times), clock)
        known = [s for s in times if s is not None]
        elapsed, position = 0, source.latest(source.initial(), everything=False)
        for wait in [0, *waits]:
            clock.now += wait
            elapsed += wait
            position = source.latest(position, everything=False)
            late = next((i for i, s in enumerate(times) if s is not None and s > known[0] + elapsed), len(times))
            assert position == {"row": late}


@pytest.mark.parametrize("policy", ["Drop", "DeadLetter"])
def test_bad_records_are_left_out_once_and_reported_once(tmp_path, policy):
    path = record(tmp_path, range(6))
    lines = Path(path).read_text().splitlines()
    lines[3] = "yesterday,2"
    lines.insert(5, "oops")
    Path(path).write_text("\n".join(lines))
    corrupt = CorruptRecords(policy, str(tmp_path / "dead"))
    for _ in range(2):  # the second time from the cache
        source = replay(tmp_path, path, corrupt=corrupt)
        end = source.latest(source.initial(), everything=True)
        parts = list(rows_of(source, source.initial(), end, 3))
        assert [row[1] for part in parts for row in part.rows] == [0, 1, 3, 4, 5]
        assert [part.rejected for part in parts] == [2, 0, 0]
    dead = [json.loads(line) for file in tmp_path.glob("dead/*") for line in file.read_text().splitlines()]
    assert [(letter["line"], letter["text"]) for letter in dead] == (
        [(4, "yesterday,2"), (6, "oops")] if policy == "DeadLetter" else []
    )


def test_a_bad_record_fails_also_when_the_recording_was_converted_without_it(tmp_path):
    path = record(tmp_path, range(3))
    Path(path).write_text(Path(path).read_text() + "oops\n")
    replay(tmp_path, path, corrupt=CorruptRecords("Drop"))
    with pytest.raises(
        MillraceError, match=r"trips\.csv:5: source s cannot decode 'oops': 1 field where 2 are expected"
    ):
        replay(tmp_path, path)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_the_conversion_is_kept_until_the_file_changes(tmp_path):
    path = record(tmp_path, range(3))
    replay(tmp_path, path)
    with mock.patch.object(replay_module, "_write", side_effect=AssertionError("converted again")):
        replay(tmp_path, path)
    record(tmp_path, range(5))
    assert len(all_rows(replay(tmp_path, path))) == 5


def test_a_recording_that_was_decoded_by_an_older_version_is_made_again(tmp_path, monkeypatch):
    times = pa.array([datetime(2300, 6, 1)], pa.timestamp("us"))
    table = pa.table({"at": times, "n": [1]})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)

    def opened():
        return ReplaySource("s", str(tmp_path / "a.parquet"), "parquet", SCHEMA, "at", str(tmp_path / "cache"))

    with monkeypatch.context() as older:
        older.setattr(replay_module, "_DECODING", 1)
        opened()
    assert all_rows(opened()) == [(datetime(2300, 6, 1, tzinfo=UTC), 1)]
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_two_processes_may_convert_at_once(tmp_path):
    path = record(tmp_path, range(3))

    def write_after_the_other(*arguments):
        with mock.patch.object(replay_module, "_write", write):
            replay(tmp_path, path)
        return write(*arguments)

    write = replay_module._write
    with mock.patch.object(replay_module, "_write", write_after_the_other):
        source = replay(tmp_path, path)
    assert len(all_rows(source)) == 3
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    path = record(tmp_path, range(2000))
    with no_file_above(1000), pytest.raises(MillraceError, match="cannot store the converted recording"):
        replay(tmp_path, path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_conversion_that_was_killed_is_not_taken_for_one(tmp_path):
    path = record(tmp_path, range(3))
    with (
        mock.patch.object(replay_module, "_write", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        replay(tmp_path, path)
    (tmp_path / "cache/.unfinished-x").mkdir()
    (tmp_path / "cache/.unfinished-x/records.arrow").write_bytes(b"ARROW1")
    assert len(all_rows(replay(tmp_path, path))) == 3


def test_tasks_get_the_source_and_read_without_a_clock(tmp_path):
    source = replay(tmp_path, record(tmp_path, range(5)))
    source.latest(source.initial(), everything=False)
    there, pieces = pickle.loads(pickle.dumps((source, source.slices({"row": 1}, {"row": 4}, 2))))
    assert [row[1] for piece in pieces for row in Collected(there.read(piece, "0-0")).rows] == [1, 2, 3]


def test_parquet_and_json_can_be_replayed(tmp_path):
    at = [BEGIN + timedelta(seconds=s) for s in (0, 5)]
    pq.write_table(pa.table({"at": pa.array(at, pa.timestamp("ns")), "n": [0, 1]}), tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text(
        "".join(json.dumps({"n": i, "at": t.isoformat()}) + "\n" for i, t in enumerate(at))
    )
    for name in ("a.parquet", "a.json"):
        source = ReplaySource("s", str(tmp_path / name), name[2:], SCHEMA, "at", str(tmp_path / "cache"))
        assert all_rows(source) == [(at[0], 0), (at[1], 1)]


def test_recordings_that_cannot_be_replayed_are_refused(tmp_path):
    path = record(tmp_path, range(3))
    with pytest.raises(MillraceError, match="source s: there is no such file"):
        replay(tmp_path, str(tmp_path))
    with pytest.raises(MillraceError, match="timeColumn 'n' is not a TIMESTAMP column"):
        ReplaySource("s", path, "csv", SCHEMA, "n", str(tmp_path))
    with pytest.raises(MillraceError, match="the checkpoint is at row 9, but the recording has 3"):
        replay(tmp_path, path).latest({"row": 9}, everything=False)
    (tmp_path / "blocked").write_text("")
    with pytest.raises(MillraceError, match=r"cannot store the converted recording of .*set XDG_CACHE_HOME"):
        ReplaySource("s", path, "csv", SCHEMA, "at", str(tmp_path / "blocked"))


def test_a_recording_that_went_away_is_named(tmp_path):
    source = replay(tmp_path, record(tmp_path, range(3)))
    (file,) = tmp_path.glob("cache/*/records.arrow")
    file.unlink()
    with pytest.raises(MillraceError, match=r"records\.arrow: the converted recording cannot be read"):
        all_rows(source)


def test_an_empty_recording_is_exhausted_at_once(tmp_path):
    source = replay(tmp_path, record(tmp_path, []))
    assert source.latest(source.initial(), everything=False) == source.initial()
    assert source.exhausted(source.initial())
    assert source.slices(source.initial(), source.initial(), 4) == []


def test_another_file_under_the_same_path_is_refused_once_rows_were_replayed(tmp_path):
    path = Path(record(tmp_path, [0, 10, 20]))
    source = replay(tmp_path, str(path), state=tmp_path / "state")
    assert source.latest(source.initial(), everything=True) == {"row": 3}
    assert replay(tmp_path, str(path), state=tmp_path / "state").latest({"row": 2}, everything=True)
    path.write_text(path.read_text().replace(",2", ",7"))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    changed = replay(tmp_path, str(path), state=tmp_path / "state")
    with pytest.raises(MillraceError, match="the file has changed since its first 2 rows were replayed"):
        changed.latest({"row": 2}, everything=True)
    again = replay(tmp_path, str(path), state=tmp_path / "state")
    assert again.latest({"row": 0}, everything=True) == {"row": 3}  # nothing of the other one was taken


def test_the_same_content_with_another_time_is_the_same_file(tmp_path):
    path = Path(record(tmp_path, [0, 10, 20]))
    places = {"state": tmp_path / "state"}
    replay(tmp_path, str(path), **places).latest({"row": 0}, everything=True)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
    assert replay(tmp_path, str(path), **places).latest({"row": 2}, everything=True) == {"row": 3}

    state = tmp_path / "state/replayed.json"  # as an older version wrote it, without the content
    state.write_text(json.dumps(json.loads(state.read_text())[:2]))
    with pytest.raises(MillraceError, match="the file has changed since its first 2 rows were replayed"):
        replay(tmp_path, str(path), **places).latest({"row": 2}, everything=True)


@pytest.mark.parametrize("content", ["", "[12", "null", "\0\0"])
def test_a_memory_of_the_replayed_file_that_cannot_be_read_is_made_again(tmp_path, content):
    path = Path(record(tmp_path, [0, 10, 20]))
    state = tmp_path / "state/replayed.json"
    state.parent.mkdir()
    state.write_text(content)
    source = replay(tmp_path, str(path), state=tmp_path / "state")
    assert source.latest({"row": 2}, everything=True) == {"row": 3}
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    assert json.loads(state.read_text()) == [path.stat().st_size, path.stat().st_mtime_ns, content]
    assert list(state.parent.iterdir()) == [state]


def test_a_kill_while_the_replayed_file_is_remembered_leaves_what_was_remembered(tmp_path):
    path = record(tmp_path, [0, 10, 20])
    replay(tmp_path, path, state=tmp_path / "state").latest({"row": 0}, everything=True)
    before = (tmp_path / "state/replayed.json").read_text()
    again = replay(tmp_path, path, state=tmp_path / "state")
    with mock.patch.object(os, "fsync", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        again.latest({"row": 0}, everything=True)
    assert (tmp_path / "state/replayed.json").read_text() == before


def test_a_file_that_changes_while_it_is_converted_is_refused(tmp_path):
    path = Path(record(tmp_path, [0, 10, 20]))
    write = replay_module._write

    def write_and_append(*arguments):
        rows = write(*arguments)
        with path.open("a") as file:
            file.write("x")
        return rows

    with (
        mock.patch.object(replay_module, "_write", write_and_append),
        pytest.raises(MillraceError, match=r"trips\.csv: has changed while it was read"),
    ):
        replay(tmp_path, str(path))
    assert not list((tmp_path / "cache").iterdir())
