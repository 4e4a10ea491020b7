"""Replicas that learn together: the reducer, what replicas make of its answer, and that they converge."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.dalton.cooperative import SyncMessage, reduce
from millrace_jobs.partitioners.dalton.encoding import policy_of, policy_state, sync_of, sync_state
from millrace_jobs.partitioners.state import pack, unpack
from placements import placement_cost

from . import oracles_dalton
from .streams import keys, make, workers, zipf


def hashes(*values):
    return np.array(values, np.uint64)


def replicas(m, n=8, **parameters):
    return [make("dalton", n, replica, m, **parameters) for replica in range(m)]


def sync_message(load, frequencies, q, replica=0, split=(), workers=2):
    """``frequencies`` by key; ``q`` by key, for some of them."""
    learned = [key in q for key in frequencies]
    return SyncMessage(
        replica=replica,
        workers=workers,
        load=load,
        keys=hashes(*frequencies),
        frequencies=np.array(list(frequencies.values()), np.int64),
        split=np.array([key in split for key in frequencies], bool),
        learned=np.array(learned, bool),
        q=np.array([q[key] for key in frequencies if key in q], float).reshape(-1, workers),
        rehashed=0,
    )


def sync(members):
    """As a job does at a batch boundary."""
    for member in members:
        member.advance()
    members[0].merge(members[1:])
    state = members[0].save()
    for member in members:
        member.restore(state)
    return state


def test_the_global_q_table_has_the_values_worked_out_by_hand():
    """Paper 003, section 4.1, with weights that add up to 1: 30 of the key's 40 records are the first replica's."""
    policy = reduce(
        [
            sync_message(50, {1: 30, 2: 5}, {1: [-0.2, -2.0]}),
            sync_message(50, {1: 10, 3: 40}, {1: [-1.0, -0.4]}, replica=1),
        ]
    )
    assert policy.load == 100
    assert policy.replicas == 2
    assert policy.keys.tolist() == []  # 40 of 100 is less than half
    policy = reduce([sync_message(40, {1: 30}, {1: [-0.2, -2.0]}), sync_message(40, {1: 10, 3: 30}, {1: [-1.0, -0.4]})])
    assert policy.keys.tolist() == [1]
    assert policy.q[0].tolist() == pytest.approx([-0.2 * 0.75 - 1.0 * 0.25, -2.0 * 0.75 - 0.4 * 0.25])


def test_a_key_that_is_hot_only_for_all_together_starts_untried():
    policy = reduce([sync_message(10, {5: 4, 6: 6}, {}), sync_message(10, {5: 6, 7: 4}, {})])
    assert policy.keys.tolist() == [5]
    assert policy.q.tolist() == [[-2.0, -2.0]]


def test_a_key_that_is_hot_for_one_only_is_not_hot_for_all():
    policy = reduce([sync_message(10, {5: 6}, {5: [-1.0, -2.0]}), sync_message(90, {}, {})])
    assert policy.keys.tolist() == []
    assert reduce([sync_message(0, {}, {}), sync_message(0, {}, {})]).keys.tolist() == []


@given(st.lists(keys, min_size=1, max_size=4), st.integers(1, 8), st.floats(0, 1))
def test_the_reducer_agrees_with_the_oracle(streams, n, epsilon):
    members = replicas(len(streams), n, epsilon=epsilon)
    for member, stream in zip(members, streams, strict=True):
        member.route(stream)
        member.advance()
    messages = [member.begin_sync() for member in members]
    assert [sent.load for sent in messages] == [len(stream) for stream in streams]
    plain = []
    for sent in messages:
        names = sent.keys.tolist()
        learned = [key for key, known in zip(names, sent.learned, strict=True) if known]
        frequencies = dict(zip(names, sent.frequencies.tolist(), strict=True))
        plain.append((sent.load, frequencies, dict(zip(learned, sent.q.tolist(), strict=True))))
    load, expected = oracles_dalton.global_policy(plain, n)
    policy = reduce(messages)
    assert policy.load == load
    assert policy.keys.tolist() == list(expected)
    assert policy.q == pytest.approx(np.array(list(expected.values())).reshape(-1, n))


@given(st.lists(keys, min_size=2, max_size=4), workers)
def test_a_key_that_is_hot_for_all_is_hot_for_one(streams, n):
    """What the reducer's claim rests on (section 4.1): no global heavy hitter goes unreported."""
    members = replicas(len(streams), n)
    total = np.concatenate(streams)
    for member, stream in zip(members, streams, strict=True):
        member.route(stream)
    reported = set(np.concatenate([member.begin_sync().keys for member in members]).tolist())
    values, counts = np.unique(total, return_counts=True)
    heavy = values[(counts * n >= len(total)) & (counts > len(streams))]
    assert set(heavy.tolist()) <= reported


