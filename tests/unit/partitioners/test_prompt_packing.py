"""Algorithm 2 of paper 004, and what it is compared with: packing counts into blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.prompt.packing import capacities, split_cutoff, zigzag
from millrace_jobs.partitioners.prompt.partitioner import PACKING

from . import oracles_prompt as oracles

blocks = st.integers(1, 12)
skewed = st.integers(1, 2**20).map(lambda x: max(1, 2**20 // x // 1000))
counts = st.one_of(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.lists(skewed, min_size=1, max_size=60))
descending = counts.map(lambda values: sorted(values, reverse=True))
names = pytest.mark.parametrize("name", PACKING)
naive = pytest.mark.parametrize("name", ["first-fit", "fragmentation-minimization"])

EXAMPLE = [120, 85, 55, 50, 30, 25, 15, 5]
"""Eight keys with 385 tuples, as in Figure 5. The figure's own counts are lost in the text; these are chosen so that
all that the prose says of Figure 6 holds of them."""


def packed(name, values, n):
    """For each key its fragments, as (block, size)."""
    plan = PACKING[name](np.array(values, np.int32), n)
    pairs = list(zip(plan.blocks.tolist(), plan.sizes.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(plan.starts[:-1], plan.starts[1:], strict=True)]


def sizes_of(plan, n):
    return [sum(size for fragments in plan for block, size in fragments if block == b) for b in range(n)]


def cardinalities_of(plan, n):
    return [sum(block == b for fragments in plan for block, _ in fragments) for b in range(n)]


def fragmented(plan):
    return [key for key, fragments in enumerate(plan, start=1) if len(fragments) > 1]


@names
@given(values=counts, n=blocks)
def test_agrees_with_the_oracle(name, values, n):
    assert packed(name, values, n) == oracles.PACKING[name](values, n)


@names
@given(values=counts, n=blocks)
def test_every_record_is_in_one_fragment_and_no_block_has_two_of_a_key(name, values, n):
    for count, fragments in zip(values, packed(name, values, n), strict=True):
        assert sum(size for _, size in fragments) == count
        assert min(size for _, size in fragments) >= 1
        assert len({block for block, _ in fragments}) == len(fragments)


@given(counts, blocks)
def test_zigzag_exceeds_no_block_by_more_than_the_cutoff_in_any_order(values, n):
    cutoff = split_cutoff(sum(values), len(values), n)
    assert max(sizes_of(packed("zigzag", values, n), n)) - sum(values) / n <= max(1, cutoff)


@given(descending, blocks)
def test_zigzag_makes_blocks_of_a_sorted_list_equal_within_the_cutoff(values, n):
    sizes = sizes_of(packed("zigzag", values, n), n)
    assert max(sizes) - min(sizes) <= max(1, split_cutoff(sum(values), len(values), n))


@given(counts, blocks)
def test_zigzag_splits_no_key_up_to_the_cutoff(values, n):
    cutoff = split_cutoff(sum(values), len(values), n)
    assert all(values[key - 1] > cutoff for key in fragmented(packed("zigzag", values, n)))


@given(counts, blocks)
def test_zigzag_gives_each_block_as_many_keys_before_the_residuals(values, n):
    """Each key's first fragment is where it was dealt out: within one key of equal cardinality."""
    dealt = np.bincount([fragments[0][0] for fragments in packed("zigzag", values, n)], minlength=n)
    assert dealt.max() - dealt.min() <= 1


@naive
@given(values=counts, n=blocks)
def test_the_naive_ways_cut_at_most_once_per_block(name, values, n):
    assert sum(map(len, packed(name, values, n))) - len(values) <= n - 1


@naive
@given(values=counts, n=blocks)
def test_the_naive_ways_make_blocks_of_exactly_equal_size(name, values, n):
    assert sizes_of(packed(name, values, n), n) == capacities(sum(values), n).tolist()


def test_the_worked_example_of_figure_6_has_its_blocks():
    assert sum(EXAMPLE) == 385
    ffd, minimal, ours = (packed(name, EXAMPLE, 4) for name in ("first-fit", "fragmentation-minimization", "zigzag"))
    for plan in (ffd, minimal, ours):
        assert sizes_of(plan, 4) == [97, 96, 96, 96]
    assert (fragmented(ffd), fragmented(minimal), fragmented(ours)) == ([1, 2, 4], [1], [1, 2])
    for plan in (ffd, minimal):  # B_4 has at least twice the items that the others have on average
        assert cardinalities_of(plan, 4)[3] >= 2 * sum(cardinalities_of(plan, 4)[:3]) / 3
    assert cardinalities_of(ours, 4) == [3, 2, 3, 3]


def test_algorithm_2_gives_the_blocks_worked_out_by_hand():
    """S_Cut = 20 / 5 = 4: keys 1 and 2 leave 4 each in blocks 1 and 2, and 3 and 2 for later.

    Key 3 goes to block 3, and on the way back, keys 4 and 5 to blocks 3 and 2. The blocks then have 4, 5 and 6 of 7, 7
    and 6, so that the residuals of keys 2 and 1 just fit into their own blocks.
    """
    assert packed("zigzag", [7, 6, 4, 2, 1], 3) == [[(0, 7)], [(1, 6)], [(2, 4)], [(2, 2)], [(1, 1)]]


@names
@pytest.mark.parametrize(
    ("values", "n", "sizes"),
    [
        ([9], 1, [9]),  # one key, one block
        ([1], 4, [1, 0, 0, 0]),  # one record
        ([10], 4, [3, 3, 2, 2]),  # one key over all blocks
        ([50, 50], 4, [25, 25, 25, 25]),  # fewer keys than blocks
        ([2, 1], 8, [1, 1, 1, 0, 0, 0, 0, 0]),  # fewer records than blocks
        ([1, 1, 1, 1, 1, 1], 3, [2, 2, 2]),  # keys that come once
    ],
)
def test_keys_fill_blocks_also_at_the_edges(name, values, n, sizes):
    assert sorted(sizes_of(packed(name, values, n), n), reverse=True) == sizes


def test_a_key_of_nearly_everything_goes_to_as_few_blocks_as_can_be():
    plan = packed("zigzag", [80, 5, 5, 5, 5], 4)
    assert sizes_of(plan, 4) == [25, 25, 25, 25]
    assert len(plan[0]) == 4
    assert fragmented(plan) == [1]


def test_counts_near_the_limit_do_not_overflow():
    most = 2**31 - 1
    plan = zigzag(np.array([most - 5, 5], np.int32), 3)
    assert np.bincount(plan.blocks, plan.sizes).tolist() == capacities(most, 3).tolist()
