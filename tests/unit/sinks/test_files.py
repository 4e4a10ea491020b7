"""Whose a folder of results is: the files sink takes one only for the checkpoint that its files are of."""

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from listings import listings
from millrace_api.errors import MillraceError
from millrace_jobs.sinks.base import LastBatch
from millrace_jobs.sinks.connector import require_folder
from millrace_jobs.sinks.files import sink as files
from millrace_jobs.sinks.files.sink import FIELD, FilesSink

NEW = LastBatch(None, None)
MARK = "_checkpoint-"


def sink(folder, checkpoint="a"):
    return FilesSink(str(folder / "out"), "csv", checkpoint, updates=False)


def results(folder, *batches):
    (folder / "out").mkdir(exist_ok=True)
    for batch in batches:
        (folder / "out" / f"batch-{batch:010d}-0000.csv").write_text("n\n1\n")


def names(folder):
    return {str(file.relative_to(folder / "out")) for file in (folder / "out").rglob("*")}


def refused(folder, last, said, checkpoint="a", hint="; remove the folder to start over, or write another path"):
    before = names(folder)
    with pytest.raises(MillraceError) as raised:
        sink(folder, checkpoint).prepare(last)
    assert names(folder) == before
    assert str(raised.value).startswith(f"spec.sink.files.path: the folder {folder / 'out'} {said}")
    assert str(raised.value).endswith(hint)


def test_a_run_goes_on_in_the_folder_of_its_checkpoint_and_clears_what_was_left_half_written(tmp_path):
    sink(tmp_path).prepare(NEW)
    results(tmp_path, 0, 7)
    (tmp_path / "out" / "_staging" / "8").mkdir()
    sink(tmp_path).prepare(LastBatch(8, 7))
    assert names(tmp_path) == {f"{MARK}a", "_staging", "batch-0000000000-0000.csv", "batch-0000000007-0000.csv"}


def test_another_checkpoint_is_refused_and_touches_nothing(tmp_path):
    sink(tmp_path).prepare(NEW)
    (tmp_path / "out" / "_staging" / "0").mkdir()
    refused(tmp_path, NEW, "belongs to another checkpoint", "b")
    results(tmp_path, 0)
    refused(tmp_path, NEW, "has results of an earlier run, which began with another checkpoint", "b")
    results(tmp_path, 9)
    refused(tmp_path, LastBatch(3, 3), "belongs to another checkpoint", "b")


def test_an_older_copy_of_the_checkpoint_is_refused(tmp_path):
    sink(tmp_path).prepare(NEW)
    results(tmp_path, 0, 1, 5)
    said = "has results up to batch 5, but the checkpoint knows of no batch after 4"
    hint = "; restore the newest copy of the checkpoint, or remove the files of the batches after 4"
    refused(tmp_path, LastBatch(4, 3), said, hint=hint)
    sink(tmp_path).prepare(LastBatch(5, 4))


def merged(folder, inode, *removed, batch=3, target="batch-0000000003-0000.csv"):
    """Write what a compaction has noted before the merged file got its name."""
    note = {"folder": ".", "target": target, "inode": inode, "removed": list(removed)}
    (folder / "out" / "_compaction").write_text(json.dumps({"batch": batch, "merged": [note]}))


def test_files_that_a_merged_one_has_replaced_before_a_crash_are_removed(tmp_path):
    sink(tmp_path).prepare(NEW)
    results(tmp_path, 0, 2, 3, 4)
    replaced = [f"batch-{batch:010d}-0000.csv" for batch in (0, 2)]
    inode = (tmp_path / "out" / "batch-0000000003-0000.csv").stat().st_ino
    merged(tmp_path, inode, *replaced)
    before = names(tmp_path)
    sink(tmp_path).prepare(LastBatch(4, 4))
    assert names(tmp_path) == before - set(replaced)


@pytest.mark.parametrize("target", ["batch-0000000003-0000.csv", "batch-0000000005-0000.csv"])
def test_files_stay_if_a_crash_came_before_the_merged_one_had_its_name(tmp_path, target):
    sink(tmp_path).prepare(NEW)
    results(tmp_path, 0, 2, 3)
    merged(tmp_path, -1, "batch-0000000000-0000.csv", "batch-0000000002-0000.csv", target=target)
    before = names(tmp_path)
    sink(tmp_path).prepare(LastBatch(3, 3))
    assert names(tmp_path) == before


def test_a_checkpoint_that_would_write_a_merged_batch_again_is_refused(tmp_path):
    sink(tmp_path).prepare(NEW)
    results(tmp_path, 3)
    merged(tmp_path, -1)
    said = "has merged the files of batches up to 3, but the checkpoint would write batch 3"
    refused(tmp_path, LastBatch(3, 2), said, hint="; restore the newest copy of the checkpoint, or write another path")
    sink(tmp_path).prepare(LastBatch(4, 3))


def test_results_that_nobody_has_marked_are_of_a_checkpoint_that_knows_their_batches(tmp_path):
    results(tmp_path, 0, 1)
    refused(tmp_path, NEW, "has results of an earlier run, which began with another checkpoint")
    sink(tmp_path).prepare(LastBatch(1, 1))
    refused(tmp_path, LastBatch(1, 1), "belongs to another checkpoint", "b")


