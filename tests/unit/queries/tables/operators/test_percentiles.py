"""Percentiles of rows that are taken back, which DuckDB computes of the rows that remain."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import MemoryStore, changes_from
from millrace_jobs.changes import BEGINNING, FOREVER
from millrace_jobs.queries.tables.operators.aggregate import CountedPart, GroupedAggregate
from millrace_jobs.queries.tables.operators.counted_values import OrderedRows

FRACTIONS = (0.0, 0.25, 0.5, 0.9, 1.0)
NO_KEYS = pa.schema([])
VALUES = st.none() | st.integers(-5, 5).map(float) | st.sampled_from([0.5, 1e300, float("inf")])


def operator():
    parts = [
        CountedPart(f"p{number}", "percentile", pa.float64(), fraction=each) for number, each in enumerate(FRACTIONS)
    ]
    parts += [
        CountedPart(f"a{number}", "percentile_approx", pa.float64(), fraction=each)
        for number, each in enumerate(FRACTIONS)
    ]
    return GroupedAggregate(NO_KEYS, tuple(parts), None, of_table=True, versions=False, final=False, slots=1)


def in_duckdb(rows):
    functions = [f"quantile_cont(v, {each})" for each in FRACTIONS] + [
        f"quantile_disc(v, {each})" for each in FRACTIONS
    ]
    table = pa.table({"v": pa.array(rows, pa.float64())})
    with duckdb.connect() as connection:
        connection.register("t", table)
        return connection.execute(f"SELECT {', '.join(functions)} FROM t").fetchone()


@given(batches=st.lists(st.lists(VALUES, max_size=6), min_size=1, max_size=4), data=st.data())
def test_percentiles_are_those_of_the_rows_that_remain(batches, data):
    aggregate, store, rows, found = operator(), MemoryStore(), [], None
    for batch in batches:
        removed = [each for each in rows if data.draw(st.booleans())]
        for each in removed:
            rows.remove(each)
        rows += batch
        changes = [(*[value] * 2 * len(FRACTIONS), 0, FOREVER, 1) for value in batch]
        changes += [(*[value] * 2 * len(FRACTIONS), 0, FOREVER, -1) for value in removed]
        for table in aggregate.process(store, [changes_from(changes, aggregate.inputs[0])], BEGINNING).changes:
            found = next((row for row in table.to_pylist() if row["millrace_weight"] > 0), found)
        if rows:
            assert list(found.values())[:-3] == pytest.approx(in_duckdb(rows), nan_ok=True)
        else:
            assert not store.tables


def test_columns_of_the_same_values_share_them():
    parts = (CountedPart("p", "min", pa.int64()), CountedPart("q", "max", pa.int64(), values_of="p"))
    aggregate, store = GroupedAggregate(NO_KEYS, parts, None, True, False, False, slots=1), MemoryStore()
    rows = [(value, value, 0, FOREVER, 1) for value in range(100)]
    assert aggregate.process(store, [changes_from(rows, aggregate.inputs[0])], BEGINNING).kept == 101
    (found,) = aggregate.process(
        store, [changes_from([(0, 0, 0, FOREVER, -1)], aggregate.inputs[0])], BEGINNING
    ).changes
    assert [(row["p"], row["q"]) for row in found.to_pylist()] == [(0, 99), (1, 99)]
    with pytest.raises(ValueError, match="'q' shares the values of 'p', which has not all values"):
        GroupedAggregate(NO_KEYS, (CountedPart("p", "min", pa.int64(), 0), parts[1]), None, False, False, False)


def test_a_percentile_has_a_fraction_of_a_type_with_an_order():
    with pytest.raises(ValueError, match=r"from 0 to 1: 1.5"):
        CountedPart("p", "percentile", pa.float64(), fraction=1.5)
    with pytest.raises(ValueError, match="cast it to double"):
        CountedPart("p", "percentile", pa.int64())
    with pytest.raises(ValueError, match="set settles_after=None"):
        CountedPart("p", "count_distinct", pa.int64(), settles_after=0)


VERSIONS = 8
VALUE = st.tuples(st.integers(0, VERSIONS - 1), st.integers(1, VERSIONS), st.integers(0, 20), st.integers(1, 3))


@given(st.lists(VALUE, max_size=12))
def test_rows_of_versions_are_in_the_order_that_a_list_of_each_version_has(values):
    spans = [(first, min(first + length, VERSIONS), rank, count) for first, length, rank, count in values]
    arrays = np.array(spans, np.int64).reshape(-1, 4).T
    ordered = OrderedRows(*arrays, VERSIONS)
    listed = [
        sorted(rank for first, last, rank, count in spans if first <= version < last for _ in range(count))
        for version in range(VERSIONS)
    ]
    assert ordered.rows.tolist() == [len(ranks) for ranks in listed]
    versions = np.repeat(np.arange(VERSIONS), ordered.rows)
    places = np.concatenate([np.arange(rows) for rows in ordered.rows])
    assert ordered.ranks_at(versions, places).tolist() == [rank for ranks in listed for rank in ranks]
