"""What is kept of Spark's event log: little of the past, all that goes on, and nothing is lost when a step is cut off."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.model.reporting import EventLogSpec
from millrace_api.validation.loading import read_query
from millrace_jobs import event_log
from millrace_jobs.event_log import EventLog, EventLogKeeper, compact, event_files, folder_name, kept_lines
from unit.fields.documents import KAFKA, query

from .event_lines import ALWAYS, TASK, kept, lines

START = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent"
END = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryTerminatedEvent"
PROGRESS = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"


def executor(kind, number):
    return {"Event": f"SparkListenerExecutor{kind}", "Executor ID": str(number)}


def blocks(kind, number):
    return {"Event": f"SparkListenerBlockManager{kind}", "Block Manager ID": {"Executor ID": str(number), "Port": 1}}


def write(folder: Path, number: int, *events, suffix=""):
    (folder / f"events_{number}_local-1.zstd{suffix}").write_bytes(
        pa.compress(b"".join(lines(events)), codec="zstd", asbytes=True)
    )


def read(folder: Path):
    """The events that a history server reads, which begins with the last file that stands for others."""
    found = event_files(each.name for each in folder.iterdir())
    assert [each.number for each in found] == list(range(found[0].number, found[0].number + len(found)))
    return [json.loads(line) for each in found for line in event_log._lines((folder / each.name).read_bytes())]


def test_what_goes_on_is_kept_and_what_is_over_is_not():
    assert kept(*ALWAYS, TASK, {"Event": PROGRESS}) == ALWAYS
    assert kept(executor("Added", 1), executor("Added", 2), executor("Removed", 1)) == [executor("Added", 2)]
    assert kept(blocks("Added", 1), blocks("Added", 2), blocks("Removed", 2)) == [blocks("Added", 1)]
    assert kept(executor("Removed", 1), executor("Added", 1)) == [executor("Added", 1)]
    runs = [{"Event": START, "runId": name} for name in "ab"]
    assert kept(*runs, {"Event": END, "runId": "a"}) == [runs[1]]


def test_lines_that_are_no_events_are_left_out():
    assert kept_lines([b"", b"\n", b"{}\n", b"[1]\n", b'{"Event":1}\n']) == []


@given(st.lists(st.tuples(st.sampled_from(["Added", "Removed"]), st.integers(0, 3)), max_size=30), st.integers(1, 29))
def test_replacing_files_one_by_one_keeps_what_replacing_them_at_once_does(changes, cut):
    events = [executor(*each) for each in changes]
    first = kept(*events[:cut])
    assert kept(*first, *events[cut:]) == kept(*events)


@pytest.mark.parametrize("files", [1, 2, 4])
def test_a_log_does_not_grow(tmp_path, files):
    write(tmp_path, 1, *ALWAYS, executor("Added", 0))
    for number in range(2, 30):
        write(tmp_path, number, TASK, executor("Added", number), executor("Removed", number - 1))
        compact(tmp_path, files)
        assert len(list(tmp_path.iterdir())) <= files + 2
    alive = [each["Executor ID"] for each in read(tmp_path) if each["Event"] == "SparkListenerExecutorAdded"]
    assert read(tmp_path)[:3] == ALWAYS
    assert alive == ["0", *map(str, range(28 - files, 30))]  # that of the last replaced file ended in a later one
    assert not compact(tmp_path, files)


def test_a_file_of_several_frames_is_read_to_its_end(tmp_path):
    frames = [pa.compress(each, codec="zstd", asbytes=True) for each in lines([*ALWAYS, TASK])]
    (tmp_path / "events_1_local-1.zstd").write_bytes(b"".join(frames))
    write(tmp_path, 2, TASK)
    write(tmp_path, 3, TASK)
    assert compact(tmp_path, 1)
    assert read(tmp_path) == [*ALWAYS, TASK, TASK]


def test_old_files_that_were_left_when_a_step_was_cut_off_are_passed_over_and_removed(tmp_path):
    write(tmp_path, 1, *ALWAYS, executor("Added", 1))
    write(tmp_path, 2, executor("Removed", 1))
    write(tmp_path, 2, *ALWAYS, suffix=".compact")
    for number in (3, 4, 5):
        write(tmp_path, number, TASK)
    assert read(tmp_path) == [*ALWAYS, TASK, TASK, TASK]
    assert compact(tmp_path, 1)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "events_3_local-1.zstd.compact",
        "events_4_local-1.zstd",
        "events_5_local-1.zstd",
    ]
    assert read(tmp_path) == [*ALWAYS, TASK, TASK]


def test_a_file_that_was_not_finished_has_a_name_that_no_history_server_takes(tmp_path, monkeypatch):
    for number in (1, 2, 3):
        write(tmp_path, number, *ALWAYS)
    before = read(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("power cut")))
        with pytest.raises(OSError, match="power cut"):
            compact(tmp_path, 1)
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith("events_")] == [".millrace-unfinished"]
    assert read(tmp_path) == before
    assert compact(tmp_path, 1)
    assert ".millrace-unfinished" not in {each.name for each in tmp_path.iterdir()}


def log_of(place: Path, **more) -> EventLog:
    asked = read_query(query(KAFKA, eventLog={"path": str(place), **more}))
    log = EventLog.of(asked, "/checkpoint")
    assert log is not None
    return log


def test_logs_of_old_runs_are_removed_and_those_of_other_queries_are_not(tmp_path):
    log, others = log_of(tmp_path, runs=2), EventLog(tmp_path, EventLogSpec(path=str(tmp_path)), "fares", "another")
    for each in (log, others):
        each.prepare()
    others.begin("local-0")
    for number in range(4):
        application = f"local-{number + 1}"
        (tmp_path / folder_name(application)).mkdir()
        log.begin(application)
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == [
        "eventlog_v2_local-3",
        "eventlog_v2_local-4",
    ]
    assert (log.runs(), others.runs()) == (["eventlog_v2_local-3", "eventlog_v2_local-4"], ["eventlog_v2_local-0"])


def test_a_run_that_begins_twice_counts_once_and_a_broken_record_is_no_record(tmp_path):
    log = log_of(tmp_path)
    log.begin("local-1")
    log.begin("local-1")
    assert log.runs() == ["eventlog_v2_local-1"]
    (tmp_path / log.record.name).write_text("{")
    assert log.runs() == []


def test_a_forged_record_leads_to_no_other_folder(tmp_path):
    (tmp_path / "logs").mkdir()
    other = tmp_path / "eventlog_v2_other"
    other.mkdir()
    log = log_of(tmp_path / "logs", runs=1)
    forged = ["../eventlog_v2_other", "..", "", str(other), "eventlog_v2_/../../eventlog_v2_other", 1]
    (tmp_path / "logs" / log.record.name).write_text(json.dumps(forged))
    log.begin("local-1")
    assert other.is_dir()
    assert log.runs() == ["eventlog_v2_local-1"]


def test_another_checkpoint_is_another_owner(tmp_path):
    asked = read_query(query(KAFKA, eventLog={"path": str(tmp_path)}))
    one, two = EventLog.of(asked, "/one"), EventLog.of(asked, "/two")
    assert one is not None
    assert two is not None
    assert one.record != two.record


def test_the_names_of_folders_are_those_of_spark():
    assert folder_name("Spark App/1:2.3") == "eventlog_v2_spark-app-1-2_3"


def test_a_keeper_that_cannot_write_says_so_once(tmp_path, monkeypatch):
    monkeypatch.setattr(event_log, "_SECONDS", 0.001)
    (tmp_path / "file").write_text("")
    said: list[str] = []
    keeper = EventLogKeeper(log_of(tmp_path / "file"), "local-1", said.append)
    keeper._ended.wait(0.1)
    keeper.close()
    assert len(said) == 1
    assert said[0].startswith(f"the event log in {tmp_path}/file grows: its old files cannot be replaced: ")
