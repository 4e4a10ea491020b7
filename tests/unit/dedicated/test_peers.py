"""What a replica keeps of the control topic, to which other programs may write."""

import pytest

from bench.simulated_replicas import INTERVAL, a_pin
from millrace_jobs.dedicated import peers as module
from millrace_jobs.dedicated.cooperation.protocol import Cooperation
from millrace_jobs.dedicated.peers import Peers
from millrace_jobs.plan.policies import MAX_STATE


class Listening(Cooperation):
    """A cooperation that notes the keys of the records that it is given."""

    def __init__(self):
        self.keys = []

    def received(self, key, value, now):
        self.keys.append(key)


@pytest.fixture
def listening(monkeypatch):
    made = Listening()
    monkeypatch.setattr(module, "cooperation_for", lambda *_: made)
    return made


def test_a_plan_begins_with_the_newest_record_of_each_replica_and_nothing_of_strangers(listening):
    peers = Peers("control", None, 0)
    for key in ("state/0", "state/1", "state/1", "sync/7", "policy"):
        peers.received(key, b"a replica's")
    for number in range(100):
        peers.received(f"stranger/{number}", b"something else")
        peers.received(f"state/{10**6 + number}", b"of no replica that there can be")
    peers.received("state/2", bytes(MAX_STATE + 1))
    peers.begin(a_pin("pkg", 8), None, INTERVAL)
    assert listening.keys == ["state/0", "state/1", "sync/7", "policy"]
