"""Aggregators that come with Millrace keep the laws of aggregators, and what their docstrings promise."""

from __future__ import annotations

import math
import re
from collections import Counter
from functools import reduce

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.aggregates.library import Histogram, Latest, Quantiles, TopK
from millrace_jobs.aggregates.testing import broken_law

WORDS = st.lists(st.lists(st.none() | st.text("abcdef", min_size=1, max_size=2), max_size=12), min_size=3, max_size=3)
NUMBERS = st.lists(st.lists(st.none() | st.floats(width=32), max_size=12), min_size=3, max_size=3)


def batches(divided, kind):
    return [pa.RecordBatch.from_arrays([pa.array(values, kind)], ["value"]) for values in divided]


def result(aggregator, divided, kind):
    """Return the result of batches whose states are merged."""
    states = [aggregator.update(aggregator.init(), batch) for batch in batches(divided, kind)]
    (found,) = aggregator.finish(reduce(aggregator.merge, states)).values()
    return found


@given(WORDS)
def test_the_most_frequent_values_are_exact_up_to_the_capacity(divided):
    counts = Counter(value for values in divided for value in values if value is not None)
    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    found = result(TopK(3), divided, pa.string())
    assert [(each["value"], each["count"], each["at_most"]) for each in found] == [(v, n, n) for v, n in best]
    assert broken_law(TopK(3), batches(divided, pa.string())) is None


@given(WORDS, st.integers(1, 4))
def test_beyond_the_capacity_counts_are_between_their_limits_and_frequent_values_are_kept(divided, capacity):
    counts = Counter(value for values in divided for value in values if value is not None)
    slack = counts.total() / (capacity + 1)
    found = {each["value"]: each for each in result(TopK(capacity, capacity=capacity), divided, pa.string())}
    for value, each in found.items():
        assert each["count"] <= counts[value] <= each["at_most"] <= each["count"] + slack
    assert all(value in found for value, count in counts.items() if count > slack)


@given(NUMBERS, st.sampled_from([0.001, 0.05, 0.5]))
def test_quantiles_are_within_their_relative_error_however_numbers_are_divided(divided, error):
    probabilities = [0, 0.1, 0.5, 0.99, 1]
    aggregator = Quantiles(probabilities, error, buckets=100_000)
    numbers = sorted(n for values in divided for n in values if n is not None and not math.isnan(n))
    found = result(aggregator, divided, pa.float64())
    assert broken_law(aggregator, batches(divided, pa.float64())) is None
    if not numbers:
        assert found is None
        return
    for p, value in zip(probabilities, found, strict=True):
        exact = numbers[math.floor(p * (len(numbers) - 1))]
        assert value == exact or abs(value - exact) <= error * abs(exact) * (1 + 1e-9), (p, value, exact)


@given(NUMBERS, st.integers(1, 5))
def test_few_buckets_keep_the_largest_numbers_exact_and_the_laws(divided, buckets):
    aggregator = Quantiles([1.0], 0.01, buckets)
    assert broken_law(aggregator, batches(divided, pa.float64())) is None
    state = reduce(aggregator.update, batches(divided, pa.float64()), aggregator.init())
    assert all(len(state[sign]) <= buckets + 1 for sign in ("positive", "negative"))


@given(NUMBERS)
def test_a_histogram_counts_each_number_in_its_range(divided):
    edges = [-1.0, 0.0, 2.5]
    numbers = [n for values in divided for n in values if n is not None and not math.isnan(n)]
    bounds = zip([-math.inf, *edges], [*edges, math.inf], strict=True)
    expected = [sum(low <= n < high or n == high == math.inf for n in numbers) for low, high in bounds]
    assert result(Histogram(edges), divided, pa.float64()) == expected
    assert broken_law(Histogram(edges), batches(divided, pa.float64())) is None


TIMED = st.lists(
    st.lists(st.tuples(st.none() | st.integers(-9, 9), st.none() | st.integers(0, 5)), max_size=6),
    min_size=3,
    max_size=3,
)


@given(TIMED)
def test_the_latest_value_is_that_of_the_last_record_by_time(divided):
    schema = pa.schema([("value", pa.int32()), ("at", pa.timestamp("us", tz="UTC"))])
    given = [
        pa.RecordBatch.from_arrays(
            [pa.array(values, f.type) for values, f in zip(columns, schema, strict=True)], schema=schema
        )
        for columns in ([[value for value, _ in each], [at for _, at in each]] for each in divided)
    ]
    known = [(at, value is not None, value or 0, value) for each in divided for value, at in each if at is not None]
    aggregator = Latest("BIGINT")
    states = [aggregator.update(aggregator.init(), batch) for batch in given]
    assert aggregator.finish(reduce(aggregator.merge, states)) == {"value": max(known)[3] if known else None}
    assert broken_law(aggregator, given) is None


DOUBLES = st.lists(
    st.lists(st.tuples(st.sampled_from([None, -1.0, -0.0, 0.0, 2.0, math.nan]), st.integers(0, 1)), max_size=5),
    min_size=3,
    max_size=3,
)


@given(DOUBLES)
def test_the_latest_double_does_not_depend_on_the_order_of_records(divided):
    given = [
        pa.record_batch(
            [pa.array([v for v, _ in each], pa.float64()), pa.array([t for _, t in each], pa.timestamp("us", "UTC"))],
            ["value", "at"],
        )
        for each in divided
    ]
    newest = max((at for each in divided for _, at in each), default=None)
    last = {repr(value) for each in divided for value, at in each if at == newest}
    expected = next((each for each in ("nan", "2.0", "0.0", "-0.0", "-1.0") if each in last), "None")
    aggregator = Latest("DOUBLE")
    states = [aggregator.update(aggregator.init(), batch) for batch in given]
    assert repr(aggregator.finish(reduce(aggregator.merge, states))["value"]) == expected
    assert broken_law(aggregator, given, lambda one, other: repr(one) == repr(other)) is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TopK(2.5), "k must be a whole number: 2.5"),
        (lambda: TopK(True), "k must be a whole number: True"),
        (lambda: TopK(capacity="9"), "capacity must be a whole number: '9'"),
        (lambda: Quantiles([0.5], buckets=2.0), "buckets must be a whole number: 2.0"),
        (lambda: Quantiles([True]), "probabilities must have numbers only: True"),
        (lambda: Quantiles([0.5], "0.1"), "error must be a number: '0.1'"),
        (lambda: Histogram(["1"]), "edges must have numbers only: '1'"),
        (lambda: TopK(0), "1 <= k <= capacity <= 100000 must hold: k is 0, capacity 1000"),
        (lambda: TopK(3, "DOUBLE"), "type must be STRING, BOOLEAN, DATE, a DECIMAL or an integer: DOUBLE"),
        (lambda: Latest("ARRAY<INT>"), "type must be that of a single value, and no TIMESTAMP: ARRAY<INT>"),
        (lambda: Quantiles([]), "probabilities must be numbers from 0 to 1: []"),
        (lambda: Quantiles([0.5], 0), "error must be from 0.001 to 0.5: 0"),
        (lambda: Quantiles([0.5], buckets=0), "buckets must be from 1 to 100000: 0"),
        (lambda: Histogram([2, 1]), "edges must be numbers in ascending order, fewer than 100000: [2, 1]"),
    ],
)
def test_options_out_of_range_are_refused(make, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        make()
