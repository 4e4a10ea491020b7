from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from event_time import starts_of_windows_with
from millrace_api.errors import MillraceError
from millrace_jobs.aggregates import reducing
from millrace_jobs.aggregates.reducing import RECORDS, ColumnarReduction, PartColumn
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.windows import AT, Window

MONEY = pa.decimal128(10, 2)
RECORD = pa.schema(
    [("k0", pa.string()), ("k1", pa.float64()), (AT, pa.timestamp("us", tz="UTC")), ("i", pa.int64()),
     ("h", pa.int16()), ("f", pa.float32()), ("d", pa.float64()), ("s", pa.string()), ("p", pa.bool_()), ("c", MONEY)]
)  # fmt: skip

DOUBLES = st.sampled_from([0.0, -0.0, 1.0, -2.5, 0.25, 1e6, float("nan"), float("inf"), float("-inf")])
RECORDS_OF = st.fixed_dictionaries(
    {
        "k0": st.sampled_from(["a", "b", "", None]),
        "k1": st.sampled_from([0.0, -0.0, 1.0, float("nan"), None]),
        AT: st.integers(-50, 50),
        "i": st.integers(-(10**6), 10**6) | st.none(),
        "h": st.integers(-(2**15), 2**15 - 1) | st.none(),
        "f": DOUBLES | st.none(),
        "d": DOUBLES | st.none(),
        "s": st.text("abé", max_size=2) | st.none(),
        "p": st.booleans() | st.none(),
        "c": st.integers(-(10**10) + 1, 10**10 - 1).map(lambda cents: Decimal(cents) / 100) | st.none(),
    }
)
STREAMS = st.lists(st.lists(RECORDS_OF, max_size=12), max_size=5)

SUMS = {"i": pa.int64(), "h": pa.int64(), "f": pa.float64(), "d": pa.float64(), "c": pa.decimal128(20, 2)}
PARTS = (
    PartColumn("rows", "rows", "", pa.int64()),
    *(PartColumn(f"count {name}", "count", name, pa.int64()) for name in "ihfdspc"),
    *(PartColumn(f"sum {name}", "sum", name, kind) for name, kind in SUMS.items()),
    *(PartColumn(f"{way} {name}", way, name, RECORD.field(name).type) for way in ("min", "max") for name in "ihfdspc"),
    *(PartColumn(f"has_nan {name}", "has_nan", name, pa.bool_()) for name in "fd"),
    *(PartColumn(f"distinct {name}", "distinct", name, RECORD.field(name).type) for name in "ids"),
)


def plain(value):
    """A value for which == means what it does to Spark: one NaN, one zero."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


def reduced(reduction, stream, pending=reducing.PENDING_RECORDS, expanded=reducing.EXPANDED_ROWS):
    """A reducer and its partial results: records reduced ``pending`` and panes ``expanded`` at a time."""
    reducer = reduction()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reducing, "PENDING_RECORDS", pending)
        patch.setattr(reducing, "EXPANDED_ROWS", expanded)
        for rows in stream:
            reducer.add(pa.RecordBatch.from_pylist(rows, schema=RECORD))
        tables = list(reducer.partials())
        return reducer, pa.concat_tables(tables) if tables else reduction.schema.empty_table()


def by_group(rows, keys, starts):
    """Rows by key and window; ``starts`` has for each row those of its windows."""
    groups = defaultdict(list)
    for row, windows in zip(rows, starts, strict=True):
        for start in windows:
            groups[(*(plain(row[key]) for key in keys), start)].append(row)
    return dict(groups)


def windows_of(rows, window):
    """The starts of the windows of each record."""
    return [starts_of_windows_with(row[AT], window) if window else [None] for row in rows]


def starts_of(partials, window):
    """What each partial result says where its window starts."""
    if window is None:
        return [[None]] * partials.num_rows
    return [[start] for start in partials.column(AT).cast(pa.int64()).to_pylist()]


def expected(part, rows):
    """The part of these records, by the definition of the aggregate."""
    if part.reduce == "rows":
        return len(rows)
    values = [row[part.column] for row in rows if row[part.column] is not None]
    if part.reduce == "count":
        return len(values)
    if part.reduce == "distinct":
        return {plain(value) for value in values}
    if not values:
        return None
    if part.reduce == "sum":
        return plain(sum(values[1:], values[0]))
    if part.reduce == "has_nan":
        return any(value != value for value in values)
    numbers = [value for value in values if value == value]
    if not numbers:
        return "NaN"
    return plain(min(numbers) if part.reduce == "min" else max(numbers))


def merged(part, values):
    """Partial results put together, as Spark's state does."""
    known = [value for value in values if value is not None]
    if part.reduce == "distinct":
        return {plain(value) for value in known}
    if part.reduce in ("rows", "count", "sum"):
        return plain(sum(known[1:], known[0])) if known else None
    numbers = [value for value in known if value == value]
    if known and not numbers:
        return "NaN"
    return plain((min if part.reduce == "min" else max)(numbers)) if numbers else None


