"""The checks of servers beside Spark's start; sources and sinks are acted."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.run.server_checks import ServerChecks

PATIENT = 60.0


@pytest.fixture
def checks():
    """Return ``checks(source, *sinks)``, which begins the checks of a source and of sinks."""

    def begun(source, *sinks):
        return ServerChecks({"trips": SimpleNamespace(check_server=source)}, sinks)

    return begun


def nothing():
    """A server that accepts."""


def refuses(error):
    def check():
        raise error

    return check


def running():
    return False


def test_servers_that_accept_hold_up_nothing(checks):
    begun = checks(nothing, nothing)
    begun.wait(running, PATIENT)
    begun.require_accepted()


@pytest.mark.parametrize(
    ("source", "sink", "failure"),
    [
        (refuses(MissingInputError(Problem("no topic"))), nothing, FailureClass.SOURCE_MISSING),
        (refuses(MillraceError(Problem("no login"))), nothing, FailureClass.SOURCE),
        (nothing, refuses(MillraceError(Problem("no topic"))), FailureClass.SINK),
    ],
)
def test_a_refusal_ends_the_start_with_the_class_of_its_part(checks, source, sink, failure):
    begun = checks(source, sink)
    with pytest.raises(MillraceError, match="no ") as refused:
        begun.wait(running, PATIENT)
    assert refused.value.failure == failure


def test_a_refusal_is_raised_while_another_server_is_silent(checks):
    end = threading.Event()
    begun = checks(end.wait, refuses(MillraceError(Problem("no login"))))
    with pytest.raises(MillraceError, match="no login"):
        begun.wait(running, PATIENT)
    end.set()


def test_what_may_pass_is_left_to_the_run(checks):
    begun = checks(refuses(TransientError(Problem("a broker is gone"))))
    begun.wait(running, PATIENT)
    begun.require_accepted()


def test_a_silent_server_does_not_hold_up_the_start_and_may_refuse_later(checks):
    answer, answered = threading.Event(), threading.Event()

    def late():
        answer.wait()
        try:
            raise MillraceError(Problem("no login"))
        finally:
            answered.set()

    begun = checks(late)
    begun.wait(running, 0.05)
    begun.require_accepted()
    answer.set()
    answered.wait()
    with pytest.raises(MillraceError, match="no login"):
        begun.wait(running, PATIENT)
    with pytest.raises(MillraceError, match="no login"):
        begun.require_accepted()


def test_a_run_that_is_stopped_waits_no_longer(checks):
    end = threading.Event()
    begun = checks(end.wait)
    begun.wait(lambda: True, PATIENT)
    assert not end.is_set()
    end.set()


def test_of_two_refusals_that_of_a_source_counts(checks):
    refused = threading.Event()

    def second():
        refused.wait()
        raise MillraceError(Problem("no topic"))

    def first():
        try:
            raise MillraceError(Problem("no login"))
        finally:
            refused.set()

    begun = checks(second, first)
    for thread in begun._threads:
        thread.join()
    with pytest.raises(MillraceError, match="no topic"):
        begun.require_accepted()


def test_an_error_of_a_library_is_left_to_the_run(checks, monkeypatch):
    uncaught = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    begun = checks(refuses(RuntimeError("a library's")))
    begun.wait(running, PATIENT)
    begun.require_accepted()
    assert not uncaught


def test_a_run_that_is_stopped_ends_without_a_refusal(checks):
    begun = checks(refuses(MillraceError(Problem("no login"))))
    begun.wait(lambda: True, PATIENT)
