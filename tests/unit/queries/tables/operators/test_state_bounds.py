"""Streams at a steady rate: the state of every operator stops growing, and nothing outlasts what needs it."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from change_tables import MemoryStore, changes_from
from millrace_jobs.changes import FOREVER, changes_of
from millrace_jobs.queries.tables.operators import state
from millrace_jobs.queries.tables.operators.aggregate import CountedPart, GroupedAggregate, MergedPart
from millrace_jobs.queries.tables.operators.join import TemporalJoin
from millrace_jobs.queries.tables.operators.join_side import MATCH_FROM, MATCH_TO, Contents, JoinInput
from millrace_jobs.queries.tables.operators.state import SLOTS
from millrace_jobs.queries.tables.operators.upserts import UpsertedTable

STEP, DELAY, BAND = 10, 20, 30
"""Event time from batch to batch, by which the watermark is behind, and in which records of two streams match."""

BATCHES = 90
KEYS = 5
PASSING = 3
"""Keys of a table in each batch that are deleted three batches later."""

Batch = Callable[[int], pa.Table]
"""Function that returns the rows of an input in a batch, by the batch's number."""


def values(prefix, *, banded=False):
    match = [pa.field(MATCH_FROM, pa.int64()), pa.field(MATCH_TO, pa.int64())] if banded else []
    return pa.schema([pa.field(f"{prefix}k", pa.string()), pa.field(f"{prefix}v", pa.int64()), *match])


def records(prefix, *, banded=False) -> Batch:
    """Two records of each key in every batch, the second one out of order."""

    def batch(number):
        times = [(key, STEP * number + key - late) for key in range(KEYS) for late in (0, DELAY)]
        match = (lambda t: (t, t + BAND + 1)) if banded else lambda t: ()
        return changes_from(
            [(f"key {key}", number, *match(t), t, t + 1, 1) for key, t in times],
            changes_of(values(prefix, banded=banded)),
        )

    return batch


def upserts(prefix, *, passing=0) -> Batch:
    """An upsert of each key in every batch, and of so many new ones, each deleted three batches later."""

    def batch(number):
        rows = [(f"key {key}", number, STEP * number + key, FOREVER, 1) for key in range(KEYS)]
        rows += [(f"new {number} {key}", number, STEP * number, FOREVER, 1) for key in range(passing)]
        rows += [(f"new {number - 3} {key}", None, STEP * number, FOREVER, -1) for key in range(passing)]
        return changes_from(rows, changes_of(values(prefix)))

    return batch


def kept_by(operator, inputs: Sequence[Batch]) -> list[int]:
    """Return the rows in the state after each batch, as the operator reports them and the state has them."""
    store, kept = MemoryStore(), []
    for number in range(BATCHES):
        outcome = operator.process(store, [batch(number) for batch in inputs], STEP * (number - 1) - DELAY)
        pieces = [
            rows for name, rows in store.all_rows("").items() if not name.endswith(("index", "settled", "passed"))
        ]
        assert outcome.kept == sum(map(len, pieces))
        assert outcome.late == 0
        kept.append(outcome.kept)
    return kept


def assert_bounded(kept: list[int], needed: int, spare: int = 0) -> None:
    """Check that the state does not grow once it is full, and is at most twice what is needed, and ``spare`` rows more."""
    third = len(kept) // 3
    full, last = max(kept[third : 2 * third]), max(kept[-third:])
    assert last <= 1.1 * full, kept
    assert needed <= last <= 2 * needed + spare, (last, needed)


def side(prefix, contents, *, banded=False, **options):
    return JoinInput(values(prefix, banded=banded), (f"{prefix}k",), contents, **options)


