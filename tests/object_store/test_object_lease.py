"""One driver on a checkpoint in an object store, whatever answers are lost and whoever takes itself for it."""

import json
import time
from dataclasses import replace

import pytest

from builders import a_query
from lab.store_proxy import Disturbance
from millrace_api.errors import MillraceError, TransientError
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.lease import Holder
from millrace_jobs.checkpoint.object_lease import ObjectLease, spark_place

from .leases import entry, logged, offsets


def planned(place):
    """Spark that has just read its log."""
    return lambda number: offsets(place, number)


@pytest.fixture
def take(place):
    taken = []

    def take_one(seconds=30.0):
        lease = ObjectLease(place, seconds)
        lease.take()
        lease.restore()
        taken.append(lease)
        return lease

    yield take_one
    for lease in taken:
        lease.release()


@pytest.fixture
def dead(monkeypatch):
    """Other holders are taken for dead, though they go on: their machine was cut off."""
    monkeypatch.setattr(Holder, "is_dead", lambda _: True)


def test_a_lease_says_who_holds_it_and_is_free_when_released(place, take):
    lease = take()
    held = json.loads((place / "lease.json").read_bytes())["holder"]
    assert held["seconds"] == 30.0
    lease.check()
    with pytest.raises(MillraceError, match=f"another run is using the checkpoint {place.scheme}://lake"):
        take()
    lease.release()
    take().check()


def test_a_lease_that_is_not_renewed_expires(take, place):
    held = replace(Holder.this_process(0.3), host="far-away", boot="another", renewed=time.time() - 1)
    (place / "lease.json").write_bytes(json.dumps({"holder": vars(held), "begun": None}).encode())
    take()


def test_a_lease_that_is_renewed_while_it_is_watched_is_not_taken(take, place, monkeypatch):
    lease = take(seconds=5.0)
    monkeypatch.setattr(time, "time", lambda at=time.time: at() + 60)  # by this clock it has expired
    with pytest.raises(MillraceError, match="another run is using the checkpoint"):
        ObjectLease(place, 5.0).take()
    assert lease.lost is None


def test_a_driver_that_was_replaced_ends_at_its_next_batch(take, place, dead):
    old = take()
    logged(place, 0)
    old.begin(0, planned(place))
    new = take()
    new.begin(0, planned(place))
    logged(place, 1)
    with pytest.raises(MillraceError, match=f"has taken over {place.scheme}://lake"):
        old.begin(1, planned(place))
    new.begin(1, planned(place))


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_write_whose_answer_is_lost_has_happened(s3, take, place, lost):
    lease = take()
    seen = []

    def lose(request):
        if request.method == "PUT" and request.key.endswith("lease.json"):
            seen.append(request)
            return Disturbance(loses_answer=len(seen) <= lost)
        return None

    with s3.disturbed(lose):
        for number in range(3):
            logged(place, number)
            while True:
                try:
                    lease.begin(number, planned(place))
                    break
                except OSError:  # the answer was lost, and the next attempt finds what came of it
                    continue
    assert len(seen) >= 3
    assert json.loads((place / "lease.json").read_bytes())["begun"]["batch"] == 2
    lease.check()


def test_an_entry_that_an_old_driver_wrote_late_is_put_right_before_spark_reads_it(take, place, dead):
    first = take()
    for number in range(2):
        logged(place, number)
        first.begin(number, planned(place))
    logged(place, 1, "late")
    logged(place, 0, "late")
    second = take()
    assert (offsets(place, 0), offsets(place, 1)) == (entry("0"), entry("1"))
    second.begin(1, planned(place))


@pytest.mark.parametrize("number", [0, 1])
def test_an_entry_that_changes_after_the_lease_was_taken_is_not_run(take, place, dead, number):
    first = take()
    for each in range(2):
        logged(place, each)
        first.begin(each, planned(place))
    second = take()
    logged(place, number, "late")
    with pytest.raises(TransientError, match="an old driver has written to it"):
        second.begin(1, planned(place))
    third = take()
    third.begin(1, planned(place))


def test_the_entry_before_the_first_batch_of_a_driver_is_checked_too(take, place, dead):
    first = take()
    for each in range(2):
        logged(place, each)
        first.begin(each, planned(place))
    second = take()
    logged(place, 1, "late")  # batch 1 is committed, and the next one starts from where it ended
    logged(place, 2)
    with pytest.raises(TransientError):
        second.begin(2, planned(place))


