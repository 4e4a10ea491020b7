"""Files that are replaced, appended to or touched after they were seen."""

import os
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace_api.errors import MillraceError, MissingInputError
from millrace_jobs.sources.files import source as files_module
from millrace_jobs.sources.files.source import FilesSource
from record_tables import rows_of

from .arriving_files import SCHEMA, arrive, numbers, open_source


def read_all(source, end):
    return numbers(source, source.initial(), end)


def rewrite(file, content, *, keep_time=False):
    before = file.stat()
    file.write_bytes(content)
    later = before.st_mtime_ns if keep_time else before.st_mtime_ns + 1_000
    os.utime(file, ns=(later, later))


def touch(file):
    rewrite(file, file.read_bytes())


def replace(file):
    rewrite(file, file.read_bytes()[::-1].lstrip() + b"\n")


def append(file):
    rewrite(file, file.read_bytes() + b"5\n", keep_time=True)


CHANGES = [
    (replace, "had been written at .* when it was seen, and was written again at"),
    (append, "had [24] bytes when it was seen and has [46] now"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_file_that_changes_before_it_is_read_is_refused(tmp_path, change, said):
    arrive(tmp_path, "a", 1, 2)
    source = open_source(tmp_path)
    end = source.latest(source.initial(), everything=False)
    (piece,) = source.slices(source.initial(), end, 1)
    change(tmp_path / "in/a")
    with pytest.raises(MillraceError, match=f"in/a: {said}"):
        list(source.read(piece, "0-0"))
    with pytest.raises(MillraceError, match=f"in/a: {said}"):
        source.slices(source.initial(), end, 1)


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, change, said):
    arrive(tmp_path, "a", 1, 2)
    source = open_source(tmp_path)
    end = source.latest(source.initial(), everything=False)
    (piece,) = source.slices(source.initial(), end, 1)
    blocks = source.read(piece, "0-0")
    assert next(blocks).num_rows == 2
    change(tmp_path / "in/a")
    with pytest.raises(MillraceError, match=f"in/a: {said}"):
        list(blocks)


def test_what_does_not_decode_in_a_changed_file_is_reported_as_its_change(tmp_path):
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32())}), tmp_path / "a.parquet")
    source = FilesSource("s", str(tmp_path / "a.parquet"), "parquet", SCHEMA, str(tmp_path / "log"))
    end = source.latest(source.initial(), everything=True)
    (piece,) = source.slices(source.initial(), end, 1)
    reading = source.read(piece, "0-0")
    size = (tmp_path / "a.parquet").stat().st_size
    monkey = files_module.require_unchanged
    calls = []

    def change_after_the_first_look(files, present=None):
        monkey(files, present)
        if not calls:
            rewrite(tmp_path / "a.parquet", b"x" * size)
        calls.append(None)

    files_module.require_unchanged = change_after_the_first_look
    try:
        with pytest.raises(MillraceError, match="was written again at"):
            list(reading)
    finally:
        files_module.require_unchanged = monkey


def test_a_file_that_was_appended_to_after_it_was_read_is_found_when_the_next_run_starts(tmp_path):
    arrive(tmp_path, "a", 1, 2)
    arrive(tmp_path, "b", 3)
    source = open_source(tmp_path)
    assert sorted(read_all(source, source.latest(source.initial(), everything=True))) == [1, 2, 3]
    open_source(tmp_path).check()
    append(tmp_path / "in/a")
    said = "in/a: had 4 bytes when it was seen and has 6 now; write new records to a file with another name"
    with pytest.raises(MillraceError, match=said):
        open_source(tmp_path).check()
    (tmp_path / "in/a").unlink()
    open_source(tmp_path).check()


def test_a_file_that_was_read_may_have_another_time_as_after_a_restored_backup(tmp_path, caplog):
    arrive(tmp_path, "a", 1, 2)
    arrive(tmp_path, "b", 3)
    source = open_source(tmp_path)
    end = source.latest(source.initial(), everything=True)
    for name in "ab":
        touch(tmp_path / "in" / name)
    arrive(tmp_path, "c", 4)
    later = open_source(tmp_path)
    later.check()
    assert [record.getMessage() for record in caplog.records] == [
        "source s: 2 of the files seen have the same size and another modification time, such as "
        f"{tmp_path}/in/a; those that were read are not read again"
    ]
    for _ in range(3):
        new = later.latest(end, everything=False)
    assert numbers(later, end, new) == [4]


