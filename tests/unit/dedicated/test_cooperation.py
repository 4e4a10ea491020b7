"""What replicas exchange at the ends of intervals: warm keys, and the loads of pkg."""

import json
import logging
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.simulated_replicas import INTERVAL, SimulatedReplica, SimulatedTopic, a_pin, replicas
from millrace_jobs.dedicated.cooperation import cooperation_for
from millrace_jobs.dedicated.cooperation.values import STALE, Values, key_of, replica_in
from millrace_jobs.dedicated.cooperation.warm import Histories
from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.registry import ALGORITHMS
from millrace_jobs.partitioners.state import PartitionerState, pack
from placements import placement_cost
from unit.partitioners.streams import zipf

AGREEING = ["prompt", "am", "cam"]


def intervals(members, stream, count, now=1000.0, lost=()):
    """Place ``stream`` in ``count`` intervals, dealt out to the replicas; return ids and keys of each interval."""
    placed = []
    for number, batch in enumerate(np.array_split(stream, count)):
        now += INTERVAL
        for member in members:
            member.catch_up(now - INTERVAL / 2)
        parts = [batch[member.index :: len(members)] for member in members]
        ids = [member.route(part, now) for member, part in zip(members, parts, strict=True)]
        for member in members:
            member.end_interval(now, lost=(number, member.index) in lost)
        placed.append((np.concatenate(ids), np.concatenate(parts)))
    return placed


def split_ratio(placed, workers=8):
    return np.mean([placement_cost(ids, keys, workers).replication_factor for ids, keys in placed[3:]])


def hashed_zipf(rows, distinct, exponent):
    return seeded_hashes(zipf(rows, distinct, exponent), 3)


@pytest.mark.parametrize("name", ALGORITHMS[1:])
def test_every_algorithm_has_its_cooperation(name):
    kinds = {"dalton": "PolicyExchange", "prompt": "WarmKeyExchange", "am": "WarmKeyExchange", "cam": "WarmKeyExchange"}
    assert type(cooperation_for(a_pin(name, 2), 0, 1.0)).__name__ == kinds.get(name, "Cooperation")
    assert type(cooperation_for(a_pin(name, 1), 0, 1.0)).__name__ == "Cooperation"
    _, members = replicas(a_pin(name, 3))
    stream = zipf(900, 50, 1.0)
    placed = intervals(members, stream, 3)
    assert sum(len(ids) for ids, _ in placed) == 900
    assert all(0 <= ids.min() <= ids.max() < 8 for ids, _ in placed)


def test_pkg_exchanges_loads_if_it_probes():
    assert type(cooperation_for(a_pin("pkg", 2, slides=0, probing=2), 0, 1.0)).__name__ == "LoadExchange"


@pytest.mark.parametrize("name", AGREEING)
def test_replicas_agree_where_keys_go(name):
    stream = hashed_zipf(80_000, 2000, 0.8)
    _, several = replicas(a_pin(name, 4))
    _, one = replicas(a_pin(name, 1))
    alone = [SimulatedReplica(a_pin(name, 4), index, SimulatedTopic(), 1000.0) for index in range(4)]
    split = [split_ratio(intervals(members, stream, 8)) for members in (one, several, alone)]
    assert split[1] < 1.05 * split[0]
    assert split[2] - split[0] > 4 * (split[1] - split[0])


@pytest.mark.parametrize("name", AGREEING)
def test_all_replicas_begin_an_interval_with_the_same_warm_keys(name):
    _, members = replicas(a_pin(name, 3))
    intervals(members, zipf(9000, 300, 1.0), 3)
    warm = [member.partitioner.warm for member in members]
    assert len(warm[0].keys) > 50
    assert all(other.keys.tolist() == warm[0].keys.tolist() for other in warm)
    assert all(other.counts.tolist() == warm[0].counts.tolist() for other in warm)


@pytest.mark.parametrize("name", AGREEING)
def test_a_replica_that_ends_its_intervals_late_begins_with_the_same_warm_keys(name):
    """On a busy machine, more than half of the next interval may have passed by then."""
    _, members = replicas(a_pin(name, 2))
    for number, records in enumerate(np.array_split(zipf(9000, 300, 1.0), 6)):
        for member, late, block in zip(members, (0.0, 0.7), np.array_split(records, 2), strict=True):
            now = 1001.0 + number + late
            member.catch_up(now)
            member.route(block, now)
            member.end_interval(now, late=late)
    first, second = (member.partitioner.warm for member in members)
    assert len(first.keys) > 50
    assert first.keys.tolist() == second.keys.tolist()
    assert first.counts.tolist() == second.counts.tolist()


@pytest.mark.parametrize("name", AGREEING)
def test_a_replica_that_publishes_nothing_is_represented_by_its_past_for_a_while(name):
    topic, members = replicas(a_pin(name, 2))
    stream = zipf(3000, 100, 1.0)
    intervals(members, stream, 3)
    for number in range(STALE + 4):  # the second one has died
        intervals(members[:1], stream, 1, 1003.0 + number)
    assert members[0].partitioner.warm.records == one_slice(name, members[0])
    restarted = SimulatedReplica(members[1].pin, 1, topic, 1003.0 + STALE + 4)
    assert restarted.partitioner.warm.counts.tolist() == members[0].partitioner.warm.counts.tolist()


