from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.run.observer import Health
from millrace_support.http_server import ProbeResult


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def health_and_clock():
    clock = Clock()
    return Health(allowed_silence=60, clock=clock), clock


def test_a_start_is_alive_and_not_ready():
    health, clock = health_and_clock()
    clock.now += 3600
    assert health.liveness() == ProbeResult(True, "starting")
    assert health.readiness() == ProbeResult(False, "starting")


def test_a_running_query_is_ready():
    health, _ = health_and_clock()
    health.ready()
    assert health.liveness() == health.readiness() == ProbeResult(True, "running")


def test_silence_is_a_hang_and_a_sign_of_life_ends_it():
    health, clock = health_and_clock()
    clock.now += 3600
    health.ready()
    clock.now += 60
    assert health.liveness().ok
    clock.now += 1
    assert health.liveness() == ProbeResult(False, "hung: no batch finished for 61 s, allowed 60 s")
    assert health.readiness().ok
    health.progressed()
    assert health.liveness().ok


def test_a_query_that_drains_is_left_alone():
    health, clock = health_and_clock()
    health.ready()
    health.closing()
    clock.now += 3600
    assert health.liveness() == ProbeResult(True, "closing")
    assert health.readiness() == ProbeResult(False, "closing")
    health.ready()
    assert health.readiness() == ProbeResult(False, "closing")


def test_a_failure_is_for_good_and_its_first_reason_counts():
    health, _ = health_and_clock()
    health.ready()
    health.failed("a disk is full")
    health.failed("the session is gone")
    health.closing()
    health.ready()
    health.progressed()
    assert health.liveness() == health.readiness() == ProbeResult(False, "failed: a disk is full")


@given(st.lists(st.sampled_from(["ready", "progressed", "closing", "failed", "wait"]), max_size=12))
def test_ready_only_while_running_and_dead_only_by_failure_or_hang(calls):
    health, clock = health_and_clock()
    for call in calls:
        if call == "wait":
            clock.now += 61
        else:
            getattr(health, call)(*(["why"] if call == "failed" else []))
    running = "ready" in calls and not {"closing", "failed"} & set(calls)
    assert health.readiness().ok == running
    if "failed" in calls:
        assert not health.liveness().ok
    elif not running:
        assert health.liveness().ok
    else:
        signs = [i for i, call in enumerate(calls) if call == "progressed"] + [calls.index("ready")]
        assert health.liveness().ok == ("wait" not in calls[max(signs) :])