@pytest.mark.parametrize("window", [None, Window(AT, 20, 10), Window(AT, 7, 3, 1)], ids=["no window", "20/10", "7/3"])
@pytest.mark.parametrize("keys", [[], ["k0"], ["k1", "k0"]], ids=["no key", "one key", "two keys"])
@settings(max_examples=40)
@given(stream=STREAMS, pending=st.integers(1, 30), expanded=st.integers(1, 60))
def test_every_part_is_what_its_definition_says(keys, window, stream, pending, expanded):
    reduction = ColumnarReduction(tuple(RECORD.field(key) for key in keys), window, PARTS)
    reducer, partials = reduced(reduction, stream, pending, expanded)
    assert partials.select(reduction.schema.names).schema == reduction.schema
    every = [row for rows in stream for row in rows]
    records = by_group(every, keys, windows_of(every, window))
    results = by_group(partials.to_pylist(), keys, starts_of(partials, window))
    assert results.keys() == records.keys()
    for group, rows in records.items():
        for part in PARTS:
            values = [row[part.name] for row in results[group]]
            assert merged(part, values) == expected(part, rows), part
    hashes = hash_columns([pa.array([row[k] for row in every], RECORD.field(k).type) for k in keys], len(every))
    found = reducer.key_counts()
    assert dict(zip(found.hashes.tolist(), found.counts.tolist(), strict=True)) == Counter(hashes.tolist())
    assert reducer.records() == len(every)
    assert window is not None or reducer.groups() == partials.num_rows


def test_a_group_is_one_row_however_often_a_worker_has_reduced():
    parts = (PartColumn("n", "rows", "", pa.int64()), PartColumn("m", "max", "d", pa.float64()))
    reduction = ColumnarReduction((RECORD.field("k0"),), Window(AT, 10, 10), parts)
    stream = [[{"k0": key, AT: at, "d": float(at)} for key in "ab"] for at in range(20)]
    for pending in (1, 3, 7, 1000):
        _, partials = reduced(reduction, stream, pending)
        rows = {(row["k0"], row["n"], row["m"], row[RECORDS]) for row in partials.to_pylist()}
        assert rows == {("a", 10, 9.0, 10), ("b", 10, 9.0, 10), ("a", 10, 19.0, 10), ("b", 10, 19.0, 10)}
        assert partials.num_rows == 4


@pytest.mark.parametrize("expanded", [1, 60, 180, 10_000])
def test_a_key_has_one_row_in_each_window_where_its_panes_are_put_together_at_once(expanded):
    parts = (PartColumn("n", "rows", "", pa.int64()),)
    reduction = ColumnarReduction((RECORD.field("k0"),), Window(AT, 60, 1), parts)
    stream = [[{"k0": key, AT: at} for key in "abc"] for at in range(3)]
    reducer, partials = reduced(reduction, stream, expanded=expanded)
    assert reducer.groups() == 9
    assert sum(row["n"] for row in partials.to_pylist()) == 9 * 60
    together = {1: 1, 60: 1, 180: 3, 10_000: 9}[expanded]  # panes
    assert partials.num_rows == (3 * 62 if together >= 3 else 9 * 60)


@pytest.mark.parametrize("stream", [[], [[]], [[], []]])
@pytest.mark.parametrize("keys", [(), (RECORD.field("k0"),)])
def test_no_records_have_no_partial_results(keys, stream):
    reducer, partials = reduced(ColumnarReduction(keys, Window(AT, 10, 10), PARTS), stream)
    assert partials.num_rows == 0
    assert (len(reducer.key_counts()), reducer.groups()) == (0, 0)


def total(values, kind, summed, pending=reducing.PENDING_RECORDS):
    """The sum of a column of this type, with records reduced ``pending`` at a time."""
    reduction = ColumnarReduction((), None, (PartColumn("sum", "sum", "v", summed),))
    reducer = reduction()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reducing, "PENDING_RECORDS", pending)
        for value in values:
            reducer.add(pa.record_batch({"v": pa.array([value], kind)}))
        (partials,) = reducer.partials()
        return partials.column("sum").to_pylist()[0]


LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**63 - 1, -(2**63), 2**62, -(2**62), 1, -1])


@given(st.lists(LONGS, min_size=1, max_size=8), st.integers(1, 9))
def test_a_sum_of_longs_is_exact_or_an_error(values, pending):
    up, down = sum(v for v in values if v > 0), sum(v for v in values if v < 0)
    try:
        found = total(values, pa.int64(), pa.int64(), pending)
    except MillraceError:
        assert up >= 2**63 or down < -(2**63)
    else:
        assert found == sum(values)


