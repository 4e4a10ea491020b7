"""The log of files seen in an object store: found again by the next run, and written by one driver only."""

import pytest

from lab.store_proxy import Disturbance
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.sources.files.file_log import KEPT_SECONDS, FileLog
from millrace_jobs.sources.stored_files import SeenFile


def files(*names):
    return [SeenFile(f"/in/{name}", 10, 1) for name in names]


@pytest.fixture
def open_log(tmp_path, place):
    """A log as a run of this name opens it, in a folder of that run."""

    def opened(run):
        return FileLog(str(tmp_path / run), run, place / "sources" / "s")

    return opened


def test_the_next_run_finds_what_was_seen(open_log):
    log = open_log("one")
    log.record(files("a", "b"), set(), 0, now=0)
    log.record(files("c"), {"/in/a", "/in/b"}, 2, now=1)
    assert open_log("two").files(0, 3) == files("a", "b", "c")


def test_readers_of_one_run_number_files_together(open_log):
    first, second = open_log("one"), open_log("one")
    first.record(files("a"), set(), 0, now=0)
    second.record(files("a", "b"), set(), 0, now=0)
    first.record(files("c"), {"/in/a"}, 0, now=0)
    assert open_log("two").files(0, 3) == files("a", "b", "c")


def test_a_driver_that_was_replaced_numbers_no_files(open_log):
    old = open_log("old")
    old.record(files("a"), set(), 0, now=0)
    new = open_log("new")
    new.record(files("b"), {"/in/a"}, 0, now=0)
    with pytest.raises(MillraceError, match="another driver has written to the log of files seen"):
        old.record(files("c"), {"/in/a"}, 0, now=0)
    new.record(files("d"), {"/in/a"}, 0, now=0)
    assert open_log("next").files(0, 3) == files("a", "b", "d")


@pytest.mark.parametrize("after", [False, True])
def test_a_write_that_fails_is_no_part_of_the_log_until_it_is_repeated(s3, open_log, after):
    log = open_log("one")
    log.record(files("a"), set(), 0, now=0)
    fault = Disturbance(loses_answer=True) if after else Disturbance(status=403)
    with s3.disturbed(lambda request: fault if request.method == "PUT" else None), pytest.raises(TransientError):
        log.record(files("b"), {"/in/a"}, 0, now=0)
    assert log.count == 1
    log.record(files("b", "c"), {"/in/a"}, 0, now=0)
    assert open_log("two").files(0, 3) == files("a", "b", "c")


def test_a_compacted_log_is_compacted_in_the_store(open_log, monkeypatch):
    monkeypatch.setattr("millrace_jobs.sources.files.file_log._SLACK", 1)
    log = open_log("one")
    log.record(files("a", "b", "c", "d"), set(), 0, now=0)
    log.record([], {"/in/d"}, 4, now=1)
    log.record([], {"/in/d"}, 4, now=2 + KEPT_SECONDS)
    again = open_log("two")
    assert (len(again), again.count, again.files(3, 4)) == (1, 4, files("d"))
