import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.dchoices import DChoices, WChoices, _least_choices
from millrace_jobs.partitioners.state import PartitionerState, pack, unpack
from placements import placement_cost

from .oracles import candidates
from .oracles_dchoices import PlainHeadSplitting, balances, least_choices
from .oracles_space_saving import counters
from .streams import blocks, keys, make, seeds, workers, zipf

heads = st.sampled_from([0.2, 0.5, 1.0, 2.0])
kinds = pytest.mark.parametrize("kind", [DChoices, WChoices])


def of(kind, n, seed=1, head=0.2):
    return kind(workers=n, seed=seed, head=head)


def assert_same(partitioner, plain):
    assert partitioner.loads.tolist() == [load - min(plain.loads) for load in plain.loads]
    assert partitioner.choices == plain.choices
    assert counters(partitioner.summary) == plain.summary.counters
    assert (partitioner.summary.total, partitioner.summary.missed) == (plain.summary.total, plain.summary.missed)


@kinds
@given(stream=keys, n=workers, seed=seeds, head=heads, cuts=st.lists(st.integers(0, 200), max_size=5))
def test_agrees_with_the_oracle_step_by_step(kind, stream, n, seed, head, cuts):
    partitioner = of(kind, n, seed, head)
    plain = PlainHeadSplitting(n, seed, head, everywhere=kind is WChoices)
    for block in blocks(stream, cuts):
        assert partitioner.route(block).tolist() == [plain.place(key) for key in block.tolist()]
        assert_same(partitioner, plain)


@kinds
@pytest.mark.parametrize(("exponent", "n"), [(0.5, 5), (1.0, 40), (1.4, 16), (2.0, 24)])
def test_agrees_with_the_oracle_on_skewed_streams(kind, exponent, n):
    stream = zipf(rows=4000, distinct=2000, exponent=exponent)
    partitioner, plain = of(kind, n), PlainHeadSplitting(n, 1, 0.2, everywhere=kind is WChoices)
    assert partitioner.route(stream).tolist() == [plain.place(key) for key in stream.tolist()]
    assert_same(partitioner, plain)


@pytest.mark.data
@kinds
def test_agrees_with_the_oracle_on_a_real_stream(kind, data):
    with lzma.open(data("caffeine_traces/w106.trace.xz")) as trace:
        stream = np.frombuffer(trace.read(4 * 4000), "<u4").astype(np.uint64)
    partitioner, plain = of(kind, 12), PlainHeadSplitting(12, 1, 0.2, everywhere=kind is WChoices)
    assert partitioner.route(stream).tolist() == [plain.place(key) for key in stream.tolist()]
    assert_same(partitioner, plain)


@kinds
def test_keys_of_the_tail_have_two_workers_and_those_of_the_head_d(kind):
    stream = zipf(rows=60_000, distinct=3000, exponent=1.2)
    partitioner = of(kind, 20)
    partitioner.route(stream)  # early on, any key is frequent
    choices = partitioner.choices
    ids = partitioner.route(stream)
    assert partitioner.choices == choices
    counts = partitioner.summary.counts
    head = set(partitioner.summary.keys[counts >= 0.009 * partitioner.summary.total].tolist())
    assert 2 < len(head) < 60
    for key in range(1000):
        placed = set(ids[stream == key].tolist())
        if key not in head:
            assert placed <= set(candidates(key, 20, 1, 2))
        elif kind is DChoices:
            assert placed <= set(candidates(key, 20, 1, choices))


def test_extreme_skew_that_two_choices_cannot_carry_is_balanced():
    """ICDE 2016, the reason for more choices: with p_1 over 2/n, two workers cannot hold the first key."""
    stream = zipf(rows=200_000, distinct=10_000, exponent=2.0)  # the first key has 61 % of the records
    costs = {name: placement_cost(make(name, 64).route(stream), stream, 64) for name in ("pkg", "dchoices", "wchoices")}
    assert costs["pkg"].load_imbalance_ratio > 15
    assert costs["dchoices"].load_imbalance_ratio < 0.01
    assert costs["wchoices"].load_imbalance_ratio < 0.01
    assert costs["dchoices"].aggregation_cost <= costs["wchoices"].aggregation_cost