def in_state(span: int) -> int:
    """Return the number of records of one stream within a span of event time, a batch included."""
    return 2 * KEYS * (span + STEP) // STEP


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("preserved", [(False, False), (True, False), (False, True), (True, True)])
def test_a_join_of_two_streams_keeps_the_records_that_can_have_a_partner(monkeypatch, preserved, final):
    monkeypatch.setattr(state, "SEGMENT_ROWS", 3 * KEYS)
    left = side("l", Contents.RECORDS, banded=True, preserved=preserved[0])
    right = side("r", Contents.RECORDS, preserved=preserved[1])
    operator = TemporalJoin(left, right, versions=False, final=final)
    kept = kept_by(operator, [records("l", banded=True), records("r")])
    # whether a record is alone depends on the partners that it has had
    right = BAND + DELAY if any(preserved) else DELAY
    assert_bounded(kept, in_state(BAND + DELAY) + in_state(right))


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("preserved", [(False, False), (True, False), (False, True), (True, True)])
def test_a_join_with_a_table_keeps_the_versions_since_the_watermark(monkeypatch, preserved, final):
    monkeypatch.setattr(state, "SEGMENT_ROWS", 3 * KEYS)
    left = side("l", Contents.RECORDS, preserved=preserved[0])
    right = side("r", Contents.TABLE, upserted=True, preserved=preserved[1])
    operator = TemporalJoin(left, right, versions=True, final=final)
    last_met = KEYS * preserved[1]
    needed = in_state(DELAY) + KEYS * (2 + DELAY // STEP) + last_met
    assert_bounded(kept_by(operator, [records("l"), upserts("r")]), needed)


def test_a_join_of_tables_keeps_their_rows():
    left, right = side("l", Contents.TABLE, upserted=True, preserved=True), side("r", Contents.TABLE, upserted=True)
    operator = TemporalJoin(left, right, versions=False)
    kept = kept_by(operator, [upserts("l", passing=PASSING), upserts("r", passing=PASSING)])
    assert_bounded(kept, 2 * (KEYS + 3 * PASSING), spare=2 * SLOTS)


@pytest.mark.parametrize("versions", [False, True])
def test_a_table_keeps_its_rows(versions):
    operator = UpsertedTable(values("l"), ("lk",), versions=versions)
    kept = kept_by(operator, [upserts("l", passing=PASSING)])
    # an end of a row, and the row if it is a version, stay in their slot until that is written again
    assert_bounded(kept, KEYS + 3 * PASSING, spare=2 * SLOTS if versions else SLOTS)


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("versions", [False, True])
def test_windows_are_kept_until_the_watermark_passes_them(versions, final):
    keys = pa.schema([("lk", pa.string()), ("end", pa.int64())])
    parts = (MergedPart("lv", "sum", pa.int64()),)
    operator = GroupedAggregate(keys, parts, "end", of_table=False, versions=versions, final=final)
    made = records("l")

    def windowed(number):
        rows = made(number)
        ends = [(time // STEP + 1) * STEP for time in rows.column("millrace_from").to_pylist()]
        return rows.append_column("end", pa.array(ends))

    assert_bounded(kept_by(operator, [windowed]), KEYS * (1 + DELAY // STEP))


@pytest.mark.parametrize("versions", [False, True])
def test_groups_of_a_table_end_with_their_rows(versions):
    table = UpsertedTable(values("l"), ("lk",), versions=versions)
    operator = GroupedAggregate(pa.schema([("lv", pa.int64())]), (MergedPart("n", "sum", pa.int64()),), None,
                                of_table=True, versions=versions, final=False)  # fmt: skip
    store, made = MemoryStore(), upserts("l", passing=PASSING)

    def changes(number):
        found = table.process(store, [made(number)], STEP * (number - 1) - DELAY).changes
        rows = pa.concat_tables([table.output.empty_table(), *found])
        return rows.append_column("n", pa.array([1] * rows.num_rows, pa.int64()))

    kept = kept_by(operator, [changes])
    assert_bounded(kept, KEYS + 3 * PASSING if versions else 3, spare=SLOTS if versions else 0)


@pytest.mark.parametrize("versions", [False, True])
def test_an_extreme_of_a_table_keeps_the_values_of_its_rows(versions):
    table = UpsertedTable(values("l"), ("lk",), versions=versions)
    operator = GroupedAggregate(pa.schema([]), (CountedPart("lv", "max", pa.int64()),), None,
                                of_table=True, versions=versions, final=False)  # fmt: skip
    store, made = MemoryStore(), upserts("l", passing=PASSING)

    def changes(number):
        found = table.process(store, [made(number)], STEP * (number - 1) - DELAY).changes
        return pa.concat_tables([table.output.empty_table(), *found])

    # rows have the values of the last three batches; without versions, those of each batch take the place of others
    assert_bounded(kept_by(operator, [changes]), 20 if versions else 4, spare=SLOTS if versions else 0)


@pytest.mark.parametrize("versions", [False, True])
def test_an_extreme_of_records_keeps_those_that_can_be_taken_back(versions):
    keys, parts = pa.schema([("lk", pa.string())]), (CountedPart("lv", "min", pa.int64(), settles_after=0),)
    operator = GroupedAggregate(keys, parts, None, of_table=False, versions=versions, final=False, checked=True)
    kept = kept_by(operator, [records("l")])
    assert_bounded(kept, in_state(DELAY + STEP))
