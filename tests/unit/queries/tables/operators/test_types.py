"""Keys and values of all types in joins and tables, with NULL, NaN, both zeros, nested values, and rows that are many."""

import datetime
from collections import Counter, defaultdict
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from change_tables import MemoryStore, changes_from, disordered
from dual_streaming.joins import JoinType
from millrace_jobs.changes import CHANGE, FOREVER, FROM, TO, WEIGHT, net
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import MATCH_FROM, MATCH_TO, Contents, JoinInput
from millrace_jobs.queries.tables.operators.upserts import UpsertedTable
from staged_tables import END, rows_in

GRACE, BAND = 4, 2
NAN, INFINITY = float("nan"), float("inf")
FIRST, MOMENT = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
SCALARS = [
    (pa.string(), ["", "a", "ä"]),
    (pa.binary(), [b"", b"\x00", b"\xff"]),
    (pa.bool_(), [True, False]),
    (pa.int8(), [-1, 0, 1]),
    (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.float32(), [0.0, -0.0, NAN, 1.5]),
    (pa.float64(), [0.0, -0.0, NAN, INFINITY]),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00")]),
    (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal(1)]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), [FIRST, MOMENT]),
    (pa.timestamp("us"), [FIRST.replace(tzinfo=None), MOMENT.replace(tzinfo=None)]),
]
NESTED = [
    (pa.list_(pa.float64()), [[], [1.0, NAN], [None]]),
    (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]), [{"a": 1, "b": None}, {"a": None, "b": ["x", ""]}]),
    (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", None)]]),
]
some = settings(max_examples=100)


