"""Variances and deviations of rows that are taken back, against exact arithmetic."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import MemoryStore, changes_from
from millrace_jobs.changes import BEGINNING, FOREVER
from millrace_jobs.queries.tables.operators.aggregate import DeviationPart, GroupedAggregate

FUNCTIONS = ("stddev_samp", "stddev_pop", "var_samp", "var_pop")
NO_KEYS = pa.schema([])
STAMPS = st.floats(1.7e9, 1.7e9 + 100, allow_nan=False)
VALUES = (
    st.none() | STAMPS | st.integers(-3, 3).map(float) | st.sampled_from([float("nan"), float("inf"), 1e200, -1e-200])
)


def operator(versions=False):
    parts = tuple(DeviationPart(function, function) for function in FUNCTIONS)
    return GroupedAggregate(NO_KEYS, parts, None, of_table=True, versions=versions, final=False, slots=1)


def exact(values, function):
    """Return a function of floats by exact arithmetic, which rounds at the end."""
    values = [each for each in values if each is not None]
    divisor = len(values) - function.endswith("samp")
    if divisor <= 0:
        return None
    if not all(np.isfinite(each) and np.isfinite(each * each) for each in values):
        return float("nan")
    mean = sum(map(Fraction, values)) / len(values)
    variance = sum((Fraction(each) - mean) ** 2 for each in values) / divisor
    return float(variance) if function.startswith("var") else sqrt(variance)


def are_near(found, values):
    """Whether results are those of exact arithmetic but for the last digits."""
    expected = [exact(values, function) for function in FUNCTIONS]
    return len(found) == len(expected) and all(
        one is other if None in (one, other) else one == pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True)
        for one, other in zip(found, expected, strict=True)
    )


def deviations(aggregate, store, added, removed):
    """Process rows, and return the newest result of each function; None if nothing has changed."""
    rows = [(*[value] * len(FUNCTIONS), 0, FOREVER, 1) for value in added]
    rows += [(*[value] * len(FUNCTIONS), 0, FOREVER, -1) for value in removed]
    changes = [changes_from(rows, aggregate.inputs[0])]
    found = [row for table in aggregate.process(store, changes, BEGINNING).changes for row in table.to_pylist()]
    added = [row for row in found if row["millrace_weight"] > 0]
    return [added[0][function] for function in FUNCTIONS] if added else None


@given(batches=st.lists(st.lists(VALUES, max_size=8), min_size=1, max_size=5), data=st.data())
def test_deviations_of_the_rows_that_remain_have_their_digits(batches, data):
    aggregate, store, rows, found = operator(), MemoryStore(), [], None
    for batch in batches:
        removed = [each for each in rows if data.draw(st.booleans())]
        for each in removed:
            rows.remove(each) if each == each else rows.pop(next(i for i, row in enumerate(rows) if row != row))
        rows += batch
        found = deviations(aggregate, store, batch, removed) or found
        if rows:
            assert are_near(found, rows)
        else:
            assert not store.tables


def test_deviations_of_large_values_are_not_lost_in_their_squares():
    aggregate, store = operator(), MemoryStore()
    random = np.random.default_rng(5)
    values = (1e10 + random.normal(0, 0.5, 1000)).tolist()
    assert are_near(deviations(aggregate, store, values, []), values)
    assert are_near(deviations(aggregate, store, [], values[:990]), values[990:])


def test_values_without_a_finite_square_make_nan_until_they_are_taken_back():
    aggregate, store = operator(), MemoryStore()
    assert deviations(aggregate, store, [1.0], []) == [None, 0.0, None, 0.0]
    assert str(deviations(aggregate, store, [1e200, float("inf")], [])) == str([float("nan")] * 4)
    assert deviations(aggregate, store, [3.0], [1e200, float("inf")]) == [sqrt(2), 1.0, 2.0, 1.0]


@given(batches=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(-4, 4).map(float)), max_size=6), max_size=4))
def test_every_version_has_the_deviation_of_its_rows(batches):
    aggregate, store, rows, held = operator(versions=True), MemoryStore(), [], {}
    for batch in batches:
        rows += batch
        changes = [(*[value] * len(FUNCTIONS), time, FOREVER, 1) for time, value in batch]
        for table in aggregate.process(store, [changes_from(changes, aggregate.inputs[0])], BEGINNING).changes:
            for *row, weight in zip(*(column.to_pylist() for column in table.columns), strict=True):
                held[tuple(row)] = held.get(tuple(row), 0) + weight
        for time in range(10):
            versions = [row[:4] for row, weight in held.items() if weight and row[4] <= time < row[5]]
            values = [value for start, value in rows if start <= time]
            assert len(versions) == bool(values)
            assert all(are_near(version, values) for version in versions)
