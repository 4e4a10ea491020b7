import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kernels.compiling import kernel
from millrace_jobs.kernels.key_table import empty_table, find, find_from, grown, is_empty, is_full, rows_of

keys = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1)), max_size=50)


@kernel
def count(table, keys):
    """Count each key in the last word of its value."""
    held = 0
    for key in keys:
        slot = find(table, key)
        held += is_empty(table, slot)
        table[slot, 0] = key
        table[slot, -1] += np.uint64(1)
        if is_full(len(table), held):
            table = grown(table)
    return table


def counted(stream):
    return {int(key): stream.count(key) for key in sorted(set(stream))}


@given(keys, st.integers(1, 3))
def test_a_table_holds_what_a_dict_holds(stream, words):
    rows = rows_of(count(empty_table(0, words), np.array(stream, np.uint64)))
    assert dict(zip(rows[:, 0].tolist(), rows[:, -1].tolist(), strict=True)) == counted(stream)
    assert rows[:, 0].tolist() == sorted(set(stream))
    assert not rows[:, 1:-1].any()


def test_a_table_is_filled_to_at_most_three_quarters():
    stream = np.random.default_rng(0).integers(0, 2**64 - 1, 10_000, np.uint64)
    table = count(empty_table(0, 1), np.concatenate([stream, stream]))
    assert len(table) == 16_384
    assert rows_of(table)[:, 0].tolist() == sorted(stream.tolist())
    assert (rows_of(table)[:, 1] == 2).all()
    assert len(empty_table(12_288, 1)) == 16_384
    assert len(empty_table(12_289, 1)) == 32_768


@given(keys, keys)
def test_a_slot_found_before_other_keys_came_still_leads_to_the_key(first, second):
    table = count(empty_table(0, 1), np.array(first, np.uint64))
    slots = [find(table, np.uint64(key)) for key in second]
    table = count(table, np.array([1, 2, *second], np.uint64))
    for key, slot in zip(second, slots, strict=True):
        assert table[find_from(table, np.uint64(key), slot), 0] == key
