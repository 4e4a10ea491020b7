"""What comes after the watermark: late records are counted and ignored, and late upserts count from the watermark on."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dual_streaming.joins import Band, JoinType, of_streams
from dual_streaming.streams import facts
from millrace_jobs.changes import BEGINNING, FOREVER
from millrace_jobs.queries.tables.operators.aggregate import GroupedAggregate, MergedPart
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import Contents, JoinInput
from millrace_jobs.queries.tables.operators.upserts import UpsertedTable
from staged_tables import END, Stage, records, upserts, values

BAND = 2
VERSIONS = range(22)
TYPES = st.sampled_from(JoinType)
few = settings(max_examples=60)


@st.composite
def disorderly(draw, sources, tables=""):
    """Draw batches of events, each as late as it likes; every value is a number of its own, and tables delete nothing.

    A delete that the watermark has passed is forgotten, so that what a late upsert finds depends on when it was removed.
    """
    keys = {source: st.sampled_from("AB") for source in tables} | {
        source: st.sampled_from([*"AB", None]) for source in sources
    }
    event = st.sampled_from([*sources, *tables]).flatmap(
        lambda at: st.tuples(st.integers(0, 20), st.just(at), keys[at])
    )
    batches, latest, number = [], [], 0
    for events in draw(st.lists(st.lists(event, max_size=4), max_size=10)):
        watermark = max(latest) - draw(st.integers(0, 2)) if latest else BEGINNING
        watermark = max(watermark, batches[-1][1] if batches else BEGINNING)
        batches.append(([(t, at, key, number + place) for place, (t, at, key) in enumerate(events)], watermark))
        latest += [event[0] for event in events]
        number += len(events)
    return batches


def run(stage, batches):
    for events, watermark in [*batches, ([], END)]:
        sources = {name: records(events, name) for name in "rx"} | {"l": records(events, "l", (-BAND, BAND))}
        for name in "tu":
            rows = [(t, at, key, (value,)) for t, at, key, value in events]
            sources[name] = upserts(rows, name, values(f"{name}k", f"{name}v"))
        stage.batch(sources, watermark)
    return stage


def on_time(batches, source):
    """The records of a source that are not late, as a stream of ``(key, value)``."""
    found = [
        (t, (key, value))
        for events, watermark in batches
        for t, at, key, value in events
        if at == source and t >= watermark
    ]
    return facts(sorted(found, key=lambda each: each[0]))


def count_late(batches, sources):
    return sum(event[0] < watermark and event[1] in sources for events, watermark in batches for event in events)


def version(batches, source, time):
    """The rows of a table at a time: of each key, the newest of the upserts that count by then."""
    found = {}
    for events, watermark in batches:
        for t, at, key, value in events:
            if at == source and max(t, watermark) <= time and t >= found.get(key, (BEGINNING,))[0]:
                found[key] = (t, value)
    return {key: (key, value) for key, (_, value) in found.items()}


@pytest.mark.parametrize("final", [False, True])
@few
@given(batches=disorderly("lr"), join_type=TYPES)
def test_late_records_of_two_streams_are_not_joined(batches, join_type, final):
    left = JoinInput(
        values("lk", "lv", banded=True), ("lk",), Contents.RECORDS, preserved=join_type.of_left, reach=BAND, span=BAND
    )
    right = JoinInput(values("rk", "rv"), ("rk",), Contents.RECORDS, preserved=join_type.of_right)
    stage = run(Stage(TemporalJoin(left, right, versions=False, final=final), "l", "r"), batches)
    key = lambda record: record.v[0]  # noqa: E731
    expected = of_streams(on_time(batches, "l"), on_time(batches, "r"), Band(key, key, BAND), join_type)
    none = (None, None)
    assert stage.rows == Counter((*(r.v[0] or none), *(r.v[1] or none), r.t, r.t + 1) for r in expected)
    assert stage.late == count_late(batches, "lr")
    assert stage.held == []


@pytest.mark.parametrize("final", [False, True])
@few
@given(batches=disorderly("x", "t"), outer=st.booleans())
def test_late_upserts_of_a_table_count_from_the_watermark_for_a_stream(batches, outer, final):
    left = JoinInput(values("xk", "xv"), ("xk",), Contents.RECORDS, preserved=outer)
    right = JoinInput(values("tk", "tv"), ("tk",), Contents.TABLE, upserted=True)
    stage = run(Stage(TemporalJoin(left, right, versions=True, final=final), "x", "t"), batches)
    expected = Counter()
    for record in on_time(batches, "x"):
        found = version(batches, "t", record.t).get(record.v[0])
        if found or outer:
            expected[(*record.v, *(found or (None, None)), record.t, record.t + 1)] += 1
    assert stage.rows == expected
    assert stage.late == count_late(batches, "x")


@pytest.mark.parametrize("upserted", [False, True])
@few
@given(batches=disorderly("", "tu"), join_type=TYPES)
def test_late_upserts_of_two_tables_count_from_the_watermark(batches, join_type, upserted):
    schema = values("tk", "tv")
    left = JoinInput(
        schema, ("tk",), Contents.TABLE, upserted=upserted, preserved=join_type.of_left, checked=not upserted
    )
    right = JoinInput(values("uk", "uv"), ("uk",), Contents.TABLE, upserted=True, preserved=join_type.of_right)
    table = "t" if upserted else Stage(UpsertedTable(schema, ("tk",), versions=True), "t")
    stage = run(Stage(TemporalJoin(left, right, versions=True), table, "u"), batches)
    for time, rows in stage.versions(VERSIONS).items():
        lefts, rights = version(batches, "t", time), version(batches, "u", time)
        expected = Counter((*lefts[key], *rights[key]) for key in lefts.keys() & rights.keys())
        if join_type.of_left:
            expected.update((*lefts[key], None, None) for key in lefts.keys() - rights.keys())
        if join_type.of_right:
            expected.update((None, None, *rights[key]) for key in rights.keys() - lefts.keys())
        assert rows == expected


@pytest.mark.parametrize("final", [False, True])
@few
@given(batches=disorderly("", "t"), slots=st.sampled_from([1, 64]))
def test_late_upserts_of_an_aggregated_table_count_from_the_watermark(batches, slots, final):
    keys, parts = pa.schema([("even_k", pa.string())]), (MergedPart("total", "sum", pa.int64()),)
    operator = GroupedAggregate(keys, parts, None, of_table=True, versions=True, final=final, slots=slots, checked=True)
    table = Stage(UpsertedTable(values("tk", "tv"), ("tk",), versions=True), "t")
    stage = run(Stage(operator, (table, lambda key, value, t: (str(value % 2), value))), batches)
    for time, rows in stage.versions(VERSIONS).items():
        numbers = [value for _, value in version(batches, "t", time).values()]
        expected = {str(rest): [n for n in numbers if n % 2 == rest] for rest in (0, 1)}
        assert rows == Counter((rest, sum(of_rest)) for rest, of_rest in expected.items() if of_rest)


def changes(table, events, watermark):
    """Process upserts ``(time, value or None)`` of one key, and return the changes without the key, sorted."""
    rows = [(t, "t", "A", None if value is None else (value,)) for t, value in events]
    found = table.batch({"t": upserts(rows, "t", values("tk", "tv"))}, watermark)
    return sorted(tuple(row.values())[1:] for row in found.to_pylist())


def test_late_upserts_of_one_key_in_any_order_leave_the_newest():
    for late in ([(5, 1), (8, 2), (6, 3)], [(8, 2), (6, 3), (5, 1)]):
        table = Stage(UpsertedTable(values("tk", "tv"), ("tk",), versions=True), "t")
        changes(table, [(30, 9)], 20)
        for step, upsert in enumerate(late):
            changes(table, [upsert], 20 + step)
        assert {row[1] for row in table.rows if row[2] <= 25 < row[3]} == {2}
        assert min(row[2] for row in table.rows) == 20
        assert {row[1] for row in table.rows if row[3] == FOREVER} == {9}


def test_a_late_upsert_is_ignored_if_its_key_has_a_later_version():
    table = Stage(UpsertedTable(values("tk", "tv"), ("tk",), versions=True), "t")
    assert changes(table, [(7, 1)], 5) == [(1, 7, FOREVER, 1)]
    assert changes(table, [(6, 2)], 20) == []
    assert changes(table, [(8, 3)], 20) == [(1, 7, 20, 1), (1, 7, FOREVER, -1), (3, 20, FOREVER, 1)]


def test_a_late_delete_ends_its_row_at_the_watermark():
    table = Stage(UpsertedTable(values("tk", "tv"), ("tk",), versions=True), "t")
    changes(table, [(1, 1)], BEGINNING)
    assert changes(table, [(3, None)], 10) == [(1, 1, 10, 1), (1, 1, FOREVER, -1)]


def test_a_delete_is_known_until_the_watermark_has_passed_it():
    table = Stage(UpsertedTable(values("tk", "tv"), ("tk",), versions=True), "t")
    changes(table, [(1, 1), (9, None)], BEGINNING)
    assert changes(table, [(5, 2)], 4) == [(1, 1, 5, 1), (1, 1, 9, -1), (2, 5, 9, 1)]
    changes(table, [(50, None)], 20)
    assert changes(table, [(6, 3)], 20) == [(3, 20, 50, 1)]
