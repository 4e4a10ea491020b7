"""What a run says of calls that last: once as a message, and in lines that follow them."""

import threading
from dataclasses import replace

import pytest

from lab.waiting import wait_until
from millrace_api.errors import MillraceError, Problem
from millrace_jobs.pending import CallKind, PendingCall
from millrace_jobs.run.pending_watch import PendingWatch

STUCK = PendingCall(CallKind.CODE, "function a:b", "computing", 1, 21.0, 21.0)
SILENT = PendingCall(CallKind.SERVER, "Kafka at b:9092", "reading", 1, 11.0, 11.0, why="Kafka at b:9092 is away")


class Run:
    """A run whose calls are set, and what it showed and announced."""

    def __init__(self):
        self.now, self.calls = 1000.0, ()
        self.shown, self.said = [], []
        self.watch = PendingWatch(lambda: self.calls, self.shown.append, self.said.append, clock=lambda: self.now)

    def look(self, *calls, later=5.0):
        self.now += later
        self.calls = calls
        self.watch.look()


def test_a_call_is_announced_once_and_shown_while_it_lasts():
    run = Run()
    run.look()
    assert run.shown == []
    run.look(STUCK)
    run.look(replace(STUCK, seconds=26.0, all_seconds=26.0))
    run.look()
    run.look()
    sentence = "the function a:b has not returned for {} s while computing"
    assert run.said == [sentence.format(21)]
    assert run.shown == [[sentence.format(21)], [sentence.format(26)], []]


def test_every_look_is_reported_and_why_a_query_starts_again_stands_for_the_calls():
    reported, calls = [], [(), (SILENT,), ()]
    watch = PendingWatch(lambda: calls.pop(0), lambda _: None, lambda _: None, report=reported.append)
    for _ in range(3):
        watch.look()
    assert reported == [[], [SILENT], []]
    failing, calls = MillraceError(Problem("Kafka at b:9092 cannot be reached", "start it")), [(SILENT,), (STUCK,), ()]
    ignored = [lambda _: None] * 2
    watch = PendingWatch(lambda: calls.pop(0), *ignored, report=reported.append, failing=lambda: failing)
    for _ in range(3):
        watch.look()
    *_, silent, (again,), (still,) = reported
    assert silent == [SILENT]
    assert again.reason == "the query was started again because Kafka at b:9092 cannot be reached"
    assert still == again


def test_own_code_is_reported_once_it_has_lasted_for_minutes():
    reported, stuck = [], replace(STUCK, seconds=120.0, all_seconds=120.0)
    calls = [(STUCK,), (replace(stuck, all_seconds=119.0), SILENT), (stuck,)]
    watch = PendingWatch(lambda: calls.pop(0), lambda _: None, lambda _: None, report=reported.append)
    for _ in range(3):
        watch.look()
    assert reported == [[], [SILENT], [stuck]]


def test_the_report_is_taken_back_when_the_batches_end(monkeypatch):
    monkeypatch.setattr("millrace_jobs.run.pending_watch.LOOK_SECONDS", 0.01)
    reported = []
    with PendingWatch(lambda: (SILENT,), lambda _: None, lambda _: None, report=reported.append):
        wait_until(lambda: reported)
    assert (reported[0], list(reported[-1])) == ([SILENT], [])


def test_a_report_that_fails_stops_no_announcement():
    said = []
    watch = PendingWatch(lambda: (STUCK,), lambda _: None, said.append, report=lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        watch.look()
    assert len(said) == 1


def test_the_attempts_of_a_task_are_one_message():
    run = Run()
    for _ in range(4):  # each gives up after a minute, and is followed by the next
        for _ in range(10):
            run.look(SILENT)
        run.look()
        run.look()
    assert run.said == ["Kafka at b:9092 is away, for 11 s so far"]


def test_a_call_that_lasts_again_after_minutes_is_announced_again():
    run = Run()
    run.look(STUCK)
    run.look()
    run.look(STUCK, later=200.0)
    assert len(run.said) == 2


def test_the_thread_ends_with_the_batches(monkeypatch):
    monkeypatch.setattr("millrace_jobs.run.pending_watch.LOOK_SECONDS", 0.01)
    run = Run()
    run.calls = (STUCK,)
    with run.watch:
        (thread,) = [each for each in threading.enumerate() if each.name == "calls that last"]
        wait_until(lambda: run.said)
    assert not thread.is_alive()


def test_a_look_that_fails_is_not_the_last_one(monkeypatch):
    monkeypatch.setattr("millrace_jobs.run.pending_watch.LOOK_SECONDS", 0.01)
    looks, said = [], []

    def pending():
        looks.append(None)
        if len(looks) == 1:
            raise ValueError("no calls")
        return (STUCK,)

    with PendingWatch(pending, lambda _: None, said.append):
        wait_until(lambda: said)


def test_the_messages_of_a_minute_are_bounded_and_the_others_follow():
    run = Run()
    calls = [replace(STUCK, what=f"function a:f{each}") for each in range(12)]
    run.look(*calls)
    run.look(*calls)
    assert len(run.said) == 10
    run.look(*calls, later=60.0)
    assert [said.split()[1] for said in run.said] == ["function"] * 12
    assert len(set(run.said)) == 12
