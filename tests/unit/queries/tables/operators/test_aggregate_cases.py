"""Aggregation over changes: limits of types, the state in slots, and what is refused."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import MemoryStore, Replayed, changes_from
from millrace_jobs.changes import BEGINNING, CHANGE, FOREVER
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.queries.tables.operators.aggregate import GroupedAggregate, MergedPart

COUNT = MergedPart("n", "sum", pa.int64())
KEY = pa.schema([("key", pa.string())])
WINDOWED = pa.schema([("key", pa.string()), ("end", pa.int64())])
NO_KEYS = pa.schema([])


def operator(parts=(COUNT,), keys=KEY, window_end=None, of_table=False, versions=False, final=False, slots=64):
    return GroupedAggregate(keys, tuple(parts), window_end, of_table, versions, final, slots)


def process(aggregate, store, rows, watermark=BEGINNING):
    return aggregate.process(store, [changes_from(rows, aggregate.inputs[0])], watermark)


def emitted(aggregate, store, rows, watermark=BEGINNING):
    """Process rows and return the changes as sorted tuples."""
    tables = process(aggregate, store, rows, watermark).changes
    return sorted((tuple(row.values()) for table in tables for row in table.to_pylist()), key=repr)


def latest(aggregate, store, *values, weight=1):
    """Process rows without keys, and return the values of the row that is added."""
    rows = [(*each, 0, FOREVER, weight) for each in values]
    found = [row[:-3] for row in emitted(aggregate, store, rows) if row[-1] == 1]
    return found[0] if found else None


def test_final_versions_are_a_changelog_in_which_a_group_that_ends_has_no_open_row():
    aggregate, store = operator(versions=True, final=True, of_table=True), MemoryStore()
    assert emitted(aggregate, store, [("a", 1, 2, FOREVER, 1)]) == []
    assert emitted(aggregate, store, [], 2) == []
    assert emitted(aggregate, store, [], 3) == [("a", 1, 2, FOREVER, 1)]
    ended = process(aggregate, store, changes := [("a", 1, 2, FOREVER, -1), ("a", 1, 2, 7, 1)], 5)
    assert (changes, ended.changes, ended.wake) == (changes, [], 8)
    assert emitted(aggregate, store, [], 8) == [("a", 1, 2, 7, 1), ("a", 1, 2, FOREVER, -1)]
    assert not store.tables


def test_a_final_window_is_emitted_once_when_the_watermark_reaches_its_end():
    aggregate, store = operator(keys=WINDOWED, window_end="end", final=True), MemoryStore()
    first = process(aggregate, store, [("a", 10, 1, 3, 4, 1), ("b", 20, 1, 13, 14, 1)])
    assert (first.changes, first.wake) == ([], 10)
    closed = process(aggregate, store, [("a", 10, 1, 3, 4, 1), ("b", 20, 1, 9, 10, 1)], 10)
    assert [table.to_pylist() for table in closed.changes] == [
        [{"key": "a", "end": 10, "n": 1, "millrace_from": BEGINNING, "millrace_to": FOREVER, "millrace_weight": 1}]
    ]
    assert (closed.late, closed.wake) == (1, 20)
    assert emitted(aggregate, store, [], 20) == [("b", 20, 2, BEGINNING, FOREVER, 1)]
    assert not store.tables


def test_removals_from_a_closed_window_are_late():
    aggregate, store = operator(keys=WINDOWED, window_end="end"), MemoryStore()
    assert emitted(aggregate, store, [("a", 10, 1, 3, 4, 1)]) == [("a", 10, 1, BEGINNING, FOREVER, 1)]
    removal = process(aggregate, store, [("a", 10, 1, 3, 4, -1)], 10)
    assert (removal.changes, removal.late, store.tables) == ([], 1, {})


def test_a_window_without_an_end_never_closes():
    aggregate, store = operator(keys=WINDOWED, window_end="end"), MemoryStore()
    assert process(aggregate, store, [("a", None, 1, 3, 4, 1)], 10).wake is None
    assert emitted(aggregate, store, [("a", None, 1, 3, 4, 1)], 1 << 60)[1] == ("a", None, 2, BEGINNING, FOREVER, 1)


@given(
    additions=st.lists(st.tuples(st.integers(0, 3), st.floats() | st.none()), max_size=20),
    data=st.data(),
    versions=st.booleans(),
)
def test_float_rows_are_removed_as_they_were_emitted(additions, data, versions):
    """``Replayed`` compares floats by their bits. Sums may differ by rounding; what was removed leaves no group."""
    parts = [MergedPart("total", "sum", pa.float64())]
    aggregate, store, replayed = operator(parts, of_table=True, versions=versions), MemoryStore(), Replayed()
    present = []
    for start, value in additions:
        removed = [each for each in present if data.draw(st.booleans())]
        rows = [("a", value, start, FOREVER, 1), *(("a", old, at, FOREVER, -1) for at, old in removed)]
        replayed.apply(process(aggregate, store, rows).changes)
        present = [each for each in present if not any(each is old for old in removed)] + [(start, value)]
    replayed.apply(process(aggregate, store, [("a", old, at, FOREVER, -1) for at, old in present]).changes)
    assert replayed.rows == {}
    assert store.tables == {}


def test_nan_and_infinities_can_be_removed_from_a_sum():
    aggregate, store = operator([MergedPart("total", "sum", pa.float64())], keys=NO_KEYS), MemoryStore()
    infinity, nan = float("inf"), float("nan")
    assert latest(aggregate, store, (1.5,), (infinity,)) == (infinity,)
    assert repr(latest(aggregate, store, (-infinity,), (nan,))) == "(nan,)"
    assert latest(aggregate, store, (nan,), weight=-1) is None
    assert latest(aggregate, store, (infinity,), weight=-1) == (-infinity,)
    assert latest(aggregate, store, (-infinity,), weight=-1) == (1.5,)


def test_sums_of_integers_are_exact_to_the_last_one_and_do_not_wrap():
    largest = 2**63 - 1
    aggregate, store = operator([MergedPart("total", "sum", pa.int64())], keys=NO_KEYS), MemoryStore()
    assert latest(aggregate, store, (largest,), (largest,), (-largest,)) == (largest,)
    assert latest(aggregate, store, (-largest,), (-largest,), (-1,)) == (-largest - 1,)
    before = dict(store.tables)
    with pytest.raises(OverflowError, match="column 'total' does not fit into int64"):
        latest(aggregate, store, (-1,))
    assert store.tables == before


@pytest.mark.parametrize("kind", [pa.decimal128(38, 2), pa.decimal256(60, 2)], ids=str)
def test_sums_of_decimals_are_exact_and_have_no_more_digits_than_their_type(kind):
    largest, cent = Decimal("9" * (kind.precision - 2) + ".99"), Decimal("0.01")
    aggregate, store = operator([MergedPart("total", "sum", kind)], keys=NO_KEYS), MemoryStore()
    assert latest(aggregate, store, (-cent,), (largest,), (None,)) == (Decimal(str(largest)[:-1] + "8"),)
    assert latest(aggregate, store, (largest,), weight=-1) == (-cent,)
    with pytest.raises(OverflowError, match="cast the column to a type with more digits"):
        latest(aggregate, store, (Decimal("-" + str(largest)),))


def test_a_sum_without_values_is_null_also_after_the_last_one_was_removed():
    kinds = [pa.int64(), pa.float64(), pa.decimal128(5, 2)]
    parts = [COUNT, *(MergedPart(f"p{index}", "sum", kind) for index, kind in enumerate(kinds))]
    aggregate, store = operator(parts, keys=NO_KEYS), MemoryStore()
    assert latest(aggregate, store, (1, None, None, None)) == (1, None, None, None)
    assert latest(aggregate, store, values := (1, 7, 0.5, Decimal("1.25"))) == (2, 7, 0.5, Decimal("1.25"))
    assert latest(aggregate, store, values, weight=-1) == (1, None, None, None)
    assert latest(aggregate, store, values, weight=3) == (4, 21, 1.5, Decimal("3.75"))


def test_rounding_ends_with_the_last_value_of_a_sum():
    aggregate, store = operator([MergedPart("total", "sum", pa.float64())], keys=NO_KEYS), MemoryStore()
    assert latest(aggregate, store, (0.1,), (0.2,), (None,)) == (0.1 + 0.2,)
    assert latest(aggregate, store, (0.1,), weight=-1) != (0.2,)
    assert latest(aggregate, store, (0.2,), weight=-1) == (None,)
    assert latest(aggregate, store, (0.3,)) == (0.3,)


def test_minima_and_maxima_are_right_for_all_types():
    day, moment = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
    examples = [
        (pa.int8(), -1, 5),
        (pa.float32(), 0.5, float("inf")),
        (pa.bool_(), False, True),
        (pa.string(), "a", "b"),
        (pa.binary(), b"", b"\xff"),
        (pa.date32(), day, day + datetime.timedelta(1)),
        (pa.timestamp("us", "UTC"), moment, moment + datetime.timedelta(1)),
        (pa.decimal128(38, 1), Decimal("-1.5"), Decimal("7.0")),
    ]
    for merge, chosen in (("min", 1), ("max", 2)):
        parts = [MergedPart(f"p{index}", merge, kind) for index, (kind, *_) in enumerate(examples)]
        aggregate, store = operator(parts, keys=NO_KEYS), MemoryStore()
        nulls, low, high = (
            tuple(values) for values in ([None] * len(examples), *list(zip(*examples, strict=True))[1:])
        )
        assert latest(aggregate, store, nulls) == nulls
        assert latest(aggregate, store, low, nulls, high) == (low, high)[chosen - 1]
        assert latest(aggregate, store, low, high, nulls) is None


def test_nan_is_the_largest_float_and_equal_keys_have_equal_bits():
    nan = float("nan")
    parts = [MergedPart("low", "min", pa.float64()), MergedPart("high", "max", pa.float64())]
    aggregate, store = operator(parts, keys=pa.schema([("key", pa.float64())])), MemoryStore()
    rows = [(0.0, 1.0, nan), (-0.0, nan, 2.0), (nan, nan, 1.0), (-nan, nan, None), (None, None, None)]
    found = emitted(aggregate, store, [(*row, 0, FOREVER, 1) for row in rows])
    assert repr([row[:3] for row in found]) == "[(0.0, 1.0, nan), (None, None, None), (nan, nan, 1.0)]"
    assert emitted(aggregate, store, [(-0.0, 1.0, nan, 0, FOREVER, 1)]) == []


def test_narrower_columns_are_widened():
    aggregate = operator([COUNT, MergedPart("total", "sum", pa.decimal128(20, 2))])
    columns = [("total", pa.decimal128(5, 2)), ("n", pa.int32()), ("key", pa.string()), *CHANGE]
    rows = changes_from([(Decimal("1.25"), 1, "a", 0, FOREVER, 1)], pa.schema(columns))
    (found,) = aggregate.process(MemoryStore(), [rows], BEGINNING).changes
    assert found.schema == aggregate.output
    assert found.to_pylist()[0]["total"] == Decimal("1.25")


def test_only_slots_with_input_are_read_and_written():
    aggregate, store = operator(slots=16), MemoryStore()
    process(aggregate, store, [(str(key), 1, 0, FOREVER, 1) for key in range(200)])
    assert len(store.tables) == 17
    store.forget()
    process(aggregate, store, [("7", 1, 0, FOREVER, 1)])
    (slot,) = store.written
    assert store.read == ["index", slot]
    store.forget()
    assert process(aggregate, store, [], 1 << 60).changes == []
    assert (store.read, store.written) == (["index"], [])


def test_keys_of_one_bucket_are_in_many_slots():
    keys = [str(key) for key in range(20_000)]
    hashes = hash_columns([pa.array(keys)], len(keys))
    bucket = [key for key, value in zip(keys, hashes.tolist(), strict=True) if value % 64 == 5]
    aggregate, store = operator(), MemoryStore()
    process(aggregate, store, [(key, 1, 0, FOREVER, 1) for key in bucket])
    assert len(store.tables) > 60


def test_versions_before_the_watermark_are_removed_a_slot_at_a_time():
    aggregate, store = operator(versions=True, slots=1), MemoryStore()
    outcome = process(aggregate, store, [("a", 1, time, time + 1, 1) for time in range(10)])
    assert outcome.wake == 5
    assert process(aggregate, store, [], 4).changes == []
    assert len(store.all_rows("slot")["slot-0"]) == 10
    outcome = process(aggregate, store, [], 5)
    assert (outcome.changes, outcome.wake) == ([], 8)
    assert [row["millrace_from"] for row in store.all_rows("slot")["slot-0"]] == [5, 6, 7, 8, 9]


def test_a_row_that_does_not_change_is_not_emitted():
    aggregate, store = operator([MergedPart("total", "sum", pa.int64())]), MemoryStore()
    assert len(emitted(aggregate, store, [("a", 5, 0, FOREVER, 1)])) == 1
    assert emitted(aggregate, store, [("a", 0, 0, FOREVER, 1), ("a", 3, 0, FOREVER, 1), ("a", 3, 0, FOREVER, -1)]) == []


def test_a_removal_before_the_watermark_counts_from_it():
    aggregate, store = operator(versions=True, slots=1), MemoryStore()
    process(aggregate, store, [("a", 1, time, time + 1, 1) for time in (1, 3, 8)])
    assert emitted(aggregate, store, [("a", 1, 1, 2, -1)], 5) == [
        ("a", 1, 5, 8, 1),
        ("a", 2, 3, 5, 1),
        ("a", 2, 3, 8, -1),
        ("a", 2, 8, FOREVER, 1),
        ("a", 3, 8, FOREVER, -1),
    ]


def test_a_row_of_a_table_before_the_watermark_counts_from_it():
    aggregate, store = operator(versions=True, of_table=True), MemoryStore()
    assert emitted(aggregate, store, [("a", 1, 1, FOREVER, 1)], 5) == [("a", 1, 5, FOREVER, 1)]
    assert emitted(aggregate, store, [("a", 1, 1, FOREVER, -1)], 7) == [
        ("a", 1, 5, 7, 1),
        ("a", 1, 5, FOREVER, -1),
    ]
    process(aggregate, store, [], 8)
    assert not store.tables


def test_rows_that_are_checked_count_from_their_own_time_on():
    """The watermark that they came after is that of the batch before, less the lag of their input."""
    aggregate = GroupedAggregate(KEY, (COUNT,), None, False, True, False, slots=1, checked=True, input_lag=3)
    store = MemoryStore()
    process(aggregate, store, [("a", 1, time, time + 1, 1) for time in (1, 3, 8)], 4)
    found = process(aggregate, store, [("a", 1, 2, 3, 1), ("a", 1, 8, 9, -1)], 40)
    rows = sorted(tuple(row.values()) for table in found.changes for row in table.to_pylist())
    assert rows == [
        ("a", 1, 1, 2, 1),
        ("a", 1, 1, 3, -1),
        ("a", 2, 2, 3, 1),
        ("a", 2, 3, 8, -1),
        ("a", 3, 3, 8, 1),
    ]
    assert (found.late, aggregate.lag) == (0, 3)


def test_the_watermark_is_taken_back_by_the_lag_of_the_input():
    aggregate = GroupedAggregate(WINDOWED, (COUNT,), "end", False, False, True, checked=True, input_lag=7)
    store = MemoryStore()
    assert process(aggregate, store, [("a", 10, 1, 3, 4, 1)], 16).wake == 17
    (closed,) = process(aggregate, store, [("a", 10, 1, 4, 5, 1)], 17).changes
    assert [row["n"] for row in closed.to_pylist()] == [2]
    assert not store.tables


def test_a_group_that_has_ended_begins_again_at_the_watermark_whether_its_state_was_removed_or_not():
    aggregate = operator(versions=True, of_table=True, slots=1)
    for others in ((), ("b", "c")):
        store = MemoryStore()
        process(aggregate, store, [("a", 1, 1, 4, 1), *((other, 1, 1, FOREVER, 1) for other in others)])
        process(aggregate, store, [], 6)
        assert len(store.all_rows("slot").get("slot-0", [])) == (4 if others else 0), others
        assert emitted(aggregate, store, [("a", 1, 5, FOREVER, 1)], 6) == [("a", 1, 6, FOREVER, 1)]


def test_a_record_of_an_open_window_that_is_older_than_the_watermark_counts_from_it():
    aggregate, store = operator(keys=WINDOWED, window_end="end", versions=True), MemoryStore()
    process(aggregate, store, [("a", 60, 1, time, time + 1, 1) for time in (10, 20, 40)])
    assert emitted(aggregate, store, [("a", 60, 1, 5, 6, 1)], 30) == [
        ("a", 60, 2, 20, 30, 1),
        ("a", 60, 2, 20, 40, -1),
        ("a", 60, 3, 30, 40, 1),
        ("a", 60, 3, 40, FOREVER, -1),
        ("a", 60, 4, 40, FOREVER, 1),
    ]


def test_what_no_aggregate_can_remove_is_refused():
    aggregate, store = operator([MergedPart("top", "max", pa.int64())]), MemoryStore()
    added, removed = ("a", 7, 0, FOREVER, 1), ("a", 7, 0, FOREVER, -1)
    assert emitted(aggregate, store, [added, added, removed]) == [("a", 7, BEGINNING, FOREVER, 1)]
    with pytest.raises(ValueError, match="'top' is merged by max, from which no row can be removed"):
        process(aggregate, store, [removed])
    with pytest.raises(ValueError, match=r"more rows are removed from group \['a'\] than were added"):
        process(operator(), MemoryStore(), [("a", 1, 0, FOREVER, -1)])
    with pytest.raises(ValueError, match="use smaller batches"):
        process(operator(), MemoryStore(), [("a", 1, 0, FOREVER, 1 << 40)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parts": [MergedPart("top", "max", pa.int64())], "of_table": True}, "aggregate a stream of records instead"),
        ({"final": True}, "the latest version is never final"),
        ({"keys": WINDOWED, "window_end": "key"}, "'key', must be a key of type int64"),
        ({"window_end": "end"}, "'end', must be a key of type int64"),
        ({"parts": [COUNT, COUNT]}, "several columns named 'n'"),
        ({"keys": pa.schema([("millrace_rows", pa.string())])}, "several columns named 'millrace_rows'"),
        ({"slots": 0}, "at least one slot: 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        operator(**settings)


def test_keys_without_a_hash_are_refused():
    with pytest.raises(TypeError, match="cannot be a key"):
        operator(keys=pa.schema([("key", pa.list_(pa.string()))]))


@pytest.mark.parametrize(
    ("merge", "kind", "message"),
    [
        ("sum", pa.string(), "cannot be summed as string"),
        ("max", pa.list_(pa.int64()), "has no max"),
        ("avg", pa.int64(), "cannot be merged by 'avg'"),
    ],
)
def test_parts_that_cannot_be_merged_are_refused(merge, kind, message):
    with pytest.raises(ValueError, match=message):
        MergedPart("x", merge, kind)


@given(
    st.lists(st.none() | st.tuples(st.none() | st.floats(), st.none() | st.sampled_from("abc")), max_size=12), st.data()
)
def test_the_largest_struct_is_that_of_spark(values, data):
    """Structs are compared field by field; NULL is the lowest value of a field, and NaN the highest."""
    kind = pa.struct([("number", pa.float64()), ("text", pa.string())])
    aggregate = operator([MergedPart("m", "max", kind)], keys=NO_KEYS)
    store, most = MemoryStore(), None
    cut = data.draw(st.integers(0, len(values)))
    for batch in (values[:cut], values[cut:]):
        structs = [value and dict(zip(("number", "text"), value, strict=True)) for value in batch]
        for changed in process(aggregate, store, [(struct, 0, 1, 1) for struct in structs]).changes:
            most = next(row["m"] for row in changed.to_pylist() if row["millrace_weight"] > 0)
    present = [value for value in values if value is not None]
    if not present:
        assert most is None
    else:
        assert in_spark_order(tuple(most.values())) == max(map(in_spark_order, present))


def in_spark_order(value):
    number, text = value
    return (number is not None, number != number, 0 if number is None or number != number else number, text or "")