def one_slice(name, member):
    """The records that a slice of 3000 records has counted."""
    return 3000 if name == "prompt" else 750


@pytest.mark.parametrize("name", AGREEING)
def test_an_interval_without_records_publishes_nothing(name):
    _, members = replicas(a_pin(name, 2))
    intervals(members, zipf(3000, 100, 1.0), 3)
    before = [dict(member.published) for member in members]
    intervals(members, np.empty(0, np.uint64), 2, 1003.0)
    assert [dict(member.published) for member in members] == before


def test_windows_stay_the_replicas_own_while_they_agree():
    """With several slides, am keeps each key of the window where it is, whatever becomes warm."""
    _, members = replicas(a_pin("am", 2, slides=4))
    stream = hashed_zipf(40_000, 500, 1.0)
    placed = intervals(members, stream, 8)
    window = placed[4:]
    ids, keys = (np.concatenate(parts) for parts in zip(*window, strict=True))
    assert placement_cost(ids, keys, 8).replication_factor < 1.1


@pytest.mark.parametrize("late", range(5))
def test_windows_of_replicas_that_start_at_different_times_end_together(late):
    pin, topic = a_pin("cam", 2, slides=4), SimulatedTopic()
    members = [SimulatedReplica(pin, 0, topic, 1000.0)]
    ends = []
    for number in range(12):
        if number == late:
            members.append(SimulatedReplica(pin, 1, topic, 1000.3 + number))
        intervals(members, zipf(300, 20, 1.0), 1, 1000.0 + number)
        ends.append([not member.partitioner.cardinalities.any() for member in members])
    assert all(ended == [number % 4 == 3] * len(ended) for number, ended in enumerate(ends))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=40), st.integers(0, 40))
def test_histories_return_the_newest_usable_record(added, number):
    histories, newest = Histories(1.0), {}
    for replica, about in sorted(added, key=lambda pair: pair[1]):
        histories.add(replica, about, about)
        newest.setdefault(replica, {})[about] = about
    expected = {}
    for replica, known in sorted(newest.items()):
        kept = sorted(known)[-4:]
        usable = [about for about in kept if number - STALE <= about < number]
        if usable:
            expected[replica] = max(usable)
    assert histories.before(number) == expected
    assert list(histories.before(number)) == sorted(expected)


def test_a_record_in_disorder_or_repeated_counts_once():
    histories = Histories(2.0)
    for about, record in ((5, "a"), (4, "b"), (5, "c"), (5, "c")):
        histories.add(0, about, record)
    assert histories.before(6) == {0: "c"}
    assert histories.before(5) == {0: "b"}
    assert histories.number(9.4) == 5


class TestProbing:
    PIN = a_pin("pkg", 4, slides=0, probing=2)

    def test_replicas_take_the_loads_of_all(self):
        _, members = replicas(self.PIN)
        stream = hashed_zipf(4000, 3, 1.0)  # few keys, so that loads differ
        sent = np.zeros(8, np.int64)
        for number, batch in enumerate(np.array_split(stream, 4)):
            ids = intervals(members, batch, 1, 1000.0 + number)[0][0]
            sent += np.bincount(ids, minlength=8)
            for member in members:
                member.catch_up(1001.0 + number)
        for member in members:  # two intervals later, with no further records, all loads have arrived
            for _ in range(2):
                member.end_interval(1010.0)
            assert member.partitioner.loads.tolist() == (sent - sent.min()).tolist()

    def test_a_restarted_replica_goes_on_from_its_loads(self):
        topic, members = replicas(self.PIN)
        intervals(members, hashed_zipf(4000, 3, 1.0), 4)
        for member in members:
            member.catch_up(1004.0)
            for _ in range(2):
                member.end_interval(1004.0)
        again = SimulatedReplica(self.PIN, 2, topic, 1005.0)
        assert again.partitioner.loads.tolist() == members[0].partitioner.loads.tolist()

    def test_repeated_and_lost_records_change_no_total(self):
        topic, members = replicas(self.PIN)
        lost = {(number, index) for number in range(3) for index in range(4)}
        placed = intervals(members, hashed_zipf(4000, 3, 1.0), 4, lost=lost)
        topic.records += topic.records * 2
        for member in members:
            member.catch_up(1005.0)
            for _ in range(2):
                member.end_interval(1005.0)
        sent = np.bincount(np.concatenate([ids for ids, _ in placed]), minlength=8)
        assert {tuple(member.partitioner.loads.tolist()) for member in members} == {tuple((sent - sent.min()).tolist())}

    def test_loads_of_another_number_of_workers_are_ignored(self):
        _, members = replicas(self.PIN)
        intervals(members, hashed_zipf(4000, 3, 1.0), 2)
        members[0].follow(replace(self.PIN, workers=5, epoch=2), 1003.0)
        assert members[0].partitioner.loads.tolist() == [0] * 5


