"""A snapshot that the annotation asks for: it reaches the driver once, and the status has what it has come to."""

import json

import pytest

from millrace_api.model.snapshots import SNAPSHOT_ANNOTATION, SnapshotRequest, SnapshotRequestState, SnapshotsReport
from millrace_operator.lifecycle.conditions import format_time
from unit.api.documents import MINIMAL, changed

from .cluster import KEY

PLAN = ("ConfigMap", f"{KEY.name}-plan")
FOUND = {"name": "monday", "batch": 7, "time": "2026-01-31T12:00:05Z", "bytes": 4096, "origin": "Person"}


@pytest.fixture
def running(cluster):
    cluster.put(MINIMAL)
    cluster.settle()
    cluster.pod_is_ready()
    return cluster


def ask(cluster, value, **others):
    cluster.put(MINIMAL, annotations={SNAPSHOT_ANNOTATION: value, **others} if value is not None else others)
    return cluster.settle()


def given(cluster):
    """What the driver finds in the ConfigMap."""
    text = cluster.objects[PLAN]["data"].get("snapshot-request.json")
    return SnapshotRequest.from_json(text) if text else None


def report(cluster, text):
    cluster.objects[PLAN]["data"]["snapshots.json"] = text
    return cluster.settle()


def answer(cluster, state, message="", **parts):
    """Report an answer to what the driver has been given, as the driver does."""
    answered = (given(cluster) or cluster.status.snapshots.request).model_copy(
        update={"state": state, "message": message, **parts}
    )
    return report(cluster, SnapshotsReport(request=answered, count=1, newest=(FOUND,)).to_json())


def test_the_driver_gets_the_request_until_it_is_answered_and_the_status_keeps_the_answer(running):
    status = ask(running, "monday")
    assert given(running) == SnapshotRequest(name="monday", time=format_time(running.time))
    assert (status.snapshots.request.state, status.snapshots.request.message) == (SnapshotRequestState.PENDING, "")
    assert answer(running, SnapshotRequestState.RUNNING).snapshots.request.state is SnapshotRequestState.RUNNING
    assert given(running) is not None
    status = answer(running, SnapshotRequestState.DONE, "monday: batch 7, 0.0 MiB")
    assert status.snapshots.request.state is SnapshotRequestState.DONE
    assert [each.name for each in status.snapshots.newest] == ["monday"]
    assert given(running) is None
    assert running.events[-1] == (False, "SnapshotTaken")
    before = running.writes
    running.start_operator()
    running.pass_time(hours=1)
    assert running.settle() == status
    assert running.writes == before, "it is idle"
    assert running.events.count((False, "SnapshotTaken")) == 1


def test_a_request_is_shown_as_pending_while_the_driver_cannot_take_it(cluster):
    cluster.put(changed(MINIMAL, 12, "  suspend: true"), annotations={SNAPSHOT_ANNOTATION: "monday"})
    assert cluster.settle().snapshots.request.message == "no driver runs"
    cluster.put(MINIMAL, annotations={SNAPSHOT_ANNOTATION: "monday"})
    cluster.settle()
    cluster.pod_is_ready()
    asked = given(cluster)
    assert asked is not None
    assert asked.time == cluster.status.snapshots.request.time


def test_a_paused_query_is_not_asked(running):
    status = ask(running, "monday", **{"millrace.io/paused": "true"})
    assert given(running) is None
    assert status.snapshots.request.message == "the annotation millrace.io/paused is set"
    ask(running, "monday")
    assert given(running) is not None


def test_a_driver_of_an_earlier_image_does_not_answer_and_the_status_says_so(running):
    assert ask(running, "monday").snapshots.request.message == ""
    running.pass_time(minutes=1)
    assert running.status.snapshots.request.message == ""
    running.pass_time(minutes=2)
    assert "its image may be of an earlier version of Millrace" in running.status.snapshots.request.message
    before = running.writes
    running.pass_time(hours=1)
    assert running.writes == before
    assert answer(running, SnapshotRequestState.DONE).snapshots.request.message == "", "it has been replaced"