def test_a_key_is_reported_from_a_quarter_of_the_threshold_on():
    """So that one which is hot for all together, but for no replica by the global load, is found."""
    members = replicas(2, 4)
    streams = [np.append(np.full(600, 9), np.arange(base, base + 1400)).astype(np.uint64) for base in (1000, 5000)]
    members[0].route(np.arange(9000, dtype=np.uint64))
    for member in members:
        member.route(np.arange(100, 2100, dtype=np.uint64))
    sync(members)
    for member, stream in zip(members, streams, strict=True):
        member.route(stream)  # 600 of its 2000, but under a quarter of the global load of before
        assert member.hot.tolist() == []
    sync(members)
    assert [member.hot.tolist() for member in members] == [[9], [9]]


def test_replicas_with_different_streams_converge_to_one_policy():
    """Section 5.4: one source is uniform, one skewed; both then know the hot keys, and values that fit them."""
    skewed, uniform = zipf(20_000, 500, 2.0), zipf(20_000, 500, 0.0)
    members = replicas(2)
    hashed = np.concatenate([make("hash").route(stream) for stream in (skewed, uniform)])
    states = set()
    for _ in range(8):
        ids = np.concatenate([member.route(stream) for member, stream in zip(members, (skewed, uniform), strict=True)])
        states.add(sync(members))
    both = np.concatenate([skewed, uniform])
    hot = [key for key in range(500) if (both == key).sum() >= len(both) / 8]
    assert members[0].hot.tolist() == members[1].hot.tolist() == hot
    assert members[0].values(hashes(*hot)).tolist() == members[1].values(hashes(*hot)).tolist()
    assert len(states) == 8  # and they go on learning
    assert placement_cost(ids, both, 8).load_imbalance < 0.4 * placement_cost(hashed, both, 8).load_imbalance


def test_keys_that_only_one_replica_finds_hot_are_not_split_any_more():
    members = replicas(3, 4)
    local = np.append(np.full(300, 9), np.arange(100, 500)).astype(np.uint64)  # 300 of 700, but of 20,700 in all
    others = np.arange(1000, 11_000, dtype=np.uint64)
    members[0].route(local)
    assert members[0].hot.tolist() == [9]
    for member in members[1:]:
        member.route(others)
    sync(members)
    assert all(member.hot.tolist() == [] for member in members)
    members[0].route(local)
    assert members[0].hot.tolist() == []  # it would have to be hot by the global load


@given(st.lists(keys, min_size=2, max_size=3), workers)
def test_without_records_since_the_last_one_a_synchronization_changes_nothing(streams, n):
    members = replicas(len(streams), n)
    for member, stream in zip(members, streams, strict=True):
        member.route(stream)
    sync(members)
    hot = members[0].hot
    values = members[0].values(hot).tolist()
    sync(members)
    assert members[0].hot.tolist() == hot.tolist()
    assert members[0].values(hot).tolist() == values


def test_other_numbers_of_workers_are_refused():
    one, other = make("dalton", 4), make("dalton", 5)
    one.route(zipf(100, 5, 1.0))
    state = one.save()
    with pytest.raises(ValueError, match="cannot merge Q-tables for 5 workers into those for 4"):
        one.merge([other])
    assert one.save() == state
    with pytest.raises(ValueError, match="cannot adopt a Q-table for 5 workers: this replica has 4"):
        one.end_sync(reduce([other.begin_sync()]))


