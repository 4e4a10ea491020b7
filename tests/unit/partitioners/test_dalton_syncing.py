"""When replicas synchronize, as state machines: no clock but the numbers given to them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.dalton.cooperative import GlobalPolicy, QtableReducer, SyncMessage, SyncTimer
from millrace_jobs.partitioners.dalton.encoding import policy_of, policy_state, sync_of, sync_state

from .streams import make, zipf


def message(replica, slower=False):
    none = np.empty(0, np.uint64)
    return SyncMessage(replica, 2, 0, none, none.view(np.int64), none > 0, none > 0, np.empty((0, 2)), 0, slower)


def policy(interval):
    none = np.empty(0, np.uint64)
    return GlobalPolicy(2, 1, 0, none, np.empty((0, 2)), none, 0, interval)


def test_a_replica_synchronizes_every_interval():
    timer = SyncTimer(interval=10, now=100)
    assert [timer.due(now) for now in (100, 109, 110)] == [False, False, True]
    timer.sent(110)
    assert timer.awaiting
    timer.received(policy(None))
    assert not timer.awaiting
    assert [timer.due(now) for now in (119, 120)] == [False, True]


def test_a_late_reply_makes_the_next_message_ask_for_twice_the_interval():
    timer = SyncTimer(interval=10, now=0)
    assert timer.due(10)
    timer.sent(10)
    assert not timer.due(19)
    assert not timer.slower
    assert not timer.due(20)  # still AWAIT after DSYNC
    assert timer.slower
    timer.received(policy(10))
    assert [timer.due(now) for now in (25, 30)] == [False, True]  # the one left out is not made up for
    assert timer.slower
    timer.sent(30)
    assert not timer.slower


def test_the_interval_is_the_reducers():
    timer = SyncTimer(interval=10, now=0)
    timer.sent(10)
    timer.received(policy(40.0))
    assert [timer.due(now) for now in (49, 50)] == [False, True]


def cycle(reducer, at, slower=(), busy=1.0):
    """All send at ``at``, and the reducer needs ``busy``; the interval from then on."""
    for replica in range(2):
        complete = reducer.receive(message(replica, slower=replica in slower))
    assert complete
    interval = reducer.reduce(at).interval
    reducer.sent(at + busy)
    return interval


def test_the_reducer_doubles_when_asked_to():
    reducer = QtableReducer(replicas=2, interval=10, shortest=1, now=0)
    assert cycle(reducer, 10) == 10  # how long it needs is not known yet
    assert cycle(reducer, 20, slower=[1]) == 20
    assert cycle(reducer, 40, slower=[0, 1]) == 40  # once, however many ask


def test_the_reducer_halves_when_it_is_idle_for_longer_than_busy():
    reducer = QtableReducer(replicas=2, interval=40, shortest=3, now=0)
    assert cycle(reducer, 40, busy=8) == 40
    assert cycle(reducer, 80, busy=8) == 20  # idle for 32
    assert cycle(reducer, 100, busy=8) == 10  # idle for 12
    assert cycle(reducer, 110, busy=8) == 10  # idle for 2
    assert cycle(reducer, 120, busy=1) == 10  # idle for 2, the last one took 8
    assert cycle(reducer, 130, busy=1) == 5
    assert cycle(reducer, 135, busy=1) == 3  # not below the shortest
    assert cycle(reducer, 138, busy=1) == 3


@given(st.floats(0.1, 50), st.sampled_from([1.0, 20.0, 200.0]))
def test_the_interval_settles_between_once_and_twice_what_the_reducer_needs(busy, interval):
    """As in figure 14b: it follows when the reducer gets slower or faster, and then stays."""
    reducer = QtableReducer(replicas=2, interval=interval, shortest=0.01, now=0)
    timer = SyncTimer(interval=interval, now=0)
    now, seen = 0.0, []
    for _ in range(25):
        while not timer.due(now):
            now = max(now + timer.interval / 64, now)
        slower = timer.slower
        timer.sent(now)
        interval = cycle(reducer, now, slower=[0] if slower else [], busy=busy)
        reply = now + busy
        while now < reply:
            timer.due(now)
            now += timer.interval / 64
        timer.received(policy(interval))
        seen.append(interval)
    assert len(set(seen[-5:])) == 1
    assert busy * 0.9 <= seen[-1] <= 2.2 * busy


def test_the_reducer_waits_for_all_replicas():
    reducer = QtableReducer(replicas=3, interval=10, shortest=1, now=0)
    assert [reducer.receive(message(replica)) for replica in (0, 2, 0)] == [False, False, False]
    with pytest.raises(ValueError, match="2 of 3 replicas have sent their Q-tables"):
        reducer.reduce(5)
    assert reducer.receive(message(1))
    assert reducer.reduce(6).replicas == 3
    assert not reducer.receive(message(1))


def test_the_reducer_may_give_up_on_replicas():
    reducer = QtableReducer(replicas=3, interval=10, shortest=1, now=0)
    with pytest.raises(ValueError, match="0 of 3 replicas have sent their Q-tables"):
        reducer.reduce(5, partial=True)
    reducer.receive(message(2, slower=True))
    assert (partial := reducer.reduce(5, partial=True)).replicas == 1
    assert partial.interval == 20


def test_a_replica_that_is_asked_for_sync_sends_it_after_half_the_interval():
    timer = SyncTimer(interval=10, now=0)
    assert [timer.due(now, others_sent=True) for now in (4, 5)] == [False, True]
    timer.sent(5)
    assert not timer.due(12, others_sent=True)  # it has sent it
    assert not timer.slower


def test_messages_end_the_statistics_and_slides_no_longer_do():
    """Section 4.1: STATS_WIN is DSYNC."""
    member = make("dalton", 4, 0, 2)
    member.route(zipf(100, 5, 1.0))
    member.advance()
    assert member.begin_sync().load == 100
    for _ in range(3):
        member.route(zipf(100, 5, 1.0))
        member.advance()
    assert member.begin_sync().load == 300


def test_bad_arguments_are_explained():
    with pytest.raises(ValueError, match="replica is 2; write a whole number below 2"):
        QtableReducer(replicas=2, interval=10, shortest=1, now=0).receive(message(2))
    with pytest.raises(ValueError, match="interval is 1 and shortest is 2; write positive times"):
        QtableReducer(replicas=2, interval=1, shortest=2, now=0)
    with pytest.raises(ValueError, match="replicas is 0"):
        QtableReducer(replicas=0, interval=10, shortest=1, now=0)


def test_partitioners_and_the_reducer_work_together():
    """Two replicas that synchronize while records keep coming, by the states of messages."""
    members = [make("dalton", 8, replica, 2, statistics_window=1 << 40) for replica in range(2)]
    reducer = QtableReducer(replicas=2, interval=10, shortest=1, now=0)
    for turn in range(5):
        for replica, member in enumerate(members):
            member.route(zipf(3000, 200, 1.5, seed=turn * 2 + replica))
            reducer.receive(sync_of(sync_state(member.begin_sync())))
        for member in members:
            member.route(zipf(500, 200, 1.5, seed=turn))  # while they wait
        reply = policy_state(reducer.reduce(10.0 * turn))
        reducer.sent(10.0 * turn + 1)
        for member in members:
            member.end_sync(policy_of(reply))
    assert sorted(members[0].hot.tolist()) == sorted(members[1].hot.tolist()) != []