def test_two_that_begin_at_once_do_not_share_a_folder(tmp_path, monkeypatch):
    touch = type(tmp_path).touch

    def meanwhile(path, *arguments):
        touch(path.with_name(f"{MARK}b"))
        touch(path, *arguments)

    monkeypatch.setattr(type(tmp_path), "touch", meanwhile)
    with pytest.raises(MillraceError, match="is being taken by another query; remove the folder"):
        sink(tmp_path).prepare(NEW)
    assert names(tmp_path) == {f"{MARK}b"}


def test_looking_whether_a_folder_can_be_written_leaves_nothing_behind(tmp_path):
    require_folder(tmp_path / "new" / "out", FIELD)
    assert list(tmp_path.iterdir()) == []
    sink(tmp_path).prepare(NEW)
    (tmp_path / "out" / "_staging" / "0").mkdir()
    before = names(tmp_path)
    require_folder(tmp_path / "out", FIELD)
    assert names(tmp_path) == before
    (tmp_path / "file").touch()
    with pytest.raises(
        MillraceError, match=re.escape(f"results cannot be written to {tmp_path / 'file'}: File exists")
    ):
        require_folder(tmp_path / "file", FIELD)


@pytest.mark.parametrize("there", [[], ["out"], ["out", f"out/{MARK}a"], ["out", f"out/{MARK}b"], ["out", "out/notes"]])
def test_a_run_that_failed_before_its_first_batch_leaves_nothing_behind(tmp_path, there):
    for name in there:
        (tmp_path / name).mkdir() if name == "out" else (tmp_path / name).touch()
    made = sink(tmp_path)
    if f"out/{MARK}b" in there:
        with pytest.raises(MillraceError, match="belongs to another checkpoint"):
            made.prepare(NEW)
    else:
        made.prepare(NEW)
        made.prepare(NEW)
    made.withdraw()
    left = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")} - {"out/_staging"}
    assert left == set(there)


def test_readers_of_the_folder_see_results_only(tmp_path):
    made = FilesSink(str(tmp_path / "out"), "parquet", "a", updates=False)
    made.prepare(NEW)
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "out" / "batch-0000000000-0000.parquet")
    assert pyarrow.dataset.dataset(tmp_path / "out").to_table().to_pydict() == {"n": [1, 2]}


def test_files_are_on_the_disk_before_they_appear_and_their_names_before_the_batch_is_done(tmp_path, monkeypatch):
    made = sink(tmp_path)
    made.prepare(NEW)
    staged = tmp_path / "out" / "_staging" / "3"
    staged.mkdir()
    for part in ("part-0", "part-1"):
        (staged / part).write_text("n\n1\n")
    done, rename = [], type(tmp_path).rename
    monkeypatch.setattr(files, "sync", lambda path: done.append(("sync", path.name)))
    monkeypatch.setattr(
        type(tmp_path), "rename", lambda path, to: (done.append(("rename", path.name)), rename(path, to))
    )
    made._publish(staged, 3)
    assert done == [
        ("sync", "part-0"),
        ("rename", "part-0"),
        ("sync", "part-1"),
        ("rename", "part-1"),
        ("sync", "out"),
    ]


PARTS = {"part-0": "n\n1\n", "part-1": "n\n2\n", "part-2": "n\n3\n"}


def staged(folder, batch, parts):
    place = folder / "out" / "_staging" / str(batch)
    place.mkdir()
    for part, text in parts.items():
        (place / part).write_text(text)
    return place


def placed(folder):
    return {file.name: file.read_text() for file in (folder / "out").glob("batch-*")}


def test_a_batch_does_not_look_at_the_files_that_are_there(tmp_path):
    results(tmp_path, *range(20))
    made = sink(tmp_path)
    made.prepare(LastBatch(19, 19))
    for batch in (20, 21):
        place = staged(tmp_path, batch, PARTS)
        with listings() as listed:
            made._publish(place, batch)
        assert str(tmp_path / "out") not in listed
    assert len(placed(tmp_path)) == 20 + 2 * len(PARTS)


class Killed(BaseException):
    pass


def dying(monkeypatch, steps):
    """Let the process die after so many changes to the disk."""
    left = iter(range(steps))

    def counted(change):
        def make(*arguments, **options):
            if next(left, None) is None:
                raise Killed
            return change(*arguments, **options)

        return make

    for name in ("rename", "unlink"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    monkeypatch.setattr(files, "sync", counted(files.sync))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))


@pytest.mark.parametrize("again", ["the same process", "another process"])
def test_a_crash_at_any_step_leaves_no_result_double_or_out(tmp_path, monkeypatch, again):
    """The batch is killed, run again and killed again, and run to its end, with fewer and fewer files."""
    expected = {"batch-0000000006-0000.csv": "n\n1\n", "batch-0000000007-0000.csv": "n\n1\n"}
    kills = 0
    for first in range(12):
        for second in range(12):
            folder = tmp_path / f"{first}-{second}"
            folder.mkdir()
            results(folder, 6)
            made = sink(folder)
            made.prepare(LastBatch(7, 6))
            for steps, count in ((first, 3), (second, 2), (99, 1)):
                with monkeypatch.context() as patch:
                    shutil.rmtree(folder / "out" / "_staging" / "7", ignore_errors=True)
                    place = staged(folder, 7, dict(list(PARTS.items())[:count]))
                    dying(patch, steps)
                    try:
                        made._publish(place, 7)
                    except Killed:
                        kills += 1
                if again == "another process":
                    made = sink(folder)
                    made.prepare(LastBatch(7, 6))
            assert placed(folder) == expected
    assert kills > 100
