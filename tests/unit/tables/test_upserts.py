"""Tables from upserts in any order: by position, and with tombstones, which delete what came before them."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from change_tables import Replay, changes_from, rows_of
from dual_streaming.streams import Record
from dual_streaming.tables import EvolvingTable
from millrace_jobs.tables.changes import BEGINNING, changes_of
from millrace_jobs.tables.upserts import TOMBSTONE, UpsertedTable

VALUES = pa.schema([("k", pa.string()), ("v", pa.int64())])
WEIGHTS = {"delete": -1, "tombstone": TOMBSTONE}
EVENTS = st.tuples(st.integers(0, 9), st.sampled_from("AB"), st.sampled_from([1, 2, *WEIGHTS]))


def upserts(events):
    """Upserts from ``(position, (time, key, value or kind of delete))``."""
    rows = [(k, None if v in WEIGHTS else v, t, position, WEIGHTS.get(v, 1)) for position, (t, k, v) in events]
    return changes_from(rows, changes_of(VALUES))


def table_of(events):
    """The table of upserts in the order of their positions."""
    table, latest = EvolvingTable(), {}
    for t, key, value in events:
        time = max(t, latest.get(key, t)) if value == "tombstone" else t
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


def test_a_tombstone_deletes_rows_that_are_newer_than_its_time_and_came_before_it():
    replay = Replay(UpsertedTable(VALUES, ("k",), versions=True))
    replay.batch([upserts([(0, (1, "A", 1)), (1, (6, "A", 2)), (2, (4, "A", "tombstone"))])], BEGINNING)
    assert set(replay.rows) == {("A", 1, 1, 6)}
    replay.batch([upserts([(3, (7, "A", 2))])], BEGINNING)
    assert {row[:3] for row in replay.rows} == {("A", 1, 1), ("A", 2, 7)}
