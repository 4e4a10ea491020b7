"""A store that an earlier run has left: it is continued only if all of it is as it was written."""

import subprocess
import sys
import time
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_jobs.lookups.check import StoreCheck, check
from millrace_jobs.lookups.store import CONTINUED, CopyClaim, DamagedError, TableStore

ROWS = {b"key %d" % number: b"row " * (number % 9) for number in range(300)}
AFTER_2 = sorted(ROWS.values())
AFTER_3 = sorted([b"new", *(row for key, row in ROWS.items() if key not in (b"key 1", b"key 2"))])
CLAIM = CopyClaim("a topic", {"rows-0": 5}, "boot")


def left(folder):
    """A store that was killed after batch 3."""
    folder.mkdir(exist_ok=True)
    store = TableStore(folder, stays=True)
    store.start_over()
    store.load(list(ROWS.items()))
    store.publish(2, token=7, claim=CLAIM)
    store.apply(3, [(b"key 1", b"new")], [b"key 2"], token=8)
    store._environment.close()
    return folder


def after(folder):
    """What a later run finds."""
    found = StoreCheck(folder)
    found.wait()
    return TableStore(folder, stays=True)


def rows(store):
    with store.reader().snapshot() as table:
        return sorted(row for _, row in table.scan(b""))


def test_a_store_goes_on_where_it_was(tmp_path):
    with closing(after(left(tmp_path / "table"))) as store:
        found = store.claimed()
        assert (found.claim, found.batch) == (CLAIM, (3, 8))
        assert rows(store) == AFTER_3
        store.apply(4, [], [b"key 1"], token=9)
    with closing(after(tmp_path / "table")) as store:
        found = store.claimed()
        assert (found.claim, found.batch) == (CLAIM._replace(boot=None), (4, 9))
        assert len(rows(store)) == 298


def test_a_store_without_a_claim_is_not_continued(tmp_path):
    folder = tmp_path / "table"
    with closing(TableStore(left(folder))) as store:
        store.publish(4)
        assert store.claimed() is None


def test_a_run_that_died_before_it_changed_the_store_has_it_made_again(tmp_path):
    folder = left(tmp_path / "table")
    first = after(folder)
    assert (folder / CONTINUED).exists()
    assert first.claimed() is not None
    first._environment.close()
    with closing(after(folder)) as second:
        assert second.claimed() is None
    with closing(after(left(folder))) as third:
        third.apply(4, [(b"a", b"b")], [])
        assert not (folder / CONTINUED).exists()


def test_a_store_that_is_too_short_is_removed_without_an_end_of_this_process(tmp_path):
    folder = left(tmp_path / "table")
    file = folder / "data.mdb"
    file.write_bytes(file.read_bytes()[:-8192])
    with closing(after(folder)) as store:
        assert store.claimed() is None


@settings(max_examples=15)
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
def test_a_changed_byte_is_found_or_changes_nothing(tmp_path_factory, place, bits):
    folder = left(tmp_path_factory.mktemp("table"))
    file = folder / "data.mdb"
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= bits
    file.write_bytes(content)
    with closing(after(folder)) as store:
        if (folder / CONTINUED).exists():
            assert (store.claimed().batch, rows(store)) in [((2, 7), AFTER_2), ((3, 8), AFTER_3)]


def test_a_row_that_has_changed_is_not_shown(tmp_path):
    folder = left(tmp_path / "table")
    file = folder / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"new", b"old"))
    with pytest.raises(DamagedError):
        check(folder)
    with closing(TableStore(folder)) as store, store.reader().snapshot() as table, pytest.raises(DamagedError):
        table.get(b"key 1")


@pytest.fixture
def slow_check(tmp_path, monkeypatch):
    """The check of a store, which never ends by itself."""
    start = subprocess.Popen

    def start_sleeping(*_, **settings):
        return start([sys.executable, "-c", "import time; time.sleep(600)"], **settings)

    monkeypatch.setattr(subprocess, "Popen", start_sleeping)
    with closing(StoreCheck(left(tmp_path / "table"))) as found:
        yield found


def test_a_store_that_takes_too_long_to_check_is_made_again(slow_check, tmp_path):
    slow_check.wait(seconds=0.2)
    assert slow_check._process.poll() is not None
    with closing(TableStore(tmp_path / "table", stays=True)) as store:
        assert store.claimed() is None


def test_a_run_that_is_stopped_does_not_wait_for_the_check_and_leaves_the_store_to_the_next(slow_check, tmp_path):
    began = time.monotonic()
    slow_check.wait(lambda: time.monotonic() > began + 0.2, seconds=600)
    slow_check.close()
    folder = tmp_path / "table"
    assert (folder / "data.mdb").exists()
    assert not (folder / CONTINUED).exists()
    check(folder)
