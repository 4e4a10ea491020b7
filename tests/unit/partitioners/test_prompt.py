"""Prompt as a partitioner: accumulate, cut, and what it carries from batch to batch."""

import lzma
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.prompt.accumulator import Estimate
from millrace_jobs.partitioners.prompt.partitioner import BUFFERING, PACKING, PromptPartitioner
from millrace_jobs.partitioners.state import PartitionerState, pack
from placements import placement_cost

from . import oracles_prompt as oracles
from .streams import blocks, keys, make, workers, zipf

budgets = st.integers(1, 12)
bufferings = st.sampled_from(BUFFERING)
packings = st.sampled_from(list(PACKING))
batches = st.lists(keys, max_size=8)
cuts = st.lists(st.integers(0, 200), max_size=5)


def prompt(n, budget=10, buffering="count-tree", packing="zigzag"):
    return PromptPartitioner(workers=n, seed=1, replicas=1, budget=budget, buffering=buffering, packing=packing)


def experienced(n, past, **parameters):
    """One that has seen the batches ``past``."""
    partitioner = prompt(n, **parameters)
    for batch in past:
        partitioner.route(batch)
    return partitioner


@given(batches, workers, budgets, bufferings, packings)
def test_agrees_with_the_oracle_batch_by_batch(stream, n, budget, buffering, packing):
    partitioner, oracle = prompt(n, budget, buffering, packing), oracles.Prompt(budget, buffering, packing)
    for batch in stream:
        assert partitioner.route(batch).tolist() == oracle.batch(batch.tolist(), n)
        partitioner.advance()
        assert partitioner._past.tolist() == [list(sizes) for sizes in oracle.past]


@pytest.mark.data
@pytest.mark.parametrize(("name", "form"), [("w106", "<u4"), ("web12", ">i4")])
def test_agrees_with_the_oracle_on_a_real_stream(data, name, form):
    with lzma.open(data(f"caffeine_traces/{name}.trace.xz")) as file:
        stream = np.frombuffer(file.read(4 * 3000), form).astype(np.uint64)
    partitioner, oracle = prompt(16), oracles.Prompt(10, "count-tree", "zigzag")
    for batch in np.split(stream, 3):
        assert partitioner.route(batch).tolist() == oracle.batch(batch.tolist(), 16)


@given(keys, keys, workers, cuts)
def test_the_blocks_of_a_batch_may_end_anywhere(past, stream, n, cut_at):
    whole, parts = experienced(n, [past]), experienced(n, [past])
    for block in blocks(stream, cut_at):
        parts.accumulate(block)
    assert parts.cut().tolist() == whole.route(stream).tolist()
    assert parts.save() == whole.save()


@given(keys, keys, keys, workers, workers)
def test_a_state_restored_in_mid_batch_goes_on_without_interruption(past, before, after, n, other):
    running = experienced(n, [past])
    running.accumulate(before)
    restored = prompt(other)
    restored.restore(running.save())
    assert restored.save() == running.save()
    for partitioner in (running, restored):
        partitioner.accumulate(after)
    assert restored.cut().tolist() == running.cut().tolist()
    assert restored.save() == running.save()


