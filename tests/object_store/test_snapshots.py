"""Snapshots in an object store: copied by the store, verified by its tags, and restored to a folder."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.marker import Marker
from millrace_jobs.checkpoint.snapshot_manifest import Snapshot, SnapshotReason
from millrace_jobs.checkpoint.snapshot_process import SnapshotOrder, SnapshotProcess
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, remove, restore, snapshots_of, take, verify
from millrace_jobs.places import Place, write_durably
from millrace_jobs.stores.objects import ObjectPath

from .made_checkpoints import ENTRY, counting_query, made


def test_a_snapshot_is_taken_while_a_driver_holds_the_checkpoint(tmp_path: Path, place: Place) -> None:
    query = counting_query(tmp_path)
    driver = made(place, query)
    driver.open(query)
    taken = take(place, "one")
    driver.close()
    assert taken.batch == 0
    (place / "spark" / "state" / "0" / "0" / "1.delta").unlink()
    restore(place / "snapshots" / "one", tmp_path / "restored")
    assert Checkpoint(tmp_path / "restored").last_batch().committed == 0
    assert (tmp_path / "restored" / "spark" / "state" / "0" / "0" / "1.delta").read_bytes() == b"12"
    changed = next(file.place(place / "snapshots" / "one") for file in taken.files if file.name.endswith("1.delta"))
    for content, why in ((b"13", "other content"), (b"1", "has 1 bytes, and had 2")):
        changed.write_bytes(content)
        with pytest.raises(MillraceError, match=why):
            verify(place / "snapshots" / "one")
    changed.unlink()
    with pytest.raises(MillraceError, match=r"1\.delta is gone"):
        verify(place / "snapshots" / "one")


def test_the_drivers_own_are_taken_and_removed_by_its_process(tmp_path: Path, place: Place) -> None:
    query = counting_query(tmp_path)
    driver = made(place, query)
    driver.open(query)
    take(place, "by-hand")
    write_durably(place / "snapshots" / "dead" / "taking", b"schedule")
    outcomes = []
    for batch in range(1, 4):
        write_durably(place / "spark" / "state" / "0" / "0" / f"{batch + 1}.delta", b"12")
        write_durably(place / "spark" / "offsets" / str(batch), ENTRY)
        write_durably(place / "spark" / "commits" / str(batch), b"v1\n{}")
        outcomes.append(SnapshotProcess(place, SnapshotOrder(SnapshotReason.CHANGE, 2)).outcome(lambda: False))
        again = SnapshotProcess(place, SnapshotOrder(SnapshotReason.SCHEDULE, 2)).outcome(lambda: False)
        assert again is not None
        assert (again.error, again.is_new) == (None, False)
    driver.close()
    assert [outcome.batch for outcome in outcomes if outcome is not None and outcome.is_new] == [1, 2, 3]
    last = outcomes[-1]
    assert last is not None
    assert last.name is not None
    assert len(last.removed) == 1
    found = snapshots_of(place)
    assert [each.batch for each in found if each.reason is SnapshotReason.CHANGE] == [2, 3]
    assert names_of_snapshots(place) == sorted(each.name for each in found)
    restore(place / "snapshots" / last.name, tmp_path / "restored")
    assert Checkpoint(tmp_path / "restored").last_batch().committed == 3


def test_a_query_begins_from_a_snapshot_in_the_store(tmp_path: Path, place: ObjectPath) -> None:
    """Its lease has the batch that Spark will go on after, as that of the original has."""
    query = counting_query(tmp_path)
    driver = made(place / "first", query)
    driver.open(query)
    driver.close()
    take(place / "first", "one")
    document = query.to_document()
    document["metadata"]["name"] = "second"
    document["spec"]["sink"]["files"]["path"] = str(tmp_path / "second")
    document["spec"]["checkpoint"] = {"uri": str(place / "second"), "fromSnapshot": f"{place}/first/snapshots/one"}
    second = StreamQuery.model_validate(document)
    for _ in range(2):
        checkpoint = Checkpoint(place / "second")
        checkpoint.open(second)
        assert checkpoint.last_batch().begun == checkpoint.last_batch().committed == 0
        checkpoint.close()
    assert (place / "second" / "spark" / "state" / "0" / "0" / "1.delta").read_bytes() == b"12"


def deltas(snapshot: Snapshot) -> dict[str, str]:
    """The objects that a snapshot shares with others, by the names of their files."""
    return {file.name.rpartition("/")[2]: file.shared for file in snapshot.files if file.shared}


def shared(place: ObjectPath) -> set[str]:
    return {name for name, _ in (place / "snapshots" / "_shared").objects()}


def next_batch(place: ObjectPath, batch: int) -> None:
    """Write what Spark leaves of one more batch."""
    write_durably(place / "spark" / "state" / "0" / "0" / f"{batch + 1}.delta", b"12")
    write_durably(place / "spark" / "offsets" / str(batch), ENTRY)
    write_durably(place / "spark" / "commits" / str(batch), b"v1\n{}")


def test_a_snapshot_stores_only_what_is_new(tmp_path: Path, place: ObjectPath) -> None:
    made(place, counting_query(tmp_path))
    first = take(place, "one")
    next_batch(place, 1)
    second = take(place, "two")
    assert deltas(first)["1.delta"] == deltas(second)["1.delta"]
    assert shared(place) == {*deltas(first).values(), *deltas(second).values()}
    assert len(shared(place)) == 2
    assert names_of_snapshots(place) == ["one", "two"]

    remove(place / "snapshots" / "one")
    assert verify(place / "snapshots" / "two") == second
    assert shared(place) == set(deltas(second).values())
    remove(place / "snapshots" / "two")
    assert shared(place) == set()


def test_an_object_that_was_replaced_is_copied_again(tmp_path: Path, place: ObjectPath) -> None:
    made(place, counting_query(tmp_path))
    first = take(place, "one")
    write_durably(place / "spark" / "state" / "0" / "0" / "1.delta", b"34")
    second = take(place, "two")
    assert deltas(first)["1.delta"] != deltas(second)["1.delta"]
    restore(place / "snapshots" / "two", tmp_path / "restored")
    assert (tmp_path / "restored" / "spark" / "state" / "0" / "0" / "1.delta").read_bytes() == b"34"
    assert verify(place / "snapshots" / "one") == first


@pytest.mark.parametrize("content", [None, b"56"])
def test_an_object_that_was_lost_or_changed_is_in_no_later_snapshot(
    tmp_path: Path, place: ObjectPath, content: bytes | None
) -> None:
    made(place, counting_query(tmp_path))
    lost = place / "snapshots" / "_shared" / deltas(take(place, "one"))["1.delta"]
    lost.unlink() if content is None else lost.write_bytes(content)
    take(place, "two")
    verify(place / "snapshots" / "two")
    with pytest.raises(MillraceError, match=r"1\.delta"):
        verify(place / "snapshots" / "one")


def test_a_snapshot_that_is_removed_while_it_is_taken_never_becomes_whole(
    tmp_path: Path, place: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(place, counting_query(tmp_path))
    write_marker = Marker.write

    def removed_before(marker: Marker, target: Place) -> None:
        remove(place / "snapshots" / "one")
        write_marker(marker, target)

    monkeypatch.setattr(Marker, "write", removed_before)
    with pytest.raises(MillraceError, match="was removed while it was being taken"):
        take(place, "one")
    assert names_of_snapshots(place) == []
    assert shared(place) == set()


def test_what_nothing_names_stays_while_another_snapshot_is_being_taken(tmp_path: Path, place: ObjectPath) -> None:
    made(place, counting_query(tmp_path))
    first = take(place, "one")
    write_durably(place / "snapshots" / "two" / "taking", b"request")  # it may have read the manifest of the first
    remove(place / "snapshots" / "one")
    assert shared(place) == set(deltas(first).values())
    remove(place / "snapshots" / "two")
    assert shared(place) == set()


def test_what_a_damaged_snapshot_may_name_stays(tmp_path: Path, place: ObjectPath) -> None:
    made(place, counting_query(tmp_path))
    for name in ("one", "two"):
        taken = take(place, name)
    write_durably(place / "snapshots" / "two" / "snapshot.json", b"{}")
    remove(place / "snapshots" / "one")
    assert shared(place) == set(deltas(taken).values())


def test_snapshots_that_are_taken_and_removed_at_the_same_time_stay_whole(tmp_path: Path, place: ObjectPath) -> None:
    made(place, counting_query(tmp_path))
    for batch in range(1, 5):
        next_batch(place, batch)

    def by(worker: int) -> None:
        chance, mine = random.Random(worker), list[str]()
        for number in range(6):
            mine.append(f"by-{worker}-{number}")
            take(place, mine[-1])
            if chance.random() < 0.7:
                remove(place / "snapshots" / mine.pop(chance.randrange(len(mine))))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(by, range(4)))
    whole = snapshots_of(place)
    assert [each.name for each in whole] != []
    for each in whole:
        verify(place / "snapshots" / each.name)
    for each in whole:
        remove(place / "snapshots" / each.name)
    assert shared(place) == set()
