"""What a trigger costs in a folder of many files, and what the log remembers of files that have left it."""

import itertools
import json
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from listings import listings
from millrace_api.errors import MillraceError
from millrace_jobs.sources.files import file_log, listing
from millrace_jobs.sources.files.file_log import KEPT_SECONDS, FileLog
from millrace_jobs.sources.stored_files import SeenFile
from record_tables import no_file_above

from .arriving_files import arrive, numbers, open_source


@pytest.mark.parametrize("path", ["in", "in/*", "in/**/*"])
def test_a_trigger_lists_the_folder_once_and_asks_nothing_about_known_files(tmp_path, monkeypatch, path):
    for i in range(20):
        arrive(tmp_path, f"{i:02d}", i)
    source = open_source(tmp_path, path)
    known = source.latest(source.initial(), everything=False)
    asked, stat = [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, **how: (asked.append(str(path)), stat(path, **how))[1])
    with listings() as listed:
        assert source.latest(known, everything=False) == known
        assert source.lag(known) == 0
    assert listed == [str(tmp_path / "in")]
    assert not [path for path in asked if Path(path).name.isdigit()]


NAMES = st.sampled_from(["a", "b", "a1", ".a", "_b", "c.csv"])
PARTS = st.sampled_from(["*", "**", "a*", "?", "[ab]", "*.csv", "a", "b"])


@given(
    paths=st.sets(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=12),
    links=st.sets(st.tuples(NAMES, NAMES), max_size=2),
    pattern=st.lists(PARTS, min_size=1, max_size=4),
)
@example(paths={"a/b/c.csv"}, links=set(), pattern=["**", "**", "*"])
@example(paths={"a/b"}, links={("a1", "a")}, pattern=["**", "*"])
def test_what_matches_is_what_pathlib_says(paths, links, pattern):
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path in paths:
            try:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).touch()
            except (NotADirectoryError, FileExistsError):
                continue
        for link, target in links:
            if not os.path.lexists(root / link):
                (root / link).symlink_to(target)
        found = [entry.path for entry in listing._below(name, pattern) if listing.is_file(entry)]
        expected = {
            str(path)
            for path in root.glob("/".join(pattern))
            if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)
        }
        assert len(found) == len(set(found))
        assert set(found) == expected


