from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_api.errors import MillraceError
from millrace_jobs.aggregates import python_reducing
from millrace_jobs.aggregates.protocol import field_array
from millrace_jobs.aggregates.python_reducing import (
    BLOB,
    BUCKET,
    PythonReduction,
    StateCodec,
    key_tuples,
    merge_into,
)
from millrace_jobs.aggregates.reducing import RECORDS
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.windows import AT, Window, pane_starts

BUCKETS = 4
MOMENT = pa.timestamp("us", tz="UTC")
BLOCK = pa.schema(
    [
        ("key k", pa.string()),
        ("key d", pa.float64()),
        (AT, MOMENT),
        ("input row", pa.int64()),
        ("input at", pa.string()),
    ]
)


class Gather:
    """Every record: the strictest witness of what was updated with what."""

    columns = ("row", AT)  # a column of the source may have the name of the event time in blocks
    state_schema = pa.schema([("rows", pa.list_(pa.int64())), ("texts", pa.list_(pa.string()))])
    result_schema = pa.schema([("n", pa.int64())])

    def init(self):
        return {"rows": [], "texts": []}

    def update(self, state, batch):
        assert batch.schema.names == ["row", AT]
        assert batch.num_rows
        rows, texts = batch.to_pydict().values()
        return {"rows": state["rows"] + rows, "texts": state["texts"] + texts}

    def merge(self, a, b):
        return {name: a[name] + b[name] for name in a}

    def finish(self, state):
        return {"n": len(state["rows"])}


def reduction(keys, window):
    names = tuple(name.removeprefix("key ") for name in keys)
    return PythonReduction(names, pa.schema([BLOCK.field(key) for key in keys]), window, Gather(), BUCKETS)


def reduced(plan, batches, pending):
    reducer = plan()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_reducing, "_PENDING_RECORDS", pending)
        for batch in batches:
            reducer.add(batch)
        (partials,) = reducer.partials()
        return reducer, partials


RECORD = st.tuples(
    st.sampled_from(["a", "b", "", None]),
    st.sampled_from([0.0, -0.0, 1.0, float("nan"), None]),
    st.integers(-50, 50),
    st.sampled_from(["x", "y", None]),
)


def block_of(records, first):
    rows = [
        {"key k": k, "key d": d, AT: at, "input row": first + i, "input at": s}
        for i, (k, d, at, s) in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=BLOCK)


def same_key(value):
    return "NaN" if value != value else value


@pytest.mark.parametrize("window", [None, Window(AT, 20, 10), Window(AT, 7, 3, 1)], ids=["no window", "20/10", "7/3"])
@pytest.mark.parametrize("keys", [[], ["key k"], ["key d", "key k"]], ids=["no key", "one key", "two keys"])
@settings(max_examples=40)
@given(stream=st.lists(st.lists(RECORD, max_size=10), max_size=5), pending=st.integers(1, 25))
def test_each_key_and_pane_has_its_records(keys, window, stream, pending):
    plan = reduction(keys, window)
    records = [record for records in stream for record in records]
    starts = np.cumsum([0, *map(len, stream)]).tolist()
    reducer, partials = reduced(plan, [block_of(r, s) for r, s in zip(stream, starts, strict=False)], pending)
    assert partials.schema == plan.schema.append(pa.field(RECORDS, pa.int64()))

    all_rows = block_of(records, 0)
    panes = pane_starts(all_rows.column(AT), window).tolist() if window else [0] * len(records)
    buckets = (hash_columns([all_rows.column(key) for key in keys], len(records)) % np.uint64(BUCKETS)).tolist()
    wanted, sizes = defaultdict(list), defaultdict(int)
    for row, (k, d, _, s) in enumerate(records):
        key = tuple(same_key({"key k": k, "key d": d}[name]) for name in keys)
        wanted[panes[row], buckets[row], key].append((row, s))
        sizes[panes[row], buckets[row]] += 1

    found, counted = {}, {}
    times = partials.column(AT).cast(pa.int64()).to_pylist() if window else [0] * partials.num_rows
    for pane, row in zip(times, partials.to_pylist(), strict=True):
        counted[pane, row[BUCKET]] = row[RECORDS]
        for key, state in plan.codec.decode(row[BLOB]):
            pairs = sorted(zip(state["rows"], state["texts"], strict=True))  # 0.0 and -0.0 come one after the other
            found[pane, row[BUCKET], tuple(same_key(part) for part in key)] = pairs
    assert found == dict(wanted)
    assert counted == dict(sizes)
    every = Counter(hash_columns([all_rows.column(key) for key in keys], len(records)).tolist())
    for _ in range(2):  # asking changes nothing
        counted_keys = reducer.key_counts()
        assert dict(zip(counted_keys.hashes.tolist(), counted_keys.counts.tolist(), strict=True)) == every
    assert reducer.groups() == len(wanted)


