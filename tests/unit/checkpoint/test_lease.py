"""Who may drive a query: processes of this machine, and those of others as they are seen from here."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.lease import FolderLease, Holder

HOLD = """
import sys, time
from pathlib import Path
from millrace_jobs.checkpoint.lease import FolderLease
FolderLease(Path(sys.argv[1])).take()
print("held", flush=True)
time.sleep(600)
"""


def held_by(root, holder):
    (root / "lease.json").write_text(json.dumps(asdict(holder)), encoding="utf-8")
    return holder


def elsewhere(**changes):
    """A living process of another machine, as its lease looks."""
    return replace(Holder.this_process(30.0), host="far-away", boot="another", pid=7, started=1, **changes)


def stored(root):
    return json.loads((root / "lease.json").read_text(encoding="utf-8"))


@pytest.fixture
def take(tmp_path):
    taken = []

    def take_one(seconds=30.0):
        lease = FolderLease(tmp_path, seconds)
        lease.take()
        taken.append(lease)
        return lease

    yield take_one
    for lease in taken:
        lease.release()


@pytest.fixture
def other_process(tmp_path):
    """A process that has taken the lease."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_lease_says_who_holds_it_and_is_gone_when_released(tmp_path, take):
    lease = take()
    said = stored(tmp_path)
    assert (said["host"], said["pid"], said["seconds"]) == (socket.gethostname(), os.getpid(), 30.0)
    lease.check()
    lease.release()
    assert not list(tmp_path.iterdir())
    take()


def test_a_second_process_is_refused_while_the_first_lives_and_takes_over_at_once_when_it_was_killed(
    tmp_path, take, other_process
):
    with pytest.raises(MillraceError) as raised:
        take()
    (problem,) = raised.value.problems
    place = f"process {other_process.pid} on {socket.gethostname()}"
    assert problem.message == f"another run is using the checkpoint {tmp_path}: {place}"
    assert "end that run first; if it is dead, its lease runs out at 20" in problem.hint
    other_process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other_process.pid, os.WEXITED | os.WNOWAIT)  # dead, but not buried yet
    take()
    assert stored(tmp_path)["pid"] == os.getpid()


def test_another_process_of_the_same_number_is_not_the_holder(tmp_path, take):
    held_by(tmp_path, replace(Holder.this_process(30.0), started=1))
    take()


def test_another_machine_keeps_a_lease_until_its_time_has_passed(tmp_path, take):
    held = held_by(tmp_path, elsewhere())
    with pytest.raises(MillraceError, match=rf"checkpoint {tmp_path}: process 7 on far-away; .* runs out at 20"):
        take()
    assert stored(tmp_path) == asdict(held)
    held_by(tmp_path, elsewhere(renewed=time.time() - 1, seconds=0.2))
    take()
    assert stored(tmp_path)["pid"] == os.getpid()


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_a_holder_whose_clock_is_wrong_is_watched(tmp_path, take, monkeypatch, ahead):
    held = held_by(tmp_path, elsewhere(renewed=time.time() + ahead, seconds=0.2))
    monkeypatch.setattr(time, "sleep", lambda _: held_by(tmp_path, replace(held, renewed=held.renewed + 0.1)))
    with pytest.raises(MillraceError, match="process 7 on far-away"):
        take()
    monkeypatch.undo()
    take()


def test_a_driver_that_was_replaced_is_told_by_whom_and_leaves_the_lease_alone(tmp_path, take):
    lease = take()
    other = held_by(tmp_path, elsewhere())
    with pytest.raises(MillraceError) as raised:
        lease.check()
    (problem,) = raised.value.problems
    assert problem.message == f"this driver ends: process 7 on far-away has taken over {tmp_path}"
    assert lease.lost is raised.value
    lease.release()
    assert stored(tmp_path) == asdict(other)


def test_a_lost_lease_is_noticed_between_batches_too(tmp_path, take):
    lease = take(seconds=0.2)
    while lease.lost is None:  # a renewal that was under way may have overwritten the other's
        held_by(tmp_path, elsewhere())
        time.sleep(0.05)


def test_a_lease_is_renewed_while_it_is_held(tmp_path, take):
    lease = take(seconds=2.0)
    first = stored(tmp_path)["renewed"]
    while stored(tmp_path)["renewed"] == first:
        time.sleep(0.01)
    assert lease.lost is None