def test_a_driver_that_has_begun_may_take_its_time(running):
    ask(running, "monday")
    answer(running, SnapshotRequestState.RUNNING, "no batch is finished yet")
    running.pass_time(minutes=30)
    assert running.status.snapshots.request.message == "no batch is finished yet"


@pytest.mark.parametrize(("value", "reason"), [("monday", "SnapshotFailed"), ("-monday", "SnapshotFailed")])
def test_a_failure_is_shown_with_a_warning_and_not_tried_again(running, value, reason):
    ask(running, value)
    status = answer(running, SnapshotRequestState.FAILED, "the volume is full")
    assert status.snapshots.request.message == "the volume is full"
    assert running.events[-1] == (True, reason)
    assert given(running) is None


def test_a_removal_is_asked_for_by_a_dash(running):
    ask(running, "-monday")
    assert (given(running).removes, given(running).snapshot) == (True, "monday")
    answer(running, SnapshotRequestState.DONE, "removed monday")
    assert running.events[-1] == (False, "SnapshotRemoved")


def test_another_value_is_another_request_and_so_is_the_same_one_after_it_was_taken_away(running):
    ask(running, "monday")
    answer(running, SnapshotRequestState.DONE)
    running.pass_time(seconds=10)
    assert ask(running, "tuesday").snapshots.request.state is SnapshotRequestState.PENDING
    assert ask(running, None).snapshots.request is None
    assert given(running) is None, "it is withdrawn"
    running.pass_time(seconds=10)
    ask(running, "monday")
    assert given(running).time == format_time(running.time)
    old = given(running).model_copy(update={"time": "2026-01-31T12:00:00Z", "state": SnapshotRequestState.DONE})
    status = report(running, SnapshotsReport(request=old).to_json())
    assert status.snapshots.request.state is SnapshotRequestState.PENDING, "that answers an earlier request"


@pytest.mark.parametrize("value", ["Monday", "../spark", "-", "--", "a" * 64, "x" * 5000, "mon\nday", "monday-"])
def test_a_value_that_is_no_name_is_refused_and_never_given_to_a_driver(running, value):
    status = ask(running, value)
    assert status.snapshots.request.state is SnapshotRequestState.FAILED
    assert "cannot be the name of a snapshot: write at most 63" in status.snapshots.request.message
    assert given(running) is None
    assert running.events[-1] == (True, "SnapshotFailed")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        json.dumps({"count": -1}),
        json.dumps({"count": 10**30}),
        json.dumps({"newest": [FOUND] * 11}),
        json.dumps({"newest": [FOUND | {"name": "../../etc"}]}),
        json.dumps({"newest": [FOUND | {"time": "yesterday"}]}),
        json.dumps({"request": {"name": "monday", "time": "2026-01-31T12:00:00Z", "message": "x" * 5000}}),
    ],
)
def test_a_report_that_is_none_changes_nothing(running, text):
    ask(running, "monday")
    answer(running, SnapshotRequestState.RUNNING)
    before = running.status.snapshots.newest
    status = report(running, text)
    assert status.snapshots.newest == before
    assert status.snapshots.request.state is SnapshotRequestState.PENDING


def test_a_report_of_a_later_image_is_read_as_far_as_it_is_known(running):
    found = {"newest": [FOUND | {"digest": "1"}], "count": 1, "oldest": FOUND}
    assert report(running, json.dumps(found)).snapshots.count == 1


def test_who_does_not_use_it_gets_no_entry(running):
    assert "snapshot-request.json" not in running.objects[PLAN]["data"]
    assert running.status.snapshots is None


def test_a_request_waits_for_a_spec_that_can_be_followed(running):
    running.put(MINIMAL.replace("SELECT", "SELEKT"), annotations={SNAPSHOT_ANNOTATION: "monday"})
    running.settle()
    running.pass_time(minutes=3)
    status = running.settle()
    assert given(running) is None
    assert "once the spec can be followed" in status.snapshots.request.message