def exact(value):
    """A value that is equal to another one only if it is the same to the bit."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return tuple((name, exact(each)) for name, each in value.items())
    return tuple(map(exact, value)) if isinstance(value, list | tuple) else value


def as_key(key):
    """A key as a join compares it: NaN is equal to itself, and zeros are equal; None for a key with a NULL."""
    if None in key:
        return None
    return tuple("NaN" if each != each else each + 0.0 if isinstance(each, float) else each for each in key)


@st.composite
def typed(draw, sources):
    """Draw types, and batches of events with keys and values of these: ``(time, source, key, value, weight)``."""
    kinds = draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3))
    value = draw(st.sampled_from([*SCALARS, *NESTED]))
    key = st.tuples(*(st.none() | st.sampled_from([*values, values[0]]) for _, values in kinds))
    event = st.tuples(st.integers(0, 9), st.sampled_from(sources), key, st.none() | st.sampled_from(value[1]))
    batches = draw(disordered(event, GRACE))
    return [kind for kind, _ in kinds], value[0], batches


def columns(source, kinds, value, *, banded=False):
    match = [(name, pa.int64()) for name in (MATCH_FROM, MATCH_TO)] if banded else []
    return pa.schema([*((f"{source}k{n}", kind) for n, kind in enumerate(kinds)), (f"{source}v", value), *match])


def add(rows, changes):
    for *row, weight in (row for table in changes for row in rows_in(table)):
        rows[exact(row)] += weight


def expected_join(left, right, join_type, nulls):
    """The results of two streams by comparing each record with each other one."""
    found, matched = Counter(), set()
    for t, key, value in left:
        partners = [n for n, (at, other, _) in enumerate(right)
                    if as_key(key) is not None and as_key(key) == as_key(other) and abs(t - at) <= BAND]  # fmt: skip
        matched.update(partners)
        for at, other, v in (right[n] for n in partners):
            found[exact((*key, value, *other, v, max(t, at), max(t, at) + 1))] += 1
        if not partners and join_type.of_left:
            found[exact((*key, value, *nulls, t, t + 1))] += 1
    if join_type.of_right:
        found.update(exact((*nulls, *key, v, t, t + 1)) for n, (t, key, v) in enumerate(right) if n not in matched)
    return found


@pytest.mark.parametrize("contents", [Contents.RECORDS, Contents.RESULTS])
@some
@given(drawn=typed("lr"), join_type=st.sampled_from(JoinType), final=st.booleans(), data=st.data())
def test_streams_are_joined_by_keys_of_all_types(drawn, join_type, final, contents, data):
    """Results that are added several times have a weight; each counts as so many records."""
    kinds, value, batches = drawn
    inputs = [
        JoinInput(
            columns(source, kinds, value, banded=source == "l"), tuple(f"{source}k{n}" for n in range(len(kinds))),
            contents, preserved=preserved, reach=BAND if source == "l" else 0, span=BAND if source == "l" else 0,
        )
        for source, preserved in (("l", join_type.of_left), ("r", join_type.of_right))
    ]  # fmt: skip
    join, store, rows = TemporalJoin(*inputs, versions=False, final=final), MemoryStore(), Counter()
    arrived = {"l": [], "r": []}
    for events, watermark in [*batches, ([], END)]:
        weighted = [(*event, data.draw(st.integers(1, 2)) if contents is Contents.RESULTS else 1) for event in events]
        changes = [
            changes_from([(*k, v, t - BAND, t + BAND + 1, t, t + 1, n) for t, at, k, v, n in weighted if at == "l"], join.inputs[0]),
            changes_from([(*k, v, t, t + 1, n) for t, at, k, v, n in weighted if at == "r"], join.inputs[1]),
        ]  # fmt: skip
        add(rows, join.process(store, changes, watermark).changes)
        for t, at, key, v, n in weighted:
            arrived[at] += [(t, key, v)] * n
    expected = expected_join(arrived["l"], arrived["r"], join_type, (None,) * (len(kinds) + 1))
    assert +rows == expected
    assert not any(weight < 0 for weight in rows.values())


@pytest.mark.parametrize("versions", [False, True])
@some
@given(drawn=typed("t"))
def test_a_table_may_have_keys_of_all_types(drawn, versions):
    """A NULL is a delete; a planner removes upserts with a NULL in their key."""
    kinds, value, batches = drawn
    table = UpsertedTable(columns("t", kinds, value), tuple(f"tk{n}" for n in range(len(kinds))), versions=versions)
    store, rows, entries = MemoryStore(), Counter(), defaultdict(dict)
    for events, watermark in batches:
        events = [event for event in events if None not in event[2]]
        upserts = [(*key, v, t, FOREVER, -1 if v is None else 1) for t, _, key, v in events]
        add(rows, table.process(store, [changes_from(upserts, table.inputs[0])], watermark).changes)
        for t, _, key, v in events:
            entries[as_key(key)][t] = (key, v)
    expected = Counter()
    for of_key in entries.values():
        times = sorted(of_key) if versions else [max(of_key)]
        for start, end in zip(times, [*times[1:], FOREVER], strict=True):
            key, v = of_key[start]
            if v is not None:
                expected[exact((*key, v, start, end))] += 1
    assert +rows == expected


@pytest.mark.parametrize(
    ("kind", "values"), [*SCALARS, *NESTED], ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
def test_equal_rows_cancel_out_and_others_do_not(kind, values):
    rows = [*values, None, *values, None, values[0]]
    weights = [1] * (len(values) + 1) + [-1] * (len(values) + 1) + [2]
    table = pa.table(
        {"v": pa.array(rows, kind), FROM: [1] * len(rows), TO: [2] * len(rows), WEIGHT: weights},
        pa.schema([("v", kind), *CHANGE]),
    )
    assert [exact(row) for row in rows_in(net(table))] == [exact((values[0], 1, 2, 2))]
    first = net(table.slice(0, len(values) + 1))
    assert Counter(map(exact, rows_in(first))) == Counter(exact((each, 1, 2, 1)) for each in [*values, None])
    assert first.schema == table.schema
    assert net(table.slice(0, 0)).num_rows == 0