def test_while_awaiting_rewards_are_put_off():
    """Algorithm 2, lines 7 to 10 and 18 to 20: then learned, in order, on top of the global values.

    Until then, the local values learn them, too.
    """
    member = make("dalton", 2, epsilon=0.0)
    member.route(np.full(50, 7, np.uint64))
    sent = member.begin_sync()
    before = member.values(hashes(7))
    member.route(np.full(3, 7, np.uint64))  # CI = CA = 1/2, so R = -0.5, each time
    home = int(before[0].argmax())
    for _ in range(3):
        before[0, home] += 0.1 * (-0.5 - before[0, home])
    assert member.values(hashes(7)) == pytest.approx(before)
    q = np.array([[-1.0, -1.0]])
    member.end_sync(replace(reduce([sent]), q=q))
    expected = [-1.0, -1.0]
    for _ in range(3):
        expected[home] += 0.1 * (-0.5 - expected[home])
    assert member.values(hashes(7))[0].tolist() == pytest.approx(expected)


def test_a_policy_of_no_records_leaves_what_was_learned_while_awaiting():
    member, plain = make("dalton", 2, epsilon=0.0), make("dalton", 2, epsilon=0.0)
    for one in (member, plain):
        one.route(np.full(50, 7, np.uint64))
    sent = member.begin_sync()
    for one in (member, plain):
        one.route(np.full(3, 7, np.uint64))
    member.end_sync(replace(reduce([sent]), load=0))
    assert member.values(hashes(7)).tolist() == plain.values(hashes(7)).tolist()


@given(keys, keys, keys, workers)
def test_awaiting_survives_being_saved(before, during, after, n):
    running, restored = make("dalton", n, epsilon=0.5), make("dalton", n, epsilon=0.5)
    running.route(before)
    sent = running.begin_sync()
    running.route(during)
    restored.restore(running.save())
    for member in (running, restored):
        member.end_sync(reduce([sent]))
    assert restored.save() == running.save()
    assert restored.route(after).tolist() == running.route(after).tolist()


def over_the_wire(state):
    return unpack(pack(state), state.algorithm, state.version)


@given(keys, workers, st.booleans())
def test_messages_survive_the_wire(stream, n, slower):
    member = make("dalton", n + 1)
    member.route(stream)
    member.resize(n)
    sent = member.begin_sync(slower=slower)
    assert sent.rehashed == 1
    found = sync_of(over_the_wire(sync_state(sent)))
    policy = replace(reduce([sent]), interval=2.5 if slower else None)
    adopted = policy_of(over_the_wire(policy_state(policy)))
    for one, other in ((sent, found), (policy, adopted)):
        for name, value in vars(one).items():
            assert np.array_equal(getattr(other, name), value)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("SYNC", {"keys": None}, "a SYNC message without keys cannot be read"),
        ("SYNC", {"frequencies": []}, "what it says of them differ in number"),
        ("SYNC", {"q": [1.0]}, "1 numbers are not the Q-table of 1 keys and 2 workers"),
        ("SYNC", {"q": [np.nan, 0.0]}, "2 numbers are not the Q-table of 1 keys and 2 workers"),
        ("policy", {"split": None}, "a policy without split cannot be read"),
        ("policy", {"q": [0.0, -3.0]}, "2 numbers are not the Q-table of 1 keys and 2 workers"),
        ("policy", {"interval": [np.inf]}, "the interval of a policy is not a positive number"),
    ],
)
def test_messages_that_cannot_be_are_refused(kind, change, message):
    sent = sync_message(4, {5: 4}, {5: [-1.0, -2.0]})
    state, read = {"SYNC": (sync_state(sent), sync_of), "policy": (policy_state(reduce([sent])), policy_of)}[kind]
    vectors = state.vectors | {
        name: np.array(values, float).view(np.int64) for name, values in change.items() if values is not None
    }
    vectors = {name: vector for name, vector in vectors.items() if change.get(name, ()) is not None}
    with pytest.raises(ValueError, match=message):
        read(replace(state, vectors=vectors))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"keys": [5, 5]}, "a SYNC message has a key twice"),
        ({"frequencies": [4, -1]}, "implausible frequencies"),
        ({"load": 1 << 60}, "implausible counts"),
        ({"load": -1}, "write a whole number of at least 0"),
    ],
)
def test_numbers_that_cannot_be_are_refused(change, message):
    state = sync_state(sync_message(4, {5: 4, 6: 1}, {5: [-1.0, -2.0]}))
    counters = state.counters | {name: value for name, value in change.items() if name in state.counters}
    vectors = state.vectors | {name: np.array(value) for name, value in change.items() if name in state.vectors}
    with pytest.raises(ValueError, match=message):
        sync_of(replace(state, counters=counters, vectors=vectors))