def test_a_proposal_that_was_not_begun_may_be_replaced_until_the_next_driver_finds_it(take, place, dead):
    first = take()
    logged(place, 0, "planned by the first")
    second = take()
    found = offsets(place, 0)
    logged(place, 0, "late")
    with pytest.raises(TransientError):
        second.begin(0, planned(place))
    second.restore()
    assert offsets(place, 0) == found
    second.begin(0, planned(place))
    with pytest.raises(MillraceError):
        first.begin(0, planned(place))


def test_a_checkpoint_without_a_lease_continues_with_the_last_entry_of_its_log(take, place, dead):
    for number in range(3):
        logged(place, number)
    lease = take()
    assert lease.begun == 2
    logged(place, 1, "late")
    with pytest.raises(TransientError):
        lease.begin(2, planned(place))
    lease.restore()
    lease.begin(2, planned(place))


def test_a_refused_driver_leaves_the_lease_alone(take, place):
    holder = take()
    before = (place / "lease.json").read_bytes()
    with pytest.raises(MillraceError, match="another run is using"):
        take()
    assert (place / "lease.json").read_bytes() == before
    holder.check()


def test_what_was_begun_outlives_a_release(take, place):
    lease = take()
    logged(place, 0)
    lease.begin(0, planned(place))
    lease.release()
    logged(place, 0, "late")
    take().begin(0, planned(place))
    assert offsets(place, 0) == entry("0")


def test_a_lease_that_another_program_wrote_is_damage(take, place):
    (place / "lease.json").write_bytes(b"{}")
    with pytest.raises(MillraceError, match=r"lease\.json is not what Millrace writes there"):
        take()


def test_a_lease_is_lost_where_the_store_stays_away_for_its_whole_length(s3, take):
    lease = take(seconds=5.0)
    with s3.disturbed(lambda request: Disturbance(status=403)):
        while lease.lost is None:
            time.sleep(0.05)
    with pytest.raises(MillraceError, match="cannot be renewed: AccessDenied"):
        lease.check()


def a_copy(folder, *batches):
    """Of Spark's part, changed in a folder."""
    for number in batches:
        for log in ("offsets", "commits"):
            file = folder / log / str(number)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(entry(f"copied {number}"))
            file.with_name(f".{number}.crc").write_bytes(b"crc")
    return folder


def test_a_changed_copy_takes_the_place_of_sparks_part_with_its_last_batch(place, take, tmp_path):
    logged(place, 0)
    lease = take()
    for last in (1, 2):
        lease.replace_spark(a_copy(tmp_path / str(last), last - 1, last))
        assert (lease.begun, spark_place(place)) == (last, lease.spark)
        assert sorted(name for name, _ in lease.spark.objects()) == [
            f"{log}/{number}" for log in ("commits", "offsets") for number in (last - 1, last)
        ]
        assert [each.name for each in place.folders()] == [lease.spark.name], "the original is removed"
    lease.release()
    later = take()
    assert (later.begun, later.spark) == (2, lease.spark)
    later.begin(3, lambda number: entry("next") if number == 3 else entry("copied 2"))


def test_who_has_lost_the_lease_replaces_nothing(place, take, dead, tmp_path):
    logged(place, 0)
    old, copy = take(), a_copy(tmp_path, 0, 1)
    new = take()
    with pytest.raises(MillraceError):
        old.replace_spark(copy)
    assert (new.spark, offsets(place, 0)) == (place / "spark", entry(0))
    new.check()


def test_an_answer_that_was_lost_leaves_the_copy_in_place(place, take, s3, tmp_path):
    logged(place, 0)
    lease, lost = take(), []

    def lose_one(request):
        if request.method == "PUT" and request.key.endswith("lease.json") and not lost:
            lost.append(request)
            return Disturbance(loses_answer=True)
        return None

    with s3.disturbed(lose_one):
        lease.replace_spark(a_copy(tmp_path, 0, 1))
    assert lost
    assert spark_place(place) == lease.spark != place / "spark"
    lease.check()


def test_what_tasks_read_in_the_log_is_what_was_begun(place, dead):
    checkpoint = Checkpoint(place)
    checkpoint.open(a_query())
    try:
        logged(place, 0)
        checkpoint.begin(0, planned(place))
        checkpoint.require_logged(0)
        logged(place, 0, "late")
        with pytest.raises(TransientError, match="another driver has written batch 0 to Spark's log"):
            checkpoint.require_logged(0)
    finally:
        checkpoint.close()
