"""Snapshots without a person: when one is due, which ones are removed, and what becomes of one that fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.cache import MissingError
from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint import automatic_snapshots
from millrace_jobs.checkpoint.automatic_snapshots import SnapshotSchedule, expired, take_automatically
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot, SnapshotReason
from millrace_jobs.checkpoint.snapshot_process import SnapshotOrder, SnapshotOutcome, SnapshotProcess
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, snapshots_of, take, verify
from millrace_jobs.places import write_durably

from .stored import Stored

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
SCHEDULE, CHANGE, REQUEST = SnapshotReason.SCHEDULE, SnapshotReason.CHANGE, SnapshotReason.REQUEST


def another_batch(stored):
    stored.commit()
    stored.begin()


@pytest.mark.parametrize(
    ("newest", "due"),
    [
        (None, NOON),
        (NOON - 7 * HOUR, NOON - HOUR),
        (NOON - 2 * HOUR, NOON + 4 * HOUR),
        (NOON + 50 * HOUR, NOON + 6 * HOUR),  # a clock was wrong
    ],
)
def test_the_first_one_of_a_driver_follows_the_newest_one_of_all(newest, due):
    schedule = SnapshotSchedule(6 * HOUR, newest, NOON)
    assert schedule.due == due
    assert schedule.seconds_left(NOON) == max(0, (due - NOON).total_seconds())


def test_restarts_neither_postpone_it_nor_take_one_each():
    newest, taken = NOON, []
    for minutes in range(0, 24 * 60, 25):  # a driver starts every 25 minutes
        now = NOON + minutes * MINUTE
        if SnapshotSchedule(6 * HOUR, newest, now).seconds_left(now) == 0:
            newest = now
            taken.append(now)
    gaps = {later - earlier for earlier, later in zip([NOON, *taken], taken, strict=False)}
    assert len(taken) == 3
    assert gaps <= {6 * HOUR + 15 * MINUTE}


def test_after_a_failure_it_is_tried_again_soon_and_after_a_snapshot_at_its_time():
    schedule = SnapshotSchedule(6 * HOUR, None, NOON)
    schedule.failed(NOON)
    assert schedule.due == NOON + 10 * MINUTE
    schedule.waits(NOON)
    assert schedule.due == NOON + MINUTE / 6
    schedule.taken(NOON)
    assert schedule.due == NOON + 6 * HOUR
    often = SnapshotSchedule(timedelta(seconds=5), None, NOON)
    for step in (often.failed, often.waits, often.taken):
        step(NOON)
        assert often.due == NOON + timedelta(seconds=5)


def test_a_clock_that_is_set_back_postpones_it_by_one_interval_at_most():
    schedule = SnapshotSchedule(HOUR, None, NOON)
    schedule.taken(NOON)
    assert schedule.seconds_left(NOON - 100 * HOUR) == 3600
    assert schedule.seconds_left(NOON - 99 * HOUR) == 0


def made(hours, reason=SCHEDULE):
    return Snapshot(f"s{hours}", "trips", "id", hours, NOON + hours * HOUR, None, (), reason)


@given(
    st.lists(st.sampled_from([SCHEDULE, CHANGE, REQUEST]), max_size=20),
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(1, 20)),
)
def test_what_is_kept_are_a_persons_and_the_newest_own_ones_of_that_number_and_age(reasons, keep, hours):
    found = [made(number, reason) for number, reason in enumerate(reasons)]
    now, age = NOON + len(found) * HOUR, None if hours is None else hours * HOUR
    removed = expired(found, keep, age, now)
    left = [each for each in found if each not in removed]
    own = [each for each in left if each.reason.is_automatic]
    assert [each for each in left if each.reason is REQUEST] == [each for each in found if each.reason is REQUEST]
    assert len(own) <= keep
    assert all(age is None or now - each.taken <= age for each in own[:-1])
    newest = [each for each in found if each.reason.is_automatic][-1:]
    assert own[-1:] == newest
    if age is None:
        assert len(own) == min(keep, len([each for each in found if each.reason.is_automatic]))


def test_a_persons_snapshots_stay_and_those_of_the_driver_go(stored):
    for number in range(5):
        take(stored.root, f"periodic-{number}", NOON - 100 * HOUR)  # the name alone makes none the driver's
        attempt = take_automatically(stored.root, SCHEDULE, 2, None, NOON + number * HOUR)
        assert attempt.is_new
        another_batch(stored)
    assert attempt.removed == ("periodic-20240301-140000",)
    found = snapshots_of(stored.root)
    assert [each.name for each in found if each.reason is REQUEST] == [f"periodic-{number}" for number in range(5)]
    own = [each for each in found if each.reason is SCHEDULE]
    assert [each.taken for each in own] == [NOON + 3 * HOUR, NOON + 4 * HOUR]
    for each in found:
        verify(stored.root / "snapshots" / each.name)
    old = take_automatically(stored.root, CHANGE, 10, MINUTE, NOON + 10 * HOUR)
    assert old.removed == tuple(each.name for each in own)
    assert old.snapshot is not None
    assert old.snapshot.name == "before-change-20240301-220000"


def test_a_batch_has_one_automatic_snapshot(stored):
    first = take_automatically(stored.root, SCHEDULE, 10, None, NOON)
    again = take_automatically(stored.root, CHANGE, 10, None, NOON + HOUR)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.snapshot == first.snapshot
    another_batch(stored)
    assert take_automatically(stored.root, CHANGE, 10, None, NOON + 2 * HOUR).is_new


def test_before_the_first_batch_is_finished_nothing_is_taken(tmp_path):
    stored = Stored(tmp_path / "checkpoint")
    assert take_automatically(stored.root, SCHEDULE, 10, None, NOON).snapshot is None
    stored.begin()
    assert take_automatically(stored.root, SCHEDULE, 10, None, NOON).snapshot is None
    assert names_of_snapshots(stored.root) == []


def test_parts_that_a_dead_driver_left_are_removed_and_those_of_a_person_stay(stored):
    for name, claim in {"dead": b"schedule", "by-hand": b"request", "unknown": b""}.items():
        write_durably(stored.root / "snapshots" / name / "taking", claim)
    take_automatically(stored.root, SCHEDULE, 10, None, NOON)
    assert names_of_snapshots(stored.root) == ["by-hand", "periodic-20240301-120000", "unknown"]


def test_a_snapshot_that_could_fill_the_volume_is_not_taken(stored, monkeypatch):
    write_durably(stored.store / "SSTs" / "large.sst", b"x" * (3 << 20))
    volume = namedtuple("volume", "free")
    monkeypatch.setattr(automatic_snapshots.shutil, "disk_usage", lambda _: volume(2 << 20))
    with pytest.raises(MillraceError, match=r"come to take 3\.0 MiB, and 2\.0 MiB are free"):
        take_automatically(stored.root, SCHEDULE, 10, None, NOON)
    assert names_of_snapshots(stored.root) == []


def outcome_of(root, reason=SCHEDULE):
    outcome = SnapshotProcess(root, SnapshotOrder(reason, 10)).outcome(lambda: False)
    assert outcome is not None
    return outcome


def test_the_process_takes_one_and_says_why_it_cannot(stored):
    first = outcome_of(stored.root)
    assert (first.error, first.batch, first.is_new) == (None, 1, True)
    assert verify(stored.root / "snapshots" / first.name).reason is SCHEDULE
    another_batch(stored)
    zipped = max(stored.store.glob("*.zip"))
    content = zipped.read_bytes()
    zipped.write_bytes(content[: len(content) // 2])
    damaged = outcome_of(stored.root)
    assert f"{zipped}: it is not what Spark writes there" in damaged.error
    assert [each.name for each in snapshots_of(stored.root)] == [first.name]
    write_durably(zipped, content)
    assert outcome_of(stored.root).error is None
    shutil.rmtree(stored.root / "snapshots")
    (stored.root / "snapshots").touch()
    assert "Not a directory" in outcome_of(stored.root).error


def test_a_process_that_is_given_up_leaves_nothing_that_stays(stored):
    process = SnapshotProcess(stored.root, SnapshotOrder(SCHEDULE, 10))
    assert process.outcome(lambda: True) is None
    assert not process.is_running
    assert outcome_of(stored.root).error is None
    assert len(names_of_snapshots(stored.root)) == 1


def test_what_a_killed_process_says_is_an_error():
    assert SnapshotOutcome.parsed(b"").error == SnapshotOutcome.parsed(b'{"name": "x"}').error != None  # noqa: E711


_FULL = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from unit.checkpoint.stored import Stored
from millrace_jobs.checkpoint.snapshot_process import SnapshotOrder, SnapshotProcess
from millrace_jobs.checkpoint.snapshots import SnapshotReason, names_of_snapshots
disk = Path(sys.argv[1])
stored = Stored(disk / "checkpoint")
for _ in range(3):
    stored.begin(); stored.commit(); stored.upload()
with (disk / "filling").open("wb") as file:
    file.truncate(0)
    free = os.statvfs(disk)
    file.write(bytes((free.f_bavail - 3) * free.f_frsize)); file.flush()
def outcome():
    return SnapshotProcess(stored.root, SnapshotOrder(SnapshotReason.SCHEDULE, 10)).outcome(lambda: False)
full = outcome()
left = names_of_snapshots(stored.root)
(disk / "filling").unlink()
after = outcome()
print(json.dumps([full.error, left, after.error, after.is_new]))
"""


def test_a_full_disk_is_an_error_and_with_space_again_one_is_taken(tmp_path):
    mounted = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=2m tmpfs "$0" && exec "$@"', str(tmp_path)]
    allowed = subprocess.run([*mounted, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode:
        raise MissingError(f"this user may not mount a small disk: {allowed.stderr.strip()}")
    program = [sys.executable, "-c", _FULL, str(tmp_path), str(Path(__file__).parents[2])]
    done = subprocess.run([*mounted, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    error, left, after, is_new = json.loads(done.stdout)
    assert "No space left on device" in error
    assert left == []
    assert (after, is_new) == (None, True)