def test_d_choices_take_no_more_choices_than_the_skew_asks_for():
    chosen = []
    for exponent in (0.0, 0.8, 1.2, 1.6, 2.0):
        partitioner = of(DChoices, 32)
        ids = partitioner.route(zipf(rows=50_000, distinct=10_000, exponent=exponent))
        loads = np.bincount(ids, minlength=32)
        assert loads.max() < 1.02 * loads.mean()
        chosen.append(partitioner.choices)
    assert chosen == sorted(chosen)
    assert chosen[0] == 2
    assert chosen[-1] > 20


def test_d_choices_replicate_the_head_less_than_w_choices():
    stream = zipf(rows=200_000, distinct=10_000, exponent=1.1)
    d, w = (placement_cost(make(name, 50).route(stream), stream, 50) for name in ("dchoices", "wchoices"))
    assert d.load_imbalance_ratio < 0.01
    assert d.aggregation_cost < 0.9 * w.aggregation_cost


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12), st.integers(0, 3000), st.integers(2, 60))
def test_d_is_the_least_that_balances(weights, rest, n):
    whole = sum(weights) + rest
    head = sorted((weight / whole for weight in weights), reverse=True)
    d = least_choices(head, n)
    assert 2 <= d <= n
    assert d == n or balances(head, rest / whole, d, n)
    assert d == 2 or d - 1 < head[0] * n or not balances(head, rest / whole, d - 1, n)


def test_the_least_choices_are_those_worked_out_by_hand():
    """One key of half the records, n = 4: d >= 2; b_1 is 4 - 4 (3/4)**d."""
    # d = 2: b = 1.75 and 0.5 + 0.4375**2 * 0.5 = 0.596 > 0.438. d = 3: b = 2.3125 and 0.667 > 0.578.
    # A tenth, n = 4: d = 2 gives 0.1 + 0.4375**2 * 0.9 = 0.272 <= 0.438.
    for find in (least_choices, lambda head, n: _least_choices(np.array(head), n)):
        assert find([0.5], 4) == 4
        assert find([0.1], 4) == 2


@kinds
@given(streams=st.lists(keys, min_size=1, max_size=4), n=workers)
def test_merging_adds_loads_and_averages_frequencies(kind, streams, n):
    replicas = [of(kind, n) for _ in streams]
    total = np.zeros(n, int)
    for replica, stream in zip(replicas, streams, strict=True):
        total += np.bincount(replica.route(stream), minlength=n)
    records = sum(map(len, streams))
    replicas[0].merge(replicas[1:])
    assert replicas[0].loads.tolist() == (total - total.min()).tolist()
    assert replicas[0].summary.total == records // len(streams)


@kinds
def test_a_merged_state_that_all_restore_counts_once(kind):
    stream = zipf(rows=30_000, distinct=500, exponent=1.0)
    state, total = of(kind, 8).save(), np.zeros(8, int)
    for batch in np.split(stream, 10):
        replicas = [of(kind, 8) for _ in range(3)]
        for at, replica in enumerate(replicas):
            replica.restore(state)
            total += np.bincount(replica.route(batch[at::3]), minlength=8)
        replicas[0].merge(replicas[1:])
        state = replicas[0].save()
    summary = replicas[0].summary
    assert replicas[0].loads.tolist() == (total - total.min()).tolist()
    assert summary.total == pytest.approx(10_000, rel=0.01)
    true = np.bincount(stream.astype(int))
    assert summary.keys[:5].tolist() == [0, 1, 2, 3, 4]
    assert summary.counts[:5] / summary.total == pytest.approx(true[:5] / len(stream), rel=0.05)


@kinds
def test_merging_other_numbers_of_workers_is_refused_and_leaves_no_trace(kind):
    one, other = of(kind, 3), of(kind, 4)
    other.route(np.arange(9, dtype=np.uint64))
    with pytest.raises(ValueError, match="cannot merge loads of 4 workers into those of 3"):
        one.merge([other])
    assert one.save() == of(kind, 3).save()


@kinds
def test_after_a_resize_the_head_is_known(kind):
    stream = zipf(rows=60_000, distinct=3000, exponent=1.5)
    partitioner = of(kind, 6)
    partitioner.route(stream[:30_000])
    partitioner.resize(30)
    ids = partitioner.route(stream[30_000:])
    assert len(set(ids[stream[30_000:] == 0].tolist())) > 10
    loads = np.bincount(ids, minlength=30)
    assert loads.max() < 1.05 * loads.mean()
    partitioner.resize(1)
    assert set(partitioner.route(stream).tolist()) == {0}