@pytest.mark.parametrize("pending", [1, 2, 100])
def test_a_sum_just_within_64_bits_is_exact_and_one_more_is_an_error(pending):
    assert total([2**62, 2**62 - 1], pa.int64(), pa.int64(), pending) == 2**63 - 1
    assert total([-(2**62), -(2**62)], pa.int64(), pa.int64(), pending) == -(2**63)
    with pytest.raises(MillraceError) as raised:
        total([2**62, 2**62], pa.int64(), pa.int64(), pending)
    assert str(raised.value).startswith("spec.query.sql: a sum is too large for BIGINT (")
    assert str(raised.value).endswith("cast the summed column to DECIMAL(38, 0)")


@pytest.mark.parametrize("pending", [1, 2, 100])
def test_a_sum_of_decimals_is_exact_or_an_error(pending):
    kind, most = pa.decimal128(38, 0), 10**38 - 1  # of which Decimal's own arithmetic would keep 28 digits
    assert total([Decimal(most - 5), Decimal(5)], kind, kind, pending) == Decimal(most)
    for values in ([most, 1], [9 * 10**37] * 2, [-9 * 10**37] * 3):
        with pytest.raises(MillraceError, match=r"a sum is too large for DECIMAL\(38, 0\).*DOUBLE"):
            total([Decimal(value) for value in values], kind, kind, pending)


@given(
    values=st.lists(st.floats(-1, 1).map(lambda x: 1e9 + x) | st.floats(-1e6, 1e6) | st.none(), max_size=20),
    pending=st.integers(1, 25),
)
def test_means_and_squared_deviations_of_the_partial_results_are_those_of_all(values, pending):
    parts = (
        PartColumn("n", "count", "d", pa.int64()),
        PartColumn("mean", "mean", "d", pa.float64()),
        PartColumn("within", "squared_deviations", "d", pa.float64()),
    )
    stream = [[{"k0": "a", "d": value}] for value in values]
    _, partials = reduced(ColumnarReduction((RECORD.field("k0"),), None, parts), stream, pending)
    rows = [row for row in partials.to_pylist() if row["n"]]
    known = [Fraction(value) for value in values if value is not None]
    assert sum(row["n"] for row in rows) == len(known)
    if known:
        mean = sum(known) / len(known)
        found = sum(row["n"] * Fraction(row["mean"]) for row in rows) / len(known)
        assert float(found) == pytest.approx(float(mean), rel=1e-14)
        between = sum(row["n"] * (Fraction(row["mean"]) - found) ** 2 for row in rows)
        deviations = float(sum((value - mean) ** 2 for value in known))
        scale = float(max(abs(value) for value in known))
        assert float(between) + sum(row["within"] for row in rows) == pytest.approx(
            deviations, rel=1e-9, abs=len(known) * (scale * 2**-50) ** 2 + scale * 2**-50 * deviations**0.5
        )


def test_means_and_squared_deviations_are_those_of_each_window():
    parts = (
        PartColumn("n", "count", "d", pa.int64()),
        PartColumn("mean", "mean", "d", pa.float64()),
        PartColumn("within", "squared_deviations", "d", pa.float64()),
    )
    reduction = ColumnarReduction((RECORD.field("k0"),), Window(AT, 20, 10), parts)
    stream = [[{"k0": "a", AT: at, "d": float(d)} for at, d in ((1, 2), (2, 4), (11, 7))]]
    _, partials = reduced(reduction, stream)
    moments = sorted(
        (at, row["n"], row["mean"], row["within"])
        for (at,), row in zip(starts_of(partials, reduction.window), partials.to_pylist(), strict=True)
    )
    assert moments == [(-10, 2, 3.0, 2.0), (0, 1, 7.0, 0.0), (0, 2, 3.0, 2.0), (10, 1, 7.0, 0.0)]


def test_reducing_leaves_the_batches_alone():
    batch = pa.RecordBatch.from_pylist([{"k0": "a", AT: 1, "d": -0.0}], schema=RECORD)
    before = batch.to_pylist()
    reducer = ColumnarReduction((RECORD.field("k0"),), Window(AT, 10, 10), PARTS)()
    reducer.add(batch)
    assert sum(partials.num_rows for partials in reducer.partials()) >= 1
    assert repr(batch.to_pylist()) == repr(before)
    assert np.array_equal(reducer.key_counts().counts, reducer.key_counts().counts)


def test_memory_is_bounded_by_the_groups_and_not_by_the_records(monkeypatch):
    monkeypatch.setattr(reducing, "PENDING_RECORDS", 1_000)
    parts = (PartColumn("total", "sum", "v", pa.int64()), PartColumn("least", "min", "v", pa.int64()))
    reducer = ColumnarReduction((pa.field("k", pa.int64()),), None, parts)()
    every_key = pa.record_batch({"k": pa.array(range(1_000)), "v": pa.array([7] * 1_000)})
    reducer.add(every_key)
    before, most = pa.total_allocated_bytes(), 0
    for _ in range(59):
        reducer.add(every_key)
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 10 * every_key.nbytes
    (partials,) = reducer.partials()
    assert set(zip(*(partials.column(name).to_pylist() for name in ("total", "least", RECORDS)), strict=True)) == {
        (420, 7, 60)
    }