@given(keys, keys, workers)
def test_what_comes_after_the_cut_belongs_to_the_next_batch(first, second, n):
    """Early release: the heartbeat, ``advance``, comes when records of the next batch are already there."""
    early, late = prompt(n), prompt(n)
    early.accumulate(first)
    ids = [early.cut().tolist()]
    early.accumulate(second[: len(second) // 2])
    early.advance()
    early.accumulate(second[len(second) // 2 :])
    ids.append(early.cut().tolist())
    assert ids == [late.route(first).tolist(), late.route(second).tolist()]


def test_between_batches_the_state_is_small_and_within_one_it_holds_the_keys():
    partitioner = prompt(8)
    partitioner.accumulate(np.arange(10_000, dtype=np.uint64))
    assert len(partitioner.save()) > 80_000
    partitioner.cut()
    partitioner.advance()
    assert len(partitioner.save()) < 250


@given(st.lists(keys.filter(len), min_size=1, max_size=8))
def test_estimates_are_averages_over_the_past_five_batches(stream):
    last = stream[-5:]
    tuples, distinct = (np.ceil(np.mean(of)) for of in ([len(b) for b in last], [len(set(b.tolist())) for b in last]))
    assert experienced(3, stream).estimate == Estimate(tuples, distinct)
    assert prompt(3).estimate is None


@given(keys, keys, workers)
def test_the_first_batch_is_post_sorted_and_later_ones_as_well_if_so_wished(past, stream, n):
    assert prompt(n).route(stream).tolist() == prompt(n, buffering="post-sort").route(stream).tolist()
    sorted_later = experienced(n, [past], buffering="post-sort").route(stream)
    assert sorted_later.tolist() == prompt(n).route(stream).tolist()


@given(keys, keys, workers, budgets)
def test_no_block_exceeds_the_average_by_more_than_the_cutoff(past, stream, n, budget):
    ids = experienced(n, [past], budget=budget).route(stream)
    distinct = len(set(stream.tolist()))
    cutoff = max(1, len(stream) // max(distinct, n))
    assert np.bincount(ids, minlength=n).max() - len(stream) / n <= cutoff


@given(keys, workers)
def test_the_records_of_a_key_fill_its_blocks_one_after_the_other(stream, n):
    ids = prompt(n).route(stream)
    for key in set(stream.tolist()):
        of_key = ids[stream == key].tolist()
        changes = sum(a != b for a, b in pairwise(of_key))
        assert changes == len(set(of_key)) - 1


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.5])
@pytest.mark.parametrize("n", [8, 32])
def test_balances_sizes_like_shuffle_and_keys_like_hash_with_few_fragments(exponent, n):
    """Paper 004, Figure 10, as inequalities of BSI, BCI and KSR (Eq. 2, 4 and 5)."""
    past, stream = (zipf(rows=100_000, distinct=20_000, exponent=exponent, seed=seed) for seed in (1, 2))
    cost = {name: placement_cost(make(name, n).route(stream), stream, n) for name in ("shuffle", "hash", "pkg")} | {
        "prompt": placement_cost(experienced(n, [past]).route(stream), stream, n)
    }
    assert cost["prompt"].load_imbalance <= min(1, cost["shuffle"].load_imbalance + 1)
    assert cost["prompt"].load_imbalance < 0.001 * cost["hash"].load_imbalance
    for other in ("shuffle", "hash", "pkg"):
        assert cost["prompt"].cardinality_imbalance < cost[other].cardinality_imbalance
    assert cost["prompt"].replication_factor < 1.02
    assert cost["prompt"].replication_factor < cost["pkg"].replication_factor
    assert cost["shuffle"].replication_factor > 2


@pytest.mark.parametrize("packing", ["first-fit", "fragmentation-minimization"])
def test_zigzag_balances_cardinality_where_naive_packing_does_not(packing):
    stream = zipf(rows=100_000, distinct=20_000, exponent=1.0)
    ours, naive = (placement_cost(prompt(16, packing=how).route(stream), stream, 16) for how in ("zigzag", packing))
    assert naive.cardinality_imbalance > 100 * ours.cardinality_imbalance
    assert naive.replication_factor < ours.replication_factor


@given(keys, workers, workers)
def test_resizing_within_a_batch_cuts_it_into_the_new_number_of_blocks(stream, n, resized):
    partitioner = prompt(n)
    partitioner.accumulate(stream)
    partitioner.resize(resized)
    assert partitioner.cut().tolist() == prompt(resized).route(stream).tolist()


@given(st.lists(batches, min_size=1, max_size=3), keys, workers)
def test_merging_averages_the_sizes_of_past_batches(streams, stream, n):
    replicas = [experienced(n, past) for past in streams]
    pasts = [replica._past.tolist() for replica in replicas]
    one, *others = replicas
    one.accumulate(stream)
    one.merge(others)
    expected = []
    for ago in range(1, max(map(len, pasts)) + 1):
        known = [past[-ago] for past in pasts if len(past) >= ago]
        expected.insert(0, [sum(column) // len(known) for column in zip(*known, strict=True)])
    assert one._past.tolist() == expected
    after = prompt(n)
    after.restore(one.save())
    assert after.save() == one.save()
    assert len(one.cut()) == len(stream)


def test_merged_replicas_that_all_begin_with_one_state_merge_to_the_same():
    one = experienced(4, [zipf(rows=rows, distinct=9, exponent=1.0) for rows in (50, 70)])
    before = one.save()
    two = prompt(4)
    two.restore(before)
    one.merge([two])
    assert one.save() == before


@pytest.mark.parametrize(
    "vectors",
    [
        {},
        {"tuples": [3], "keys": [2]},
        {"tuples": [3], "keys": [], "accumulated": []},
        {"tuples": [3], "keys": [4], "accumulated": []},
        {"tuples": [3], "keys": [0], "accumulated": []},
        {"tuples": [2**31], "keys": [1], "accumulated": []},
        {"tuples": [1] * 6, "keys": [1] * 6, "accumulated": []},
    ],
)
def test_a_state_without_usable_sizes_is_refused_and_leaves_no_trace(vectors):
    partitioner = experienced(3, [np.arange(9, dtype=np.uint64)])
    before = partitioner.save()
    arrays = {name: np.array(vector, np.int64) for name, vector in vectors.items()}
    with pytest.raises(ValueError, match="the saved state of prompt has"):
        partitioner.restore(pack(PartitionerState("prompt", 1, 5, {}, arrays)))
    assert partitioner.save() == before