@kinds
def test_a_short_history_is_remembered_whole(kind):
    partitioner = of(kind, 5)
    partitioner.route(np.arange(12_000, dtype=np.uint64) % 40)
    expected = counters(partitioner.summary)
    partitioner.advance()
    assert counters(partitioner.summary) == expected
    assert not partitioner.loads.any()


@kinds
def test_a_key_that_becomes_frequent_late_is_in_the_head_soon(kind):
    """After ten slides without it, a key has a third of the records."""
    partitioner, n = of(kind, 8), 8
    for _ in range(10):
        partitioner.route(zipf(rows=100_000, distinct=10_000, exponent=0.5))
        partitioner.advance()
    assert partitioner.summary.total < 2 * 256 * partitioner.summary.capacity
    stream = zipf(rows=200_000, distinct=10_000, exponent=0.5)
    stream[::3] = 999_999
    ids = partitioner.route(stream)
    assert np.bincount(ids[-10_000:], minlength=n).max() < 1.1 * 10_000 / n
    assert partitioner.summary.keys[0] == 999_999


@kinds
def test_a_state_is_small_however_many_keys_there_are(kind):
    partitioner = of(kind, 16)
    partitioner.route(np.arange(200_000, dtype=np.uint64))
    assert len(partitioner.save()) < 24 * 2 * 16 / 0.2 + 16 * 16 + 400


def test_a_restored_state_goes_on_with_its_choices():
    stream = zipf(rows=40_000, distinct=3000, exponent=1.1)
    running, restored = of(DChoices, 40), of(DChoices, 7)
    running.route(stream[:20_000])
    restored.restore(running.save())
    assert 2 < restored.choices == running.choices < 40
    assert restored.route(stream[20_000:]).tolist() == running.route(stream[20_000:]).tolist()
    assert restored.save() == running.save()


@kinds
def test_a_state_may_come_from_long_ago(kind):
    old, fresh = of(kind, 4), of(kind, 4)
    old.route(np.arange(40, dtype=np.uint64) % 3)
    saved = unpack(old.save(), kind.NAME, 1)
    vectors = dict(saved.vectors)
    vectors["counts"], vectors["totals"] = vectors["counts"] << 50, vectors["totals"] << 50
    fresh.restore(pack(PartitionerState(kind.NAME, 1, 4, {"choices": 4, "due": 0}, vectors)))
    stream = np.arange(4000, dtype=np.uint64)
    assert np.bincount(fresh.route(stream), minlength=4).max() < 1100
    assert fresh.summary.total == (40 << 50) + 4000


@kinds
@pytest.mark.parametrize("bad", [0.1, 2.1, 0, -1, "1", None, float("nan")])
def test_a_bad_threshold_is_refused(kind, bad):
    with pytest.raises(ValueError, match=r"head is .*; write a number between 0.2 and 2"):
        of(kind, 4, head=bad)


@kinds
@pytest.mark.parametrize(
    ("counted", "vectors"),
    [
        ({"choices": 5}, {}),
        ({"choices": 0}, {}),
        ({"choices": None}, {}),
        ({"due": -1}, {}),
        ({"due": 60}, {}),
        ({}, {"loads": [0, 0]}),
        ({}, {"shared": [2**57, 0, 0, 0]}),
        ({}, {"keys": [7, 7, 7]}),
        ({}, {"counts": []}),
        ({}, {"totals": [2**57, 0]}),
    ],
)
def test_a_damaged_state_with_a_sound_checksum_is_refused_and_leaves_no_trace(kind, counted, vectors):
    partitioner = of(kind, 4)
    partitioner.route(np.arange(50, dtype=np.uint64) % 3)
    before = partitioner.save()
    saved = unpack(before, kind.NAME, 1)
    arrays = {name: np.array(vector, np.int64) for name, vector in vectors.items()}
    damaged = PartitionerState(kind.NAME, 1, 4, {**saved.counters, **counted}, {**saved.vectors, **arrays})
    with pytest.raises(ValueError):
        partitioner.restore(pack(damaged))
    assert partitioner.save() == before
