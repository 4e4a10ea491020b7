"""What a run does about automatic snapshots: before a change, by the clock, and when one fails."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace

import pytest

from builders import a_query
from lab.waiting import wait_until
from millrace_api.model.deployment import SnapshotsSpec
from millrace_jobs.checkpoint.marker import Marker, Versions
from millrace_jobs.checkpoint.snapshot_manifest import SnapshotReason
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, snapshots_of, verify
from millrace_jobs.run.automatic_snapshots import AutomaticSnapshots, change_of
from unit.checkpoint.stored import Stored


@pytest.fixture
def stored(tmp_path):
    made = Stored(tmp_path / "checkpoint")
    for step in (made.begin, made.commit, made.upload, made.begin, made.commit, made.begin):
        step()
    adopted = replace(Marker.read(made.root), versions=Versions.present())
    adopted.write(made.root)
    return made


@pytest.fixture
def run(stored):
    runs = []

    def start(**spec):
        messages = []
        made = AutomaticSnapshots(stored.root, SnapshotsSpec.model_validate(spec), messages.append)
        made.messages = messages
        runs.append(made)
        return made

    yield start
    for each in runs:
        each.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "automatic snapshots"]


def changed(**parts):
    query = a_query()
    return query.model_copy(update={"spec": query.spec.model_copy(update=parts)})


CHANGED = changed(spark_conf={"spark.sql.adaptive.enabled": "false"})


@pytest.mark.parametrize(
    ("query", "versions", "change"),
    [
        (a_query(), Versions.present(), None),
        (CHANGED, Versions.present(), "spec.sparkConf"),
        (changed(image="example.org/jobs:2"), Versions.present(), "spec.image"),
        (changed(snapshots=SnapshotsSpec()), Versions.present(), None),
        (changed(suspend=True), Versions.present(), None),
        (a_query(), replace(Versions.present(), spark="4.2.0"), "the version of Millrace or Spark"),
        (a_query(), None, "the version of Millrace or Spark"),
        (CHANGED, None, "spec.sparkConf, the version of Millrace or Spark"),
    ],
)
def test_a_change_is_what_takes_another_driver(query, versions, change):
    assert change_of(Marker("id", a_query(), 2, versions=versions), query) == change


def test_before_a_change_one_is_taken_of_the_checkpoint_as_it_was(stored, run):
    snapshots = run()
    snapshots.before(CHANGED)
    snapshots.wait(lambda: False, 300)
    (taken,) = snapshots_of(stored.root)
    assert (taken.reason, taken.batch) == (SnapshotReason.CHANGE, 1)
    place = stored.root / "snapshots" / taken.name
    verify(place)
    assert Marker.read(place).query == a_query()
    assert f"snapshot {taken.name} before the change of spec.sparkConf: batch 1, " in snapshots.messages[0]
    assert snapshots.state.current_at is not None
    assert snapshots.state.failures == 0


@pytest.mark.parametrize(
    ("spec", "query"), [({}, a_query()), ({"beforeChange": False}, CHANGED), ({"every": "6h"}, a_query())]
)
def test_without_a_change_none_is_taken_at_the_start(stored, run, spec, query):
    snapshots = run(**spec)
    snapshots.before(query)
    snapshots.wait(lambda: False)
    assert names_of_snapshots(stored.root) == []


def test_a_start_goes_on_without_one_that_fails_or_takes_too_long(stored, run):
    for seconds, why in ((0, "it has taken more than 0 s"), (300, "Not a directory")):
        if seconds:
            shutil.rmtree(stored.root / "snapshots", ignore_errors=True)
            (stored.root / "snapshots").touch()
        snapshots = run()
        snapshots.before(CHANGED)
        snapshots.wait(lambda: False, seconds)
        assert why in snapshots.messages[0]
        assert (
            "no snapshot before the change of spec.sparkConf was taken, and the query goes on" in snapshots.messages[0]
        )
        assert snapshots.state.failures == 1


def test_a_marker_that_cannot_be_read_is_a_failure_and_no_more(stored, run):
    (stored.root / "millrace.json").write_text("{")
    snapshots = run()
    snapshots.before(CHANGED)
    assert snapshots.state.failures == 1
    assert "it is not what Millrace writes there" in snapshots.messages[0]


def test_by_the_clock_one_is_taken_of_each_newer_batch_and_a_failure_ends_nothing(stored, run):
    (stored.root / "snapshots").touch()
    snapshots = run(every="50ms", keep=2)
    snapshots.begin()
    wait_until(lambda: snapshots.state.failures, "an attempt has failed", seconds=300)
    assert snapshots.state.current_at is None
    (stored.root / "snapshots").unlink()
    for batch in range(1, 4):
        wait_until(
            lambda batch=batch: any(each.batch == batch for each in snapshots_of(stored.root)),
            f"there is a snapshot of batch {batch}",
            seconds=300,
        )
        stored.commit()
        stored.begin()
    snapshots.close()
    assert [each.batch for each in snapshots_of(stored.root)][-2:] == [2, 3]
    assert snapshots.state.seconds is not None
    assert snapshots.state.interval == 0.05


def test_an_old_driver_takes_no_more(stored):
    snapshots = AutomaticSnapshots(stored.root, SnapshotsSpec(every="1ms"), lambda _: None, lambda: True)
    snapshots.begin()
    snapshots._thread.join()
    snapshots.close()
    assert names_of_snapshots(stored.root) == []
