import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.dagreedy import DAGreedy
from millrace_jobs.partitioners.state import PartitionerState, pack, unpack
from placements import placement_cost

from .oracles import hash_grouping
from .oracles_dagreedy import PlainDAGreedy
from .oracles_space_saving import counters
from .streams import blocks, keys, make, seeds, workers, zipf

heads = st.sampled_from([0.01, 0.3, 1.0, 2.0])
many_workers = st.one_of(workers, st.integers(60, 140))


def dagreedy(n, seed=1, head=0.01, slides=1):
    return DAGreedy(workers=n, seed=seed, head=head, slides=slides)


def held(partitioner):
    """By slide, the workers that have each key."""
    return [
        {
            key: {64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1}
            for key, words in zip(partitioner.summary.keys.tolist(), slide.tolist(), strict=True)
            if any(words)
        }
        for slide in partitioner.fragments
    ]


def assert_same(partitioner, plain):
    assert partitioner.loads.tolist() == plain.loads()
    assert held(partitioner) == [workers for _, workers in plain.slides]
    assert counters(partitioner.summary) == plain.summary.counters
    assert (partitioner.summary.total, partitioner.summary.missed) == (plain.summary.total, plain.summary.missed)


@given(keys, many_workers, seeds, heads, st.integers(1, 3), st.lists(st.integers(0, 200), max_size=5))
def test_agrees_with_the_oracle_step_by_step(stream, n, seed, head, slides, cuts):
    partitioner, plain = dagreedy(n, seed, head, slides), PlainDAGreedy(n, seed, head, slides)
    for slide in blocks(stream, cuts):
        assert partitioner.route(slide).tolist() == [plain.place(key) for key in slide.tolist()]
        assert_same(partitioner, plain)
        partitioner.advance()
        plain.advance()
        assert_same(partitioner, plain)


@pytest.mark.parametrize(("exponent", "n"), [(0.5, 5), (1.0, 12), (1.5, 70), (2.0, 20)])
def test_agrees_with_the_oracle_on_skewed_streams(exponent, n):
    stream = zipf(rows=1200, distinct=300, exponent=exponent)
    partitioner, plain = dagreedy(n, head=2.0, slides=2), PlainDAGreedy(n, 1, 2.0, 2)
    for slide in np.split(stream, 3):
        assert partitioner.route(slide).tolist() == [plain.place(key) for key in slide.tolist()]
        assert_same(partitioner, plain)
        partitioner.advance()
        plain.advance()


@pytest.mark.data
def test_agrees_with_the_oracle_on_a_real_stream(data):
    with lzma.open(data("caffeine_traces/w106.trace.xz")) as trace:
        stream = np.frombuffer(trace.read(4 * 1500), "<u4").astype(np.uint64)
    partitioner, plain = dagreedy(8, head=0.5), PlainDAGreedy(8, 1, 0.5, 1)
    assert partitioner.route(stream).tolist() == [plain.place(key) for key in stream.tolist()]
    assert_same(partitioner, plain)


def test_a_frequent_key_is_split_when_its_worker_leads_by_more_than_the_average():
    """Scores by hand: two keys of equal frequency over two workers, then one key alone."""
    partitioner = dagreedy(2)
    # 7 has no worker: all scores are equal, so the first. 8 has none either: worker 1 scores 1/2, worker 0 -1/2.
    assert partitioner.route(np.array([7, 8], np.uint64)).tolist() == [0, 1]
    # From loads of 1 and 1, 7 stays on 0 as long as 1/2 - (L_0 - L) / 2L >= -(L_1 - L) / 2L: at 2 and 1, and at
    # 3 and 1, where both scores are 1/4; not at 4 and 1. Then it is on both, and goes to the less loaded one.
    assert partitioner.route(np.full(6, 7, np.uint64)).tolist() == [0, 0, 0, 1, 1, 1]
    assert partitioner.loads.tolist() == [4, 4]
    assert held(partitioner) == [{7: {0, 1}, 8: {1}}]


def test_rare_keys_are_hashed():
    stream = zipf(rows=100_000, distinct=30_000, exponent=1.0)
    partitioner = dagreedy(10, head=0.2)
    partitioner.route(stream)
    ids = partitioner.route(stream)
    hashed = np.array(hash_grouping(stream.tolist(), 10, 1))
    assert (ids[stream > 100] == hashed[stream > 100]).all()
    assert (ids[stream < 3] != hashed[stream < 3]).any()


@pytest.mark.parametrize("exponent", [1.0, 1.5, 2.0])
def test_balances_better_than_hashing_and_splits_keys_less_than_w_choices(exponent):
    stream = zipf(rows=100_000, distinct=5000, exponent=exponent)
    names = ("hash", "dagreedy", "wchoices")
    hashed, greedy, split = (placement_cost(make(name, 16).route(stream), stream, 16) for name in names)
    assert greedy.load_imbalance_ratio < 1.0  # the cost model splits keys from there on
    assert greedy.load_imbalance < hashed.load_imbalance
    assert hashed.replication_factor < greedy.replication_factor < split.replication_factor


def test_a_window_forgets_loads_and_workers_but_not_which_keys_are_frequent():
    stream = zipf(rows=20_000, distinct=5000, exponent=1.5)
    partitioner = dagreedy(8)
    partitioner.route(stream)
    partitioner.advance()
    assert not partitioner.loads.any()
    assert held(partitioner) == [{}]
    assert partitioner.summary.keys[:5].tolist() == [0, 1, 2, 3, 4]
    assert partitioner.summary.total == 10_000


