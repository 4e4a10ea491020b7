"""Dalton's replicas over a simulated topic: rounds, the reducer, what happens if records or replicas are lost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bench.simulated_replicas import INTERVAL, SimulatedReplica, a_pin, replicas
from millrace_jobs.dedicated.cooperation.dalton import LONGEST, PATIENCE, SHORTEST
from millrace_jobs.kernels.mixing import seeded_hashes
from placements import placement_cost
from unit.partitioners.streams import zipf

STEP = 1 / 64


def keys_of(member, step, rows=40):
    return seeded_hashes(zipf(rows, 200, 1.5, seed=1000 * member.index + step), 3)


def run(members, seconds, now, delay=0.0, lost=()):
    """Let all replicas place blocks for a while; return the time after it."""
    for step in range(round(seconds / STEP)):
        now += STEP
        for member in members:
            member.catch_up(now, delay)
            member.route(keys_of(member, step), now, lost=member.index in lost)
            if step % 64 == 63:
                member.end_interval(now)
    return now


def policy_of(member):
    """What a replica has learned: its hot keys and their values."""
    hot = np.sort(member.partitioner.hot)
    return hot.tolist(), member.partitioner.values(hot).tolist()


def test_all_replicas_adopt_the_policies_that_the_lowest_one_makes():
    _, members = replicas(a_pin("dalton", 4))
    run(members, 5, 1000.0)
    rounds = {member.cooperation.round for member in members}
    assert len(rounds) == 1
    assert rounds.pop() > 5
    assert [member.published["policy"] > 0 for member in members] == [True, False, False, False]


def test_replicas_have_the_same_policy_after_a_round():
    _, members = replicas(a_pin("dalton", 3))
    now = run(members, 5, 1000.0)
    while not all(member.cooperation.timer.awaiting for member in members):  # until all have sent SYNC
        now = run(members, STEP, now)
    for member in members[:1]:
        member.catch_up(now)
        member.route(np.empty(0, np.uint64), now)
    for member in members:  # without records in AWAIT, all have the reducer's policy afterwards
        member.partitioner._state._learn_postponed()
        member.catch_up(now)
        member.cooperation.after_block(member.partitioner, now)
    assert len({str(policy_of(member)) for member in members}) == 1
    assert len(policy_of(members[0])[0]) > 0


def test_replicas_with_different_streams_split_only_what_is_hot_for_all():
    """Section 5.4: the hot keys are those of the streams together, and loads are even."""
    _, members = replicas(a_pin("dalton", 2))
    streams = [seeded_hashes(zipf(64_000, 500, exponent), 5) for exponent in (2.0, 0.0)]
    now, ids = 1000.0, []
    for blocks in zip(*(np.array_split(stream, 640) for stream in streams), strict=True):
        now += STEP
        for member, block in zip(members, blocks, strict=True):
            member.catch_up(now)
            ids.append(member.route(block, now))
    placed, keys = (
        np.concatenate(ids[-400:]),
        np.concatenate(
            [b for pair in zip(*(np.array_split(s, 640) for s in streams), strict=True) for b in pair][-400:]
        ),
    )
    frequent, counts = np.unique(keys, return_counts=True)
    hot = set(frequent[counts * 8 > 1.3 * len(keys)].tolist())
    assert hot
    for member in members:
        assert hot <= set(member.partitioner.hot.tolist())
    assert placement_cost(placed, keys, 8).load_imbalance_ratio < 0.3


def test_the_interval_shortens_to_its_bound_while_the_reducer_is_idle():
    _, members = replicas(a_pin("dalton", 2))
    run(members, 6, 1000.0)
    assert {member.cooperation.timer.interval for member in members} == {SHORTEST * INTERVAL}


def test_the_interval_is_at_least_what_a_policy_takes_to_arrive():
    _, members = replicas(a_pin("dalton", 2))
    run(members, 20, 1000.0, delay=0.3)
    assert all(0.3 <= member.cooperation.timer.interval <= 4 * 0.3 for member in members)


def test_a_slow_topic_makes_the_interval_longer():
    _, members = replicas(a_pin("dalton", 2))
    now = run(members, 6, 1000.0)
    short = members[0].cooperation.timer.interval
    for step in range(600):  # all read the topic every 24 steps only, three times DSYNC
        now += STEP
        for member in members:
            if step % 24 == 0:
                member.catch_up(now)
            member.route(keys_of(member, step), now)
    assert members[0].cooperation.timer.interval > short


def test_the_next_replica_takes_over_when_the_reducer_dies():
    topic, members = replicas(a_pin("dalton", 3))
    now = run(members, 5, 1000.0)
    before, interval = members[1].cooperation.round, members[1].cooperation.timer.interval
    survivors = members[1:]
    now = run(survivors, 2 * PATIENCE * interval + 2 * interval, now)
    assert all(member.cooperation.round > before for member in survivors)
    assert survivors[0].published["policy"] > 0
    assert survivors[1].published["policy"] == 0
    rounds = survivors[0].cooperation.round
    now = run(survivors, 3, now)  # and then rounds are as fast as before
    assert survivors[0].cooperation.round - rounds > 3 / LONGEST
    again = SimulatedReplica(members[0].pin, 0, topic, now)  # which is the reducer again when it comes back
    assert again.cooperation.round == survivors[0].cooperation.round
    published = survivors[0].published["policy"]
    now = run([again, *survivors], 3, now)
    assert again.published["policy"] > 0
    assert survivors[0].published["policy"] <= published + 1
    assert len({member.cooperation.round for member in (again, *survivors)}) == 1


def test_a_dead_replica_delays_one_round_only():
    _, members = replicas(a_pin("dalton", 3))
    now = run(members, 5, 1000.0)
    interval, survivors = members[0].cooperation.timer.interval, members[:2]
    now = run(survivors, (PATIENCE + 2) * interval, now)
    before = members[0].cooperation.round
    run(survivors, 3, now)
    assert members[0].cooperation.round - before >= 4  # with the wait in each round it would be two


def test_without_the_first_reducer_the_first_round_still_ends():
    _, members = replicas(a_pin("dalton", 4))
    run(members[2:], (1 + 4 * PATIENCE) * INTERVAL, 1000.0)
    assert [member.cooperation.round > 0 for member in members[2:]] == [True, True]
    assert members[2].published["policy"] > 0


def test_lost_records_are_published_again():
    _, members = replicas(a_pin("dalton", 2))
    now = run(members, 3, 1000.0)
    now = run(members, 1, now, lost={0, 1})  # all SYNC messages and policies
    before = members[0].cooperation.round
    run(members, 4, now)
    assert members[0].cooperation.round > before
    assert len({member.cooperation.round for member in members}) == 1


def test_a_replica_that_is_cut_off_from_the_topic_goes_on_alone():
    _, members = replicas(a_pin("dalton", 2))
    now = run(members, 3, 1000.0)
    begin_sync, begun = members[0].partitioner.begin_sync, []
    members[0].partitioner.begin_sync = lambda **how: begun.append(begin_sync(**how)) or begun[-1]
    now = run(members, 20, now, delay=1e9, lost={0, 1})  # nothing arrives
    assert len(begun) >= 3
    assert members[0].published["sync/0"] > len(begun)
    assert len(members[0].partitioner.hot) > 0
    before = members[0].cooperation.round
    run(members, 4, now)
    assert [member.cooperation.round > before for member in members] == [True, True]


def test_repeated_records_change_nothing():
    topic, members = replicas(a_pin("dalton", 2))
    now = run(members, 4, 1000.0)
    before = [policy_of(member) for member in members]
    rounds = [member.cooperation.round for member in members]
    for member in members:
        member.catch_up(now)
        for _, (key, value) in topic.records[-6:]:
            member.cooperation.received(key, value, now)
    assert [policy_of(member) for member in members] == before
    run(members, 1, now)
    assert members[0].cooperation.round > rounds[0]


def test_all_replicas_adopt_the_first_of_two_answers_to_a_round():
    topic, members = replicas(a_pin("dalton", 2))
    now = run(members, 3, 1000.0)
    first = next(value for _, (key, value) in reversed(topic.records) if key == "policy")
    round_before = members[1].cooperation.round
    members[1].cooperation.received("policy", first, now)
    assert members[1].cooperation.round == round_before


@pytest.mark.parametrize("changes", [{"workers": 5}, {"workers": 13}, {"replicas": 2}, {"replicas": 4}, {"epoch": 9}])
def test_replicas_learn_on_under_another_n_or_m(changes):
    topic, members = replicas(a_pin("dalton", 3))
    now = run(members, 3, 1000.0)
    pin = replace(members[0].pin, **{"epoch": 2} | changes)
    members = members[: pin.replicas]
    for member in members:
        member.follow(pin, now)
    members += [SimulatedReplica(pin, index, topic, now) for index in range(len(members), pin.replicas)]
    known = members[-1].cooperation.round
    assert (known > 0) == ("workers" not in changes)
    now = run(members, 6, now)
    assert len({member.cooperation.round for member in members}) == 1
    assert members[0].cooperation.round > known + 3
    assert members[0].partitioner.workers == pin.workers


def test_a_policy_too_large_to_exchange_leaves_each_replica_alone(caplog, monkeypatch):
    monkeypatch.setattr("millrace_jobs.dedicated.cooperation.values.MAX_STATE", 100)
    topic, members = replicas(a_pin("dalton", 2))
    run(members, 4, 1000.0)
    assert topic.records == []
    assert not any(member.cooperation.timer.awaiting for member in members)
    assert all(len(member.partitioner.hot) for member in members)
    assert len(caplog.records) == 2  # one of each replica


class Faults(RuleBasedStateMachine):
    """Replicas that die, come back, read late, and lose or repeat records: once faults end, rounds go on for all."""

    @initialize(m=st.integers(2, 4))
    def start(self, m):
        self.pin = a_pin("dalton", m, 4)
        self.topic, self.members = replicas(self.pin)
        self.now, self.step = 1000.0, 0

    def turn(self, member, lost=False, delay=0.0):
        self.now += STEP
        self.step += 1
        member.catch_up(self.now, delay)
        member.route(keys_of(member, self.step, 10), self.now, lost=lost)

    @rule(pick=st.integers(0, 9), lost=st.booleans(), delay=st.floats(0, 0.5), times=st.integers(1, 40))
    def work(self, pick, lost, delay, times):
        for _ in range(times):
            self.turn(self.members[pick % len(self.members)], lost, delay)

    @rule(steps=st.integers(1, 100))
    def all_work(self, steps):
        for _ in range(steps):
            for member in self.members:
                self.turn(member)

    @rule(pick=st.integers(0, 9))
    def end_interval(self, pick):
        self.members[pick % len(self.members)].end_interval(self.now)

    @precondition(lambda self: len(self.members) > 1)
    @rule(pick=st.integers(0, 9))
    def die(self, pick):
        self.members.pop(pick % len(self.members))

    @precondition(lambda self: len(self.members) < self.pin.replicas)
    @rule(pick=st.integers(0, 9))
    def come_back(self, pick):
        gone = sorted(set(range(self.pin.replicas)) - {member.index for member in self.members})
        self.members.append(SimulatedReplica(self.pin, gone[pick % len(gone)], self.topic, self.now))

    @precondition(lambda self: self.topic.records)
    @rule(at=st.integers(0, 1000))
    def repeat(self, at):
        _, record = self.topic.records[at % len(self.topic.records)]
        self.topic.append([record], self.now)

    @rule(workers=st.integers(1, 6), replicas=st.integers(2, 4))
    def change_the_plan(self, workers, replicas):
        self.pin = replace(self.pin, workers=workers, replicas=replicas, epoch=self.pin.epoch + 1)
        self.members = [member for member in self.members if member.index < replicas]
        if not self.members:
            self.members = [SimulatedReplica(self.pin, 0, self.topic, self.now)]
        for member in self.members:
            member.follow(self.pin, self.now)

    @rule(seconds=st.floats(0.0, 20.0))
    def pause(self, seconds):
        self.now += seconds

    @invariant()
    def intervals_are_bounded(self):
        for member in self.members:
            assert SHORTEST <= member.cooperation.timer.interval <= LONGEST

    def teardown(self):
        """After the faults, every replica takes part in new rounds within what PATIENCE allows."""
        if not hasattr(self, "members"):
            return
        before = max(member.cooperation.round for member in self.members)
        longest = max(member.cooperation.timer.interval for member in self.members)
        ends = self.now + (1 + PATIENCE * (len(self.members) + self.pin.replicas)) * 4 * longest
        while self.now < ends and not self.settled(before):
            for member in self.members:
                self.turn(member)
        assert self.settled(before)

    def settled(self, before):
        rounds = [member.cooperation.round for member in self.members]
        return min(rounds) > before + 1


TestFaults = Faults.TestCase
TestFaults.settings = settings(
    max_examples=25, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