class Folder:
    """A folder whose files come and go, and a query that reads it, restarts, and counts what it has read."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.now = 1_000_000.0
        self.count = 0
        self.got = []
        self.has_gap = False
        (self.folder / "in").mkdir()
        (self.folder / "away").mkdir()
        self.restart()
        self.position = self.source.initial()

    def restart(self):
        self.source = open_source(self.folder, clock=lambda: self.now)

    def arrive(self):
        arrive(self.folder, f"{self.count:04d}", self.count)
        self.count += 1

    def batch(self, crash=None):
        """Read what is new; with ``crash`` also once more after a restart that has lost some bytes not yet on disk."""
        log = self.folder / "log" / "files.jsonl"
        durable, inode = log.stat().st_size, log.stat().st_ino
        end = self.source.latest(self.position, everything=False)
        if crash is not None:
            if log.stat().st_ino == inode:  # a log that was rewritten came into place as a whole
                os.truncate(log, durable + round(crash * (log.stat().st_size - durable)))
            self.restart()
            end = self.source.latest(self.position, everything=False)
        self.got += numbers(self.source, self.position, end)
        self.position = end
        self.has_gap = False

    def later(self, seconds):
        """Time passes. A gap in a listing does not last: another listing has shown the files before."""
        if self.has_gap:
            self.batch()
        self.now += seconds

    def remove(self, which):
        """A file that was read goes for good."""
        read = [file for file in sorted((self.folder / "in").iterdir()) if int(file.name) in set(self.got)]
        if read:
            read[which % len(read)].unlink()

    def flicker(self, which):
        """A listing misses some files that are there."""
        for file in sorted((self.folder / "in").iterdir()):
            if int(file.name) in set(self.got) and int(file.name) % (which + 2):
                file.rename(self.folder / "away" / file.name)
        self.batch()
        for file in (self.folder / "away").iterdir():
            file.rename(self.folder / "in" / file.name)
            self.has_gap = True

    def unmount(self, _):
        """The folder is empty for days."""
        self.later(0)
        (self.folder / "in").rename(self.folder / "mounted")
        (self.folder / "in").mkdir()
        for _ in range(3):
            self.batch()
            self.now += KEPT_SECONDS
        (self.folder / "in").rmdir()
        (self.folder / "mounted").rename(self.folder / "in")


ACTIONS = st.one_of(
    st.tuples(st.just("arrive"), st.integers(1, 5)),
    st.tuples(st.sampled_from(["remove", "flicker", "unmount"]), st.integers(0, 20)),
    st.tuples(st.just("pass"), st.sampled_from([1.0, KEPT_SECONDS / 2, KEPT_SECONDS + 1.0])),
    st.tuples(st.just("batch"), st.none() | st.floats(0, 1)),
    st.tuples(st.just("restart"), st.none()),
)


@given(actions=st.lists(ACTIONS, max_size=30))
@mock.patch.object(file_log, "_SLACK", 0)
def test_every_file_is_read_once_and_those_that_have_left_are_forgotten(actions):
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(name)
        for action, argument in actions:
            if action == "arrive":
                for _ in range(argument):
                    folder.arrive()
            elif action == "pass":
                folder.later(argument)
            elif action == "restart":
                folder.restart()
            else:
                getattr(folder, action)(argument)
        folder.batch()
        assert sorted(folder.got) == list(range(folder.count))
        folder.arrive()
        folder.batch()
        folder.later(KEPT_SECONDS + 1)
        folder.batch()
        folder.restart()
        folder.batch()
        assert sorted(folder.got) == list(range(folder.count))
        there = len(list((folder.folder / "in").iterdir()))
        assert len(FileLog(f"{name}/log")) <= 2 * there
        assert len((folder.folder / "log" / "files.jsonl").read_text().splitlines()) <= 4 * there + 1


def test_the_log_of_a_folder_that_is_emptied_again_and_again_stays_small(tmp_path):
    now = 0.0
    source = open_source_with_clock(tmp_path, lambda: now)
    position, sizes = source.initial(), []
    for day in range(40):
        for i in range(100):
            arrive(tmp_path, f"{day}-{i}", day * 100 + i)
        end = source.latest(position, everything=False)
        assert sorted(numbers(source, position, end)) == list(range(day * 100, day * 100 + 100))
        position, now = end, now + KEPT_SECONDS / 2
        sizes.append((tmp_path / "log" / "files.jsonl").stat().st_size)
        shutil.rmtree(tmp_path / "in")
        (tmp_path / "in").mkdir()
    assert position == {"files": 4000}
    assert max(sizes[20:]) == pytest.approx(max(sizes[:20]), rel=0.1)


def open_source_with_clock(folder, clock):
    (folder / "in").mkdir(exist_ok=True)
    return open_source(folder, clock=clock)


def seen(*numbers):
    return [SeenFile(f"/in/{n}", n, n) for n in numbers]


def forgetting(folder):
    """A log of four files of which two have left for good; the next listing a day later forgets them."""
    log = FileLog(str(folder))
    log.record(seen(0, 1, 2, 3), set(), 0, 0.0)
    log.record([], {"/in/0", "/in/3"}, 4, 0.0)
    return log


@mock.patch.object(file_log, "_SLACK", -4)
def test_a_log_that_cannot_be_rewritten_stays_as_it_was(tmp_path):
    log = forgetting(tmp_path)
    before = (tmp_path / "files.jsonl").read_bytes()
    with (
        no_file_above(30),
        pytest.raises(MillraceError, match="cannot read or write the log of files seen: File too large"),
    ):
        log.record([], {"/in/0", "/in/3"}, 4, KEPT_SECONDS)
    assert (tmp_path / "files.jsonl").read_bytes() == before
    assert "/in/1" in log
    log.record([], {"/in/0", "/in/3"}, 4, KEPT_SECONDS)
    assert "/in/1" not in log
    for again in (log, FileLog(str(tmp_path))):
        assert (again.count, len(again), again.files(3, 4)) == (4, 2, seen(3))
        with pytest.raises(KeyError):
            again.files(1, 4)


@mock.patch.object(file_log, "_SLACK", -4)
def test_files_that_come_back_or_were_not_read_are_remembered(tmp_path):
    log = forgetting(tmp_path)
    log.record([], {"/in/0", "/in/1", "/in/3"}, 4, KEPT_SECONDS - 1)
    log.record([], {"/in/0", "/in/3"}, 4, KEPT_SECONDS)
    assert "/in/1" in log
    assert "/in/2" not in log
    log.record(seen(4), {"/in/0"}, 3, KEPT_SECONDS)
    log.record([], {"/in/0"}, 3, 9 * KEPT_SECONDS)
    assert log.files(3, 5) == seen(3, 4)
    assert "/in/1" not in log


def test_a_log_in_which_no_file_has_left_is_as_it_always_was(tmp_path):
    FileLog(str(tmp_path)).record(seen(0, 1), set(), 0, 0.0)
    lines = [json.loads(line) for line in (tmp_path / "files.jsonl").read_text().splitlines()]
    assert lines == [{"path": f"/in/{n}", "size": n, "mtime_ns": n} for n in range(2)]


@mock.patch.object(file_log, "_SLACK", 0)
def test_a_checkpoint_that_goes_back_to_forgotten_files_is_refused(tmp_path):
    times = itertools.count(0, KEPT_SECONDS)
    source = open_source_with_clock(tmp_path, lambda: next(times))
    position = source.initial()
    for name in "abcdef":
        arrive(tmp_path, name, ord(name))
        position = source.latest(position, everything=False)
        (tmp_path / "in" / name).unlink()
    with pytest.raises(
        MillraceError, match=r"at file 0, and its log has forgotten file 0, which was read .*; restore the"
    ):
        source.slices(source.initial(), position, 1)
