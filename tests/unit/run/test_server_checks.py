"""The checks of servers beside Spark's start; sources and sinks are acted."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from millrace_api.errors import MillraceError, MissingInputError, Problem, TransientError
from millrace_api.model.status import FailureClass
from millrace_jobs.run import server_checks
from millrace_jobs.run.server_checks import ServerChecks

PATIENT = 60.0


@pytest.fixture
def checks(monkeypatch):
    """Return ``checks(source, *sinks)``, which begins the checks of a source and of sinks."""

    def begun(source, *sinks):
        monkeypatch.setattr(server_checks, "server_checks", lambda _: sinks)
        return ServerChecks(None, {"trips": SimpleNamespace(check_server=source)})

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
