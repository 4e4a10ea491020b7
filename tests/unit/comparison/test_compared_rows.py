"""Rows of two versions side by side, against counters of Python's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.changes import WEIGHT
from millrace_jobs.comparison.kept_results import KeptOutput
from millrace_jobs.comparison.rows import ComparedRows, FinalRows, compare_rows, final_rows
from millrace_jobs.sinks.base import ADMITTED

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("v", pa.float64())])
TOLERANCE = 1e-9

KEYS = st.sampled_from(["a", "b", "c", None])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-12, 2.0, float("nan"), None])
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 2), FLOATS), max_size=12)
KEYED = st.dictionaries(KEYS, st.tuples(st.integers(0, 2), FLOATS), max_size=4)


def table(rows: Sequence[Sequence[Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def near(value: float | None) -> str:
    """A text that only floats share that are equal within the tolerance."""
    return "null" if value is None else f"{value + 0.0:.6f}"


def compared(old: Sequence[Any], new: Sequence[Any], key: tuple[str, ...] | None = None) -> ComparedRows:
    return compare_rows(FinalRows(table(old), key), FinalRows(table(new), key), tolerance=TOLERANCE)


@given(ROWS, ROWS)
def test_rows_without_a_key_are_equal_if_both_have_them_equally_often(old: list[Any], new: list[Any]) -> None:
    counts = [Counter((key, n, near(value)) for key, n, value in rows) for rows in (old, new)]
    found = compared(old, new)
    assert len(found.only_old) == (counts[0] - counts[1]).total()
    assert len(found.only_new) == (counts[1] - counts[0]).total()
    assert not len(found.changed[0])


@given(KEYED, KEYED)
def test_rows_with_a_key_are_compared_column_by_column(old: dict[Any, Any], new: dict[Any, Any]) -> None:
    first, second = ([(key, *row) for key, row in rows.items()] for rows in (old, new))
    found = compared(first, second, ("k",))
    names = [found.old.column("k")[int(index)].as_py() for index in found.only_old]
    assert Counter(names) == Counter(old.keys() - new.keys())
    names = [found.new.column("k")[int(index)].as_py() for index in found.only_new]
    assert Counter(names) == Counter(new.keys() - old.keys())
    both = old.keys() & new.keys()
    numbers = {key for key in both if old[key][0] != new[key][0]}
    values = {key for key in both if near(old[key][1]) != near(new[key][1])}
    changed = [found.old.column("k")[int(index)].as_py() for index in found.changed[0]]
    for name, expected in (("n", numbers), ("v", values)):
        differs = found.columns.get(name)
        assert {key for place, key in enumerate(changed) if differs is not None and differs[place]} == expected
    assert Counter(changed) == Counter(numbers | values)


def test_rows_without_a_key_are_not_equal_because_of_values_between_them() -> None:
    """Each value is near the next one, and the first is far from the last."""
    values = [1.0 + place * 0.9e-9 for place in range(5)]
    old, new = [("a", 0, value) for value in values], [("a", 0, values[0]), *[("a", 0, value) for value in values[:4]]]
    found = compared(old, new)
    assert (len(found.only_old), len(found.only_new)) == (1, 1)


def test_a_column_may_have_another_type_and_be_ignored() -> None:
    old = FinalRows(pa.table({"k": ["a", "b"], "n": [1, 2]}), ("k",))
    new = FinalRows(pa.table({"k": ["a", "b"], "n": [1.0, 2.5]}), ("k",))
    assert list(compare_rows(old, new, tolerance=0).changed[0]) == [1]
    assert compare_rows(old, new, ignored=["n"], tolerance=0).are_equal
    text = FinalRows(pa.table({"k": ["a", "b"], "n": ["1", "x"]}), ("k",))
    assert list(compare_rows(old, text, tolerance=0).changed[0]) == [1]


def test_versions_with_other_keys_are_compared_by_whole_rows() -> None:
    old, new = FinalRows(table([("a", 1, 1.0)]), ("k",)), FinalRows(table([("a", 1, 2.0)]), ("n",))
    found = compare_rows(old, new, tolerance=0)
    assert found.key is None
    assert (len(found.only_old), len(found.only_new)) == (1, 1)


def output(key: tuple[str, ...] | None, *, updates: bool = True) -> KeptOutput:
    return KeptOutput("spec", dict.fromkeys(SCHEMA.names, ""), key, updates, versioned=False)


@given(st.lists(KEYED, max_size=4))
def test_the_last_row_of_a_key_counts_where_rows_are_updated(batches: list[dict[Any, Any]]) -> None:
    tables = [table([(key, *row) for key, row in batch.items()]) for batch in batches]
    expected = {key: row for batch in batches for key, row in batch.items()}
    found = final_rows(tables, output(("k",)), SCHEMA.empty_table()).rows.to_pylist()
    assert Counter(repr((row["k"], (row["n"], row["v"]))) for row in found) == Counter(map(repr, expected.items()))
    kept = final_rows(tables, output(("k",), updates=False), SCHEMA.empty_table()).rows
    assert kept.num_rows == sum(map(len, batches))


def test_a_row_that_is_not_admitted_takes_the_earlier_one_back() -> None:
    schema = SCHEMA.append(pa.field(ADMITTED, pa.bool_()))
    batches = [table([("a", 1, 1.0, True), ("b", 1, 1.0, True)], schema), table([("a", 2, 1.0, False)], schema)]
    found = final_rows(batches, output(("k",)), SCHEMA.empty_table()).rows
    assert found.to_pylist() == [{"k": "b", "n": 1, "v": 1.0}]


def test_changes_are_summed_up_and_a_removal_of_an_older_row_is_kept() -> None:
    schema = SCHEMA.append(pa.field(WEIGHT, pa.int64()))
    batches = [
        table([("a", 1, 1.0, 1), ("c", 9, 1.0, -1)], schema),
        table([("a", 1, 1.0, -1), ("a", 2, 1.0, 1)], schema),
    ]
    found = final_rows(batches, output(("k",)), SCHEMA.empty_table())
    rows = {(row["k"], row["n"], row[WEIGHT]) for row in found.rows.to_pylist()}
    assert rows == {("a", 2, 1), ("c", 9, -1)}
    assert compare_rows(found, found, tolerance=0).are_equal
