"""What a driver answers when its operator asks for snapshots, beside those that it takes by the clock."""

from __future__ import annotations

import pytest

from lab.waiting import wait_until
from millrace_api.model.deployment import SnapshotsSpec
from millrace_api.model.snapshots import SnapshotRequest, SnapshotRequestState
from millrace_jobs.checkpoint.snapshots import names_of_snapshots, take, verify
from millrace_jobs.run import requested_snapshots
from millrace_jobs.run.automatic_snapshots import AutomaticSnapshots
from unit.checkpoint.stored import Stored

DONE, FAILED, RUNNING = SnapshotRequestState.DONE, SnapshotRequestState.FAILED, SnapshotRequestState.RUNNING


class Operator:
    """It asks for one snapshot at a time, and has all reports."""

    def __init__(self):
        self.asked, self.reports = None, []

    def ask(self, name, second=0):
        self.asked = SnapshotRequest(name=name, time=f"2026-01-31T12:00:{second:02}Z")

    def snapshot_request(self):
        return self.asked

    def report_snapshots(self, report):
        self.reports.append(report)

    def answer(self, *states):
        """Wait for an answer in one of these states, and return it."""

        def found():
            answer = self.reports[-1].request if self.reports else None
            matches = answer is not None and answer.identity == self.asked.identity and answer.state in states
            return answer if matches else None

        return wait_until(found, seconds=300)

    @property
    def names(self):
        return [each.name for each in self.reports[-1].newest]


@pytest.fixture
def stored(tmp_path):
    made = Stored(tmp_path / "checkpoint")
    for step in (made.begin, made.commit, made.begin):
        step()
    return made


@pytest.fixture
def operator(monkeypatch):
    monkeypatch.setattr(requested_snapshots, "_WAIT_SECONDS", 0.2)
    return Operator()


@pytest.fixture
def driver(stored, operator):
    started = []

    def start(spec=None):
        messages = []
        made = AutomaticSnapshots(stored.root, spec, messages.append, lambda: False, operator)
        made.messages = messages
        made.begin()
        started.append(made)
        return made

    yield start
    for each in started:
        each.close()


def test_each_request_is_answered_once_and_the_report_has_all_snapshots(stored, operator, driver):
    take(stored.root, "by-hand")
    run = driver()
    wait_until(lambda: operator.reports and operator.names == ["by-hand"], "it reports what there is", seconds=300)
    operator.ask("monday")
    assert operator.answer(DONE, FAILED).message.startswith("monday: batch 0, ")
    assert operator.names == ["monday", "by-hand"]
    states = [each.request.state for each in operator.reports if each.request is not None]
    assert states == [RUNNING, DONE]
    operator.ask("monday", 1)
    assert "there is a snapshot monday of batch 0 already" in operator.answer(DONE, FAILED).message
    operator.ask("-by-hand", 2)
    assert operator.answer(DONE, FAILED).state is DONE
    assert operator.names == ["monday"]
    operator.ask("..", 3)
    assert "cannot be the name of a snapshot" in operator.answer(DONE, FAILED).message
    assert operator.names == ["monday"] == names_of_snapshots(stored.root)
    assert run.state.failures == 0, "the alert on snapshots is about automatic ones"
    assert next(each for each in run.messages if "monday" in each).startswith("snapshot monday: batch 0, ")


def test_a_driver_that_starts_again_does_not_carry_a_request_out_again(stored, operator, driver):
    operator.ask("monday")
    driver()
    first = operator.answer(DONE)
    stored.commit()
    operator.reports.clear()  # the operator has not seen it
    driver()
    assert operator.answer(DONE).message == first.message
    assert verify(stored.root / "snapshots" / "monday").batch == 0


def test_a_removal_that_no_driver_could_report_is_done(stored, operator, driver):
    take(stored.root, "monday")
    operator.ask("-monday")
    driver()
    first = operator.answer(DONE, FAILED)
    assert first.state is DONE
    operator.reports.clear()  # the operator has not seen it
    driver()
    assert operator.answer(DONE, FAILED) == first


def test_a_request_waits_for_the_first_finished_batch_unless_it_is_withdrawn(tmp_path, operator):
    stored = Stored(tmp_path / "checkpoint")
    stored.begin()
    run = AutomaticSnapshots(stored.root, None, lambda _: None, lambda: False, operator)
    run.begin()
    try:
        operator.ask("monday")
        wait_until(lambda: operator.answer(RUNNING).message == "no batch is finished yet", seconds=300)
        stored.commit()
        assert operator.answer(DONE, FAILED).state is DONE
    finally:
        run.close()


def test_between_those_by_the_clock_others_are_taken_and_all_are_reported(stored, operator, driver):
    driver(SnapshotsSpec(every="50ms", keep=3))
    operator.ask("monday")
    assert operator.answer(DONE, FAILED).state is DONE
    wait_until(lambda: any(name.startswith("periodic-") for name in operator.names), seconds=300)
    assert "monday" in names_of_snapshots(stored.root)


def test_without_requests_and_a_clock_nothing_runs(stored):
    run = AutomaticSnapshots(stored.root, SnapshotsSpec(), lambda _: None)
    run.begin()
    assert run._thread is None
    run.close()
