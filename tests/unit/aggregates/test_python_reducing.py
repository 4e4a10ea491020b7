from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_jobs.aggregates import python_reducing
from millrace_jobs.aggregates.base import RECORDS
from millrace_jobs.aggregates.python_reducing import BLOB, BUCKET, PythonReduction
from millrace_jobs.partitioners.hashing import hash_columns
from millrace_jobs.windows import AT, Window, pane_starts

BUCKETS = 4
MOMENT = pa.timestamp("us", tz="UTC")
BLOCK = pa.schema(
    [("key k", pa.string()), ("key d", pa.float64()), (AT, MOMENT), ("row", pa.int64()), ("s", pa.string())]
)


class Gather:
    """Every record: the strictest witness of what was updated with what."""

    columns = ("row", "s")
    state_schema = pa.schema([("rows", pa.list_(pa.int64())), ("texts", pa.list_(pa.string()))])
    result_schema = pa.schema([("n", pa.int64())])

    def init(self):
        return {"rows": [], "texts": []}

    def update(self, state, batch):
        assert batch.schema.names == ["row", "s"]
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
    rows = [{"key k": k, "key d": d, AT: at, "row": first + i, "s": s} for i, (k, d, at, s) in enumerate(records)]
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
