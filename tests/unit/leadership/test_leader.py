"""The threads that take part in an election: they lead, hand over, and notice a loss even while a request hangs."""

import threading

import pytest

from millrace_operator.leadership.election import Timing
from millrace_operator.leadership.leader import Leader, NotLeadingError

from .elections import Lease

PATIENCE = 60.0
SHORT = Timing(1)


class Leases:
    """One record, as several candidates reach it; ``hang`` holds all requests back."""

    def __init__(self):
        self.lease, self.lock, self.hang = Lease(), threading.Lock(), threading.Event()

    def read(self, seconds):
        self._pass()
        return self.lease.record

    def write(self, record, seconds):
        self._pass()
        with self.lock:
            return self.lease.write(record)

    def _pass(self):
        while self.hang.is_set():
            threading.Event().wait(0.01)


class Candidate:
    def __init__(self, leases, name, timing=SHORT):
        self.began, self.lost = threading.Event(), threading.Event()
        self.leader = Leader(leases, name, timing, self.began.set, self.lost.set)
        self.leader.start()


@pytest.fixture
def leases():
    made = Leases()
    yield made
    made.hang.clear()


def test_one_leads_and_the_other_follows_when_it_releases(leases):
    one = Candidate(leases, "one", Timing(30))
    assert one.began.wait(PATIENCE)
    other = Candidate(leases, "other", Timing(30))
    with pytest.raises(NotLeadingError, match="does not hold the lease"):
        other.leader.require()
    assert 10 < one.leader.require() <= 30
    one.leader.release()
    with pytest.raises(NotLeadingError):
        one.leader.require()
    assert other.began.wait(PATIENCE)
    other.leader.release()
    assert leases.lease.record.holder == ""
    assert not one.lost.is_set()


def test_a_loss_is_noticed_while_a_request_hangs(leases):
    candidate = Candidate(leases, "one")
    assert candidate.began.wait(PATIENCE)
    leases.hang.set()
    assert candidate.lost.wait(PATIENCE)
    with pytest.raises(NotLeadingError):
        candidate.leader.require()
    leases.hang.clear()
    candidate.leader.release()


def test_who_never_led_ends_without_a_word(leases):
    one = Candidate(leases, "one", Timing(30))
    assert one.began.wait(PATIENCE)
    other = Candidate(leases, "other", Timing(30))
    other.leader.release()
    assert leases.lease.record.holder == "one"
    one.leader.release()


def test_the_time_for_a_change_ends_before_another_may_lead(leases):
    now = [100.0]
    leader = Leader(leases, "one", Timing(15), lambda: None, lambda: None, lambda: now[0])
    leader._election.read(None, 100.0)
    leader._election.written(leases.write(leader._election.wanted(), 1), 100.0, 100.5)
    now[0] = 109.5
    assert leader.require() == pytest.approx(5.5)
    now[0] = 110.0
    with pytest.raises(NotLeadingError):
        leader.require()