@pytest.mark.parametrize("batches", [[], [block_of([], 0)], [block_of([], 0)] * 2])
@pytest.mark.parametrize("window", [None, Window(AT, 10, 10)])
def test_no_records_have_no_partial_results(batches, window):
    reducer, partials = reduced(reduction(["key k"], window), batches, 100)
    assert partials.num_rows == 0
    assert (len(reducer.key_counts()), reducer.groups()) == (0, 0)


def test_counts_include_records_that_are_not_reduced_yet():
    block = block_of([("a", None, 0, "x"), ("b", None, 0, "y"), ("a", None, 0, "z")], 0)
    for count, wanted in (("records", 3), ("groups", 2), ("key_counts", 2)):
        reducer = reduction(["key k"], None)()
        reducer.add(block)
        found = getattr(reducer, count)()
        assert (len(found) if count == "key_counts" else found) == wanted


def test_events_before_1970_stay_in_their_pane():
    plan = reduction(["key k"], Window(AT, 10, 10))
    _, partials = reduced(
        plan, [block_of([("a", None, -25, "x"), ("a", None, -22, "x"), ("a", None, -3, "x")], 0)], 100
    )
    assert sorted(partials.column(AT).cast(pa.int64()).to_pylist()) == [-30, -10]


def test_results_have_window_keys_and_what_the_aggregator_gives():
    plain = [("k", pa.string()), ("n", pa.int64())]
    assert reduction(["key k"], None).result_schema == pa.schema(plain)
    window = [("window_start", MOMENT), ("window_end", MOMENT)]
    assert reduction(["key k"], Window(AT, 10, 10)).result_schema == pa.schema([*window, *plain])


MONEY = pa.decimal128(10, 2)
KEYS = pa.schema(
    [("key s", pa.string()), ("key i", pa.int64()), ("key d", pa.float64()), ("key p", pa.bool_()),
     ("key b", pa.binary()), ("key y", pa.date32()), ("key at", pa.timestamp("us", tz="UTC")), ("key c", MONEY)]
)  # fmt: skip
STATES = pa.schema(
    [("n", pa.int64()), ("xs", pa.list_(pa.float64())),
     ("top", pa.list_(pa.struct([("value", pa.string()), ("count", pa.int64())]))),
     ("by", pa.map_(pa.string(), pa.int32())), ("sketch", pa.binary())]
)  # fmt: skip
CODEC = StateCodec(KEYS, STATES)
PRINTED = st.tuples(
    st.text(max_size=4) | st.none(),
    st.integers(-(2**63), 2**63 - 1) | st.none(),
    st.floats(allow_nan=False).map(lambda number: number + 0.0) | st.none(),
    st.booleans() | st.none(),
    st.binary(max_size=4) | st.none(),
    st.integers(-(10**6), 10**7) | st.none(),  # days
    st.integers(-(10**17), 10**18) | st.none(),  # microseconds
    st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents) / 100) | st.none(),
)
STATE = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1) | st.none(),
        "xs": st.lists(st.floats(allow_nan=False) | st.none(), max_size=3) | st.none(),
        "top": st.lists(st.fixed_dictionaries({"value": st.text(max_size=2), "count": st.integers(0, 9)}), max_size=3),
        "by": st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=3).map(lambda d: list(d.items())),
        "sketch": st.binary(max_size=8),
    }
)