@pytest.mark.parametrize("everything", [True, False])
def test_a_file_that_was_seen_and_not_read_may_not_have_another_time(tmp_path, everything):
    for name, number in (("a", 1), ("b", 2)):
        arrive(tmp_path, name, number, mtime=number)
    source = open_source(tmp_path, max_files_per_batch=1)
    end = source.latest(source.initial(), everything=False)
    assert end == {"files": 1}
    touch(tmp_path / "in/b")
    later = open_source(tmp_path)
    later.check()
    said = (
        r"in/b: had been written at 1970-01-01T00:00:02\.000000000Z when it was seen, and was written again at "
        r"1970-01-01T00:00:02\.000001000Z; restore it with its size and modification time"
    )
    with pytest.raises(MillraceError, match=said):
        later.slices(end, later.latest(end, everything=everything), 1)


def test_a_file_that_was_appended_to_after_it_was_read_is_found_while_the_query_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "CHECKED_PER_TRIGGER", 3)
    for i in range(10):
        arrive(tmp_path, f"{i}", i)
    source = open_source(tmp_path)
    end = source.latest(source.initial(), everything=False)
    for _ in range(12):  # each file in turn, several times
        assert source.latest(end, everything=False) == end
    append(tmp_path / "in/7")
    with pytest.raises(MillraceError, match="in/7: had 2 bytes when it was seen and has 4 now"):
        all(source.latest(end, everything=False) == end for _ in range(5))


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_file_that_changes_before_its_batch_is_found_while_the_query_runs(tmp_path, monkeypatch, change, said):
    monkeypatch.setattr(files_module, "CHECKED_PER_TRIGGER", 3)
    for i in range(10):
        arrive(tmp_path, f"{i}", i, mtime=i)
    source = open_source(tmp_path, max_files_per_batch=2)
    end = source.latest(source.initial(), everything=False)
    change(tmp_path / "in/7")
    with pytest.raises(MillraceError, match=f"in/7: {said}"):
        all(source.latest(end, everything=False) for _ in range(5))


def test_a_trigger_looks_at_a_bounded_number_of_known_files(tmp_path, monkeypatch):
    for i in range(20):
        arrive(tmp_path, f"{i:02d}", i)
    monkeypatch.setattr(files_module, "CHECKED_PER_TRIGGER", 5)
    source = open_source(tmp_path)
    known = source.latest(source.initial(), everything=False)
    source.latest(known, everything=False)
    asked, stat = [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: (asked.append(str(path)), stat(path, **how))[1])
    for _ in range(4):
        source.latest(known, everything=False)
    assert sorted(path[-2:] for path in asked if path[-2:].isdigit()) == [f"{i:02d}" for i in range(20)]


def test_readers_of_one_run_number_files_together(tmp_path):
    """A query that reads a source twice has two readers, each in a process of its own."""
    arrive(tmp_path, "a", 1, mtime=1)
    opened = open_source(tmp_path)
    one, other = (pickle.loads(pickle.dumps(opened)) for _ in range(2))
    ends = [reader.latest(reader.initial(), everything=False) for reader in (one, other)]
    assert ends == [{"files": 1}] * 2
    for number, (first, second) in enumerate([(one, other), (other, one), (one, other)], 2):
        arrive(tmp_path, f"b{number}", number, mtime=number)
        ends = [reader.latest(ends[0], everything=False) for reader in (first, second)]
        assert ends == [{"files": number}] * 2
    for reader in (one, other):
        assert numbers(reader, reader.initial(), ends[0]) == [1, 2, 3, 4]


def test_readers_of_one_run_read_the_same_files_once(tmp_path):
    arrive(tmp_path, "a", 1)
    opened = open_source(tmp_path)
    one, other = (pickle.loads(pickle.dumps(opened)) for _ in range(2))
    assert one.latest(one.initial(), everything=True) == {"files": 1}
    arrive(tmp_path, "b", 2)
    assert other.latest(other.initial(), everything=True) == {"files": 1}
    assert open_source(tmp_path).latest(one.initial(), everything=True) == {"files": 2}


def test_a_relative_path_that_leads_elsewhere_is_refused(tmp_path, monkeypatch):
    for name in ("one", "two"):
        arrive(tmp_path / name, "a", 1)
    monkeypatch.chdir(tmp_path / "one")
    source = FilesSource("s", "in", "csv", SCHEMA, str(tmp_path / "log"), header=False)
    end = source.latest(source.initial(), everything=True)
    assert [row[0] for part in rows_of(source, source.initial(), end, 1) for row in part.rows] == [1]
    monkeypatch.chdir(tmp_path / "two")
    with pytest.raises(
        MillraceError, match=r"two/in: source s: the files seen so far are elsewhere, such as .*one/in/a"
    ):
        FilesSource("s", "in", "csv", SCHEMA, str(tmp_path / "log"), header=False)


def test_a_path_without_files_says_where_it_looked(tmp_path):
    (tmp_path / "in").mkdir()
    for path, said in (("in/*.csv", f"{tmp_path}/in has no such file"), ("gone", f"there is no {tmp_path}/gone")):
        with pytest.raises(MissingInputError) as raised:
            open_source(tmp_path, path)
        assert said in str(raised.value)
