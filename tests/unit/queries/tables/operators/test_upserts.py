"""Tables from upserts in any order: by position, and with deletes, whose times are exact or only estimates."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import Replay, changes_from, disordered, rows_of
from dual_streaming.streams import Record
from dual_streaming.tables import EvolvingTable
from millrace_jobs.changes import BEGINNING, FOREVER, changes_of
from millrace_jobs.queries.tables.operators.upserts import DELETE, ESTIMATED_DELETE, UpsertedTable

GRACE = 4
VALUES = pa.schema([("k", pa.string()), ("v", pa.int64())])
WEIGHTS = {"delete": DELETE, "estimated delete": ESTIMATED_DELETE}
EVENTS = st.tuples(st.integers(0, 9), st.sampled_from("AB"), st.sampled_from([1, 2, *WEIGHTS]))


def upserts(events):
    """Upserts from ``(position, (time, key, value or kind of delete))``."""
    rows = [(k, None if v in WEIGHTS else v, t, position, WEIGHTS.get(v, 1)) for position, (t, k, v) in events]
    return changes_from(rows, changes_of(VALUES))


def table_of(events):
    """The table of upserts in the order of their positions."""
    table, latest = EvolvingTable(), {}
    for t, key, value in events:
        time = max(t, latest.get(key, t)) if value == "estimated delete" else t
        latest[key] = max(time, latest.get(key, time))
        table.update(Record(time, key, None if value in WEIGHTS else value))
    return table


@pytest.mark.parametrize("versions", [True, False])
@given(events=st.lists(EVENTS, max_size=12), data=st.data())
def test_a_table_is_that_of_its_upserts_by_position(versions, events, data):
    replay, left = Replay(UpsertedTable(VALUES, ("k",), versions=versions)), list(enumerate(events))
    while left:
        cut = data.draw(st.integers(1, len(left)))
        batch, left = left[:cut], left[cut:]
        replay.batch([upserts(data.draw(st.permutations(batch)))], BEGINNING)
    table = table_of(events)
    if versions:
        assert replay.rows == Counter(rows_of(table))
    else:
        assert Counter(row[:2] for row in replay.rows) == Counter((k, record.v) for k, record in table.latest.items())


def test_a_delete_ends_only_the_version_that_is_valid_at_its_time():
    replay = Replay(UpsertedTable(VALUES, ("k",), versions=True))
    replay.batch([upserts([(0, (10, "A", 1)), (1, (50, "A", 2))])], BEGINNING)
    replay.batch([upserts([(2, (20, "A", "delete")), (3, (5, "B", "delete")), (4, (5, "A", "delete"))])], BEGINNING)
    assert set(replay.rows) == {("A", 1, 10, 20), ("A", 2, 50, FOREVER)}
    replay.batch([upserts([(5, (15, "A", 3)), (6, (30, "A", 4)), (7, (1, "B", 5)), (8, (20, "A", 6))])], BEGINNING)
    assert set(replay.rows) == {
        ("A", 1, 10, 15),
        ("A", 3, 15, 20),
        ("A", 6, 20, 30),
        ("A", 4, 30, 50),
        ("A", 2, 50, FOREVER),
        ("B", 5, 1, 5),
    }


def test_a_delete_at_an_estimated_time_deletes_newer_rows_that_came_before_it():
    replay = Replay(UpsertedTable(VALUES, ("k",), versions=True))
    replay.batch([upserts([(0, (1, "A", 1)), (1, (6, "A", 2)), (2, (4, "A", "estimated delete"))])], BEGINNING)
    assert set(replay.rows) == {("A", 1, 1, 6)}
    replay.batch([upserts([(3, (7, "A", 2))])], BEGINNING)
    assert {row[:3] for row in replay.rows} == {("A", 1, 1), ("A", 2, 7)}


@given(batches=disordered(st.tuples(st.integers(0, 12), st.sampled_from("AB"), st.none() | st.integers(0, 3)), GRACE))
def test_upserts_within_the_grace_make_all_versions_whatever_the_watermark_has_removed(batches):
    replay, arrived = Replay(UpsertedTable(VALUES, ("k",), versions=True)), []
    for events, watermark in batches:
        numbered = enumerate(((t, k, "delete" if v is None else v) for t, k, v in events), start=len(arrived))
        replay.batch([upserts(numbered)], watermark)
        arrived += events
    assert replay.rows == Counter(rows_of(EvolvingTable(Record(*event) for event in arrived)))