@given(st.lists(st.tuples(PRINTED, STATE), max_size=6))
def test_what_is_decoded_is_what_was_encoded(pairs):
    assert list(CODEC.decode(CODEC.encode(pairs))) == pairs


@given(st.lists(st.tuples(PRINTED, STATE), min_size=1, max_size=6))
def test_encoding_again_gives_the_same_bytes(pairs):
    blob = CODEC.encode(pairs)
    assert CODEC.encode(CODEC.decode(blob)) == blob


def test_every_nan_is_one_key():
    column = pa.array([float("nan"), None, -float("nan"), 0.0, -0.0], pa.float64(), from_pandas=False)
    keys = key_tuples([column, pa.array(["x"] * 5)], 5)
    assert len(set(keys)) == 3
    codec = StateCodec(pa.schema([("key", pa.float64())]), pa.schema([("n", pa.int64())]))
    blob = codec.encode([((float("nan"),), {"n": 1})])
    (one, _), (other, _) = next(codec.decode(blob)), next(codec.decode(blob))
    assert {one: "found"}[other] == "found"


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_equal_keys_have_one_form_in_whatever_batch_they_come(kind):
    """0.0 is -0.0, and a NaN of other bits is NaN: a state under one of them is found by the others."""
    keys = pa.schema([("key d", kind)])
    plan = PythonReduction(("d",), keys, None, Gather(), BUCKETS)
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    found = []
    for values in ([0.0, float("nan")], [-0.0, other_nan], [-0.0, 0.0, other_nan, -float("nan")]):
        reducer, rows = plan(), len(values)
        columns = [pa.array(values, kind, from_pandas=False), pa.array(range(rows)), pa.array(["x"] * rows)]
        reducer.add(pa.RecordBatch.from_arrays(columns, names=["key d", "input row", "input at"]))
        (partials,) = reducer.partials()
        states = [pair for blob in partials.column("blob").to_pylist() for pair in plan.codec.decode(blob)]
        assert reducer.groups() == 2
        found.append(sorted(str(key) for key, _ in states))
    assert found == [["(0.0,)", "(nan,)"]] * 3
    held = plan.codec.encode([((-0.0,), Gather().init())])
    assert [str(key) for key, _ in plan.codec.decode(held)] == ["(0.0,)"]


def test_nan_is_found_in_narrow_columns_too():
    nan = pa.array([float("nan")] * 2, pa.float32(), from_pandas=False)
    assert len(set(key_tuples([nan], 2))) == 1


def test_without_key_columns_all_rows_have_the_empty_key():
    assert key_tuples([], 3) == [(), (), ()]
    codec = StateCodec(pa.schema([]), STATES)
    state = {"n": 1, "xs": [], "top": [], "by": [], "sketch": b""}
    assert list(codec.decode(codec.encode([((), state)]))) == [((), state)]


class Summing:
    def merge(self, a, b):
        return {"n": a["n"] + b["n"]}


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 9)), max_size=12), st.integers(0, 12))
def test_merging_is_by_key_and_tells_what_has_changed(pairs, cut):
    states = {}
    assert [key for (key,) in merge_into(Summing(), states, (((k,), {"n": n}) for k, n in pairs[:cut]))] == [
        key for key, _ in pairs[:cut]
    ]
    changed = list(merge_into(Summing(), states, (((k,), {"n": n}) for k, n in pairs[cut:])))
    assert [key for (key,) in changed] == [key for key, _ in pairs[cut:]]
    keys = {key for key, _ in pairs}
    assert states == {(key,): {"n": sum(n for k, n in pairs if k == key)} for key in keys}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, "it has no field 'n'"),
        (None, "'NoneType' object is not subscriptable"),
        ({"n": "five"}, "Could not convert 'five' with type str"),
        ({"n": 2**63}, "too large"),
    ],
)
def test_a_state_that_does_not_fit_is_told(row, reason):
    with pytest.raises(MillraceError, match=reason) as raised:
        field_array([{"n": 1}, row], pa.field("n", pa.int64()), "state")
    (problem,) = raised.value.problems
    assert problem.message.startswith("a state of the aggregator does not fit its state_schema, field n int64: ")
    assert problem.hint == "correct the schema, or what the aggregator returns as state"