def test_a_window_of_several_slides_forgets_one_after_the_other():
    partitioner = dagreedy(3, slides=2)
    partitioner.route(np.full(5, 1, np.uint64))
    partitioner.advance()
    partitioner.route(np.full(6, 2, np.uint64))
    assert partitioner.loads.sum() == 11
    partitioner.advance()
    assert partitioner.loads.sum() == 6
    assert set(held(partitioner)[1]) == {2}
    partitioner.advance()
    assert not partitioner.loads.any()


def test_a_key_that_fades_is_hashed_again():
    partitioner = dagreedy(4, head=2.0)
    partitioner.route(np.full(1000, 9, np.uint64))
    for _ in range(5):
        partitioner.route(zipf(rows=2000, distinct=1000, exponent=0.0))
        partitioner.advance()
    ids = partitioner.route(np.full(8, 9, np.uint64))
    assert set(ids.tolist()) == set(hash_grouping([9], 4, 1))


def test_a_state_between_windows_is_small():
    partitioner = dagreedy(8)
    partitioner.route(zipf(rows=300_000, distinct=100_000, exponent=1.0))
    within = len(partitioner.save())
    partitioner.advance()
    assert within < 32 * 2 * 8 / 0.01 + 8 * 8 + 400
    assert len(partitioner.save()) < within / 8


@given(st.lists(keys, min_size=1, max_size=4), many_workers, st.integers(1, 2))
def test_merging_adds_loads_and_workers_and_averages_frequencies(streams, n, slides):
    replicas = [dagreedy(n, slides=slides) for _ in streams]
    total = np.zeros(n, int)
    where = {}
    for replica, stream in zip(replicas, streams, strict=True):
        ids = replica.route(stream)
        total += np.bincount(ids, minlength=n)
        for key, worker in zip(stream.tolist(), ids.tolist(), strict=True):
            where.setdefault(key, set()).add(worker)
    replicas[0].merge(replicas[1:])
    merged = replicas[0]
    assert merged.loads.tolist() == total.tolist()
    assert held(merged)[0] == {key: where[key] for key in merged.summary.keys.tolist()}
    assert merged.summary.total == sum(map(len, streams)) // len(streams)
    restored = dagreedy(1, slides=slides)
    restored.restore(merged.save())
    stream = np.arange(30, dtype=np.uint64)
    assert restored.route(stream).tolist() == merged.route(stream).tolist()


@pytest.mark.parametrize("other", [{"n": 4}, {"n": 3, "slides": 2}])
def test_merging_other_windows_is_refused_and_leaves_no_trace(other):
    one = dagreedy(3)
    with pytest.raises(ValueError, match=r"cannot merge \d slides over \d workers into 1 slides over 3"):
        one.merge([dagreedy(3), dagreedy(**other)])
    assert one.save() == dagreedy(3).save()


@given(keys, many_workers, many_workers)
def test_resizing_keeps_what_the_workers_that_stay_have(stream, n, resized):
    partitioner = dagreedy(n)
    partitioner.route(stream)
    loads, before = partitioner.loads.tolist(), held(partitioner)[0]
    partitioner.resize(resized)
    assert partitioner.loads.tolist() == (loads + [sum(loads) // n] * 140)[:resized]
    stay = {key: {worker for worker in where if worker < resized} for key, where in before.items()}
    counted = set(partitioner.summary.keys.tolist())
    assert held(partitioner)[0] == {key: where for key, where in stay.items() if where and key in counted}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"head": 0.0}, "head is 0.0; write a number between 0.01 and 2"),
        ({"slides": 0}, "slides is 0; write a whole number of at least 1"),
        ({"n": 0}, "workers is 0; write a whole number of at least 1"),
    ],
)
def test_bad_parameters_are_explained(parameters, message):
    with pytest.raises(ValueError, match=message):
        dagreedy(**{"n": 4} | parameters)


@pytest.mark.parametrize(
    "vectors",
    [
        {"loads": [0, 0, 0]},
        {"loads": [0, 0, 0, -1]},
        {"loads": [0, 0, 0, 2**49]},
        {"fragments": []},
        {"fragments": [16, 0, 0]},
        {"fragments": [-1, 0, 0]},
        {"keys": [5, 5, 5]},
        {"totals": []},
    ],
)
def test_a_damaged_state_with_a_sound_checksum_is_refused_and_leaves_no_trace(vectors):
    partitioner = dagreedy(4)
    partitioner.route(np.arange(50, dtype=np.uint64) % 3)
    before = partitioner.save()
    saved = unpack(before, "dagreedy", 1)
    arrays = {name: np.array(vector, np.int64) for name, vector in vectors.items()}
    with pytest.raises(ValueError):
        partitioner.restore(pack(PartitionerState("dagreedy", 1, 4, saved.counters, {**saved.vectors, **arrays})))
    assert partitioner.save() == before
    with pytest.raises(ValueError, match="does not fit 2 slides and 4 workers"):
        dagreedy(4, slides=2).restore(before)


def test_loads_at_the_limit_still_decide():
    loads = np.array([2**48, 0, 2**48], np.int64)
    partitioner = dagreedy(3)
    vectors = {**unpack(partitioner.save(), "dagreedy", 1).vectors, "loads": loads}
    partitioner.restore(pack(PartitionerState("dagreedy", 1, 3, {}, vectors)))
    assert partitioner.route(np.arange(5, dtype=np.uint64)).tolist() == [1] * 5
