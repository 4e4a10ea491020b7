"""Aggregation over changes against the reference interpreter, for random streams, disorder and batches."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import MemoryStore, Replayed, changes_from, comparable, rows_of, update_changes
from dual_streaming import aggregation, table_operators
from dual_streaming.streams import Record, facts
from dual_streaming.tables import EvolvingTable, table_of
from millrace_jobs.changes import BEGINNING, FOREVER
from millrace_jobs.queries.tables.operators.aggregate import CountedPart, GroupedAggregate, MergedPart

COUNT = MergedPart("n", "sum", pa.int64())
SUMS = (COUNT, MergedPart("total", "sum", pa.int64()), MergedPart("size", "sum", pa.float64()))
EXTREMES = (MergedPart("lowest", "min", pa.string()), MergedPart("highest", "max", pa.float64()))
RETRACTED = (CountedPart("lowest", "min", pa.string()), CountedPart("highest", "max", pa.float64()))
COUNTED = (
    *RETRACTED,
    CountedPart("texts", "count_distinct", pa.string()),
    CountedPart("middle", "percentile_approx", pa.string(), fraction=0.4, values_of="lowest"),
)
SETTLING = tuple(CountedPart(part.name, part.merge, part.type, settles_after=0) for part in RETRACTED)
ALL = (*SUMS, *COUNTED)
KEY = pa.schema([("key", pa.string())])
WINDOWED = pa.schema([("key", pa.string()), ("end", pa.int64())])
SIZE = 6

TIMES = st.integers(0, 30)
KEYS = st.sampled_from(["A", "B", None])
INTEGERS = st.none() | st.integers(-3, 3)
# Sums of these are exact, whatever their order.
FLOATS = st.none() | st.sampled_from([0.5, -0.25, -0.0, 3.0, float("nan"), float("inf"), float("-inf")])
TEXTS = st.none() | st.sampled_from(["", "a", "b", "ü"])
RECORDS = st.lists(st.tuples(TIMES, KEYS, st.tuples(INTEGERS, FLOATS, TEXTS, FLOATS)), max_size=25)
ROWS = st.none() | st.tuples(KEYS, INTEGERS, FLOATS, TEXTS, FLOATS)
UPDATES = st.lists(st.tuples(TIMES, st.sampled_from("xyz"), ROWS), max_size=20)
DELAYS = st.integers(0, 12)
SLOTS = st.sampled_from([1, 2, 64])


def cut(rows, data):
    """Cut rows into batches, some of them empty."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=6)))
    return [rows[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def with_watermarks(batches, delay):
    """Yield each batch with the watermark of the rows before it, and at the end a watermark after all of them."""
    latest = BEGINNING
    for batch in [*batches, []]:
        yield batch, latest - delay if latest > BEGINNING else BEGINNING
        latest = max([latest, *(row[0] for row in batch)])
    yield [], 1000


class Run:
    """An operator with its store and what it has emitted; it is called only if there is input or its time has come."""

    def __init__(self, operator):
        self.operator, self.store, self.replayed = operator, MemoryStore(), Replayed()
        self.late, self.wake, self.watermark = 0, None, BEGINNING

    def step(self, rows, watermark):
        self.watermark = watermark
        if not rows and (self.wake is None or watermark < self.wake):
            return
        outcome = self.operator.process(self.store, [changes_from(rows, self.operator.inputs[0])], watermark)
        self.replayed.apply(outcome.changes)
        rows = [row for table in outcome.changes for row in table.to_pylist()]
        assert all(row["millrace_to"] > watermark for row in rows if row["millrace_weight"] < 0)
        self.late += outcome.late
        self.wake = outcome.wake
        assert self.wake is None or self.wake > watermark

    def check_state(self):
        """Windows that closed left nothing; of a slot, at most half are versions that nothing needs any more."""
        windowed, final = self.operator.window_end is not None, self.operator.final
        for rows in self.store.all_rows("slot").values():
            assert not windowed or all(row["end"] > self.watermark for row in rows)
            groups = [(row["key"], row.get("end")) for row in rows]
            if not self.operator.versions:
                assert len(groups) == len(set(groups))
            elif not (final and windowed):
                early = [
                    group
                    for group, row in zip(groups, rows, strict=True)
                    if row["millrace_from"] <= self.watermark - final
                ]
                assert len(early) - len(set(early)) <= (0 if final else len(rows) / 2)


def sum_of(values):
    values = [each for each in values if each is not None]
    return sum(values) if values else None


def summed(members):
    """Return the sums of records with values ``(integer, float, ...)``."""
    members = list(members)
    return (len(members), sum_of(each[0] for each in members), sum_of(each[1] for each in members))


def extremes(members):
    """Return the least text and the largest float, of which NaN is the largest."""
    texts = [each[2] for each in members if each[2] is not None]
    floats = [each[3] for each in members if each[3] is not None]
    highest = max(floats, key=lambda each: (each != each, each)) if floats else None
    return (min(texts, default=None), highest)


def counted(members):
    """Return the extremes of records, the number of different texts, and the text above 40 % of them."""
    members = list(members)
    texts = sorted(each[2] for each in members if each[2] is not None)
    return (*extremes(members), len(set(texts)), texts[max(math.ceil(0.4 * len(texts)), 1) - 1] if texts else None)


def aggregated(members):
    """Return the sums of records, and what is computed from their values."""
    members = list(members)
    return (*summed(members), *counted(members))


def of_records(records, groups, members_of):
    """Return the reference table of records ``(time, key, values)``; None of the keys is a group's key as others."""
    stream = facts((time, (key, *values)) for time, key, values in records)
    return aggregation.aggregate(stream, groups, lambda group: members_of([each.v[1:] for each in group]))


def by_key(record):
    return {(record.v[0],)}


def by_window(record):
    return {(record.v[0], record.t // SIZE * SIZE + SIZE)}


def versions_by_key(table):
    found = {}
    for key, values, start, end in sorted(rows_of(table), key=lambda row: row[2]):
        found.setdefault(key, []).append((start, end, *comparable(values)))
    return found


def latest_by_key(table):
    return {key: [(BEGINNING, FOREVER, *comparable(record.v))] for key, record in table.latest.items()}


def until(table, watermark):
    """Return the periods of the versions before the watermark: of each key's last one, the end is not known."""
    return versions_by_key(EvolvingTable(each for each in table.changelog if each.t < watermark))


def closed(expected, watermark):
    return {key: rows for key, rows in expected.items() if key[1] <= watermark}


def since(time, rows):
    """Return a group's rows that have not ended by a time, as if none had begun before it."""
    return [(max(start, time), end, *values) for start, end, *values in rows if end > time]


def rows_of_records(batch, windowed, parts):
    columns = {
        SUMS: lambda v: (1, v[0], v[1]),
        ALL: lambda v: (1, *v, v[2], v[2]),
        COUNTED: lambda v: (*v[2:], v[2], v[2]),
    }.get(parts, lambda v: v[2:])
    return [
        (key, *([time // SIZE * SIZE + SIZE] if windowed else []), *columns(values), time, time + 1, 1)
        for time, key, values in batch
    ]


@pytest.mark.in_turn
@pytest.mark.parametrize(("windowed", "final"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("parts", [SUMS, EXTREMES, COUNTED, SETTLING], ids=["sums", "extremes", "counted", "settling"])
@given(data=st.data(), records=RECORDS, delay=DELAYS, slots=SLOTS)
def test_aggregation_of_records_is_definition_64(windowed, final, versions, parts, data, records, delay, slots):
    if final and not windowed and not versions:
        return
    keys, end = (WINDOWED, "end") if windowed else (KEY, None)
    run = Run(GroupedAggregate(keys, parts, end, of_table=False, versions=versions, final=final, slots=slots))
    members_of = {SUMS: summed, COUNTED: counted}.get(parts, extremes)
    on_time, late = [], 0
    for batch, watermark in with_watermarks(cut(records, data), delay):
        for each in batch:
            too_late = each[0] // SIZE * SIZE + SIZE <= watermark if windowed else versions and each[0] < watermark
            late += too_late
            on_time += [] if too_late else [each]
        run.step(rows_of_records(batch, windowed, parts), watermark)
        reference = of_records(on_time, by_window if windowed else by_key, members_of)
        expected = versions_by_key(reference) if versions else latest_by_key(reference)
        if final:
            expected = closed(expected, watermark) if windowed else until(reference, watermark)
        found = run.replayed.by_key(len(keys))
        if versions and windowed and not final:  # of an open window, records before the watermark count from it on
            found, expected = ({key: since(watermark, each[key]) for key in each} for each in (found, expected))
        assert found == expected
        assert run.late == late
        run.check_state()


@given(data=st.data(), records=RECORDS, delay=DELAYS)
def test_rows_end_with_their_window_where_they_are_to(data, records, delay):
    stays, ends = (
        Run(GroupedAggregate(WINDOWED, SUMS, "end", of_table=False, versions=True, final=False, ends=each))
        for each in (False, True)
    )
    for batch, watermark in with_watermarks(cut(records, data), delay):
        for run in (stays, ends):
            run.step(rows_of_records(batch, True, SUMS), watermark)
        found, left = ends.replayed.by_key(2), stays.replayed.by_key(2)
        assert found == {
            key: [
                (start, key[1] if end == FOREVER and key[1] <= watermark else end, *values)
                for start, end, *values in rows
            ]
            for key, rows in left.items()
        }


@given(data=st.data(), records=RECORDS)
def test_algorithm_5_and_the_operator_correct_the_same_versions(data, records):
    run = Run(GroupedAggregate(KEY, (COUNT,), None, of_table=False, versions=True, final=False))
    arrived = []
    for batch in cut(records, data):
        arrived += batch
        run.step([(key, 1, time, time, 1) for time, key, _ in batch], BEGINNING)
        stream = facts((time, (key,)) for time, key, _ in arrived)
        reference = aggregation.incrementally(stream, lambda record: {record.v}, aggregation.count)
        for time in range(32):
            assert run.replayed.at(time, 1) == {key: (count,) for key, count in reference.values(time).items()}


@pytest.mark.parametrize(("versions", "final"), [(False, False), (True, False), (True, True)])
@given(data=st.data(), updates=UPDATES, delay=DELAYS, slots=SLOTS)
def test_aggregation_of_a_table_is_definition_73(versions, final, data, updates, delay, slots):
    run = Run(GroupedAggregate(KEY, ALL, None, of_table=True, versions=versions, final=final, slots=slots))
    table = EvolvingTable()
    for batch, watermark in with_watermarks(cut(updates, data), delay):
        after = table_of(table.changelog)
        for time, key, value in batch:
            if time >= watermark:
                after.update(Record(time, key, value))
        rows = [
            (v[0], 1, *v[1:], v[3], v[3], start, end, weight)
            for _, v, start, end, weight in update_changes(table, after)
        ]
        run.step(rows, watermark)
        table = after
        reference = table_operators.aggregate(
            table, lambda record: (record.v[0],), lambda members: aggregated(each.v[1:] for each in members)
        )
        if not versions:
            assert run.replayed.by_key(1) == latest_by_key(reference)
        for time in range(32) if versions else ():
            seen = min(time, watermark - 1) if final else time
            values = {key: comparable(value) for key, value in reference.values(seen).items()}
            assert run.replayed.at(time, 1) == values
        assert run.late == 0
        run.check_state()


@pytest.mark.parametrize("versions", [False, True])
@given(data=st.data(), updates=UPDATES)
def test_final_windows_of_a_table_are_those_of_all_changes(versions, data, updates):
    runs = [
        Run(GroupedAggregate(WINDOWED, ALL, "end", of_table=True, versions=versions, final=each)) for each in (0, 1)
    ]
    table = EvolvingTable()
    for batch in cut(updates, data):
        after = table_of(table.changelog)
        for update in batch:
            after.update(Record(*update))
        changes = update_changes(table, after)
        for run in runs:
            run.step(
                [(v[0], 100, 1, *v[1:], v[3], v[3], start, end, weight) for _, v, start, end, weight in changes], -1
            )
        table = after
    eager, final = runs
    assert final.replayed.rows == {}
    before = set(eager.replayed.rows)
    for run in runs:
        run.step([], 100)
        assert set(run.replayed.rows) == before
        assert (run.store.tables, run.wake) == ({}, None)


@given(data=st.data(), records=RECORDS, delay=DELAYS, of_table=st.booleans())
def test_rows_that_are_removed_leave_no_trace(data, records, delay, of_table):
    """Removals, and rows of tables, are never late: whatever their time, all versions from the watermark on are right."""
    run = Run(GroupedAggregate(KEY, ALL, None, of_table=of_table, versions=True, final=False, slots=1))
    added = []
    for batch, watermark in with_watermarks(cut(records, data), delay):
        batch = [each for each in batch if of_table or each[0] >= watermark]
        removed = [each for each in added if data.draw(st.integers(0, 3)) == 0]
        changes = [(each, 1) for each in batch] + [(each, -1) for each in removed]
        rows = [(row, weight) for each, weight in changes for row in rows_of_records([each], False, ALL)]
        run.step([(*row[:-2], FOREVER, weight) for row, weight in rows], watermark)
        added = [*without(added, removed), *batch]
        reference = of_records(added, by_key, aggregated)
        for time in range(max(watermark, 0), 32):
            expected = {key: comparable(value) for key, value in reference.values(time).items()}
            assert run.replayed.at(time, 1) == expected
        run.check_state()
    run.step([(*row[:-2], FOREVER, -1) for row in rows_of_records(added, False, ALL)], 1000)
    run.step([], 1001)
    assert not run.store.tables
    assert run.wake is None


def without(records, removed):
    records = list(records)
    for each in removed:
        records.remove(each)
    return records