def test_a_lease_that_was_removed_is_lost(tmp_path, take):
    lease = take()
    (tmp_path / "lease.json").unlink()
    with pytest.raises(MillraceError, match=r"this driver ends: its lease .* is gone"):
        lease.check()


def test_a_lease_that_cannot_be_renewed_for_its_whole_length_is_lost(tmp_path, take, monkeypatch):
    lease = take()

    def full(*_: object, **__: object):
        raise OSError(28, "No space left on device")

    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    monkeypatch.setattr("pathlib.Path.write_text", full)
    lease.check()
    assert lease.failures == 1
    monkeypatch.setattr("millrace_jobs.checkpoint.lease.since_boot", lambda: now + 31)
    with pytest.raises(MillraceError, match="cannot be renewed: No space left on device; check that its disk has room"):
        lease.check()


class Clock:
    """In place of the machine's, as the lease reads it."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("millrace_jobs.checkpoint.lease.since_boot", lambda: self.now)


def test_a_lease_whose_disk_does_not_answer_is_lost_without_asking_it(take, monkeypatch):
    clock = Clock(monkeypatch)
    lease = take()
    clock.now += 30
    assert lease.lost is None
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_, **__: pytest.fail("this may never return"))
    clock.now += 1
    said = r"another driver may have taken over: the lease was not renewed for 31 s; check that its disk has room"
    with pytest.raises(MillraceError, match=said):
        lease.check()
    assert lease.lost is lease.lost


def test_who_wakes_up_in_the_midst_of_a_renewal_does_not_take_the_lease_back(tmp_path, take, monkeypatch):
    clock = Clock(monkeypatch)
    lease = take()
    taken_over = []
    replace_file = type(tmp_path).write_text

    def hang(path, text, **options):
        replace_file(path, text, **options)
        clock.now += 31
        taken_over.append(held_by(tmp_path, elsewhere()))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", lambda path, text, **options: hang_once(path, text, **options))
        hang_once = lambda path, text, **options: (patch.undo(), hang(path, text, **options))  # noqa: E731
        with pytest.raises(MillraceError, match="another driver may have taken over"):
            lease.check()
    lease.release()
    assert stored(tmp_path) == asdict(taken_over[0])


def test_a_lease_that_another_has_overwritten_at_once_is_lost(tmp_path, take, monkeypatch):
    lease = take()
    replace_file = type(tmp_path).replace

    def overtaken(path, target):
        replace_file(path, target)
        held_by(tmp_path, elsewhere())

    monkeypatch.setattr("pathlib.Path.replace", overtaken)
    with pytest.raises(MillraceError, match="process 7 on far-away has taken over"):
        lease.check()


def test_a_share_that_is_gone_at_the_end_is_no_error(tmp_path, take, monkeypatch):
    lease = take()

    def stale(*_: object, **__: object):
        raise OSError(116, "Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_text", stale)
        lease.release()
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", stale)
        lease.release()
    lease.release()
    assert not list(tmp_path.iterdir())


def test_the_end_does_not_wait_for_a_renewal_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr("millrace_jobs.checkpoint.lease._RELEASE_SECONDS", 0.05)
    answered, asked = threading.Event(), threading.Event()

    def look():
        asked.set()
        answered.wait(60)

    lease = FolderLease(tmp_path, 4.0)
    monkeypatch.setattr(lease, "_renew", look)  # of this lease alone: others of this process may be renewed meanwhile
    lease.take()
    assert asked.wait(30)
    lease.release()
    assert (tmp_path / "lease.json").exists()
    answered.set()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\0" * 100])
def test_a_damaged_lease_counts_from_when_it_was_written(tmp_path, take, text):
    path = tmp_path / "lease.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MillraceError, match="an unknown process"):
        take()
    os.utime(path, (time.time() - 3600, time.time() - 3600))
    lease = FolderLease(tmp_path, seconds=0.1)
    lease.take()
    lease.release()


def test_a_slow_renewal_counts_from_its_beginning(take, monkeypatch):
    """Others count from the time in the file, which is that of the beginning."""
    clock = Clock(monkeypatch)
    lease = take()
    write = type(lease._path).write_text

    def slowly(path, text, **options):
        clock.now += 20
        return write(path, text, **options)

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", slowly)
        lease.check()
    clock.now += 10
    assert lease.lost is None
    clock.now += 1
    assert lease.lost is not None
