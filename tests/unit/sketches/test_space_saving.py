from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.sketches.space_saving import SpaceSaving
from unit.partitioners.oracles_space_saving import PlainSpaceSaving, counters

keys = st.one_of(st.lists(st.integers(0, 9), max_size=150), st.lists(st.integers(0, 2**64 - 1), max_size=60))
capacities = st.integers(1, 12)


def summary_of(stream, capacity):
    summary = SpaceSaving(capacity)
    summary.add(np.array(stream, np.uint64))
    return summary


def assert_bounds(summary, true, slack=0):
    """What the module promises, given the true number of records by key."""
    counted = {key: (count, error) for key, count, error in counters(summary)}
    assert list(summary.counts) == sorted(summary.counts, reverse=True)
    assert summary.missed <= summary.total / summary.capacity
    for key, records in true.items():
        if key in counted:
            count, error = counted[key]
            assert count - error <= records <= count
            assert error <= summary.missed + slack
        else:
            assert records <= summary.missed


@given(keys, capacities)
def test_agrees_with_the_plain_list_record_by_record(stream, capacity):
    summary, plain = SpaceSaving(capacity), PlainSpaceSaving(capacity)
    for key in stream:
        summary.add(np.array([key], np.uint64))
        plain.add(key)
        assert counters(summary) == plain.counters
        assert (summary.total, summary.missed, len(summary)) == (plain.total, plain.missed, len(plain.counters))


@pytest.mark.parametrize("spread", [1, 2**40])
def test_agrees_with_the_plain_list_when_the_table_is_crowded(spread):
    stream = np.random.default_rng(1).zipf(1.1, 6000).astype(np.uint64) * np.uint64(spread)
    summary, plain = summary_of(stream, 700), PlainSpaceSaving(700)
    for key in stream.tolist():
        plain.add(key)
    assert counters(summary) == plain.counters


@given(keys, capacities)
def test_counts_are_too_high_by_at_most_what_the_capacity_allows(stream, capacity):
    summary, true = summary_of(stream, capacity), Counter(stream)
    assert_bounds(summary, true)
    frequent = {key for key, records in true.items() if records > len(stream) / capacity}
    assert frequent <= set(summary.keys.tolist())
    assert all(count - true[key] <= len(stream) / capacity for key, count, _ in counters(summary))
    assert summary.counts.sum() == len(stream)


@given(keys)
def test_with_room_for_all_keys_counts_are_exact(stream):
    summary = summary_of(stream, 200)
    assert dict(zip(summary.keys.tolist(), summary.counts.tolist(), strict=True)) == Counter(stream)
    assert summary.missed == 0
    assert not summary.errors.any()


@given(st.lists(keys, min_size=1, max_size=4), keys, capacities)
def test_merging_keeps_the_bounds_also_for_what_comes_later(streams, later, capacity):
    first, *others = (summary_of(stream, capacity) for stream in streams)
    first.merge(others)
    first.add(np.array(later, np.uint64))
    whole = [key for stream in [*streams, later] for key in stream]
    assert first.total == len(whole)
    assert_bounds(first, Counter(whole))


def test_merging_nothing_changes_nothing():
    summary = summary_of([3, 1, 2, 2], 3)
    before = counters(summary)
    summary.merge([])
    assert counters(summary) == before == [[2, 2, 0], [1, 1, 0], [3, 1, 0]]


@given(keys, keys, capacities, st.integers(1, 5))
def test_ageing_keeps_the_bounds_of_the_aged_stream(before, after, capacity, divisor):
    summary = summary_of(before, capacity)
    summary.age(divisor)
    summary.add(np.array(after, np.uint64))
    true = Counter({key: records // divisor for key, records in Counter(before).items()}) + Counter(after)
    assert summary.total == len(before) // divisor + len(after)
    assert_bounds(summary, true, slack=1)


def test_ageing_forgets_keys_below_a_share():
    summary = summary_of([1] * 12 + [2] * 6 + [3] * 2, 10)
    summary.age(2, share=0.3)
    assert counters(summary) == [[1, 6, 0], [2, 3, 0]]
    assert (summary.total, summary.missed) == (10, 1)


@given(keys, keys, capacities, capacities)
def test_resizing_keeps_the_most_frequent_keys(before, after, capacity, resized):
    summary = summary_of(before, capacity)
    kept = counters(summary)[:resized]
    summary.resize(resized)
    assert counters(summary) == kept
    assert summary.capacity == resized
    assert summary.missed <= len(before) / min(capacity, resized)
    summary.add(np.array(after, np.uint64))
    for key, records in Counter(before + after).items():
        found = {counter[0]: counter for counter in counters(summary)}.get(key)
        assert records <= (found[1] if found else summary.missed)
        assert not found or found[1] - found[2] <= records


@given(keys, keys, capacities)
def test_a_restored_summary_goes_on_without_interruption(before, after, capacity):
    running = summary_of(before, capacity)
    restored = SpaceSaving.restored(capacity, running.vectors())
    for summary in (running, restored):
        summary.add(np.array(after, np.uint64))
    assert counters(restored) == counters(running)
    assert (restored.total, restored.missed) == (running.total, running.missed)


def test_a_summary_takes_24_bytes_a_key():
    vectors = summary_of(range(5000), 1000).vectors()
    assert sum(vector.nbytes for vector in vectors.values()) == 24 * 1000 + 16


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            {"keys": [1, 2, 3]},
            "3 keys, 2 counts, 2 errors and 2 totals do not make a space-saving summary of 2 counters",
        ),
        ({"totals": [9]}, "2 keys, 2 counts, 2 errors and 1 totals do not"),
        ({"keys": [1, 1]}, "counts a key twice"),
        ({"counts": [2, 4]}, "contradict each other"),
        ({"counts": [10, 4]}, "contradict each other"),
        ({"counts": [4, 0]}, "contradict each other"),
        ({"errors": [5, 0]}, "contradict each other"),
        ({"errors": [-1, 0]}, "contradict each other"),
        ({"totals": [9, -1]}, "contradict each other"),
        ({"totals": [9, 3]}, "contradict each other"),
        ({"totals": [2**57, 0]}, "contradict each other"),
    ],
)
def test_vectors_that_are_no_summary_are_refused(damage, message):
    sound = {"keys": [1, 2], "counts": [4, 2], "errors": [1, 1], "totals": [9, 1]}
    vectors = {name: np.array(vector, np.int64) for name, vector in sound.items()}
    assert counters(SpaceSaving.restored(2, vectors)) == [[1, 4, 1], [2, 2, 1]]
    with pytest.raises(ValueError, match=message):
        SpaceSaving.restored(2, vectors | {name: np.array(vector, np.int64) for name, vector in damage.items()})
    with pytest.raises(ValueError, match="do not make a space-saving summary"):
        SpaceSaving.restored(1, vectors)
