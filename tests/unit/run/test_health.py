from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.pending import CallKind, PendingCall
from millrace_jobs.run.observer import Health
from millrace_jobs.session import ExecutorState
from millrace_support.http_server import ProbeResult


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def health_and_clock(executors=lambda: None):
    clock = Clock()
    return Health(allowed_silence=60, executors=executors, clock=clock), clock


class Executors:
    """Those of a query that needs two."""

    def __init__(self):
        self.ready = self.signs = 0

    def __call__(self):
        return ExecutorState(self.ready, 2, self.signs)


def test_a_start_is_alive_and_not_ready():
    health, clock = health_and_clock()
    clock.now += 3600
    assert health.liveness() == ProbeResult(True, "starting")
    assert health.readiness() == ProbeResult(False, "starting")


def test_a_query_is_ready_after_its_first_batch():
    health, _ = health_and_clock()
    health.running()
    assert health.liveness() == ProbeResult(True, "running")
    assert health.readiness() == ProbeResult(False, "waiting for the first batch")
    health.computed()
    assert health.readiness() == ProbeResult(True, "running")


def test_a_query_is_ready_after_a_batch_and_with_the_executors_that_it_needs():
    executors = Executors()
    health, _ = health_and_clock(executors)
    health.running()
    executors.ready = 1
    health.computed()
    waiting = "waiting for the first batch, 1 of at least 2 executors run"
    assert health.readiness() == ProbeResult(False, waiting)
    executors.ready = 2  # the next batch may be an hour away
    assert health.readiness().ok


def test_executors_alone_do_not_make_a_query_ready():
    executors = Executors()
    health, _ = health_and_clock(executors)
    health.running()
    executors.ready = 2
    assert not health.readiness().ok


def test_a_query_that_was_ready_stays_so_when_it_loses_executors():
    executors = Executors()
    health, _ = health_and_clock(executors)
    health.running()
    executors.ready = 2
    health.computed()
    executors.ready = 0
    assert health.readiness() == ProbeResult(True, "running")
    health.computed()
    assert health.readiness().ok


def test_a_long_batch_lives_while_tasks_finish_and_while_it_waits_for_executors():
    """The agent counts both as signs: neither is helped by a restart."""
    executors = Executors()
    health, clock = health_and_clock(executors)
    health.running()
    for _ in range(100):
        clock.now += 50
        executors.signs += 1
        assert health.liveness().ok
    assert not health.readiness().ok
    clock.now += 61
    assert not health.liveness().ok, "executors are there, and none finishes a task"


def test_silence_is_a_hang_and_a_sign_of_life_ends_it():
    health, clock = health_and_clock()
    clock.now += 3600
    health.running()
    health.computed()
    clock.now += 60
    assert health.liveness().ok
    clock.now += 1
    assert health.liveness() == ProbeResult(False, "hung: no batch or task finished for 61 s, allowed 60 s")
    assert health.readiness().ok
    health.computed()
    assert health.liveness().ok


def test_liveness_names_what_a_running_batch_waits_for():
    calls, clock = [], Clock()
    health = Health(60, clock=clock, pending=lambda: calls)
    calls.append(PendingCall(CallKind.CODE, "function a:b", "computing", 1, 45.0, 45.0))
    waits = "the function a:b has not returned for 45 s while computing"
    assert health.liveness() == ProbeResult(True, "starting")
    health.running()
    assert health.liveness() == ProbeResult(True, f"running; {waits}")
    clock.now += 61
    hung = "hung: no batch or task finished for 61 s, allowed 60 s"
    assert health.liveness() == ProbeResult(False, f"{hung}; {waits}")


def test_a_query_that_drains_is_left_alone():
    health, clock = health_and_clock()
    health.running()
    health.closing()
    clock.now += 3600
    assert health.liveness() == ProbeResult(True, "closing")
    assert health.readiness() == ProbeResult(False, "closing")
    health.running()
    health.computed()
    assert health.readiness() == ProbeResult(False, "closing")


def test_a_failure_is_for_good_and_its_first_reason_counts():
    health, _ = health_and_clock()
    health.running()
    health.failed("a disk is full")
    health.failed("the session is gone")
    health.closing()
    health.running()
    health.computed()
    assert health.liveness() == health.readiness() == ProbeResult(False, "failed: a disk is full")


@given(st.lists(st.sampled_from(["running", "computed", "closing", "failed", "wait"]), max_size=12))
def test_a_query_is_ready_only_while_running_and_dead_only_by_failure_or_hang(calls):
    health, clock = health_and_clock()
    for call in calls:
        if call == "wait":
            clock.now += 61
        else:
            getattr(health, call)(*(["why"] if call == "failed" else []))
    running = "running" in calls and not {"closing", "failed"} & set(calls)
    assert health.readiness().ok == (running and "computed" in calls)
    if "failed" in calls:
        assert not health.liveness().ok
    elif not running:
        assert health.liveness().ok
    else:
        signs = [i for i, call in enumerate(calls) if call == "computed"] + [calls.index("running")]
        assert health.liveness().ok == ("wait" not in calls[max(signs) :])
