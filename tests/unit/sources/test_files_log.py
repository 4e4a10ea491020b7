"""Which files a batch has: existing and arriving ones, each once, whatever happens to the process."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_api.model.sources import SourceSpec
from millrace_api.model.status import FailureClass
from millrace_jobs.sources import connector as opening
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.replay.connector import require_file
from record_tables import all_rows, no_file_above

from .arriving_files import SCHEMA, arrive, numbers, open_source


def test_existing_files_come_in_order_of_time_and_name_before_arriving_ones(tmp_path):
    for name, mtime in [("c", 1), ("b", 2), ("a", 2), (".hidden", 1), ("_hidden", 1), ("sub/d", 1)]:
        arrive(tmp_path, name, ord(name[0]), mtime=mtime)
    source = open_source(tmp_path)
    first = source.latest(source.initial(), everything=False)
    assert first == {"files": 3}
    assert source.lag(source.initial()) == 3
    assert numbers(source, source.initial(), first) == [ord("c"), ord("a"), ord("b")]
    assert source.latest(first, everything=False) == first
    arrive(tmp_path, "0", 48, mtime=0)
    second = source.latest(first, everything=False)
    assert source.lag(first) == 1
    assert numbers(source, first, second) == [48]
    assert source.lag(second) == 0
    assert not source.exhausted(second)


def test_a_driver_that_wakes_up_late_does_not_number_files_again(tmp_path):
    for name, mtime in [("a", 1), ("c", 3)]:
        arrive(tmp_path, name, ord(name), mtime=mtime)
    late = open_source(tmp_path)
    start = late.latest(late.initial(), everything=False)
    other = open_source(tmp_path)
    arrive(tmp_path, "d", ord("d"), mtime=4)
    end = other.latest(start, everything=False)
    arrive(tmp_path, "b", ord("b"), mtime=2)
    log = (tmp_path / "log" / "files.jsonl").read_bytes()
    with pytest.raises(MillraceError, match="another driver has written to the log of files seen"):
        late.latest(start, everything=False)
    assert (tmp_path / "log" / "files.jsonl").read_bytes() == log
    after = other.latest(end, everything=False)
    assert numbers(other, start, end) + numbers(other, end, after) == [ord("d"), ord("b")]


def test_a_reader_that_follows_another_run_reads_its_files_and_records_none(tmp_path):
    arrive(tmp_path, "a", 1, mtime=1)
    driver, follower = open_source(tmp_path), open_source(tmp_path)
    first = driver.latest(driver.initial(), everything=False)
    assert numbers(follower, driver.initial(), first) == [1]
    arrive(tmp_path, "b", 2, mtime=2)
    second = driver.latest(first, everything=False)
    assert numbers(follower, first, second) == [2]
    arrive(tmp_path, "c", 3, mtime=3)
    with pytest.raises(MillraceError, match="another driver has written to the log of files seen"):
        follower.latest(second, everything=False)
    third = driver.latest(second, everything=False)
    assert numbers(driver, second, third) == [3]


def test_a_batch_has_at_most_the_files_that_the_query_allows(tmp_path):
    for i in range(5):
        arrive(tmp_path, str(i), i, mtime=i)
    source = open_source(tmp_path, max_files_per_batch=2)
    position, batches = source.initial(), []
    while (end := source.latest(position, everything=True)) != position:
        batches.append(numbers(source, position, end))
        position = end
    assert batches == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("in/a1", [1]),
        ("in/a*", [1, 2]),
        ("in/**/*", [1, 2, 3, 4]),
        ("in/*/c", [4]),
        ("in", [1, 2, 3]),
        ("./in/a?", [1, 2]),
    ],
)
def test_a_path_may_be_a_file_a_folder_or_a_pattern(tmp_path, path, found):
    for i, name in enumerate(["a1", "a2", "b", "sub/c", "_temporary/d", "sub/.e"], 1):
        arrive(tmp_path, name, i, mtime=i)
    assert [row[0] for row in all_rows(open_source(tmp_path, path))] == found


def test_an_empty_folder_is_fine_and_so_are_empty_files(tmp_path):
    (tmp_path / "in").mkdir()
    source = open_source(tmp_path)
    assert source.latest(source.initial(), everything=False) == source.initial()
    arrive(tmp_path, "empty")
    end = source.latest(source.initial(), everything=False)
    assert end == {"files": 1}
    assert source.slices(source.initial(), end, 3) == []


def test_a_run_of_everything_reads_what_was_there_at_first(tmp_path):
    arrive(tmp_path, "a", 1)
    source = open_source(tmp_path)
    there = source.latest(source.initial(), everything=True)
    arrive(tmp_path, "b", 2)
    assert source.latest(there, everything=True) == there == {"files": 1}
    assert open_source(tmp_path).latest(there, everything=True) == {"files": 2}


@pytest.mark.parametrize("path", ["nowhere", "in/*.csv", "nowhere/*"])
def test_a_path_that_matches_no_file_is_refused(tmp_path, path):
    (tmp_path / "in").mkdir()
    with pytest.raises(MillraceError, match="source s: no file matches this path; write"):
        open_source(tmp_path, path)


def test_a_restart_does_not_ask_for_files_that_are_done_with(tmp_path):
    arrive(tmp_path, "a", 1)
    source = open_source(tmp_path, "in/*")
    end = source.latest(source.initial(), everything=False)
    (tmp_path / "in/a").unlink()
    again = open_source(tmp_path, "in/*")
    assert again.latest(end, everything=False) == end


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.unlink(),
        lambda file: file.write_text("1"),
        lambda file: file.write_text("1\n2\n3\n"),
    ],
)
def test_a_file_that_is_not_what_it_was_is_refused(tmp_path, change):
    arrive(tmp_path, "a", 1, 2)
    source = open_source(tmp_path)
    end = source.latest(source.initial(), everything=False)
    (piece,) = source.slices(source.initial(), end, 1)
    change(tmp_path / "in/a")
    with pytest.raises(MillraceError, match=r"in/a: (was seen|had 4 bytes)"):
        list(source.read(piece, "0-0"))
    with pytest.raises(MillraceError, match=r"in/a: (was seen|had 4 bytes)"):
        source.slices(source.initial(), end, 1)


@given(
    arrivals=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    crash_after=st.integers(0, 5),
    committed=st.booleans(),
    keep=st.floats(0, 1),
    junk=st.sampled_from([b"", b"{", b'{"path": "/x", "size"']),
)
def test_a_crash_at_any_byte_of_the_log_loses_and_doubles_nothing(arrivals, crash_after, committed, keep, junk):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "in").mkdir()
        source = open_source(folder)
        position, got, count = source.initial(), [], 0
        log = Path(folder, "log/files.jsonl")
        for batch, new in enumerate(arrivals):
            for _ in range(new):
                arrive(folder, f"{count:02d}", count)
                count += 1
            durable = log.stat().st_size
            end = source.latest(position, everything=False)
            if batch == crash_after:
                # What was appended before the position was made durable is there in part, or not at all.
                whole = log.stat().st_size
                if not committed:
                    os.truncate(log, durable + round(keep * (whole - durable)))
                with log.open("ab") as file:
                    file.write(junk)
                source = open_source(folder)
                if not committed:
                    end = source.latest(position, everything=False)
            got += numbers(source, position, end)
            position = end
        got += numbers(source, position, source.latest(position, everything=False))
        assert sorted(got) == list(range(count))


def test_a_log_shorter_than_the_checkpoint_is_refused(tmp_path):
    arrive(tmp_path, "a", 1)
    source = open_source(tmp_path)
    with pytest.raises(MillraceError, match="the checkpoint is at file 5, but its log knows 0 files"):
        source.latest({"files": 5}, everything=False)


def test_a_damaged_log_is_refused_with_its_line(tmp_path):
    arrive(tmp_path, "a", 1)
    open_source(tmp_path).latest({"files": 0}, everything=False)
    log = tmp_path / "log/files.jsonl"
    log.write_bytes(log.read_bytes() + b"oops\n")
    with pytest.raises(MillraceError, match=r"files\.jsonl:2: the log of files seen is damaged: 'oops'"):
        open_source(tmp_path)


def test_a_log_that_cannot_be_kept_is_an_error(tmp_path):
    arrive(tmp_path, "a", 1)
    (tmp_path / "log").write_text("a file where a folder should be")
    with pytest.raises(MillraceError, match="cannot read or write the log of files seen"):
        open_source(tmp_path)


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path):
    arrive(tmp_path, "a", 1)
    source = open_source(tmp_path)
    with no_file_above(20), pytest.raises(MillraceError, match="cannot read or write the log of files seen"):
        source.latest(source.initial(), everything=False)
    arrive(tmp_path, "b", 2)
    end = source.latest(source.initial(), everything=False)
    assert sorted(numbers(source, source.initial(), end)) == [1, 2]
    again = open_source(tmp_path)
    assert numbers(again, source.initial(), end) == numbers(source, source.initial(), end)


def test_a_file_in_a_folder_that_is_closed_to_this_user_is_refused_in_a_sentence(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(MillraceError, match=r"x\.csv: source s: cannot list the files: Permission denied; let this"):
        FilesSource("s", "closed/x.csv", "csv", SCHEMA, str(tmp_path))
    with pytest.raises(MillraceError, match=r"x\.csv: source s: cannot look for the file: Permission denied; let this"):
        require_file("s", "closed/x.csv")


def test_a_bad_header_after_blank_lines_is_located_on_its_own_line(tmp_path):
    (tmp_path / "a.csv").write_text("\n\nm\n1\n")
    with pytest.raises(MillraceError, match=r"a\.csv:3: the header has no column"):
        FilesSource("s", str(tmp_path / "a.csv"), "csv", SCHEMA, str(tmp_path / "log")).check()


def test_impossible_options_are_refused():
    for options, message in [
        ({"delimiter": "||"}, "delimiter '||' cannot be used"),
        ({"delimiter": '"'}, "delimiter '\"' cannot be used"),
        ({"timestamp_format": "days"}, "timestampFormat 'days' is unknown"),
    ]:
        with pytest.raises(MillraceError, match=message.replace("|", r"\|")):
            FilesSource("s", "x", "csv", SCHEMA, "y", **options)
    with pytest.raises(MillraceError, match="format 'xml' is unknown; write csv, json or parquet"):
        FilesSource("s", "x", "xml", SCHEMA, "y")


def test_another_header_than_the_schema_is_a_fault_of_the_source_before_anything_is_read(tmp_path):
    spec = SourceSpec.model_validate({"files": {"path": f"{tmp_path}/in", "format": "csv"}, "schema": "n INT"})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("m\n1\n")
    with pytest.raises(MillraceError, match=r"1\.csv:1: the header has no column n; it has m") as refused:
        opening.open_source("s", spec, tmp_path / "log", tmp_path)
    assert refused.value.failure is FailureClass.SOURCE


def test_two_readers_of_a_run_that_lists_by_name_read_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("millrace_jobs.sources.files.file_log._SLACK", 0)
    for name in "abc":
        arrive(tmp_path, name, ord(name))
    ahead, behind = (open_source(tmp_path, by_name=True) for _ in range(2))
    ahead._run = behind._run
    assert behind.latest({"files": 0}, everything=False) == {"files": 3}
    for name in "defghi":
        arrive(tmp_path, name, ord(name))
        ahead.latest({"files": ahead._log.count}, everything=False)
    assert behind.latest({"files": 3}, everything=False) == {"files": 9}
    assert numbers(behind, {"files": 8}, {"files": 9}) == [ord("i")]
    arrive(tmp_path, "j", ord("j"))
    assert ahead.latest({"files": 9}, everything=False) == {"files": 10}
    assert len(ahead._log) <= 3
