"""Algorithm 1 of paper 004 against its oracle, whose CountTree is a sorted list."""

import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kernels.compiling import read_only
from millrace_jobs.partitioners.prompt import accumulator
from millrace_jobs.partitioners.prompt.accumulator import ROW, Accumulator, Estimate, in_order

from . import oracles_prompt as oracles
from .streams import blocks, keys, zipf

estimates = st.builds(Estimate, st.integers(1, 400), st.integers(1, 40))
budgets = st.integers(1, 12)
cuts = st.lists(st.integers(0, 200), max_size=5)


def taken(stream, estimate, budget, cut_at=()):
    batch = Accumulator(estimate, budget)
    for block in blocks(stream, cut_at):
        batch.take(read_only(block))
    return batch


def check_against_oracle(batch, stream, estimate, budget):
    tree, htable = oracles.accumulator(stream.tolist(), estimate.tuples, estimate.keys, budget)
    listed = batch.sorted_list()
    assert listed.keys.tolist() == [key for _, key in tree]
    assert listed.counts.tolist() == [htable[key]["current"] for _, key in tree]
    assert listed.keys[listed.records].tolist() == stream.tolist()
    rows = dict(zip(batch._hashes.tolist(), batch._table[: batch.keys], strict=False))
    assert {key: {name: int(rows[key][name]) for name in k} for key, k in htable.items()} == htable


@given(keys, estimates, budgets, cuts)
def test_agrees_with_the_oracle_step_by_step(stream, estimate, budget, cut_at):
    check_against_oracle(taken(stream, estimate, budget, cut_at), stream, estimate, budget)


@pytest.mark.parametrize("estimate", [Estimate(6000, 900), Estimate(50, 1), Estimate(2**31 - 1, 3)])
def test_agrees_with_the_oracle_on_a_skewed_stream_that_outgrows_the_tables(estimate):
    stream = np.append(zipf(rows=4000, distinct=3000, exponent=0.8), np.arange(2000, 4000, dtype=np.uint64))
    check_against_oracle(taken(stream, estimate, 4, range(0, 6000, 700)), stream, estimate, 4)


@pytest.mark.data
def test_agrees_with_the_oracle_on_a_real_stream(data):
    with lzma.open(data("caffeine_traces/w106.trace.xz")) as file:
        stream = np.frombuffer(file.read(4 * 5000), "<u4").astype(np.uint64)
    estimate = Estimate(4500, 2000)
    check_against_oracle(taken(stream, estimate, 10, [1000, 3000]), stream, estimate, 10)


@given(keys, cuts)
def test_without_an_estimate_the_exact_counts_are_sorted(stream, cut_at):
    batch = taken(stream, None, 1, cut_at)
    listed = batch.sorted_list()
    assert listed.keys.tolist() == oracles.post_sort(stream.tolist())
    assert listed.counts.tolist() == sorted(np.unique(stream, return_counts=True)[1].tolist(), reverse=True)
    assert listed.keys[listed.records].tolist() == stream.tolist()
    assert batch.accumulated.tolist() == stream.tolist()
    assert (batch.tuples, batch.keys) == (len(stream), len(set(stream.tolist())))


@given(st.data())
def test_the_tree_is_traversed_as_a_list_that_is_kept_sorted_the_slow_way(data):
    table, expected = np.zeros(8, ROW), []

    def put(count, row, time):
        table[row]["updated"], table[row]["last_update"] = count, time
        expected.insert(sum(other >= count for other, _ in expected), (count, row))

    for row in range(8):
        put(data.draw(st.integers(1, 4)), row, time=row + 1)
    moves = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 3)), max_size=15)
    for time, (row, more) in enumerate(data.draw(moves), start=9):
        old = next(entry for entry in expected if entry[1] == row)
        expected.remove(old)
        put(old[0] + more, row, time)
        assert in_order(table, time + 3).tolist() == [row for _, row in expected]


@given(keys, estimates, budgets)
def test_no_key_updates_the_tree_more_often_than_its_budget(stream, estimate, budget):
    """The tree's count of a key can only be one of those that it had at its updates: count the different ones."""
    batch, counts = Accumulator(estimate, budget), {}
    for key in stream:
        batch.take(read_only(np.array([key])))
        for known, row in zip(batch._hashes.tolist(), batch._table[: batch.keys], strict=False):
            counts.setdefault(known, set()).add(int(row["updated"]))
    assert all(len(of_one) <= 1 + budget for of_one in counts.values())


@given(keys, st.integers(200, 300), st.integers(1, 40))
def test_as_many_updates_as_tuples_keep_the_tree_exact(stream, n_est, k_avg):
    counts = taken(stream, Estimate(n_est, k_avg), n_est).sorted_list().counts
    assert counts.tolist() == sorted(counts.tolist(), reverse=True)


def test_the_list_is_nearly_sorted_with_a_small_budget():
    """The list of a skewed batch, cut anywhere, has nearly as many records before the cut as can be."""
    stream = zipf(rows=100_000, distinct=10_000, exponent=1.0)
    counts = taken(stream, Estimate(100_000, 9000), 5).sorted_list().counts
    most = np.cumsum(np.sort(counts)[::-1])
    assert (np.cumsum(counts) > 0.9 * most)[10:].all()


def test_a_batch_that_counts_cannot_hold_is_refused_and_nothing_is_taken(monkeypatch):
    monkeypatch.setattr(accumulator, "MOST_TUPLES", 10)
    batch = taken(np.arange(8, dtype=np.uint64), None, 1)
    with pytest.raises(ValueError, match="11 records are too many for one micro-batch; cut it when it has at most 10"):
        batch.take(np.arange(3, dtype=np.uint64))
    assert batch.accumulated.tolist() == list(range(8))
