"""Aggregators beside Spark's own aggregates: workers reduce their states, and the operators on tables merge them."""

from __future__ import annotations

import math
from collections import defaultdict
from statistics import mean

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import MemoryStore
from millrace_api.errors import MillraceError
from millrace_jobs.aggregates.in_sql import SqlAggregator
from millrace_jobs.aggregates.reducing import ColumnarReduction, PartColumn
from millrace_jobs.changes import BEGINNING, FOREVER, WEIGHT, with_changes
from millrace_jobs.queries.tables.operators.aggregate import GroupedAggregate, MergedPart
from millrace_jobs.queries.tables.operators.merged_states import MergedStates
from millrace_jobs.windows import AT, Window

from . import aggregators

MOMENT = pa.timestamp("us", tz="UTC")
MEAN = SqlAggregator("mean_of", "aggregators:Mean", aggregators.Mean())
BLOCK = pa.schema([("k0", pa.string()), (AT, MOMENT), ("i0", pa.int64())])
WINDOW = Window("at", 6, 2)
"""Windows of six microseconds, one every two."""

Record = tuple[str, int, int]
"""Key, time in microseconds, value."""


def reduction(window: Window | None) -> ColumnarReduction:
    parts = (
        PartColumn("a0", "rows", "", pa.int64()),
        PartColumn("a1", "state", "", MEAN.state_type, MEAN, ("i0",)),
        PartColumn("a2", "max", "i0", pa.int64()),
    )
    return ColumnarReduction((BLOCK.field("k0"),), window, parts)


def partials(records: list[list[Record]], window: Window | None) -> pa.Table:
    """Return what one worker makes of blocks of records."""
    reducer = reduction(window)()
    for block in records:
        columns = [list(column) for column in zip(*block, strict=True)]
        reducer.add(
            pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, BLOCK, strict=True)], schema=BLOCK)
        )
        reducer.records()  # each block is reduced by itself, and then the states are
    return pa.concat_tables(reducer.partials())


def merged(batches: list[list[list[list[Record]]]], window: Window | None) -> dict[tuple, tuple]:
    """Return the last row of each group after batches, each of which has workers with blocks of records."""
    keys = [pa.field("k0", pa.string()), *([pa.field(AT, MOMENT)] if window else [])]
    parts = (MergedPart("a0", "sum", pa.int64()), MergedStates("a1", MEAN), MergedPart("a2", "max", pa.int64()))
    operator = GroupedAggregate(
        pa.schema(keys), parts, window_end=None, of_table=False, versions=False, final=False, slots=2
    )
    store, rows = MemoryStore(), {}
    names = [field.name for field in keys]
    for workers in batches:
        shipped = [partials(blocks, window) for blocks in workers if blocks]
        if not shipped:
            continue
        table = pa.concat_tables(shipped).select([*names, "a0", "a1", "a2"])
        one = np.ones(len(table), np.int64)
        changes = with_changes(table, 0 * one, FOREVER * one, one)
        for made in operator.process(store, [changes], BEGINNING).changes:
            for row in made.to_pylist():
                key = tuple(row[name] for name in names)
                if row[WEIGHT] > 0:
                    rows[key] = (row["a0"], row["a1"], row["a2"])
    return rows


def in_python(records: list[Record], window: Window | None) -> dict[tuple, tuple]:
    groups = defaultdict(list)
    for key, at, value in records:
        starts = [()] if window is None else [(at - at % 2 - 2 * back,) for back in range(3)]
        for start in starts:
            groups[key, *start].append(value)
    return {key: (len(values), mean(values), max(values)) for key, values in groups.items()}


RECORDS = st.tuples(st.sampled_from("abc"), st.integers(0, 11), st.integers(-9, 9))
BLOCKS = st.lists(st.lists(RECORDS, min_size=1, max_size=5), max_size=3)


@given(st.lists(st.lists(BLOCKS, max_size=3), max_size=3), st.sampled_from([None, WINDOW]))
def test_a_result_is_that_of_all_records_however_they_are_divided(batches, window):
    records = [record for workers in batches for blocks in workers for block in blocks for record in block]
    expected = in_python(records, window)
    found = {
        (k, *(math.floor(t.timestamp() * 1e6 + 0.5) for t in rest)): row
        for (k, *rest), row in merged(batches, window).items()
    }
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert found[key] == pytest.approx(row), key


def test_states_have_no_versions():
    with pytest.raises(
        ValueError, match="'a1' is merged by an aggregator, which keeps one version: set versions=False"
    ):
        GroupedAggregate(
            pa.schema([]), (MergedStates("a1", MEAN),), window_end=None, of_table=False, versions=True, final=False
        )


class Raises(aggregators.Mean):
    def merge(self, a, b):
        raise ValueError("no")


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (Raises, "failed in merge: ValueError: no (test_in_sql.py, line "),
        (aggregators.Mistyped, "does not keep to its schema: a state of the aggregator does not fit its state_schema"),
    ],
)
def test_what_its_code_does_wrong_is_reported_with_its_name(cls, said):
    broken = SqlAggregator("broken", "here:Broken", cls())
    numbers = pa.table({"v": pa.array([1, 2], pa.int64())})
    with pytest.raises(MillraceError) as refused:
        broken.reduced_again(broken.reduced(numbers, pa.array([[0], [1]])), pa.array([[0, 1]]))
    assert str(refused.value).startswith(f"spec.query.aggregates.broken: the aggregator broken (here:Broken) {said}")


def test_a_group_without_records_has_the_result_of_the_initial_state():
    assert MEAN.finished(pa.array([None, {"sum": 6, "count": 4}], MEAN.state_type)).to_pylist() == [None, 1.5]
