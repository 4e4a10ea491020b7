"""A snapshot that is asked for by a name: it is taken once, also by drivers that die, and never replaces another one."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint import requested_snapshots
from millrace_jobs.checkpoint.automatic_snapshots import take_automatically
from millrace_jobs.checkpoint.requested_snapshots import remove_requested, report_on, take_requested
from millrace_jobs.checkpoint.snapshot_manifest import SnapshotReason
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, place_of_snapshot, take, verify

from .stored import Stored, dying_after

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
FIRST, LATER = "2024-03-01T11:59:58Z", "2024-03-01T12:10:00Z"


@pytest.fixture
def stored(tmp_path):
    made = Stored(tmp_path / "checkpoint")
    for step in (made.begin, made.commit, made.begin):
        step()
    return made


def test_a_request_is_carried_out_once_however_many_batches_follow(stored):
    taken = take_requested(stored.root, "monday", FIRST, NOON)
    stored.commit()
    assert take_requested(stored.root, "monday", FIRST, NOON) == taken
    assert (taken.batch, taken.reason, taken.asked) == (0, SnapshotReason.REQUEST, FIRST)
    assert verify(place_of_snapshot(stored.root, "monday")) == taken


@pytest.mark.parametrize("asked", ["", FIRST])
def test_another_request_does_not_take_the_name_of_a_snapshot(stored, asked):
    take(stored.root, "monday", NOON, asked=asked)
    stored.commit()
    with pytest.raises(MillraceError, match="there is a snapshot monday of batch 0 already, taken at 2024-03-01T12:00"):
        take_requested(stored.root, "monday", LATER, NOON)


def test_what_a_driver_left_that_died_is_taken_again_and_what_a_person_takes_is_not(stored, monkeypatch):
    with dying_after(1, monkeypatch), monkeypatch.context() as patched:
        patched.setattr("millrace_jobs.checkpoint.snapshots.remove_all", lambda _: None)  # a death cleans nothing up
        take_requested(stored.root, "monday", FIRST, NOON)
    assert report_on(stored.root).count == 0
    with pytest.raises(MillraceError, match="another process is taking the snapshot"):
        take(stored.root, "monday", NOON)
    stored.commit()
    assert take_requested(stored.root, "monday", LATER, NOON).batch == 1
    by_a_person = place_of_snapshot(stored.root, "tuesday")
    by_a_person.mkdir()
    (by_a_person / "taking").write_text(SnapshotReason.REQUEST)
    with pytest.raises(MillraceError, match="another process is taking the snapshot"):
        take_requested(stored.root, "tuesday", LATER, NOON)


def test_automatic_ones_leave_it_alone_whether_whole_or_not(stored, monkeypatch):
    with dying_after(1, monkeypatch), monkeypatch.context() as patched:
        patched.setattr("millrace_jobs.checkpoint.snapshots.remove_all", lambda _: None)
        take_requested(stored.root, "half", FIRST, NOON)
    take_requested(stored.root, "monday", FIRST, NOON)
    for minute in range(3):
        take_automatically(stored.root, SnapshotReason.SCHEDULE, 1, None, NOON.replace(minute=minute))
        stored.commit()
        stored.begin()
    assert {"half", "monday"} < {*names_of_snapshots(stored.root)}


def test_without_a_finished_batch_there_is_none_yet(tmp_path):
    stored = Stored(tmp_path / "checkpoint")
    stored.begin()
    assert take_requested(stored.root, "monday", FIRST, NOON) is None
    assert names_of_snapshots(stored.root) == []


def test_any_snapshot_is_removed_by_its_name_and_no_other_folder(stored):
    take(stored.root, "by-hand", NOON)
    automatic = take_automatically(stored.root, SnapshotReason.CHANGE, 3, None, NOON).snapshot
    for name in ("by-hand", automatic.name):
        remove_requested(stored.root, name, FIRST)
    assert names_of_snapshots(stored.root) == []
    with pytest.raises(MillraceError, match="there is no snapshot by-hand"):
        remove_requested(stored.root, "by-hand", LATER)
    with pytest.raises(MillraceError, match="cannot be the name of a snapshot"):
        take_requested(stored.root, "../spark", FIRST, NOON)
    with pytest.raises(MillraceError, match="there is no snapshot"):
        remove_requested(stored.root, "../spark", LATER)
    assert (stored.root / "spark").exists()


@pytest.mark.parametrize("deaths", ["before", "while the files go", "while the folders go", "afterwards"])
def test_a_removal_whose_driver_died_is_completed_once_and_another_one_is_not_taken_for_it(stored, monkeypatch, deaths):
    take(stored.root, "monday", NOON)
    place = place_of_snapshot(stored.root, "monday")

    def die(found):
        if deaths != "before":
            (found / "snapshot.json").unlink()
        if deaths.endswith("folders go"):
            for file in [each for each in found.rglob("*") if each.is_file()]:
                file.unlink()
        if deaths == "afterwards":
            shutil.rmtree(found)
        raise KeyboardInterrupt

    monkeypatch.setattr(requested_snapshots, "remove", die)
    with pytest.raises(KeyboardInterrupt):
        remove_requested(stored.root, "monday", FIRST)
    monkeypatch.undo()
    for _ in range(2):  # its successor may die, too
        remove_requested(stored.root, "monday", FIRST)
        assert not place.exists()
    assert names_of_snapshots(stored.root) == []
    with pytest.raises(MillraceError, match="there is no snapshot monday"):
        remove_requested(stored.root, "monday", LATER)


def test_the_report_has_the_newest_ten_and_how_many_there_are(stored):
    for minute in range(12):
        take(stored.root, f"minute-{minute}", NOON.replace(minute=minute))
    take(stored.root, "before", NOON.replace(minute=30), SnapshotReason.CHANGE)
    take(stored.root, "comparison", NOON.replace(minute=40), SnapshotReason.COMPARISON)
    (stored.root / "snapshots" / "minute-11").rename(stored.root / "snapshots" / "Not a name")
    found = report_on(stored.root)
    assert found.count == 12
    assert [each.name for each in found.newest] == ["before", *(f"minute-{minute}" for minute in range(10, 1, -1))]
    assert [str(each.origin) for each in found.newest[:2]] == ["Change", "Person"]
    assert found.newest[0].time == "2024-03-01T12:30:00Z"
    assert found.newest[0].bytes > 0
