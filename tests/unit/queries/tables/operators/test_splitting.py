"""Units of hot keys: what each worker gets, whatever the order of the rows."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.hot_key_units import UnitPlacement
from millrace_jobs.queries.tables.operators.matching import KeyedPeriods, Overlap, key_codes
from millrace_jobs.queries.tables.operators.splitting import HotKeys, SplitSide

ROWS = st.lists(st.tuples(st.sampled_from(["hot", "warm", "cold", None]), st.integers(0, 9)), max_size=30)


def side(rows, reach=2):
    """Rows of a key and a time, which match those at most ``reach`` apart."""
    keys, times = zip(*rows, strict=True) if rows else ((), ())
    table = pa.table({"key": pa.array(keys, pa.string()), "at": pa.array(times, pa.int64())})
    starts = table.column("at").to_numpy()
    return table, starts - reach, starts + reach + 1


def hot_keys(left, right, chunk):
    """The hot keys of a bucket with these rows."""
    sides = side(left), side(right, reach=0)
    codes = key_codes([table for table, _, _ in sides], [["key"]] * 2)
    split = [
        SplitSide(table, KeyedPeriods(keys, starts, ends), ("key",))
        for keys, (table, starts, ends) in zip(codes, sides, strict=True)
    ]
    return HotKeys((split[0], split[1]), Overlap(split[0].keyed, split[1].keyed), chunk)


def placement(algorithm="shuffle", workers=3, task=0):
    return UnitPlacement(algorithm, workers=workers, task=task, tasks=4, seed=0, parameters={})


def contents(units):
    """The rows of each worker, in any order."""
    rows = lambda table: Counter(tuple(row.values()) for row in table.to_pylist())  # noqa: E731
    return {unit.worker: (rows(unit.left), rows(unit.right), unit.pairs) for unit in units}


@pytest.mark.parametrize("algorithm", ["shuffle", "pkg", "prompt"])
@given(left=ROWS, right=ROWS, chunk=st.integers(0, 5), data=st.data())
def test_the_units_do_not_depend_on_the_order_of_the_rows(algorithm, left, right, chunk, data):
    units = contents(hot_keys(left, right, chunk).units(placement(algorithm).place))
    shuffled = data.draw(st.permutations(left)), data.draw(st.permutations(right))
    assert contents(hot_keys(*shuffled, chunk).units(placement(algorithm).place)) == units


@given(left=ROWS, right=ROWS, chunk=st.integers(0, 5))
def test_a_unit_has_only_rows_that_match(left, right, chunk):
    hot = hot_keys(left, right, chunk)
    for unit in hot.units(placement().place):
        pairs = {(a["key"], a["at"], b["at"]) for a in unit.left.to_pylist() for b in unit.right.to_pylist()
                 if a["key"] == b["key"] and abs(a["at"] - b["at"]) <= 2}  # fmt: skip
        assert {(key, at) for key, at, _ in pairs} == {tuple(row.values()) for row in unit.left.to_pylist()}
        assert {(key, at) for key, _, at in pairs} == {tuple(row.values()) for row in unit.right.to_pylist()}


def test_only_keys_with_more_pairs_than_a_chunk_are_hot():
    hot = hot_keys([("hot", 0)] * 5 + [("warm", 0)] * 2, [("hot", 0)] * 2 + [("warm", 0)] * 2, chunk=4)
    assert hot.pairs == [10]
    assert (hot.left.sum(), hot.right.sum()) == (5, 2)


def test_a_hot_key_is_spread_evenly_and_the_smaller_side_copied():
    left, right = [("hot", i % 10) for i in range(1000)], [("hot", i) for i in range(10)]
    units = list(hot_keys(left, right, chunk=100).units(placement(workers=4).place))
    pairs = np.array([unit.pairs for unit in units])
    assert (len(units), pairs.sum()) == (4, sum(abs(i % 10 - j) <= 2 for i in range(1000) for j in range(10)))
    assert pairs.max() <= 1.1 * pairs.mean()
    assert sum(unit.left.num_rows for unit in units) == 1000
    assert sum(unit.right.num_rows for unit in units) <= 4 * 10


def test_time_limits_what_is_copied():
    rows = [("hot", i) for i in range(100_000)]
    units = list(hot_keys(rows, rows, chunk=10_000).units(placement(workers=4).place))
    assert len(units) == 4
    # each of the 50 chunks needs the rows at most two before and after it
    assert sum(unit.right.num_rows for unit in units) <= len(rows) + 4 * 51


def test_rows_with_nested_values_are_split_too():
    table, starts, ends = side([("hot", 0)] * 4)
    nested = table.append_column("tags", pa.array([[1], [2], [3], [4]]))
    codes = key_codes([nested, table], [["key"]] * 2)
    sides = (
        SplitSide(nested, KeyedPeriods(codes[0], starts, ends), ("key",)),
        SplitSide(table, KeyedPeriods(codes[1], starts, ends), ("key",)),
    )
    hot = HotKeys(sides, Overlap(sides[0].keyed, sides[1].keyed), 4)
    assert sum(unit.pairs for unit in hot.units(placement().place)) == 16