def test_a_record_is_of_the_replica_in_its_key():
    assert replica_in(key_of("state", 3), "state", 4) == 3
    wrong = ["state/4", "state/-1", "state/x", "state/", "state", "sync/3", "state/٣", "state/9999999999", "plan"]
    assert [replica_in(key, "state", 4) for key in wrong] == [None] * len(wrong)


def framed(header, arrays=b""):
    body = header + arrays
    return zlib.compress(struct.pack("<4sII", b"MRPS", zlib.crc32(body, len(header)), len(header)) + body)


def headers(pin, **changes):
    """A header with the right plan, and something wrong."""
    state = PartitionerState("warm keys", 1, 8, {"interval": 5, "plan": Values(pin)._plan}, {})
    return framed(json.dumps(vars(state) | changes).encode())


HOSTILE = {
    "nothing": b"",
    "noise": b"\x00\xff" * 50,
    "not compressed": pack(PartitionerState("warm keys", 1, 8, {"interval": 5, "plan": 1}, {})),
    "a bomb": zlib.compress(bytes(1 << 26)),
    "too large": bytes((1 << 18) + 1),
    "cut off": zlib.compress(bytes(1000))[:-5],
    "nested": framed(b"[" * 50_000),
    "a long vector": headers(a_pin("am", 2), vectors={"warm_keys": 10**30}),
    "a negative vector": headers(a_pin("am", 2), vectors={"warm_keys": -5}),
    "no vectors": headers(a_pin("am", 2), vectors=None),
    "no plan": headers(a_pin("am", 2), counters={}),
    "no interval": headers(a_pin("am", 2), counters={"plan": Values(a_pin("am", 2))._plan}),
    "an interval that is no number": headers(
        a_pin("am", 2), counters={"plan": Values(a_pin("am", 2))._plan, "interval": "x"}
    ),
    "another kind": headers(a_pin("am", 2), algorithm="loads"),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_damaged_value_is_ignored_and_logged(why, caplog):
    _, members = replicas(a_pin("am", 2))
    intervals(members, zipf(3000, 100, 1.0), 3)
    for member in members:
        member.catch_up(1003.0)
    with caplog.at_level(logging.WARNING):
        members[0].cooperation.received("state/1", HOSTILE[why], 1003.0)
    assert len(caplog.records) == 1
    assert "the record state/1 of the control topic is ignored" in caplog.text
    for member in members:
        member.end_interval(1004.0)
    warm = [member.partitioner.warm.counts.tolist() for member in members]
    assert warm[0] == warm[1] != []


@given(st.binary(max_size=300), st.sampled_from(["state/1", "sync/1", "policy", "plan", ""]), st.booleans())
def test_no_bytes_stop_a_replica(value, key, compressed):
    for pin in (a_pin("am", 2), a_pin("dalton", 2), a_pin("pkg", 2, slides=0, probing=1)):
        _, (member, _) = replicas(pin)
        member.cooperation.received(key, zlib.compress(value) if compressed else value, 1000.0)
        member.route(zipf(50, 5, 1.0), 1000.5)
        member.end_interval(1001.0)


@pytest.mark.parametrize("change", [{"algorithm": "cam"}, {"seed": 5}, {"parameters": {"choices": 3}}])
def test_a_record_of_another_plan_is_ignored_without_a_word(change, caplog):
    topic, members = replicas(a_pin("am", 2))
    intervals(members, zipf(3000, 100, 1.0), 3)
    other = SimulatedReplica(replace(members[0].pin, **change), 0, topic, 1002.0)
    assert other.partitioner.warm.records == 0
    assert not caplog.records


@pytest.mark.parametrize("name", AGREEING)
@pytest.mark.parametrize("change", [{"workers": 5}, {"workers": 12}, {"replicas": 3}])
def test_a_plan_that_changes_n_or_m_goes_on_from_what_is_known(name, change):
    topic, members = replicas(a_pin(name, 2))
    intervals(members, zipf(3000, 100, 1.0), 3)
    pin = replace(members[0].pin, epoch=2, **change)
    for member in members:
        member.follow(pin, 1003.0)
    members += [SimulatedReplica(pin, index, topic, 1003.0) for index in range(2, pin.replicas)]
    assert {tuple(member.partitioner.warm.keys.tolist()) for member in members} != {()}
    assert len({tuple(member.partitioner.warm.keys.tolist()) for member in members}) == 1
    placed = intervals(members, zipf(3000, 100, 1.0), 3, 1003.0)
    assert max(ids.max() for ids, _ in placed) == pin.workers - 1


def test_a_value_that_is_too_large_is_not_published_and_said_once(caplog):
    values = Values(a_pin("am", 2))
    noise = np.random.default_rng(0).integers(0, 2**62, 1 << 16)
    state = PartitionerState("warm keys", 1, 8, {}, {"warm_keys": noise})
    assert values.encode(state) is None
    assert values.encode(state) is None
    assert len(caplog.records) == 1
