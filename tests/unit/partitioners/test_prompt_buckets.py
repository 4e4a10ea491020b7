"""Reference tables and Algorithm 3 of paper 004."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.prompt.partitioner import PromptPartitioner
from millrace_research.papers.reduce_buckets import ReferenceTable, allocate, reference_table

from . import oracles_prompt as oracles
from .streams import keys, make, seeds, workers, zipf

clusters = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 50), st.booleans()), max_size=60)


def table_of(entries):
    hashes, sizes, split = zip(*entries, strict=True) if entries else ((), (), ())
    return ReferenceTable(np.array(hashes, np.uint64), np.array(sizes, np.int32), np.array(split, np.bool_))


def partitioned(stream, n):
    partitioner = PromptPartitioner(workers=n, seed=1, replicas=1, budget=10, buffering="post-sort", packing="zigzag")
    partitioner.accumulate(stream)
    return partitioner.partition()


@given(keys, workers)
def test_reference_tables_say_what_is_in_each_block_and_which_keys_are_split(stream, n):
    blocks = partitioned(stream, n)
    where = {}
    for key, block in zip(stream.tolist(), blocks.ids.tolist(), strict=True):
        where.setdefault(key, []).append(block)
    for block in range(n):
        table = reference_table(blocks, block, shared=False)
        expected = {key: (ids.count(block), len(set(ids)) > 1) for key, ids in where.items() if block in ids}
        found = zip(table.keys.tolist(), table.sizes.tolist(), table.split.tolist(), strict=True)
        assert {key: (size, split) for key, size, split in found} == expected
        assert len(table.keys) == len(expected)


@given(keys, workers)
def test_all_keys_are_labeled_split_where_other_replicas_may_have_them(stream, n):
    blocks = partitioned(stream, n)
    for block in range(n):
        apart, shared = (reference_table(blocks, block, shared=shared) for shared in (False, True))
        assert shared.split.all()
        assert shared.keys.tolist() == apart.keys.tolist()


@given(clusters, workers, st.integers(0, 100), seeds)
def test_agrees_with_the_oracle(entries, buckets, task, seed):
    table = table_of(entries)
    expected = oracles.allocate(table.keys.tolist(), table.sizes.tolist(), table.split.tolist(), buckets, task, seed)
    assert allocate(table, table.sizes, buckets, task=task, seed=seed).tolist() == expected


@given(clusters, workers)
def test_each_bucket_gets_as_many_of_the_keys_that_are_not_split(entries, buckets):
    table = table_of(entries)
    own = allocate(table, table.sizes, buckets, task=0, seed=1)[~table.split]
    counts = np.bincount(own, minlength=buckets)
    assert counts.max() - counts.min() <= 1


def test_algorithm_3_gives_the_buckets_worked_out_by_hand():
    """A split key of size 5 is hashed to bucket b; sizes 9, 7, 4, 3 and 2 are placed by worst fit.

    9 goes to the other bucket, and 7 to b, the only one left. With 9 against 12, 4 goes to the other, and 3 to b. With
    13 against 15, 2 goes to the other.
    """
    table = table_of([(77, 5, True), (1, 9, False), (2, 7, False), (3, 4, False), (4, 3, False), (5, 2, False)])
    b = make("hash", 2, seed=3).route(np.array([77], np.uint64))[0]
    assert allocate(table, table.sizes, 2, task=0, seed=3).tolist() == [b, 1 - b, b, 1 - b, b, 1 - b]


def test_all_map_tasks_agree_on_every_key_and_buckets_are_more_equal_than_by_hashing():
    """Paper 004, problem II: bucket-size equality, and key locality."""
    stream, n, buckets = zipf(rows=50_000, distinct=4000, exponent=1.0), 8, 16
    blocks = partitioned(stream, n)
    place, ours, hashed = {}, np.zeros(buckets), np.zeros(buckets)
    for block in range(n):
        table = reference_table(blocks, block, shared=False)
        chosen = allocate(table, np.ones(len(table.keys), np.int64), buckets, task=0, seed=1)
        for key, bucket in zip(table.keys.tolist(), chosen.tolist(), strict=True):
            assert place.setdefault(key, bucket) == bucket
        ours += np.bincount(chosen, minlength=buckets)
        hashed += np.bincount(make("hash", buckets).route(table.keys), minlength=buckets)
    assert ours.max() - ours.mean() < (hashed.max() - hashed.mean()) / 2


def test_bad_arguments_are_explained():
    table = table_of([(1, 2, False)])
    with pytest.raises(ValueError, match="buckets is 0; write a whole number of at least 1"):
        allocate(table, table.sizes, 0, task=0, seed=1)
    with pytest.raises(ValueError, match=r"sizes of shape \(3,\) for 1 keys; give one for each key"):
        allocate(table, np.ones(3, np.int64), 2, task=0, seed=1)
